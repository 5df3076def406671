"""Kinds of parameter values: how each is read from a channel URI, checked, and printed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs

from aeron_async.errors import ConfigurationError
from aeron_async.protocol.address import Address, InterfaceSpec
from aeron_async.protocol.channel_uri_values import (
    CongestionControlStrategy,
    FlowControlOptions,
    TagReference,
    Tags,
    parse_integer,
    parse_name,
)
from aeron_async.protocol.units import (
    INT64_MAX,
    format_duration,
    format_size,
    parse_duration_ns,
    parse_size,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from enum import StrEnum

__all__ = [
    "ADDRESS",
    "BOOLEAN",
    "CONGESTION_CONTROL",
    "DURATION",
    "FLOW_CONTROL",
    "INT32",
    "INT64",
    "INTERFACE",
    "SESSION",
    "TAGS",
    "TEXT",
    "Kind",
    "choice",
    "integer",
    "size",
]

INT32_MIN: Final = -(2**31)
INT32_MAX: Final = 2**31 - 1


@attrs.frozen
class Kind:
    """One kind of value, in its text form and its typed form.

    Attributes:
        expects: What the text looks like, in words that complete "must be".
        types: The exact types a value may have; a bool is no number here.
        read: From text to value; raises ConfigurationError.
        write: From value to text.
    """

    expects: str
    types: tuple[type, ...]
    read: Callable[[str], Any]
    write: Callable[[Any], str] = str


def integer(low: int, high: int, words: Mapping[str, int] | None = None) -> Kind:
    """Return the kind of a decimal number from low to high, or a word that stands for one."""
    named = dict(words or {})
    names = {value: word for word, value in named.items()}
    alternatives = "".join(f" or {word!r}" for word in named)

    def read(text: str) -> int:
        return named[text] if text in named else parse_integer(text, low, high)

    def write(value: int) -> str:
        return names.get(value, str(value))

    return Kind(f"a whole number from {low} to {high}{alternatives}", (int,), read, write)


def size(low: int, high: int, *, multiple: int = 1, is_power_of_two: bool = False) -> Kind:
    """Return the kind of a length in bytes from low to high, of the shape asked for."""
    shape = "a power of two" if is_power_of_two else f"a multiple of {multiple}"
    if not is_power_of_two and multiple == 1:
        shape = "a size"
    expects = f"{shape} from {format_size(low)} to {format_size(high)}"

    def read(text: str) -> int:
        length = parse_size(text)
        if (
            not low <= length <= high
            or length % multiple
            or (is_power_of_two and length & (length - 1))
        ):
            message = f"it is {length} bytes"
            raise ConfigurationError(message)
        return length

    return Kind(expects, (int,), read, format_size)


def choice(values: type[StrEnum]) -> Kind:
    """Return the kind of one word out of a few."""
    words = [str(value) for value in values]

    def read(text: str) -> StrEnum:
        # Differs: the official drivers take an unknown control-mode or group for none at all.
        if text not in words:
            message = f"{text!r} is none of them"
            raise ConfigurationError(message)
        return values(text)

    return Kind(f"one of {', '.join(words)}", (values,), read)


def _read_boolean(text: str) -> bool:
    # Differs: the C driver takes whatever begins with true or false, and the Java driver takes
    # anything but true for false.
    if text not in {"true", "false"}:
        message = f"{text!r} is neither"
        raise ConfigurationError(message)
    return text == "true"


def _write_boolean(value: bool) -> str:  # noqa: FBT001 - it is the value to print, not a switch
    return "true" if value else "false"


def _read_session(text: str) -> int | TagReference:
    if text.startswith("tag:"):
        return TagReference.parse(text)
    return parse_integer(text, INT32_MIN, INT32_MAX)


def _read_congestion_control(text: str) -> CongestionControlStrategy | str:
    if text in list(CongestionControlStrategy):
        return CongestionControlStrategy(text)
    return parse_name(text)


ADDRESS: Final = Kind("host:port or [ipv6]:port", (Address,), Address.parse)
INTERFACE: Final = Kind(
    "host[:port][/prefix] or {name}[:port]", (InterfaceSpec,), InterfaceSpec.parse
)
BOOLEAN: Final = Kind("true or false", (bool,), _read_boolean, _write_boolean)
DURATION: Final = Kind("a duration such as 500ms or 5s", (int,), parse_duration_ns, format_duration)
INT32: Final = integer(INT32_MIN, INT32_MAX)
INT64: Final = integer(-INT64_MAX - 1, INT64_MAX)
SESSION: Final = Kind("a 32-bit number or tag:N", (int, TagReference), _read_session)
TAGS: Final = Kind("C, C,E or ,E", (Tags,), Tags.parse)
FLOW_CONTROL: Final = Kind(
    "max, min, tagged or a registered name, with options such as t:5s,g:101/2,rrwm:4",
    (FlowControlOptions,),
    FlowControlOptions.parse,
)
CONGESTION_CONTROL: Final = Kind(
    "static, cubic or a registered name",
    (CongestionControlStrategy, str),
    _read_congestion_control,
)
TEXT: Final = Kind("any text without '|'", (str,), str)
