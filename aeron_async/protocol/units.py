"""Sizes such as `64k` and durations such as `5s`, as in channel URIs and Aeron's settings.

Both are whole numbers with an optional unit: bytes in powers of 1024, time in nanoseconds. Nothing
may stand before or after, and the value must fit a signed 64-bit number.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from aeron_async.errors import ConfigurationError
from aeron_async.text import SHORT, printable

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "INT32_MAX",
    "INT32_MIN",
    "INT64_MAX",
    "INT64_MIN",
    "IN_BYTES",
    "IN_NANOSECONDS",
    "align",
    "format_duration",
    "format_size",
    "parse_duration_ns",
    "parse_size",
]

INT32_MIN: Final = -(2**31)
INT32_MAX: Final = 2**31 - 1
INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1


def align(length: int, alignment: int) -> int:
    """Return a length or an offset, rounded up to a multiple of a power of two."""
    return (length + alignment - 1) & -alignment


# End of the error about a setting: the unit of a number, and that text is accepted too.
IN_BYTES: Final = "; in bytes, or as text such as '64k'"
IN_NANOSECONDS: Final = "; in nanoseconds, or as text such as '5s'"
# Largest first: printing takes the first unit that divides the value without remainder.
SIZE_UNITS: Final[Mapping[str, int]] = MappingProxyType({"g": 1 << 30, "m": 1 << 20, "k": 1 << 10})
DURATION_UNITS_NS: Final[Mapping[str, int]] = MappingProxyType(
    {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
)

_NUMBER_AND_UNIT: Final = re.compile(r"([0-9]+)([A-Za-z]*)")
_INT64_DIGIT_COUNT: Final = 19


def parse_size(text: str) -> int:
    """Parse a number of bytes such as `1408`, `64k`, `16M` or `1g`.

    Differs: the C driver ignores whatever follows the unit letter, so it takes `64kb` for 64k.

    Raises:
        ConfigurationError: not a whole number with an optional k, m or g, or beyond 64 bits.

    Source: Aeron `aeron_parse_size64`.
    """
    return _parse(
        text, SIZE_UNITS, what="a size: a whole number of bytes, with k, m or g if wanted"
    )


def format_size(length: int) -> str:
    """Print a number of bytes in the largest unit that is exact: 65536 is `64k`, 1408 is `1408`.

    Source: Aeron `aeron_format_size64`.
    """
    return _format(length, SIZE_UNITS)


def parse_duration_ns(text: str) -> int:
    """Parse a duration such as `100`, `100ns`, `5us`, `7ms` or `2s`; no unit means nanoseconds.

    Differs: the C driver takes `1m` for a millisecond and turns what is too long into the longest
    duration it can hold; both are refused here, the first because it looks like a minute.

    Raises:
        ConfigurationError: not a whole number with an optional ns, us, ms or s, or beyond 64 bits.

    Source: Aeron `aeron_parse_duration_ns`.
    """
    return _parse(
        text, DURATION_UNITS_NS, what="a duration: a whole number, with ns, us, ms or s if wanted"
    )


def format_duration(duration_ns: int) -> str:
    """Print a duration in the largest unit that is exact: 5_000_000_000 is `5s`, 0 is `0ns`.

    Source: Aeron `aeron_format_duration_ns`.
    """
    return _format(duration_ns, DURATION_UNITS_NS)


def _parse(text: str, units: Mapping[str, int], *, what: str) -> int:
    match = _NUMBER_AND_UNIT.fullmatch(text)
    if match is None:
        message = f"{text!r} is not {what}"
        raise ConfigurationError(message)
    digits, unit = match.groups()
    scale = units.get(unit.lower()) if unit else 1
    if scale is None:
        message = f"{text!r} has the unknown unit {unit!r}; it must be {what}"
        raise ConfigurationError(message)
    digits = digits.lstrip("0") or "0"
    # Checked before converting, because Python refuses to convert thousands of digits with another
    # error.
    if len(digits) > _INT64_DIGIT_COUNT or (value := int(digits) * scale) > INT64_MAX:
        message = f"{printable(text, SHORT)!r} is more than the largest 64-bit number, {INT64_MAX}"
        raise ConfigurationError(message)
    return value


def _format(value: int, units: Mapping[str, int]) -> str:
    if not 0 <= value <= INT64_MAX:
        message = f"{value} is not between 0 and {INT64_MAX}"
        raise ConfigurationError(message)
    for unit, scale in units.items():
        if value >= scale and value % scale == 0:
            return f"{value // scale}{unit}"
    return f"{value}ns" if "ns" in units else str(value)
