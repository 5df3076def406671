"""Kinds of parameter values in a channel URI: parsed, checked and printed."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, final

import attrs

from aeron_async.errors import ConfigurationError
from aeron_async.protocol.address import Address, InterfaceSpec
from aeron_async.protocol.units import (
    INT32_MAX,
    INT32_MIN,
    INT64_MAX,
    format_duration,
    format_size,
    parse_duration_ns,
    parse_size,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = [
    "ADDRESS",
    "BOOLEAN",
    "CONGESTION_CONTROL",
    "DURATION",
    "FLOW_CONTROL",
    "INT32",
    "INT64",
    "INTERFACE",
    "PROTOTYPE_CORRELATION_ID",
    "RESERVED_TIMESTAMP_OFFSET",
    "SESSION",
    "TAGS",
    "TEXT",
    "CongestionControlStrategy",
    "ControlMode",
    "FlowControlOptions",
    "FlowControlStrategy",
    "Group",
    "Media",
    "ParameterKind",
    "TagReference",
    "Tags",
    "choice",
    "integer",
    "parse_integer",
    "parse_name",
    "size",
]

RESERVED_TIMESTAMP_OFFSET: Final = -8
"""The timestamp goes into the reserved value of the data header, 8 bytes before the payload."""

PROTOTYPE_CORRELATION_ID: Final = -2
"""Marks a response publication that is added in advance, before an image needs it."""

PREFERRED: Final = "preferred"


_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]{0,18}")


@final
class Media(StrEnum):
    """What carries the stream."""

    UDP = "udp"
    IPC = "ipc"


@final
class ControlMode(StrEnum):
    """How a multi-destination channel gets its destinations, or that it carries responses."""

    MANUAL = "manual"
    DYNAMIC = "dynamic"
    RESPONSE = "response"


@final
class Group(StrEnum):
    """Whether a subscription requests lost data as one of many receivers."""

    TRUE = "true"
    FALSE = "false"
    INFER = "infer"


@final
class CongestionControlStrategy(StrEnum):
    """How a receiver chooses its window; drivers may support further names."""

    STATIC = "static"
    CUBIC = "cubic"


@final
class FlowControlStrategy(StrEnum):
    """Which receivers of a group set the pace of a publication; drivers may know further names."""

    MAX = "max"
    MIN = "min"
    TAGGED = "tagged"


@attrs.frozen
class TagReference:
    """Reference to the session of the publication with this entity tag: `tag:N`."""

    tag: int

    @classmethod
    def parse(cls, text: str) -> TagReference:
        """Parse `tag:N`.

        Raises:
            ConfigurationError: no prefix `tag:`, or no number from 0 to 2^63-1 after it.
        """
        prefix, colon, tag = text.partition(":")
        if prefix != "tag" or not colon:
            message = f"{text!r} is not a reference to an entity tag, such as tag:7"
            raise ConfigurationError(message)
        return cls(parse_integer(tag, 0, INT64_MAX))

    def __str__(self) -> str:
        return f"tag:{self.tag}"


@attrs.frozen
class Tags:
    """Numbers by which other channels refer to this one: `C`, `C,E` or `,E`.

    Attributes:
        channel_tag: Tag of the endpoint, so that several publications or subscriptions share it.
        entity_tag: Tag of this publication or subscription.
    """

    channel_tag: int | None = None
    entity_tag: int | None = None

    @classmethod
    def parse(cls, text: str) -> Tags:
        """Parse `C[,E]`, either part of which may be empty, but not both.

        Raises:
            ConfigurationError: no number at all, more than two, or one outside 0 to 2^63-1.
        """
        channel, _, entity = text.partition(",")
        if not channel and not entity:
            message = "neither a channel tag nor an entity tag; write C, C,E or ,E"
            raise ConfigurationError(message)
        return cls(
            parse_integer(channel, 0, INT64_MAX) if channel else None,
            parse_integer(entity, 0, INT64_MAX) if entity else None,
        )

    def __str__(self) -> str:
        channel = "" if self.channel_tag is None else str(self.channel_tag)
        return channel if self.entity_tag is None else f"{channel},{self.entity_tag}"


@attrs.frozen(kw_only=True)
class FlowControlOptions:
    """Flow control of a publication to a group: `max`, `min,t:5s,g:/2` or `tagged,g:101/1`.

    A strategy that is not Aeron's has a name and options of its own, such as `majority,p:50`; only
    the driver knows whether a strategy with that name exists.

    Attributes:
        strategy: Which receivers count; a plain text is the name of another strategy.
        receiver_timeout_ns: How long a silent receiver still counts; min and tagged only.
        group_tag: Tag that a receiver must have to count; parsed but without effect for min.
        group_min_size: How many receivers a connected publication needs; min and tagged only.
        retransmit_receiver_window_multiple: Most receiver windows that one NAK retransmits.
        raw_options: The options of another strategy, as written.
    """

    strategy: FlowControlStrategy | str
    receiver_timeout_ns: int | None = None
    group_tag: int | None = None
    group_min_size: int | None = None
    retransmit_receiver_window_multiple: int | None = None
    raw_options: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> FlowControlOptions:
        """Parse a strategy's name and its options `t:DURATION`, `g:[TAG][/SIZE]`, `rrwm:N`.

        Differs: `preferred`, the old name of Aeron's class, stands for `tagged`; Aeron's drivers
        never accepted it.

        Differs: an option given twice is refused; the C driver takes the last. The Java driver
        ignores unknown options, and `t:` and `g:` on `max`; both are refused, as in the C driver.

        Raises:
            ConfigurationError: no name of a strategy, an unknown option, or a value out of range.

        Source: Aeron `aeron_flow_control_parse_tagged_options`.
        """
        name, *items = text.split(",")
        if name == PREFERRED:
            name = str(FlowControlStrategy.TAGGED)
        if name not in list(FlowControlStrategy):
            return cls(strategy=parse_name(name), raw_options=_parse_raw_options(items))
        strategy = FlowControlStrategy(name)
        options: dict[str, str] = {}
        for item in items:
            option, _, value = item.partition(":")
            if option not in {"t", "g", "rrwm"} or not value:
                message = (
                    f"unknown flow control option {item!r}; it must be t:DURATION, "
                    "g:[TAG][/SIZE] or rrwm:N"
                )
                raise ConfigurationError(message)
            if option in options:
                message = f"flow control option {option!r} is given twice"
                raise ConfigurationError(message)
            if strategy is FlowControlStrategy.MAX and option != "rrwm":
                message = (
                    f"{item!r} needs a group that counts receivers; use min or tagged, not max"
                )
                raise ConfigurationError(message)
            options[option] = value
        group_tag, group_min_size = _parse_group(options.get("g"))
        timeout, multiple = options.get("t"), options.get("rrwm")
        return cls(
            strategy=strategy,
            receiver_timeout_ns=None if timeout is None else parse_duration_ns(timeout),
            group_tag=group_tag,
            group_min_size=group_min_size,
            retransmit_receiver_window_multiple=(
                None if multiple is None else parse_integer(multiple, 1, INT32_MAX)
            ),
        )

    def __str__(self) -> str:
        parts = [str(self.strategy), *self.raw_options]
        if self.receiver_timeout_ns is not None:
            parts.append(f"t:{format_duration(self.receiver_timeout_ns)}")
        tag = "" if self.group_tag is None else str(self.group_tag)
        size = "" if self.group_min_size is None else f"/{self.group_min_size}"
        if tag or size:
            parts.append(f"g:{tag}{size}")
        if self.retransmit_receiver_window_multiple is not None:
            parts.append(f"rrwm:{self.retransmit_receiver_window_multiple}")
        return ",".join(parts)


def parse_integer(text: str, low: int, high: int) -> int:
    """Parse a decimal number from low to high, in its shortest form.

    Differs: the C driver reads many numbers in base 8 after a leading 0 and in base 16 after 0x,
    the Java driver none; a number that two drivers understand differently is refused here.

    Raises:
        ConfigurationError: not such a number, or outside the range.
    """
    if _INTEGER.fullmatch(text) is None or not low <= (value := int(text)) <= high:
        message = f"{text!r} is not a whole decimal number between {low} and {high}"
        raise ConfigurationError(message)
    return value


def parse_name(text: str) -> str:
    """Parse the name of a strategy that another package may have registered.

    Raises:
        ConfigurationError: not 1 to 64 letters, digits and `_.-`, or no letter or `_` first.
    """
    if _NAME.fullmatch(text) is None:
        message = f"{text!r} is no name of a strategy: letters, digits and _.- make one"
        raise ConfigurationError(message)
    return text


def _parse_raw_options(items: list[str]) -> tuple[str, ...]:
    if "" in items:
        message = "an option is empty: nothing follows a comma"
        raise ConfigurationError(message)
    return tuple(items)


def _parse_group(text: str | None) -> tuple[int | None, int | None]:
    if text is None:
        return None, None
    tag, slash, size = text.partition("/")
    return (
        parse_integer(tag, -INT64_MAX - 1, INT64_MAX) if tag else None,
        parse_integer(size, 0, INT32_MAX) if slash else None,
    )


@attrs.frozen
class ParameterKind:
    """A kind of value, in its text form and its typed form.

    Attributes:
        expects: Description of the text that completes "must be".
        types: The exact types of a value; a bool is not a number here.
        read: Converts text to a value; raises ConfigurationError.
        write: Converts a value to text.
    """

    expects: str
    types: tuple[type, ...]
    read: Callable[[str], Any]
    write: Callable[[Any], str] = str


def integer(low: int, high: int, words: Mapping[str, int] | None = None) -> ParameterKind:
    """Return the kind of a decimal number from low to high, or a word that stands for one."""
    named = dict(words or {})
    names = {value: word for word, value in named.items()}
    alternatives = "".join(f" or {word!r}" for word in named)

    def read(text: str) -> int:
        return named[text] if text in named else parse_integer(text, low, high)

    def write(value: int) -> str:
        return names.get(value, str(value))

    return ParameterKind(f"a whole number from {low} to {high}{alternatives}", (int,), read, write)


def size(low: int, high: int, *, multiple: int = 1, is_power_of_two: bool = False) -> ParameterKind:
    """Return the kind of a length in bytes: a multiple, or a power of two, from low to high."""
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

    return ParameterKind(expects, (int,), read, format_size)


AUTO_WINDOW: Final = 0
"""A receiver window that the receiver finds by itself."""
AUTO: Final = "auto"


def window(low: int, high: int) -> ParameterKind:
    """Return the kind of a receiver window: a size in bytes, or auto."""
    length = size(low, high)

    def read(text: str) -> int:
        return AUTO_WINDOW if text == AUTO else length.read(text)

    def write(value: int) -> str:
        return AUTO if value == AUTO_WINDOW else length.write(value)

    return ParameterKind(f"{length.expects}, or {AUTO}", (int,), read, write)


def choice(values: type[StrEnum]) -> ParameterKind:
    """Return the kind of one word of an enum."""
    words = [str(value) for value in values]

    def read(text: str) -> StrEnum:
        # Differs: the official drivers treat an unknown control-mode or group as not given.
        if text not in words:
            message = f"{text!r} is none of them"
            raise ConfigurationError(message)
        return values(text)

    return ParameterKind(f"one of {', '.join(words)}", (values,), read)


def _read_boolean(text: str) -> bool:
    # Differs: the C driver accepts any text that begins with true or false; the Java driver reads
    # any text but true as false.
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


ADDRESS: Final = ParameterKind("host:port or [ipv6]:port", (Address,), Address.parse)
INTERFACE: Final = ParameterKind(
    "host[:port][/prefix] or {name}[:port]", (InterfaceSpec,), InterfaceSpec.parse
)
BOOLEAN: Final = ParameterKind("true or false", (bool,), _read_boolean, _write_boolean)
DURATION: Final = ParameterKind(
    "a duration such as 500ms or 5s", (int,), parse_duration_ns, format_duration
)
INT32: Final = integer(INT32_MIN, INT32_MAX)
INT64: Final = integer(-INT64_MAX - 1, INT64_MAX)
SESSION: Final = ParameterKind("a 32-bit number or tag:N", (int, TagReference), _read_session)
TAGS: Final = ParameterKind("C, C,E or ,E", (Tags,), Tags.parse)
FLOW_CONTROL: Final = ParameterKind(
    "max, min, tagged or a registered name, with options such as t:5s,g:101/2,rrwm:4",
    (FlowControlOptions,),
    FlowControlOptions.parse,
)
CONGESTION_CONTROL: Final = ParameterKind(
    "static, cubic or a registered name",
    (CongestionControlStrategy, str),
    _read_congestion_control,
)
TEXT: Final = ParameterKind("any text without '|'", (str,), str)
