"""Kinds of messages, and the columns of the tables that hold them.

The time of a message in silver is a decoded field if the settings name one; else the recorded
timestamp if its frames hold one; else the time when its recording began. `event_ns` has it in
nanoseconds, `event_time` to the microsecond, and `date` to the day. In bronze and quarantine `date`
is that of the recorded timestamp, or of the recording.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final

import attrs
import pyarrow as pa

from aeron_async.errors import ConfigurationError
from aeron_async.spark.decoding import ERROR_COLUMN, decoder_of
from aeron_async.spark.lake.files import BATCH_COLUMN, PARTITION_COLUMNS
from aeron_async.spark.pipeline.settings import RECORDED_NS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aeron_async.spark.decoding import Decoder
    from aeron_async.spark.pipeline.settings import Decoding, EventTime, PipelineSettings

__all__ = ["BRONZE_SCHEMA", "QUARANTINE_SCHEMA", "MessageKind", "kinds_of"]

STAMP: Final = pa.timestamp("us", tz="UTC")
PARTITIONS: Final = pa.schema(zip(PARTITION_COLUMNS, (pa.date32(), pa.int32()), strict=True))
BRONZE_SCHEMA: Final = pa.schema(
    [
        ("recording_id", pa.int64()),
        ("position", pa.int64()),
        ("end_position", pa.int64()),
        ("session_id", pa.int32()),
        # All messages of a recording have one value, which is hashed once.
        ("channel", pa.dictionary(pa.int32(), pa.string())),
        ("reserved_value", pa.int64()),
        ("timestamp", STAMP),
        (RECORDED_NS, pa.int64()),
        ("length", pa.int32()),
        ("payload", pa.binary()),
        (BATCH_COLUMN, pa.int64()),
        *PARTITIONS,
    ]
)
QUARANTINE_SCHEMA: Final = BRONZE_SCHEMA.append(pa.field(ERROR_COLUMN, pa.string()))
KEPT: Final = pa.schema(
    [
        ("recording_id", pa.int64()),
        ("session_id", pa.int32()),
        ("position", pa.int64()),
        ("end_position", pa.int64()),
        (RECORDED_NS, pa.int64()),
        (BATCH_COLUMN, pa.int64()),
    ]
)
ADDED: Final = pa.schema([("event_ns", pa.int64()), ("event_time", STAMP)])


@attrs.frozen
class MessageKind:
    """A kind of messages, with its decoder.

    Attributes:
        decoding: Setting that describes it.
        decoder: Decoder that the setting names.
        event_time: Field with the time of a message; None for none.
    """

    decoding: Decoding
    decoder: Decoder
    event_time: EventTime | None

    @property
    def schema(self) -> pa.Schema:
        """Return the columns of its table."""
        return pa.schema([*KEPT, *self.decoder.fields, *ADDED, *PARTITIONS])


def kinds_of(settings: PipelineSettings) -> list[MessageKind]:
    """Return all kinds, after checking every field that the settings name.

    Raises:
        ConfigurationError: A decoder is invalid, or a field is unknown or no integer.
    """
    found = []
    names = {*KEPT.names, *ADDED.names, *PARTITIONS.names, ERROR_COLUMN}
    for decoding in settings.decode:
        decoder = decoder_of(decoding.spec)
        taken = {field.name.lower() for field in decoder.fields} & names
        if taken:
            message = (
                f"decode {decoding.kind!r} has a field {min(taken)!r}, and so has silver: rename it"
            )
            raise ConfigurationError(message)
        for name, fields in fields_named(settings, decoding.kind):
            for field in fields:
                check_number(name, decoding.kind, decoder, field)
        times = [each for each in settings.event_time if each.kind == decoding.kind]
        found.append(MessageKind(decoding, decoder, times[0] if times else None))
    return found


def fields_named(settings: PipelineSettings, kind: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield every setting that names fields of a kind, with these fields."""
    yield "event_time", tuple(each.field for each in settings.event_time if each.kind == kind)
    yield "sequence", tuple(each.field for each in settings.sequence if each.kind == kind)
    for each in settings.latency:
        if each.kind == kind:
            yield "latency", tuple({each.start, each.end} - {RECORDED_NS})


def check_number(setting: str, kind: str, decoder: Decoder, name: str) -> None:
    """Refuse a field that does not exist or is no integer."""
    types = {field.name: field.type for field in decoder.fields}
    if name not in types:
        near = difflib.get_close_matches(name, types, n=1)
        hint = f"did you mean {near[0]}? It" if near else "it"
        message = f"{setting}: {kind} has no field {name!r}: {hint} has {', '.join(types)}"
        raise ConfigurationError(message)
    if not pa.types.is_integer(types[name]):
        message = f"{setting}: field {name!r} of {kind} is {types[name]}, and must be an integer"
        raise ConfigurationError(message)
