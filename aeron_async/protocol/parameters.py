"""Parameters of channel URIs: key, kind, roles, default and meaning of each.

Help texts and the documentation print `PARAMETERS` too. Its order is the order in which a channel
URI prints its parameters, and its defaults are those of a driver with default settings.

Source: Aeron `CommonContext`, `aeron_uri.h`.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, final

import attrs

from aeron_async.errors import ChannelUriError, ConfigurationError
from aeron_async.protocol.channel_uri_values import (
    ADDRESS,
    BOOLEAN,
    CONGESTION_CONTROL,
    DURATION,
    FLOW_CONTROL,
    INT32,
    INT64,
    INTERFACE,
    PROTOTYPE_CORRELATION_ID,
    RESERVED_TIMESTAMP_OFFSET,
    SESSION,
    TAGS,
    TEXT,
    ControlMode,
    Group,
    choice,
    integer,
    size,
    window,
)
from aeron_async.protocol.units import INT32_MAX, INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aeron_async.protocol.channel_uri_values import ParameterKind

__all__ = [
    "PARAMETERS",
    "TABLE",
    "Parameter",
    "Role",
    "find_parameter",
    "parameter_for_key",
]

# Printable ASCII without `|`, the separator, which cannot be escaped.
_VALUE: Final = re.compile(r"[ -{}~]+")


@final
class Role(StrEnum):
    """What a channel URI may describe; the letters are those of Aeron's own tables."""

    PUBLICATION = "P"
    SUBSCRIPTION = "S"
    DESTINATION = "D"
    SPY = "X"


@attrs.frozen(kw_only=True)
class Parameter:
    """One parameter of a channel URI.

    Attributes:
        key: Key in the URI.
        name: Attribute of `ChannelUri`: the name with its unit.
        kind: How its values are parsed and printed.
        roles: Roles in which it has an effect. In other roles it is ignored, as in the official
            drivers, so that one URI can serve both sides of a stream.
        default: What applies when it is not given, as text.
        description: Its effect, in one sentence.
    """

    key: str
    name: str
    kind: ParameterKind
    roles: frozenset[Role]
    default: str
    description: str

    def read(self, text: str) -> Any:
        """Parse the text of a value.

        Raises:
            ChannelUriError: the text is not valid.
        """
        if _VALUE.fullmatch(text) is None:
            reason = "only printable ASCII without '|' fits" if text else "nothing follows the '='"
            message = f"{self.key}={text!r} must be {self.kind.expects}: {reason}"
            raise ChannelUriError(message)
        try:
            return self.kind.read(text)
        except ConfigurationError as error:
            message = f"{self.key}={text} must be {self.kind.expects}: {error}"
            raise ChannelUriError(message) from None

    def write(self, value: object) -> str:
        """Return the text of a value, after checking that it parses to the same value.

        Raises:
            ChannelUriError: a value of another type, or out of range.
        """
        if type(value) not in self.kind.types:
            message = (
                f"{self.key} ({self.name}) must be {self.kind.expects}: "
                f"{value!r} is of type {type(value).__name__}"
            )
            raise ChannelUriError(message)
        try:
            text = self.kind.write(value)
        except ConfigurationError as error:
            message = f"{self.key}={value!r} must be {self.kind.expects}: {error}"
            raise ChannelUriError(message) from None
        if self.read(text) != value:
            message = f"{self.key}: {value!r} reads back from {text!r} as another value"
            raise ChannelUriError(message)
        return text


FRAME_ALIGNMENT: Final = 32
# A header alone fills 32 bytes, so the shortest useful datagram has 32 bytes more.
MTU_MIN: Final = 64
MTU_MAX: Final = 65504
TERM_MIN: Final = 64 * 1024
TERM_MAX: Final = 1024 * 1024 * 1024
RECEIVER_WINDOW_MIN: Final = 256
TIMESTAMP_OFFSET: Final = integer(0, INT32_MAX, {"reserved": RESERVED_TIMESTAMP_OFFSET})


def _parameter(
    key: str, name: str, kind: ParameterKind, roles: str, default: str, description: str
) -> Parameter:
    return Parameter(
        key=key,
        name=name,
        kind=kind,
        roles=frozenset(Role(letter) for letter in roles),
        default=default,
        description=description,
    )


TABLE: Final = (
    _parameter(
        "endpoint",
        "endpoint",
        ADDRESS,
        "PSDX",
        "none",
        "Where data goes: a publication sends there, a subscription binds there.",
    ),
    _parameter(
        "interface",
        "interface",
        INTERFACE,
        "PSDX",
        "the best multicast interface, or any interface for unicast",
        "Which local interface to use: by address and prefix, or by {name}.",
    ),
    _parameter(
        "control",
        "control",
        ADDRESS,
        "PSDX",
        "none",
        "The publication's own address, at which receivers find it; a publication binds there.",
    ),
    _parameter(
        "control-mode",
        "control_mode",
        choice(ControlMode),
        "PSDX",
        "none",
        "How destinations come and go: dynamic by subscribers, manual by the API, or response.",
    ),
    _parameter(
        "ttl",
        "ttl",
        integer(0, 255),
        "PS",
        "0: the system's",
        "How many routers a multicast datagram may pass.",
    ),
    _parameter(
        "mtu",
        "mtu_length",
        size(MTU_MIN, MTU_MAX, multiple=FRAME_ALIGNMENT),
        "P",
        "1408",
        "The longest datagram payload in bytes, frame headers included.",
    ),
    _parameter(
        "term-length",
        "term_length",
        size(TERM_MIN, TERM_MAX, is_power_of_two=True),
        "P",
        "16m, or 64m for ipc",
        "The length of each of the three term buffers; a longer term allows longer messages.",
    ),
    _parameter(
        "init-term-id",
        "initial_term_id",
        INT32,
        "P",
        "random",
        "The first term of the stream; given together with term-id and term-offset.",
    ),
    _parameter(
        "term-id",
        "term_id",
        INT32,
        "P",
        "init-term-id",
        "The term in which the stream continues; given together with the other two.",
    ),
    _parameter(
        "term-offset",
        "term_offset",
        integer(0, TERM_MAX),
        "P",
        "0",
        "The offset in that term at which the stream continues, a multiple of 32.",
    ),
    _parameter(
        "session-id",
        "session_id",
        SESSION,
        "PSX",
        "chosen by the driver, or every session for a subscription",
        "The session to publish as or to receive only; tag:N copies that of a tagged publication.",
    ),
    _parameter(
        "tags",
        "tags",
        TAGS,
        "PSX",
        "none",
        "Numbers by which other channels refer to this endpoint, and to this entity.",
    ),
    _parameter(
        "alias",
        "alias",
        TEXT,
        "PSDX",
        "none",
        "A name for people who read counters and logs.",
    ),
    _parameter(
        "linger",
        "linger_timeout_ns",
        DURATION,
        "P",
        "5s",
        "How long a closed publication stays to repair what receivers still miss.",
    ),
    _parameter(
        "sparse",
        "is_sparse",
        BOOLEAN,
        "PS",
        "true",
        "Whether log files take up disk space only where they are written.",
    ),
    _parameter(
        "eos",
        "signal_eos",
        BOOLEAN,
        "P",
        "true",
        "Whether a closed publication tells its receivers that the stream has ended.",
    ),
    _parameter(
        "ssc",
        "spies_simulate_connection",
        BOOLEAN,
        "P",
        "false",
        "Whether a spy alone counts as a subscriber, so that the stream flows without receivers.",
    ),
    _parameter(
        "reliable",
        "is_reliable",
        BOOLEAN,
        "S",
        "true",
        "Whether lost data is asked for again; if false, gaps are filled with padding.",
    ),
    _parameter(
        "rejoin",
        "is_rejoin",
        BOOLEAN,
        "S",
        "true",
        "Whether a stream that was lost is joined again when it is still being sent.",
    ),
    _parameter(
        "tether",
        "is_tether",
        BOOLEAN,
        "SX",
        "true",
        "Whether this subscriber may hold back the stream; if false, it may be left behind.",
    ),
    _parameter(
        "group",
        "group",
        choice(Group),
        "S",
        "infer",
        "Whether repair is asked for as one of many receivers, after a random delay.",
    ),
    _parameter(
        "rcv-wnd",
        "receiver_window_length",
        window(RECEIVER_WINDOW_MIN, INT32_MAX),
        "S",
        "auto",
        "How many bytes a receiver takes ahead of its slowest subscriber, half a term at most; "
        "auto begins with 128k and grows while subscribers are fast.",
    ),
    _parameter(
        "so-sndbuf",
        "socket_sndbuf_length",
        size(0, INT32_MAX),
        "PS",
        "0: the system's",
        "The socket's send buffer, SO_SNDBUF, in bytes.",
    ),
    _parameter(
        "so-rcvbuf",
        "socket_rcvbuf_length",
        size(0, INT32_MAX),
        "PS",
        "128k",
        "The socket's receive buffer, SO_RCVBUF, in bytes; 0 is the system's.",
    ),
    _parameter(
        "cc",
        "congestion_control",
        CONGESTION_CONTROL,
        "S",
        "static",
        "How the receiver window is chosen: fixed, or by the CUBIC algorithm.",
    ),
    _parameter(
        "fc",
        "flow_control",
        FLOW_CONTROL,
        "P",
        "max",
        "Which receivers of a group set the pace: the fastest, the slowest, or tagged ones.",
    ),
    _parameter(
        "gtag",
        "group_tag",
        INT64,
        "S",
        "none",
        "The tag by which a publication with fc=tagged recognises this receiver.",
    ),
    _parameter(
        "nak-delay",
        "nak_delay_ns",
        DURATION,
        "S",
        "1us",
        "How long a unicast receiver waits before it first asks for lost data.",
    ),
    _parameter(
        "max-resend",
        "max_resend",
        integer(1, 256),
        "P",
        "16",
        "How many repairs to a group may be under way at once.",
    ),
    _parameter(
        "pub-wnd",
        "publication_window_length",
        size(MTU_MIN, TERM_MAX // 2),
        "P",
        "term-length / 2",
        "How many bytes a publication may be ahead of its slowest consumer.",
    ),
    _parameter(
        "response-correlation-id",
        "response_correlation_id",
        integer(-1, INT64_MAX, {"prototype": PROTOTYPE_CORRELATION_ID}),
        "P",
        "-1: none",
        "The response subscription of a request, or the image that a response answers.",
    ),
    _parameter(
        "response-endpoint",
        "response_endpoint",
        ADDRESS,
        "",
        "none",
        "Where an Archive client listens for answers; drivers ignore it.",
    ),
    _parameter(
        "stream-id",
        "stream_id",
        INT32,
        "P",
        "that of the call",
        "The stream, for tools that keep it in the URI; must equal that of the call.",
    ),
    _parameter(
        "untethered-window-limit-timeout",
        "untethered_window_limit_timeout_ns",
        DURATION,
        "PSX",
        "5s",
        "How long an untethered subscriber may block the window before it is left behind.",
    ),
    _parameter(
        "untethered-linger-timeout",
        "untethered_linger_timeout_ns",
        DURATION,
        "PSX",
        "untethered-window-limit-timeout",
        "How long a subscriber left behind may still read what it has.",
    ),
    _parameter(
        "untethered-resting-timeout",
        "untethered_resting_timeout_ns",
        DURATION,
        "PSX",
        "10s",
        "How long a subscriber left behind waits before it joins again.",
    ),
    _parameter(
        "media-rcv-ts-offset",
        "media_receive_timestamp_offset",
        TIMESTAMP_OFFSET,
        "S",
        "none",
        "Where in each message the time is written at which the system's network stack had it.",
    ),
    _parameter(
        "channel-rcv-ts-offset",
        "channel_receive_timestamp_offset",
        TIMESTAMP_OFFSET,
        "S",
        "none",
        "Where in each message the receiving driver writes the time it arrived.",
    ),
    _parameter(
        "channel-snd-ts-offset",
        "channel_send_timestamp_offset",
        TIMESTAMP_OFFSET,
        "P",
        "none",
        "Where in each message the sending driver writes the time it left.",
    ),
    _parameter(
        "ats",
        "ats",
        BOOLEAN,
        "PS",
        "the driver's",
        "Whether the stream is encrypted by Aeron Transport Security, which this driver lacks.",
    ),
)


PARAMETERS: Final[Mapping[str, Parameter]] = MappingProxyType(
    {parameter.key: parameter for parameter in TABLE}
)
"""Each parameter by its key, in the order of printing."""

_BY_NAME: Final[Mapping[str, Parameter]] = MappingProxyType(
    {parameter.key.replace("-", "_"): parameter for parameter in TABLE}
    | {parameter.name: parameter for parameter in TABLE}
)


def find_parameter(name: str) -> Parameter:
    """Return the parameter with this Python name, `mtu_length`, or this key, `mtu`.

    Raises:
        ChannelUriError: there is none; names the nearest one.
    """
    parameter = _BY_NAME.get(name.replace("-", "_"))
    if parameter is None:
        raise _unknown(name, _BY_NAME)
    return parameter


def parameter_for_key(key: str) -> Parameter:
    """Return the parameter with this key, as in a channel URI.

    Differs: the official drivers ignore keys they do not know, so that a misspelt key silently
    leaves the default in force.

    Raises:
        ChannelUriError: there is none; names the nearest one.
    """
    parameter = PARAMETERS.get(key)
    if parameter is None:
        raise _unknown(key, PARAMETERS)
    return parameter


def _unknown(given: str, known: Iterable[str]) -> ChannelUriError:
    # Also recognises the names that the drivers' settings and APIs use for the same parameter.
    near = _BY_NAME.get(given.lower().replace("-", "_"))
    guesses = [near.key] if near else get_close_matches(given.lower(), list(known), n=1)
    hint = f": did you mean {guesses[0]!r}?" if guesses else ""
    return ChannelUriError(f"unknown parameter {given!r}{hint}")
