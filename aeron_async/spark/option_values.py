"""Parsers of option values: sizes, durations, ids, positions, and the source of timestamps.

Every parser takes the name and the value of an option. It raises `ConfigurationError` that shows
both and says which values are valid.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, NoReturn, final

import attrs

from aeron_async.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = [
    "EARLIEST",
    "LATEST",
    "Positions",
    "TimestampFrom",
    "boolean",
    "count",
    "duration_ms",
    "ids",
    "integer",
    "names",
    "one_of",
    "pattern",
    "positions",
    "size",
    "text",
    "timestamp_from",
    "timestamps_ms",
]

EARLIEST: Final = -2
LATEST: Final = -1
"""Numbers of the two words in Kafka's connector."""
WORDS: Final = {"earliest": EARLIEST, "latest": LATEST}
SIZE: Final = re.compile(r"(\d{1,19})\s*([kmgt]?)i?b?", re.IGNORECASE)
SIZES: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
DURATION: Final = re.compile(r"(\d{1,15})\s*(ms|s|m|h|d|)")
DURATIONS_MS: Final = {"ms": 1, "": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
LARGEST: Final = (1 << 63) - 1
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


def refuse(name: str, value: object, wanted: str) -> NoReturn:
    """Raise an error for an invalid value."""
    message = f"{name}={value!r} must be {wanted}: change {name}"
    raise ConfigurationError(message)


def text(name: str, value: str) -> str:
    """Return text that is not empty."""
    return value if value.strip() else refuse(name, value, "not empty")


def boolean(name: str, value: str) -> bool:
    """Return true or false."""
    found = {"true": True, "false": False}.get(value.strip().lower())
    return refuse(name, value, "true or false") if found is None else found


def integer(name: str, value: str) -> int:
    """Return a signed 64-bit integer."""
    try:
        found = int(value)
    except ValueError:
        refuse(name, value, "a whole number")
    return found if -LARGEST - 1 <= found <= LARGEST else refuse(name, value, "of 64 bits")


def count(name: str, value: str) -> int:
    """Return a number of things, at least one."""
    found = integer(name, value)
    return found if found > 0 else refuse(name, value, "at least 1")


def size(name: str, value: str) -> int:
    """Return bytes: `65536`, `64k`, `16m`, `1g`."""
    match = SIZE.fullmatch(value.strip())
    if match is None:
        refuse(name, value, "bytes, such as 65536, 64k, 16m or 1g")
    found = int(match[1]) * SIZES[match[2].lower()]
    return found if found <= LARGEST else refuse(name, value, "below 2^63 bytes")


def positive_size(name: str, value: str) -> int:
    """Return bytes, at least one."""
    return size(name, value) or refuse(name, value, "at least 1 byte")


def duration_ms(name: str, value: str) -> int:
    """Return milliseconds: `500ms`, `10s`, `15m`, `1h`; a bare number is milliseconds."""
    match = DURATION.fullmatch(value.strip())
    if match is None:
        refuse(name, value, "a time, such as 500ms, 10s, 15m or 1h")
    return int(match[1]) * DURATIONS_MS[match[2]]


def one_of(*allowed: str) -> Callable[[str, str], str]:
    """Return a parser that accepts only these words."""

    def read(name: str, value: str) -> str:
        found = value.strip().lower()
        return found if found in allowed else refuse(name, value, f"one of {', '.join(allowed)}")

    return read


def names(name: str, value: str) -> tuple[str, ...]:
    """Return names: `position,payload`."""
    found = tuple(each.strip() for each in value.split(","))
    return found if all(found) else refuse(name, value, "names with commas between them")


def ids(name: str, value: str) -> tuple[int, ...]:
    """Return numbers: `3,4`, or as JSON `[3, 4]`."""
    inner = value.strip().removeprefix("[").removesuffix("]")
    try:
        return tuple(int(each) for each in inner.split(","))
    except ValueError:
        refuse(name, value, "numbers, such as 3,4 or [3, 4]")


def pattern(name: str, value: str) -> str:
    """Return a regular expression that is matched against whole channels."""
    try:
        re.compile(value)
    except re.error as error:
        refuse(name, value, f"a regular expression ({error})")
    return text(name, value)


def positions(name: str, value: str) -> Positions:
    """Return `earliest`, `latest`, or by recording: `{"3": 1024, "4": "latest"}`."""
    word = WORDS.get(value.strip().lower())
    if word is not None:
        return Positions(word)
    wanted = 'earliest, latest, or positions such as {"3": 1024, "4": -1}'
    default = EARLIEST if name.startswith("starting") else LATEST
    return Positions(default, numbers_by_id(name, value, wanted, smallest=EARLIEST, words=WORDS))


def timestamps_ms(name: str, value: str) -> dict[int, int]:
    """Return times by recording: `{"3": 1700000000000}`, in milliseconds since 1970."""
    wanted = 'milliseconds since 1970 by recording, such as {"3": 1700000000000}'
    return numbers_by_id(name, value, wanted, smallest=0, words={})


def numbers_by_id(
    name: str, value: str, wanted: str, *, smallest: int, words: Mapping[str, int]
) -> dict[int, int]:
    """Return a JSON object of numbers by recording id."""
    try:
        given: Any = json.loads(value)
    except ValueError:
        refuse(name, value, wanted)
    if not isinstance(given, dict) or not given:
        refuse(name, value, wanted)
    found = {}
    for key, each in given.items():
        number = words.get(each) if isinstance(each, str) else each
        if not isinstance(number, int) or isinstance(number, bool) or not key.isdigit():
            refuse(name, value, wanted)
        if not smallest <= number <= LARGEST:
            refuse(name, value, wanted)
        found[int(key)] = number
    return found


def timestamp_from(name: str, value: str) -> TimestampFrom:
    """Return `reserved[:unit]` or `payload:<offset>:<type>[:unit]`; nanoseconds by default."""
    wanted = (
        "reserved[:unit] or payload:<offset>:<type>[:unit], type one of "
        f"{', '.join(NUMBER_TYPES)}, unit one of {', '.join(UNITS_NS)}"
    )
    match = TIMESTAMP.fullmatch(value.strip())
    if match is None:
        refuse(name, value, wanted)
    unit_ns = UNITS_NS.get(match["unit"] or "ns")
    dtype = "<i8" if match["reserved"] else NUMBER_TYPES.get(match["type"])
    if unit_ns is None or dtype is None:
        refuse(name, value, wanted)
    offset = None if match["reserved"] else int(match["offset"])
    return TimestampFrom(offset, dtype, unit_ns)
