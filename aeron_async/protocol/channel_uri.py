"""Channel URIs: `aeron:udp?endpoint=localhost:40456|term-length=64k`, parsed, checked and printed.

    uri    = [ "aeron-spy:" ] "aeron:" ( "udp" | "ipc" ) [ "?" param { "|" param } ]
    param  = key "=" value

Nothing is escaped, and keys are case sensitive.

Invariant: every value of a `ChannelUri` is in its range, and no two contradict each other. The
methods `check_publication`, `check_subscription`, `check_send_destination` and
`check_receive_destination` check constraints of one role.

Source: Aeron `ChannelUri`, `ChannelUriStringBuilder`, `aeron_uri.c`.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from difflib import get_close_matches
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final, NoReturn

import attrs

from aeron_async.errors import ChannelUriError, ConfigurationError
from aeron_async.protocol.address import multicast_control_address
from aeron_async.protocol.arguments import shown
from aeron_async.protocol.channel_uri_values import (
    AUTO_WINDOW,
    PROTOTYPE_CORRELATION_ID,
    RESERVED_TIMESTAMP_OFFSET,
    CongestionControlStrategy,
    ControlMode,
    FlowControlOptions,
    FlowControlStrategy,
    Group,
    Media,
    TagReference,
    Tags,
)
from aeron_async.protocol.parameters import PARAMETERS, find_parameter, parameter_for_key
from aeron_async.protocol.units import format_size

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from aeron_async.protocol.address import Address, InterfaceSpec
    from aeron_async.protocol.parameters import Parameter

__all__ = [
    "MAX_LENGTH",
    "PROTOTYPE_CORRELATION_ID",
    "RESERVED_TIMESTAMP_OFFSET",
    "SPY_PREFIX",
    "ChannelUri",
    "CongestionControlStrategy",
    "ControlMode",
    "FlowControlOptions",
    "FlowControlStrategy",
    "Group",
    "Media",
    "TagReference",
    "Tags",
    "check_consistency",
    "check_publication",
    "check_receive_destination",
    "check_send_destination",
    "check_subscription",
    "parse_channel",
]

MAX_LENGTH: Final = 4095
"""The longest channel URI, in characters."""

SPY_PREFIX: Final = "aeron-spy:"
SCHEME_PREFIX: Final = "aeron:"
_SHOWN_LENGTH: Final = 200

_WRITTEN: Final = re.compile(
    r"(?P<head>(?:aeron-spy:)?aeron:(?:udp|ipc))(?:\s*(?P<first>[?|&;])(?P<query>.*))?",
    re.IGNORECASE | re.DOTALL,
)
"""A channel, also in capital letters, or with a wrong sign before its parameters."""
_SEPARATOR: Final = re.compile(rf"([|&;?,])(?=\s*(?:{'|'.join(map(re.escape, PARAMETERS))})=)")
"""A sign before the key of a parameter."""


@attrs.frozen(kw_only=True)
class ChannelUri:
    """A channel: its media, and the given parameters; a parameter that is not given is None.

    Lengths are in bytes, times in nanoseconds. `PARAMETERS` describes each parameter: its effect,
    its roles and its default.

    Attributes:
        media: What carries the stream.
        is_spy: Whether it is a spy on a network publication of the same driver.

    Raises:
        ChannelUriError: a value out of range, or values that contradict each other.
    """

    media: Media
    is_spy: bool = False
    endpoint: Address | None = None
    interface: InterfaceSpec | None = None
    control: Address | None = None
    control_mode: ControlMode | None = None
    ttl: int | None = None
    mtu_length: int | None = None
    term_length: int | None = None
    initial_term_id: int | None = None
    term_id: int | None = None
    term_offset: int | None = None
    session_id: int | TagReference | None = None
    tags: Tags | None = None
    alias: str | None = None
    linger_timeout_ns: int | None = None
    is_sparse: bool | None = None
    signal_eos: bool | None = None
    spies_simulate_connection: bool | None = None
    is_reliable: bool | None = None
    is_rejoin: bool | None = None
    is_tether: bool | None = None
    group: Group | None = None
    receiver_window_length: int | None = None
    socket_sndbuf_length: int | None = None
    socket_rcvbuf_length: int | None = None
    congestion_control: CongestionControlStrategy | str | None = None
    flow_control: FlowControlOptions | None = None
    group_tag: int | None = None
    nak_delay_ns: int | None = None
    max_resend: int | None = None
    publication_window_length: int | None = None
    response_correlation_id: int | None = None
    response_endpoint: Address | None = None
    stream_id: int | None = None
    untethered_window_limit_timeout_ns: int | None = None
    untethered_linger_timeout_ns: int | None = None
    untethered_resting_timeout_ns: int | None = None
    media_receive_timestamp_offset: int | None = None
    channel_receive_timestamp_offset: int | None = None
    channel_send_timestamp_offset: int | None = None
    ats: bool | None = None

    def __attrs_post_init__(self) -> None:
        # Printing parses every value again, so it checks all of them.
        _check_length(str(self))
        check_consistency(self)

    @classmethod
    def parse(cls, text: str, *, ignores_unknown: bool = False) -> ChannelUri:
        """Parse a channel URI.

        Differs: unknown and repeated keys, and keys without a value, are refused; the official
        drivers ignore the first and disagree about the others.

        Args:
            text: The channel.
            ignores_unknown: Whether unknown keys are left out, and those of a network in a channel
                for IPC, as for clients of other processes.

        Raises:
            ChannelUriError: says which part is not valid, and suggests a likely correction.
        """
        with _naming(text):
            _check_length(text)
            try:
                is_spy, media, query = _split(text)
                return cls(
                    media=media,
                    is_spy=is_spy,
                    **_read_query(query, is_lenient=ignores_unknown, is_ipc=media is Media.IPC),
                )
            except ChannelUriError as error:
                message = _how_to_write(text)
                if message is None:
                    raise
                raise ChannelUriError(message) from error

    @classmethod
    def from_parameters(
        cls, media: Media, *, is_spy: bool = False, **parameters: object
    ) -> ChannelUri:
        """Build a channel from parameters, as values or as the text a URI would hold.

        `from_parameters(Media.UDP, endpoint="localhost:40456", term_length="64k", mtu=1408)`

        Args:
            media: What carries the stream.
            is_spy: Whether it is a spy on a network publication of the same driver.
            parameters: By the names of the attributes, or by their keys with `_` for `-`; None
                leaves a parameter out.

        Raises:
            ChannelUriError: an unknown name, one given twice, or a value that is not valid.
        """
        return cls(media=media, is_spy=is_spy, **_read_parameters(parameters))

    def replace(self, *, is_spy: bool | None = None, **parameters: object) -> ChannelUri:
        """Return this channel with some parameters changed, named as in `from_parameters`.

        None removes a parameter. All changes are made at once, so parameters that depend on each
        other can be changed together.

        Args:
            is_spy: Whether the result is a spy; None keeps the current value.
            parameters: The new values, or their texts.

        Raises:
            ChannelUriError: an unknown name, one given twice, or a channel that is not valid.
        """
        values = _read_parameters(parameters)
        return attrs.evolve(self, is_spy=self.is_spy if is_spy is None else is_spy, **values)

    @property
    def channel_tag(self) -> int | None:
        """The number by which other channels refer to this endpoint."""
        return None if self.tags is None else self.tags.channel_tag

    @property
    def entity_tag(self) -> int | None:
        """The number by which other channels refer to this publication or subscription."""
        return None if self.tags is None else self.tags.entity_tag

    @property
    def parameters(self) -> dict[str, str]:
        """The given parameters, as text by key, in the order of printing."""
        return {
            key: parameter.write(value)
            for key, parameter in PARAMETERS.items()
            if (value := getattr(self, parameter.name)) is not None
        }

    def check_publication(self, stream_id: int | None = None) -> None:
        """Refuse a channel that no publication can use.

        Args:
            stream_id: The requested stream, to be compared with the parameter `stream-id`.

        Raises:
            ChannelUriError: says what does not fit, and what would.
        """
        with _naming(str(self)):
            check_publication(self, stream_id)

    def check_subscription(self, stream_id: int | None = None) -> None:
        """Refuse a channel that no subscription, spies included, can use.

        Args:
            stream_id: The requested stream, to be compared with the parameter `stream-id`.

        Raises:
            ChannelUriError: says what does not fit, and what would.
        """
        with _naming(str(self)):
            check_subscription(self, stream_id)

    def check_send_destination(self) -> None:
        """Refuse a channel that cannot be added to a publication as a destination.

        Raises:
            ChannelUriError: says what does not fit, and what would.
        """
        with _naming(str(self)):
            check_send_destination(self)

    def check_receive_destination(self) -> None:
        """Refuse a channel that cannot be added to a subscription as a destination.

        Raises:
            ChannelUriError: says what does not fit, and what would.
        """
        with _naming(str(self)):
            check_receive_destination(self)

    def __str__(self) -> str:
        spy = SPY_PREFIX if self.is_spy else ""
        query = "|".join(f"{key}={text}" for key, text in self.parameters.items())
        return f"{spy}{SCHEME_PREFIX}{self.media}{'?' if query else ''}{query}"

    def __repr__(self) -> str:
        return f"ChannelUri.parse({str(self)!r})"


@contextmanager
def _naming(channel: str) -> Iterator[None]:
    """Name the channel at the end of an error.

    Raises:
        ChannelUriError: One was raised within.
    """
    try:
        yield
    except ChannelUriError as error:
        message = f"{error} (channel {_cut(channel)!r})"
        raise ChannelUriError(message) from None


def _cut(channel: str) -> str:
    return channel if len(channel) <= _SHOWN_LENGTH else f"{channel[:_SHOWN_LENGTH]}..."


def _how_to_write(text: str) -> str | None:
    """Return what to write instead of an invalid channel; None if its signs and letters are right.

    Other faults may remain; the next error tells of them.
    """
    found = _WRITTEN.fullmatch(text.strip())
    if found is None:
        return None
    head, first, query = (found[group] or "" for group in ("head", "first", "query"))
    # Each second part is a sign.
    parts = _SEPARATOR.split(query)
    corrected = head.lower() + (first and "?") + "|".join(each.strip() for each in parts[::2])
    if corrected == text:
        return None
    rules = (
        (head.lower() != head, "the scheme and the media are in lower case"),
        (first not in {"", "?"}, "'?' stands before the first parameter"),
        (set(parts[1::2]) - {"|"}, "'|' stands between two parameters"),
        (len(corrected) != len(text), "no blanks stand around a channel or a parameter"),
    )
    broken = [rule for is_broken, rule in rules if is_broken]
    return f"{', and '.join(broken)}: write {_cut(corrected)!r}"


def _split(text: str) -> tuple[bool, Media, str]:
    is_spy = text.startswith(SPY_PREFIX)
    channel = text.removeprefix(SPY_PREFIX)
    if not channel.startswith(SCHEME_PREFIX):
        message = "a channel begins with aeron:udp?, aeron:ipc or aeron-spy:aeron:udp?"
        raise ChannelUriError(message)
    name, _, query = channel.removeprefix(SCHEME_PREFIX).partition("?")
    media_names = [str(media) for media in Media]
    if name not in media_names:
        guesses = get_close_matches(name.lower(), media_names, n=1)
        hint = f": did you mean {guesses[0]!r}?" if guesses else ""
        message = f"unknown media {name!r}, it must be udp or ipc{hint}"
        raise ChannelUriError(message)
    return is_spy, Media(name), query


def _read_query(query: str, *, is_lenient: bool, is_ipc: bool) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for item in query.split("|") if query else ():
        key, equals, text = item.partition("=")
        if not key or not equals:
            message = f"{item!r} is not of the form key=value; '|' stands between two of them"
            raise ChannelUriError(message)
        if is_lenient and (key not in PARAMETERS or (is_ipc and key in NETWORK_KEYS)):
            continue
        parameter = parameter_for_key(key)
        _refuse_second(parameter, values)
        values[parameter.name] = parameter.read(text)
    return values


def _read_parameters(parameters: Mapping[str, object]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, value in parameters.items():
        parameter = find_parameter(name)
        _refuse_second(parameter, values)
        values[parameter.name] = parameter.read(value) if type(value) is str else value
    return values


def _refuse_second(parameter: Parameter, values: Mapping[str, object]) -> None:
    if parameter.name in values:
        message = f"parameter {parameter.key!r} is given twice"
        raise ChannelUriError(message)


def _check_length(text: str) -> None:
    if len(text) > MAX_LENGTH:
        message = f"a channel has at most {MAX_LENGTH} characters, this one has {len(text)}"
        raise ChannelUriError(message)


NETWORK_KEYS: Final = frozenset({"endpoint", "interface", "control"})
FRAME_ALIGNMENT: Final = 32
TIMESTAMP_LENGTH: Final = 8
# A message may fill an eighth of a term.
MAX_MESSAGE_SHARE: Final = 8
GROUP_MODES: Final = frozenset({ControlMode.MANUAL, ControlMode.DYNAMIC})


def check_consistency(uri: ChannelUri) -> None:
    """Refuse parameters that contradict each other in any role.

    Raises:
        ChannelUriError: names them, with their values.

    Source: Aeron `UdpChannel.parse`, `PublicationParams`.
    """
    _check_media(uri)
    _check_control(uri)
    _check_families(uri)
    _check_position(uri)
    _check_publication_lengths(uri)
    _check_socket_lengths(uri)
    _check_timestamps(uri)


def check_publication(uri: ChannelUri, stream_id: int | None) -> None:
    """Refuse a channel that no publication can use.

    Differs: `fc` without a group is refused, like in the Java driver; the C driver ignores it.

    Raises:
        ChannelUriError: says what does not fit, and what would.

    Source: Aeron `DriverConductor.validateEndpointForPublication` and related methods.
    """
    if uri.is_spy:
        _refuse("aeron-spy: is for subscriptions; a publication needs the channel without it")
    _check_stream_id(uri, stream_id)
    if uri.media is Media.IPC:
        _check_response(uri)
        return
    endpoint, mode = uri.endpoint, uri.control_mode
    if endpoint is not None and endpoint.port == 0 and mode not in GROUP_MODES:
        _refuse(f"endpoint={endpoint} has port 0; a publication needs the port to send to")
    if endpoint is not None and endpoint.is_multicast and mode is ControlMode.DYNAMIC:
        _refuse(
            f"control-mode=dynamic sends to each subscriber, endpoint={endpoint} to a multicast "
            "group; leave out one of them"
        )
    if uri.control is not None and endpoint is None and mode is None:
        _refuse(
            f"control={uri.control} alone says where to send from, not where to; "
            "add endpoint=host:port or control-mode=dynamic"
        )
    if uri.flow_control is not None and not _is_group_possible(uri):
        _refuse(
            f"fc={uri.flow_control} needs a group of receivers: a multicast endpoint, or "
            "control-mode=dynamic or manual; a unicast publication has one receiver"
        )
    _check_response(uri)


def check_subscription(uri: ChannelUri, stream_id: int | None) -> None:
    """Refuse a channel that no subscription, spies included, can use.

    Raises:
        ChannelUriError: says what does not fit, and what would.

    Source: Aeron `DriverConductor.validateControlForSubscription`.
    """
    _check_stream_id(uri, stream_id)
    if isinstance(uri.session_id, TagReference):
        _refuse(f"session-id={uri.session_id} is for publications; a subscription needs the number")
    if not uri.is_spy:
        _check_control_port(uri)


def check_send_destination(uri: ChannelUri) -> None:
    """Refuse a destination that a publication with control-mode=manual cannot send to.

    Raises:
        ChannelUriError: says what does not fit, and what would.

    Source: Aeron `DriverConductor.validateSendDestinationUri`.
    """
    if uri.is_spy or uri.media is Media.IPC:
        _refuse(
            "a publication sends to UDP destinations only, IPC and spies are invalid: "
            "aeron:udp?endpoint=host:port"
        )
    if uri.endpoint is None:
        _refuse("a destination of a publication needs endpoint=host:port")
    elif uri.endpoint.port == 0:
        _refuse(f"endpoint={uri.endpoint} has port 0; a destination needs the port to send to")
    _check_destination(uri)


def check_receive_destination(uri: ChannelUri) -> None:
    """Refuse a destination that a subscription with control-mode=manual cannot receive from.

    Raises:
        ChannelUriError: says what does not fit, and what would.

    Source: Aeron `DriverConductor.validateDestinationUri`.
    """
    _check_destination(uri)
    if uri.is_spy or uri.media is Media.IPC:
        return
    if uri.endpoint is None and uri.control is None:
        _refuse(
            "a destination of a subscription needs endpoint=host:port, control=host:port or both"
        )
    _check_control_port(uri)


def _check_media(uri: ChannelUri) -> None:
    if uri.media is Media.IPC:
        if uri.is_spy:
            _refuse("aeron-spy: watches network publications; subscribe to aeron:ipc directly")
        # Differs: the official drivers ignore these parameters, and the stream stays inside the
        # machine.
        for key, value in (
            ("endpoint", uri.endpoint),
            ("interface", uri.interface),
            ("control", uri.control),
            ("control-mode", uri.control_mode if uri.control_mode in GROUP_MODES else None),
        ):
            if value is not None:
                _refuse(f"{key}={value} needs the network: use aeron:udp, not aeron:ipc")
    elif (
        uri.endpoint is None
        and uri.control is None
        and uri.channel_tag is None
        and uri.control_mode in {None, ControlMode.DYNAMIC}
    ):
        _refuse(
            "aeron:udp needs an address: endpoint=host:port, control=host:port, tags, "
            "control-mode=manual or control-mode=response"
        )


def _check_control(uri: ChannelUri) -> None:
    endpoint, control = uri.endpoint, uri.control
    if uri.control_mode is ControlMode.DYNAMIC and control is None:
        _refuse("control-mode=dynamic needs control=host:port, where subscribers report to")
    group_control = None
    if endpoint is not None and endpoint.is_multicast:
        try:
            group_control = multicast_control_address(endpoint)
        except ConfigurationError as error:
            _refuse(f"endpoint={endpoint}: {error}")
    # Differs: the official drivers ignore control beside a multicast endpoint. A user who writes a
    # control address that does not follow from the group expects an effect that it does not have.
    if control is None or not (group_control or control.is_multicast):
        return
    if group_control is None:
        _refuse(
            f"control={control} is a multicast group; give the group's data address as endpoint, "
            "its control address follows from that"
        )
    elif (control.ip, control.port) != (group_control.ip, group_control.port):
        _refuse(
            f"control={control} has no effect on the multicast endpoint={endpoint}, whose control "
            f"address is {group_control}; leave control out"
        )


def _check_families(uri: ChannelUri) -> None:
    # Differs: the official drivers accept such a channel and fail when they open its socket.
    literals = [
        (f"{key}={value}", value.ip.version)
        for key, value in (
            ("endpoint", uri.endpoint),
            ("interface", uri.interface),
            ("control", uri.control),
        )
        if value is not None and value.ip is not None
    ]
    for (one, one_version), (other, other_version) in combinations(literals, 2):
        if one_version != other_version:
            _refuse(
                f"{one} is IPv{one_version} but {other} is IPv{other_version}; one socket "
                "serves one family"
            )


def _check_position(uri: ChannelUri) -> None:
    initial, term_id, offset = uri.initial_term_id, uri.term_id, uri.term_offset
    if initial is None and term_id is None and offset is None:
        return
    if initial is None or term_id is None or offset is None:
        _refuse("init-term-id, term-id and term-offset are given together or not at all")
    elif ((term_id - initial) & 0xFFFF_FFFF) >> 31:
        _refuse(f"term-id={term_id} lies before init-term-id={initial}, counting at 32 bits")
    elif offset % FRAME_ALIGNMENT:
        _refuse(f"term-offset={offset} must be a multiple of {FRAME_ALIGNMENT}")
    elif uri.term_length is not None and offset > uri.term_length:
        _refuse(
            f"term-offset={offset} must be at most term-length={format_size(uri.term_length)}, "
            f"{uri.term_length} bytes"
        )


def _check_publication_lengths(uri: ChannelUri) -> None:
    mtu, term, window = uri.mtu_length, uri.term_length, uri.publication_window_length
    # Differs: only the Java driver compares the MTU with the longest message.
    if mtu is not None and term is not None and mtu > term // MAX_MESSAGE_SHARE:
        _refuse(
            f"mtu={format_size(mtu)} must be at most an eighth of term-length={format_size(term)}, "
            f"{term // MAX_MESSAGE_SHARE} bytes, the longest message such a term can hold"
        )
    if window is not None and mtu is not None and window < mtu:
        _refuse(f"pub-wnd={format_size(window)} must be at least mtu={format_size(mtu)}")
    if window is not None and term is not None and window > term // 2:
        _refuse(
            f"pub-wnd={format_size(window)} must be at most half of term-length="
            f"{format_size(term)}, {format_size(term // 2)}"
        )


def _check_socket_lengths(uri: ChannelUri) -> None:
    mtu, window = uri.mtu_length, uri.receiver_window_length
    send, receive = uri.socket_sndbuf_length, uri.socket_rcvbuf_length
    if window and mtu is not None and window < mtu:
        _refuse(f"rcv-wnd={format_size(window)} must be at least mtu={format_size(mtu)}")
    if window == AUTO_WINDOW and uri.congestion_control is not None:
        _refuse(f"rcv-wnd=auto contradicts cc={uri.congestion_control}: both choose the window")
    # A buffer of 0 stands for the system's default, which is not known here.
    if send and mtu is not None and send < mtu:
        _refuse(f"so-sndbuf={format_size(send)} must be at least mtu={format_size(mtu)}")
    if receive and window and receive < window:
        _refuse(f"so-rcvbuf={format_size(receive)} must be at least rcv-wnd={format_size(window)}")


def _check_timestamps(uri: ChannelUri) -> None:
    offsets = [
        (key, offset)
        for key, offset in (
            ("media-rcv-ts-offset", uri.media_receive_timestamp_offset),
            ("channel-rcv-ts-offset", uri.channel_receive_timestamp_offset),
            ("channel-snd-ts-offset", uri.channel_send_timestamp_offset),
        )
        if offset is not None
    ]
    for (one, one_offset), (other, other_offset) in combinations(offsets, 2):
        if abs(one_offset - other_offset) < TIMESTAMP_LENGTH:
            _refuse(
                f"{one} and {other} overlap; a timestamp takes {TIMESTAMP_LENGTH} bytes, so they "
                "must lie as far apart"
            )


def _check_stream_id(uri: ChannelUri, stream_id: int | None) -> None:
    # Differs: the Java driver checks this for publications only, the C driver not at all.
    if None not in {stream_id, uri.stream_id} and stream_id != uri.stream_id:
        _refuse(
            f"stream-id={uri.stream_id} in the channel is not the stream asked for, {stream_id}"
        )


def _check_control_port(uri: ChannelUri) -> None:
    if uri.control is not None and uri.control.port == 0:
        _refuse(f"control={uri.control} has port 0; a subscription needs the port to report to")


def _check_response(uri: ChannelUri) -> None:
    answered = uri.response_correlation_id
    if uri.control_mode is ControlMode.RESPONSE:
        if answered in {None, -1}:
            _refuse(
                "control-mode=response was specified, but no response-correlation-id set: "
                "give that of the image to answer"
            )
    elif answered == PROTOTYPE_CORRELATION_ID:
        _refuse("response-correlation-id=prototype needs control-mode=response")


def _check_destination(uri: ChannelUri) -> None:
    for key, value in (
        ("mtu", uri.mtu_length),
        ("rcv-wnd", uri.receiver_window_length),
        ("so-sndbuf", uri.socket_sndbuf_length),
        ("so-rcvbuf", uri.socket_rcvbuf_length),
        ("response-correlation-id", uri.response_correlation_id),
    ):
        if value is not None:
            _refuse(f"{key} belongs to the publication or subscription, not to its destination")
    if uri.control_mode is ControlMode.RESPONSE:
        _refuse("control-mode=response belongs to the subscription, not to its destination")


def _is_group_possible(uri: ChannelUri) -> bool:
    if uri.control_mode in GROUP_MODES:
        return True
    if uri.endpoint is None:
        # A tag may lead to the endpoint of a group.
        return uri.control_mode is not ControlMode.RESPONSE
    return uri.endpoint.ip is None or uri.endpoint.is_multicast


def _refuse(message: str) -> NoReturn:
    raise ChannelUriError(message)


def parse_channel(channel: object) -> ChannelUri:
    """Return a channel as a `ChannelUri`; text is parsed.

    Raises:
        ChannelUriError: The text is no valid channel.
        ConfigurationError: The channel is neither text nor a `ChannelUri`.
    """
    if isinstance(channel, ChannelUri):
        return channel
    if not isinstance(channel, str):
        message = (
            f"channel {shown(channel)} must be text such as 'aeron:udp?endpoint=127.0.0.1:20121'"
        )
        raise ConfigurationError(message)
    return ChannelUri.parse(channel)
