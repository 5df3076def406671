"""Silver tables: decoded messages without duplicates, and a quarantine for the others.

The time of a message is a decoded field if the settings name one; else the recorded timestamp if
its frames hold one; else the time when its recording began. `event_ns` has it in nanoseconds,
`event_time` to the microsecond, and `date` to the day.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, Final

import attrs
import numpy as np
import pyarrow as pa

from aeron_async.errors import ConfigurationError
from aeron_async.spark.decoding import ERROR_COLUMN, decode_batch, decoded_schema, decoder_of
from aeron_async.spark.pipeline.settings import RECORDED_NS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from pyspark.sql import DataFrame

    from aeron_async.spark.decoding import Decoder
    from aeron_async.spark.pipeline.settings import Decoding, PipelineSettings

__all__ = ["BLOCK_BITS", "MessageKind", "decoded", "kinds_of", "silver", "undecodable"]

KEPT: Final = (
    "recording_id",
    "session_id",
    "stream_id",
    "position",
    "end_position",
    RECORDED_NS,
    "ingest_batch",
)
ADDED: Final = ("event_ns", "event_time", "date", "block")
BLOCK_BITS: Final = 26
"""Block size as a power of two: messages in the same 64 MiB of a recording stay together."""
NS_PER_MS: Final = 1_000_000


@attrs.frozen
class MessageKind:
    """A kind of messages, with its decoder.

    Attributes:
        decoding: Setting that describes it.
        decoder: Decoder that the setting names.
        event_time: SQL expression for the time of a message.
    """

    decoding: Decoding
    decoder: Decoder
    event_time: str

    @property
    def columns(self) -> str:
        """Return names and types of the decoded columns."""
        return ", ".join(sorted(f"{field.name} {field.type}" for field in self.decoder.fields))


def kinds_of(settings: PipelineSettings) -> list[MessageKind]:
    """Return all kinds, after checking every field that the settings name.

    Raises:
        ConfigurationError: A decoder is invalid, or a field is unknown or no integer.
    """
    found = []
    for decoding in settings.decode:
        decoder = decoder_of(decoding.spec)
        taken = {field.name for field in decoder.fields} & set(ADDED)
        if taken:
            message = (
                f"decode {decoding.kind!r} has a field {min(taken)!r}, and so has silver: rename it"
            )
            raise ConfigurationError(message)
        for name, fields in fields_named(settings, decoding.kind):
            for field in fields:
                check_number(name, decoding.kind, decoder, field)
        times = [each for each in settings.event_time if each.kind == decoding.kind]
        event = "event_ns"
        if times:
            # A message with an absurd field must not end the job, as an overflow error would.
            named = f"try_multiply(cast(`{times[0].field}` as bigint), {times[0].unit_ns})"
            event = f"coalesce({named}, event_ns)"
        found.append(MessageKind(decoding, decoder, event))
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


def decoded(
    frame: DataFrame,
    kind: MessageKind,
    *,
    ends: Mapping[tuple[int, int], int],
    started_ms: Mapping[int, int],
    failed: Callable[[int], None],
) -> DataFrame:
    """Return the messages of a kind with decoded columns; those that failed have the reason.

    Args:
        frame: Rows of bronze.
        kind: Kind to decode.
        ends: End of what was decoded before, by recording and session; earlier rows are skipped. If
            a recording was cut, another session has recorded other messages at the same positions.
        started_ms: When each recording began.
        failed: Called in the workers with the number of messages that could not be decoded.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 - workers do without it

    decoder = kind.decoder
    before = pa.schema([(name, ARROW_TYPES[name]) for name in KEPT] + [("payload", pa.binary())])
    schema = decoded_schema(before, decoder).append(pa.field("event_ns", pa.int64()))

    def decode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            fresh = batch.filter(is_fresh(batch, ends))
            done = decode_batch(fresh.select([*KEPT, "payload"]), decoder)
            failed(done.num_rows - done.column(ERROR_COLUMN).null_count)
            event = recorded_ns(done, started_ms)
            yield pa.RecordBatch.from_arrays([*done.columns, event], names=schema.names)

    rows = frame.where(F.col("stream_id") == kind.decoding.stream_id).select(*KEPT, "payload")
    return rows.mapInArrow(decode, from_arrow_schema(schema))


ARROW_TYPES: Final[dict[str, Any]] = {
    "recording_id": pa.int64(),
    "session_id": pa.int32(),
    "stream_id": pa.int32(),
    "position": pa.int64(),
    "end_position": pa.int64(),
    RECORDED_NS: pa.int64(),
    "ingest_batch": pa.int64(),
}


def is_fresh(batch: pa.RecordBatch, ends: Mapping[tuple[int, int], int]) -> pa.Array:
    """Return which rows lie behind what was decoded before of the same recording and session."""
    ids, sessions, positions = (
        batch.column(name).to_numpy(zero_copy_only=False)
        for name in ("recording_id", "session_id", "position")
    )
    fresh = np.ones(len(ids), np.bool_)
    for (recording_id, session_id), end in ends.items():
        fresh &= (ids != recording_id) | (sessions != session_id) | (positions >= end)
    return pa.array(fresh)


def recorded_ns(batch: pa.RecordBatch, started_ms: Mapping[int, int]) -> pa.Array:
    """Return when each row was recorded; when its recording began if it has no timestamp."""
    ids = batch.column("recording_id").to_numpy(zero_copy_only=False)
    began = pa.array(by_recording(ids, started_ms) * NS_PER_MS)
    return (
        batch.column(RECORDED_NS).fill_null(0)
        if not len(ids)
        else pa.compute.coalesce(batch.column(RECORDED_NS), began)
    )


def by_recording(ids: Any, values: Mapping[int, int]) -> Any:
    """Return a value for each recording id; 0 if there is none."""
    unique, places = np.unique(ids, return_inverse=True)
    return np.array([values.get(each, 0) for each in unique.tolist()], np.int64)[places]


def silver(rows: DataFrame, kind: MessageKind, file_count: int) -> DataFrame:
    """Return decoded rows as silver stores them: dated, without duplicates, and ordered."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name

    key = ["recording_id", "block"]
    good = rows.where(F.col(ERROR_COLUMN).isNull()).drop(ERROR_COLUMN)
    dated = (
        good.withColumn("event_ns", F.expr(kind.event_time))
        .withColumn("event_time", F.expr("timestamp_micros(event_ns div 1000)"))
        .withColumn("date", F.expr("to_date(event_time)"))
        .withColumn("block", F.expr(f"shiftright(position, {BLOCK_BITS})"))
    )
    # One exchange serves three purposes: the number of files, duplicates, and blocks that stay
    # together.
    spread = dated.repartition(file_count, *key).dropDuplicates([*key, "position"])
    ordered = spread.sortWithinPartitions("date", "stream_id", "recording_id", "position")
    return ordered.drop("block")


def undecodable(frame: DataFrame, kinds: list[MessageKind]) -> DataFrame:
    """Return the messages of a stream that no decoder can read, with the first error.

    A message that a decoder identifies as another kind is no error of that decoder.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name
    from pyspark.sql.types import StringType, StructField, StructType  # noqa: PLC0415 - as above

    decoders = [kind.decoder for kind in kinds]

    def fail(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            reasons = reasons_of(batch.column("payload"), decoders)
            failed = batch.append_column(ERROR_COLUMN, reasons)
            yield failed.filter(reasons.is_valid())

    rows = frame.where(F.col("stream_id") == kinds[0].decoding.stream_id)
    schema = StructType([*rows.schema.fields, StructField(ERROR_COLUMN, StringType())])
    return rows.mapInArrow(fail, schema)


def reasons_of(payloads: pa.Array, decoders: list[Decoder]) -> pa.Array:
    """Return why no decoder can read each message; null if one can, or if none claims it."""
    count = len(payloads)
    is_good = np.zeros(count, np.bool_)
    reasons = pa.nulls(count, pa.string())
    for decoder in decoders if count else ():
        result = decoder.decode(payloads)
        others = np.zeros(count, np.bool_) if result.others is None else result.others
        errors = result.errors.is_valid().to_numpy(zero_copy_only=False)
        is_good |= ~errors & ~others
        reasons = pa.compute.coalesce(
            reasons, pa.compute.if_else(pa.array(others), None, result.errors)
        )
    return pa.compute.if_else(pa.array(is_good), pa.scalar(None, pa.string()), reasons)
