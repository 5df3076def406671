"""Kinds of option values of Spark: sizes and times as Spark spells them, ids, positions, times.

Sizes and times differ from those of drivers, which Aeron spells: Spark's users write `1 MiB` and
`15m`, and a number without a unit is in milliseconds.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn, TypeVar, Unpack, final

import attrs

from aeron_async.clock import NS_PER_MS
from aeron_async.errors import ConfigurationError
from aeron_async.protocol.units import INT64_MAX
from aeron_async.settings import Duration, Kind, More, Size, Text, declare

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "EARLIEST",
    "LATEST",
    "NAMES",
    "NS_PER_MS",
    "NUMBERS",
    "UNITS_NS",
    "Pattern",
    "Positions",
    "PositionsByRecording",
    "SparkDuration",
    "TimesByRecording",
    "TimestampFrom",
    "TimestampSource",
    "byte_size",
    "duration_ms",
    "refuse",
]

EARLIEST: Final = -2
LATEST: Final = -1
"""Numbers of the two words in Kafka's connector."""
WORDS: Final = {"earliest": EARLIEST, "latest": LATEST}
SIZE: Final = re.compile(r"(\d{1,19})\s*([kmgt]?)i?b?", re.IGNORECASE)
SIZES: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
DURATION: Final = re.compile(r"(\d{1,19})\s*(ms|s|m|h|d|)")
DURATIONS_MS: Final = {"ms": 1, "": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
UNITS_NS: Final = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
NUMBER_TYPES: Final = {
    f"{sign}int{bits}{suffix}": f"{order}{code}{bits // 8}"
    for sign, code in (("", "i"), ("u", "u"))
    for bits in (32, 64)
    for suffix, order in (("", "<"), ("le", "<"), ("be", ">"))
}
TIMESTAMP: Final = re.compile(
    r"(?:(?P<reserved>reserved(?:_value)?)|payload:(?P<offset>\d{1,8}):(?P<type>\w+))"
    r"(?::(?P<unit>\w+))?"
)


Number = TypeVar("Number", bound=int | None)


@final
@attrs.frozen
class Positions:
    """Where reading begins or ends in each recording.

    Attributes:
        others: For recordings that are not named; -2 for the earliest, -1 for the latest.
        named: Position in bytes, -2 or -1, by recording id.
    """

    others: int
    named: Mapping[int, int] = attrs.field(factory=dict)

    def of(self, recording_id: int) -> int:
        """Return the position given for a recording, or -2 or -1."""
        return self.named.get(recording_id, self.others)


@final
@attrs.frozen
class TimestampFrom:
    """Where a message holds its timestamp.

    Attributes:
        payload_offset: Offset in the payload, in bytes; None for the reserved value.
        dtype: Type of the number, as numpy spells it.
        unit_ns: Unit of the number, in nanoseconds.
    """

    payload_offset: int | None
    dtype: str
    unit_ns: int


def refuse(text: str, wanted: str) -> NoReturn:
    """Raise an error about a text that is not written as wanted."""
    message = f"{text!r} is not {wanted}"
    raise ConfigurationError(message)


@final
class ByteSize(Size):
    """A number of bytes: `65536`, `64k`, `16 MiB`, `1g`."""

    def parse(self, text: str) -> object:
        """Return the number of bytes."""
        match = SIZE.fullmatch(text)
        if match is None:
            refuse(text, "a size in bytes, such as 65536, 64k, 16m or 1g")
        return int(match[1]) * SIZES[match[2].lower()]


class SparkDuration(Duration):
    """A time in milliseconds: `500`, `500ms`, `10s`, `15m`, `1h`."""

    def parse(self, text: str) -> object:
        """Return the number of milliseconds."""
        match = DURATION.fullmatch(text)
        if match is None:
            refuse(text, "a time, such as 500ms, 10s, 15m or 1h")
        return int(match[1]) * DURATIONS_MS[match[2]]

    def format(self, value: Any) -> str:
        """Return the time in the largest unit that is exact."""
        units = sorted(DURATIONS_MS.items(), key=lambda each: each[1], reverse=True)
        unit, length = next(each for each in units if each[0] and value % each[1] == 0)
        return f"{value // length}{unit}" if value else "0ms"


@final
class Listed(Kind):
    """Values with commas between them: `position,payload`, or `3,4`, or as JSON `[3, 4]`.

    Args:
        make: Type of each value, `int` or `str`.
        wanted: How they are written.
    """

    def __init__(self, make: type[int | str], wanted: str) -> None:
        self._make = make
        self._wanted = wanted

    def parse(self, text: str) -> object:
        """Return the values."""
        parts = text.removeprefix("[").removesuffix("]").split(",")
        try:
            found = tuple(self._make(each.strip()) for each in parts)
        except ValueError:
            found = ("",)
        return refuse(text, self._wanted.replace("`", "")) if "" in found else found

    def refusal(self, value: object) -> str:
        """Refuse another type, and an empty name."""
        given = value if isinstance(value, tuple) else ("",)
        is_valid = all(isinstance(each, self._make) and each != "" for each in given)
        return "" if is_valid else f"must be a tuple of {self._wanted}, got {value!r}"

    def format(self, value: Any) -> str:
        """Return the values with commas between."""
        return ",".join(map(str, value))

    def limits(self) -> str:
        """Return how they are written."""
        return self._wanted


NUMBERS: Final = Listed(int, "numbers, such as `3,4`")
NAMES: Final = Listed(str, "names, such as `position,payload`")


@final
class Pattern(Text):
    """A regular expression."""

    LIMITS: ClassVar[str] = "a regular expression"

    def refusal(self, value: object) -> str:
        """Refuse what is no regular expression."""
        try:
            re.compile(str(value))
        except re.error as error:
            return f"must be a regular expression, got {value!r}: {error}"
        return Text.refusal(self, value)


@final
class PositionsByRecording(Kind):
    """`earliest`, `latest`, or by recording: `{"3": 1024, "4": "latest"}`.

    Args:
        others: Position of the recordings that are not named.
    """

    LIMITS: ClassVar[str] = "`earliest`, `latest`, or positions by recording"

    def __init__(self, *, others: int) -> None:
        self.others = others

    def parse(self, text: str) -> object:
        """Return the positions."""
        word = WORDS.get(text.lower())
        if word is not None:
            return Positions(word)
        wanted = 'earliest, latest, or positions such as {"3": 1024, "4": -1}'
        return Positions(self.others, numbers_by_id(text, wanted, smallest=EARLIEST, words=WORDS))

    def refusal(self, value: object) -> str:
        """Refuse another type."""
        return "" if isinstance(value, Positions) else f"must be Positions, got {value!r}"

    def format(self, value: Any) -> str:
        """Return the word, or JSON."""
        words = {number: word for word, number in WORDS.items()}
        return json.dumps(value.named) if value.named else words[value.others]


@final
class TimesByRecording(Kind):
    """Times by recording: `{"3": 1700000000000}`, in milliseconds since 1970."""

    LIMITS: ClassVar[str] = "times by recording, in ms since 1970"

    def parse(self, text: str) -> object:
        """Return the times."""
        wanted = 'milliseconds since 1970 by recording, such as {"3": 1700000000000}'
        return numbers_by_id(text, wanted, smallest=0, words={})

    def refusal(self, value: object) -> str:
        """Refuse another type."""
        return "" if isinstance(value, dict) else f"must be a dict, got {value!r}"

    def format(self, value: Any) -> str:
        """Return JSON."""
        return json.dumps(value)


class TimestampSource(Kind):
    """`reserved[:unit]` or `payload:<offset>:<type>[:unit]`; nanoseconds by default."""

    LIMITS: ClassVar[str] = "`reserved[:unit]` or `payload:<offset>:<type>[:unit]`"

    def parse(self, text: str) -> object:
        """Return the source."""
        wanted = (
            "reserved[:unit] or payload:<offset>:<type>[:unit], type one of "
            f"{', '.join(NUMBER_TYPES)}, unit one of {', '.join(UNITS_NS)}"
        )
        match = TIMESTAMP.fullmatch(text)
        if match is None:
            refuse(text, wanted)
        unit_ns = UNITS_NS.get(match["unit"] or "ns")
        dtype = "<i8" if match["reserved"] else NUMBER_TYPES.get(match["type"])
        if unit_ns is None or dtype is None:
            refuse(text, wanted)
        offset = None if match["reserved"] else int(match["offset"])
        return TimestampFrom(offset, dtype, unit_ns)

    def refusal(self, value: object) -> str:
        """Refuse another type."""
        return "" if isinstance(value, TimestampFrom) else f"must be a source, got {value!r}"

    def format(self, value: Any) -> str:
        """Return the text of a source."""
        unit = {length: name for name, length in UNITS_NS.items()}[value.unit_ns]
        if value.payload_offset is None:
            return f"reserved:{unit}"
        types = {dtype: name for name, dtype in NUMBER_TYPES.items()}
        return f"payload:{value.payload_offset}:{types[value.dtype]}:{unit}"


def numbers_by_id(
    text: str, wanted: str, *, smallest: int, words: Mapping[str, int]
) -> dict[int, int]:
    """Return a JSON object of numbers by recording id."""
    try:
        given: Any = json.loads(text)
    except ValueError:
        refuse(text, wanted)
    if not isinstance(given, dict) or not given:
        refuse(text, wanted)
    found = {}
    for key, each in given.items():
        number = words.get(each) if isinstance(each, str) else each
        if not isinstance(number, int) or isinstance(number, bool) or not key.isdecimal():
            refuse(text, wanted)
        if not smallest <= number <= INT64_MAX:
            refuse(text, wanted)
        found[int(key)] = number
    return found


def byte_size(
    name: str,
    default: Number,
    doc: str,
    *,
    minimum: int = 1,
    maximum: int = INT64_MAX,
    power_of_two: bool = False,
    **more: Unpack[More],
) -> Number:
    """Declare a number of bytes."""
    kind = ByteSize(minimum=minimum, maximum=maximum, power_of_two=power_of_two)
    return declare(name, default, doc, kind=kind, **more)


def duration_ms(
    name: str, default: Number, doc: str, *, minimum: int = 0, **more: Unpack[More]
) -> Number:
    """Declare a time in milliseconds."""
    return declare(
        name, default, doc, kind=SparkDuration(minimum=minimum, unit_ns=NS_PER_MS), **more
    )
