"""Settings of a pipeline, from the command line, a TOML file, or both.

A key of the file is a flag of `aeron-async pipeline run` without its dashes, in snake case. Flags
override the file. An unknown name is refused with a suggestion.
"""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, final

import attrs

from aeron_async.errors import ConfigurationError
from aeron_async.settings import Kind, OptionSettings, choice, declare, flag, text
from aeron_async.spark.option_values import (
    NS_PER_MS,
    UNITS_NS,
    SparkDuration,
    TimestampSource,
    byte_size,
    refuse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

__all__ = ["Decoding", "EventTime", "Latency", "PipelineSettings", "Sequence"]

NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
DECODE: Final = re.compile(r"(-?\d{1,10})(?::([A-Za-z_][A-Za-z0-9_]{0,63}))?=(.+)", re.DOTALL)
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


def decoding(text: str) -> Decoding:
    """Parse `STREAM[:KIND]=SPEC`."""
    match = DECODE.fullmatch(text.strip())
    if match is None:
        refuse(text, "STREAM[:KIND]=SPEC, such as 1001:quotes=struct:<price:q")
    stream_id, spec = int(match[1]), match[3]
    return Decoding(stream_id, match[2] or kind_of(stream_id, spec), spec)


def kind_of(stream_id: int, spec: str) -> str:
    """Return the default kind: the SBE message name, or the stream id."""
    _, has_name, name = spec.partition("#")
    if spec.startswith("sbe:") and has_name and NAME.fullmatch(name):
        return name.lower()
    return f"stream_{stream_id}".replace("-", "minus_")


def latency(text: str) -> Latency:
    """Parse `KIND=START..END[:unit]`."""
    kind, rest, unit_ns = kind_and_unit(text, "KIND=START..END[:unit]")
    start, dots, end = rest.partition("..")
    if not dots or not NAME.fullmatch(start) or not NAME.fullmatch(end) or start == end:
        refuse(text, "KIND=START..END[:unit], such as quotes=sent..timestamp_ns")
    return Latency(kind, start, end, unit_ns)


def sequence(text: str) -> Sequence:
    """Parse `KIND=FIELD`."""
    kind, equals, field = text.strip().partition("=")
    if not equals or not NAME.fullmatch(kind) or not NAME.fullmatch(field):
        refuse(text, "KIND=FIELD, such as quotes=sequence")
    return Sequence(kind, field)


def event_time(text: str) -> EventTime:
    """Parse `KIND=FIELD[:unit]`."""
    kind, field, unit_ns = kind_and_unit(text, "KIND=FIELD[:unit]")
    if not NAME.fullmatch(field):
        refuse(text, "KIND=FIELD[:unit], such as quotes=event_us:us")
    return EventTime(kind, field, unit_ns)


def kind_and_unit(text: str, wanted: str) -> tuple[str, str, int]:
    """Return the kind, the text up to the unit, and the unit in nanoseconds."""
    kind, equals, rest = text.strip().partition("=")
    rest, _, unit = rest.partition(":")
    unit_ns = UNITS_NS.get(unit or "ns")
    if not equals or not NAME.fullmatch(kind) or unit_ns is None:
        refuse(text, f"{wanted}, unit one of {', '.join(UNITS_NS)}")
    return kind, rest, unit_ns


def pair(text: str) -> tuple[str, str]:
    """Parse `NAME=VALUE`."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        refuse(text, "NAME=VALUE")
    return name.strip(), value.strip()


def texts(given: object) -> tuple[str, ...]:
    """Return a text, or a list of texts, as a tuple.

    Raises:
        ConfigurationError: It is something else.
    """
    found = [given] if isinstance(given, str) else given
    if not isinstance(found, list | tuple) or not all(isinstance(each, str) for each in found):
        message = f"{given!r} is not a text, or a list of texts"
        raise ConfigurationError(message)
    return tuple(found)


@final
@attrs.frozen(kw_only=True)
class Several(Kind):
    """A text or a list of texts, each of which makes one value."""

    expected: str
    make: Callable[[str], object]

    def parse(self, text: str) -> object:
        """Return one value, in a tuple."""
        return self.read(text)

    def read(self, given: object) -> object:
        """Return a value for each text."""
        return tuple(map(self.make, texts(given)))

    def refusal(self, value: object) -> str:
        """Refuse another type."""
        return "" if isinstance(value, tuple) else f"must be a tuple, got {value!r}"

    def limits(self) -> str:
        """Return how each text is written."""
        return f"{self.expected}; several"


@final
class Pairs(Kind):
    """`NAME=VALUE`, one or a list of them, or a table."""

    LIMITS: ClassVar[str] = "NAME=VALUE; several"

    def parse(self, text: str) -> object:
        """Return one pair, in a dict."""
        return self.read(text)

    def read(self, given: object) -> object:
        """Return all pairs."""
        if isinstance(given, dict):
            return {name: shown(value) for name, value in given.items()}
        return dict(map(pair, texts(given)))

    def refusal(self, value: object) -> str:
        """Refuse another type."""
        return "" if isinstance(value, dict) else f"must be a dict, got {value!r}"


def shown(value: object) -> str:
    """Return a TOML value as Spark spells it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


@final
class Trigger(SparkDuration):
    """The interval between two batches; `available-now` is None."""

    def parse(self, text: str) -> object:
        """Return the interval, or None."""
        return None if text == AVAILABLE_NOW else SparkDuration.parse(self, text)


@final
class TimestampText(TimestampSource):
    """The option `timestampFrom` of the source, as text."""

    def parse(self, text: str) -> object:
        """Return the text if the source would accept it."""
        TimestampSource.parse(self, text)
        return text

    def refusal(self, value: object) -> str:
        """Refuse what the source would refuse."""
        try:
            TimestampSource.parse(self, str(value))
        except ConfigurationError as error:
            return f"must be a source of times: {error}"
        return ""

    def format(self, value: Any) -> str:
        """Return the text."""
        return str(value)


AVAILABLE_NOW: Final = "available-now"
TEXTS: Final = Several(expected="a path", make=str)
NO_PAIRS: Final[Mapping[str, str]] = {}


@final
@attrs.frozen(kw_only=True)
class PipelineSettings(OptionSettings):
    """Settings of a pipeline; `settings` describes every field."""

    decode: tuple[Decoding, ...] = declare(
        "decode",
        (),
        "How the messages of a stream are decoded, and the name of their table.",
        kind=Several(
            expected="STREAM[:KIND]=SPEC, such as `1001:quotes=struct:<price:q`",
            make=decoding,
        ),
    )
    timestamp_from: str | None = declare(
        "timestamp_from",
        None,
        "Where each message holds the time when it was sent or recorded; rates over time need it.",
        kind=TimestampText(),
    )
    event_time: tuple[EventTime, ...] = declare(
        "event_time",
        (),
        "Decoded field that replaces that time for messages of a kind.",
        kind=Several(expected="KIND=FIELD[:unit]", make=event_time),
    )
    sequence: tuple[Sequence, ...] = declare(
        "sequence",
        (),
        "Decoded field that counts the messages of a kind, to find those that are missing.",
        kind=Several(expected="KIND=FIELD", make=sequence),
    )
    latency: tuple[Latency, ...] = declare(
        "latency",
        (),
        "Two times of a message, between which the pipeline measures the latency.",
        kind=Several(expected="KIND=START..END[:unit]", make=latency),
    )
    format: str = choice(
        "format",
        "delta",
        "Format of the tables.",
        choices=("delta", "parquet"),
    )
    bronze: bool = flag(
        "bronze",
        True,
        "Whether the lake has every message as it was recorded, beside what was decoded.",
    )
    maintain: bool = flag(
        "maintain",
        True,
        "Whether the job joins small files and removes old ones between batches, as "
        "`pipeline maintain` does.",
    )
    trigger: int | None = declare(
        "trigger",
        None,
        "Interval between batches, until Ctrl-C; without it the pipeline reads what there is.",
        kind=Trigger(minimum=1, unit_ns=NS_PER_MS),
        unset=AVAILABLE_NOW,
    )
    source: Mapping[str, str] = declare(
        "source", NO_PAIRS, "More options of the source `aeron_archive`.", kind=Pairs()
    )
    conf: Mapping[str, str] = declare("conf", NO_PAIRS, "More settings of Spark.", kind=Pairs())
    master: str | None = text("master", None, "Spark master.")
    max_file_bytes: int = byte_size(
        "max_file_bytes",
        128 << 20,
        "Length at which the pipeline closes a file of a table and begins the next.",
    )
    purge_grace: int = byte_size(
        "purge_grace",
        0,
        "Length of a recording that is kept although all consumers have read it.",
        minimum=0,
    )
    consumers: tuple[str, ...] = declare(
        "consumers",
        (),
        "Checkpoints of other queries that read the same archive.",
        kind=TEXTS,
    )

    def _problems(self) -> Iterator[tuple[bool, str]]:
        kinds = self.kinds
        for kind in sorted(set(kinds)):
            problem = f"decode has {kind!r} twice: write STREAM:KIND=SPEC with different kinds"
            yield kinds.count(kind) > 1, problem
        known = ", ".join(sorted(kinds)) or "none: give decode"
        for name in ("event_time", "sequence", "latency"):
            for each in getattr(self, name):
                problem = f"{name} must name a kind that decode names ({known}), got {each.kind!r}"
                yield each.kind not in kinds, problem
        for key in sorted(self.source):
            remedy = UNFIT.get(key.lower(), "")
            yield bool(remedy), f"source has {key!r}, which must be {remedy}"
        for each in self.latency:
            has_time = self.timestamp_from is not None or RECORDED_NS not in {each.start, each.end}
            problem = f"latency {each.name!r} needs {RECORDED_NS}: set timestamp_from"
            yield not has_time, problem

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
