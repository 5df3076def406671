"""Settings of a pipeline, from the command line, a TOML file, or both.

A key of the file is a flag of `aeron-async pipeline run` without its dashes, in snake case. Flags
override the file. An unknown name is refused with a suggestion.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from typing import TYPE_CHECKING, Any, Final, Self, final

import attrs

from aeron_async.errors import ConfigurationError
from aeron_async.spark import option_values as values

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

__all__ = ["Decoding", "EventTime", "Latency", "PipelineSettings", "Sequence"]

NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
DECODE: Final = re.compile(r"(-?\d{1,10})(?::([A-Za-z_][A-Za-z0-9_]{0,63}))?=(.+)", re.DOTALL)
EVENT_NS: Final = "event_ns"
RECORDED_NS: Final = "timestamp_ns"
BY_ITSELF: Final = "none that the pipeline sets by itself"
WHOLE: Final = "left out, because a row of a lake is a message"
ENDLESS: Final = "left out, because a lake continues from batch to batch"
UNFIT: Final = {
    "path": BY_ITSELF,
    "columns": BY_ITSELF,
    "timestampfrom": BY_ITSELF,
    "decoder": "left out: decode says how messages are read",
    "fragmentmode": WHOLE,
    "includepadding": WHOLE,
    "endingpositions": ENDLESS,
    "endingtimestamp": ENDLESS,
}
"""Options of the source that a pipeline does not allow, and what to do instead."""


@final
@attrs.frozen
class Decoding:
    """How the messages of a stream are decoded.

    Attributes:
        stream_id: The stream.
        kind: Name of their table in silver.
        spec: Decoder; see `aeron_async.spark.decoding`.
    """

    stream_id: int
    kind: str
    spec: str


@final
@attrs.frozen
class Latency:
    """A latency: the time between two timestamps of one message.

    Attributes:
        kind: Kind of the messages.
        start: Earlier timestamp: a decoded field, or `timestamp_ns`, which `timestamp_from` fills.
        end: Later timestamp.
        unit_ns: Unit of decoded timestamps, in nanoseconds.
    """

    kind: str
    start: str
    end: str
    unit_ns: int = 1

    @property
    def name(self) -> str:
        """Return the name in the report."""
        return f"{self.kind}: {self.start} to {self.end}"


@final
@attrs.frozen
class Sequence:
    """A number that counts the messages of a recording.

    Attributes:
        kind: Kind of the messages.
        field: Decoded field.
    """

    kind: str
    field: str


@final
@attrs.frozen
class EventTime:
    """A decoded field with the time of an event.

    Attributes:
        kind: Kind of the messages.
        field: Decoded field.
        unit_ns: Unit of the field, in nanoseconds; it counts from 1970.
    """

    kind: str
    field: str
    unit_ns: int


def decodings(name: str, given: Any) -> tuple[Decoding, ...]:
    """Parse `STREAM[:KIND]=SPEC`, any number of them."""
    found = []
    for text in texts(name, given):
        match = DECODE.fullmatch(text.strip())
        if match is None:
            values.refuse(name, text, "STREAM[:KIND]=SPEC, such as 1001:quotes=struct:<price:q")
        stream_id, spec = int(match[1]), match[3]
        found.append(Decoding(stream_id, match[2] or kind_of(stream_id, spec), spec))
    kinds = [each.kind for each in found]
    twice = sorted({kind for kind in kinds if kinds.count(kind) > 1})
    if twice:
        values.refuse(name, ", ".join(twice), "kinds of different names: write STREAM:KIND=SPEC")
    return tuple(found)


def kind_of(stream_id: int, spec: str) -> str:
    """Return the default kind: the SBE message name, or the stream id."""
    _, has_name, name = spec.partition("#")
    if spec.startswith("sbe:") and has_name and NAME.fullmatch(name):
        return name.lower()
    return f"stream_{stream_id}".replace("-", "minus_")


def latencies(name: str, given: Any) -> tuple[Latency, ...]:
    """Parse `KIND=START..END[:unit]`, any number of them."""
    found = []
    for text in texts(name, given):
        kind, rest, unit_ns = kind_and_unit(name, text, "KIND=START..END[:unit]")
        start, dots, end = rest.partition("..")
        if not dots or not NAME.fullmatch(start) or not NAME.fullmatch(end) or start == end:
            values.refuse(name, text, "KIND=START..END[:unit], such as quotes=sent..timestamp_ns")
        found.append(Latency(kind, start, end, unit_ns))
    return tuple(found)


def sequences(name: str, given: Any) -> tuple[Sequence, ...]:
    """Parse `KIND=FIELD`, any number of them."""
    found = []
    for text in texts(name, given):
        kind, equals, field = text.strip().partition("=")
        if not equals or not NAME.fullmatch(kind) or not NAME.fullmatch(field):
            values.refuse(name, text, "KIND=FIELD, such as quotes=sequence")
        found.append(Sequence(kind, field))
    return tuple(found)


def event_times(name: str, given: Any) -> tuple[EventTime, ...]:
    """Parse `KIND=FIELD[:unit]`, any number of them."""
    found = []
    for text in texts(name, given):
        kind, field, unit_ns = kind_and_unit(name, text, "KIND=FIELD[:unit]")
        if not NAME.fullmatch(field):
            values.refuse(name, text, "KIND=FIELD[:unit], such as quotes=event_us:us")
        found.append(EventTime(kind, field, unit_ns))
    return tuple(found)


def kind_and_unit(name: str, text: str, wanted: str) -> tuple[str, str, int]:
    """Return the kind, the text up to the unit, and the unit in nanoseconds."""
    kind, equals, rest = text.strip().partition("=")
    rest, _, unit = rest.partition(":")
    unit_ns = values.UNITS_NS.get(unit or "ns")
    if not equals or not NAME.fullmatch(kind) or unit_ns is None:
        values.refuse(name, text, f"{wanted}, unit one of {', '.join(values.UNITS_NS)}")
    return kind, rest, unit_ns


def texts(name: str, given: Any) -> tuple[str, ...]:
    """Return a text, or a list of texts, as a tuple."""
    found = [given] if isinstance(given, str) else given
    if not isinstance(found, list | tuple) or not all(isinstance(each, str) for each in found):
        values.refuse(name, given, "a text, or a list of texts")
    return tuple(found)


def pairs(name: str, given: Any) -> dict[str, str]:
    """Parse `NAME=VALUE`, any number of them, or a table."""
    if isinstance(given, dict):
        return {key: shown(value) for key, value in given.items()}
    found = {}
    for text in texts(name, given):
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            values.refuse(name, text, "NAME=VALUE")
        found[key.strip()] = value.strip()
    return found


def shown(value: object) -> str:
    """Return a TOML value as Spark spells it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def reading(read: Callable[[str, str], Any]) -> Callable[[str, Any], Any]:
    """Return a parser for a value that is text on the command line and maybe a number in TOML."""
    return lambda name, given: read(name, shown(given))


def setting(read: Callable[[str, Any], Any], default: Any) -> Any:
    """Declare a field."""
    return attrs.field(default=default, metadata={"read": read})


def trigger(name: str, given: Any) -> int | None:
    """Parse the interval between two batches; `available-now` is None."""
    text = shown(given)
    if text == "available-now":
        return None
    return values.duration_ms(name, text) or values.refuse(name, text, "more than 0")


@final
@attrs.frozen(kw_only=True)
class PipelineSettings:
    """Settings of a pipeline.

    Attributes:
        decode: How messages are decoded.
        timestamp_from: Where each message holds the time when it was recorded or sent, as in the
            option `timestampFrom` of the source. Rates over time need it.
        event_time: Field that replaces that time for decoded messages.
        sequence: Fields that count messages.
        latency: Latencies to measure.
        format: Format of bronze and silver; gold is always Parquet.
        trigger: Milliseconds between two batches; None to ingest what is there, and end.
        source: More options of `aeron_archive`.
        conf: More settings of Spark.
        master: Spark master.
        max_file_bytes: Size of a file; larger batches are divided, and small files are joined.
        compact_batches: Number of small folders of a table that are joined.
        purge_grace: Bytes of a recording to keep before the position that all consumers have read.
        consumers: Checkpoints of other queries that read the same archive.
    """

    decode: tuple[Decoding, ...] = setting(decodings, ())
    timestamp_from: str | None = setting(reading(values.text), None)
    event_time: tuple[EventTime, ...] = setting(event_times, ())
    sequence: tuple[Sequence, ...] = setting(sequences, ())
    latency: tuple[Latency, ...] = setting(latencies, ())
    format: str = setting(reading(values.one_of("parquet", "delta", "iceberg")), "parquet")
    trigger: int | None = setting(trigger, None)
    source: Mapping[str, str] = setting(pairs, attrs.Factory(dict))
    conf: Mapping[str, str] = setting(pairs, attrs.Factory(dict))
    master: str | None = setting(reading(values.text), None)
    max_file_bytes: int = setting(reading(values.positive_size), 128 << 20)
    compact_batches: int = setting(reading(values.count), 32)
    purge_grace: int = setting(reading(values.size), 0)
    consumers: tuple[str, ...] = setting(texts, ())

    def __attrs_post_init__(self) -> None:
        if self.timestamp_from is not None:
            values.timestamp_from("timestamp_from", self.timestamp_from)
        kinds = {each.kind for each in self.decode}
        for name in ("event_time", "sequence", "latency"):
            for each in getattr(self, name):
                if each.kind not in kinds:
                    known = ", ".join(sorted(kinds)) or "none: give decode"
                    values.refuse(name, each.kind, f"a kind that decode names ({known})")
        for key in sorted(self.source):
            if key.lower() in UNFIT:
                values.refuse("source", key, UNFIT[key.lower()])
        for each in self.latency:
            if RECORDED_NS in {each.start, each.end} and self.timestamp_from is None:
                values.refuse("latency", each.name, f"without {RECORDED_NS}, or set timestamp_from")

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Self:
        """Parse settings.

        Raises:
            ConfigurationError: A name is unknown, a value is invalid, or two settings contradict
                each other.
        """
        fields = {field.name: field for field in attrs.fields(cls)}
        found = {}
        for key, value in given.items():
            if key not in fields:
                near = difflib.get_close_matches(key.replace("-", "_"), fields, n=1)
                hint = f"did you mean {near[0]}? " if near else ""
                message = f"no setting is named {key!r}: {hint}There are {', '.join(fields)}"
                raise ConfigurationError(message)
            found[key] = fields[key].metadata["read"](key, value)
        return cls(**found)

    @classmethod
    def load(cls, config: Path | None, flags: Mapping[str, Any]) -> Self:
        """Return the settings of a file and flags; flags override, and a flag of None is unset.

        Raises:
            ConfigurationError: The file cannot be read or is no TOML, or see `parse`.
        """
        given: dict[str, Any] = {}
        if config is not None:
            try:
                given = tomllib.loads(config.read_text())
            except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
                problem = getattr(error, "strerror", None) or str(error)
                message = f"config {str(config)!r} cannot be read: {problem}; change --config"
                raise ConfigurationError(message) from error
        given |= {name: value for name, value in flags.items() if value is not None}
        return cls.parse(given)

    @property
    def kinds(self) -> list[str]:
        """Return the kinds of messages that are decoded."""
        return [each.kind for each in self.decode]
