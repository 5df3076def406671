"""Functions that build channels, one for each mode, and flow control values for them.

In a channel URI, the mode follows from which parameters are given together. Here each mode is a
method of `Channel`, which accepts the parameters of that mode and refuses the others. `Fc` builds
the values of one parameter, `fc`.

Options have the names of the URI's parameters, with `_` for `-`; the reference of channel
parameters describes each. A length is a number of bytes, or text such as "64k"; a time is a number
of nanoseconds, or text such as "5s".

Source: Aeron `ChannelUriStringBuilder`, `ChannelUriStringBuilder.taggedFlowControl` and its
neighbours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict, final, overload

from aeron_async.errors import ChannelUriError, ConfigurationError
from aeron_async.protocol.channel_uri import (
    ChannelUri,
    ControlMode,
    FlowControlOptions,
    FlowControlStrategy,
    Media,
    parse_channel,
)
from aeron_async.protocol.parameters import Role, find_parameter, parameter_for_key
from aeron_async.protocol.units import parse_duration_ns

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Unpack

    from aeron_async.protocol.address import Address, InterfaceSpec
    from aeron_async.protocol.channel_uri import (
        CongestionControlStrategy,
        Group,
        TagReference,
        Tags,
    )

__all__ = [
    "Channel",
    "Fc",
    "GroupOptions",
    "IpcOptions",
    "PublicationOptions",
    "ResponsePublicationOptions",
    "ResponseSubscriptionOptions",
    "SpyOptions",
    "SubscriptionOptions",
    "UnicastOptions",
]


# Options, for type checkers and editors.


class Named(TypedDict, total=False):
    """Options that identify and name a stream."""

    session_id: int | TagReference | str
    tags: Tags | str
    alias: str


class Untethered(TypedDict, total=False):
    """When a stream continues without a slow subscriber, and when that one may join again."""

    untethered_window_limit_timeout: int | str
    untethered_linger_timeout: int | str
    untethered_resting_timeout: int | str


class Sockets(TypedDict, total=False):
    """Options of both sides for sockets and memory."""

    so_sndbuf: int | str
    so_rcvbuf: int | str
    sparse: bool
    ats: bool


class Terms(TypedDict, total=False):
    """Options of a publication for its log."""

    mtu: int | str
    term_length: int | str
    init_term_id: int
    term_id: int
    term_offset: int
    pub_wnd: int | str
    linger: int | str
    stream_id: int


class Sending(TypedDict, total=False):
    """Options of a publication for sending."""

    eos: bool
    ssc: bool
    response_correlation_id: int | str
    channel_snd_ts_offset: int | str


class Receiving(TypedDict, total=False):
    """Options of a subscription."""

    reliable: bool
    rejoin: bool
    tether: bool
    group: Group | Literal["true", "false", "infer"]
    rcv_wnd: int | str
    cc: CongestionControlStrategy | str
    gtag: int
    nak_delay: int | str
    media_rcv_ts_offset: int | str
    channel_rcv_ts_offset: int | str


class UnicastOptions(Named, Untethered, Sockets, Terms, Sending, Receiving, total=False):
    """Options of `Channel.udp`, for both sides."""


class GroupOptions(Named, Untethered, Sockets, Terms, Sending, Receiving, total=False):
    """Options of `Channel.multicast`, for both sides."""

    ttl: int | str
    fc: FlowControlOptions | str
    max_resend: int


class PublicationOptions(Named, Untethered, Sockets, Terms, Sending, total=False):
    """Options of `Channel.mdc_publisher`."""

    ttl: int | str
    fc: FlowControlOptions | str
    max_resend: int


class SubscriptionOptions(Named, Untethered, Sockets, Receiving, total=False):
    """Options of `Channel.mdc_subscriber` and `Channel.mds`."""

    ttl: int | str


class ResponsePublicationOptions(Named, Untethered, Sockets, Terms, total=False):
    """Options of `Channel.response` for a server."""

    eos: bool
    ssc: bool
    channel_snd_ts_offset: int | str


class ResponseSubscriptionOptions(Named, Untethered, Sockets, Receiving, total=False):
    """Options of `Channel.response` for a client."""


class IpcOptions(Named, Untethered, Terms, total=False):
    """Options of `Channel.ipc`, for both sides."""

    sparse: bool
    tether: bool
    response_correlation_id: int | str


class SpyOptions(Named, Untethered, total=False):
    """Options of `Channel.spy`."""

    tether: bool


# Modes.

BOTH: Final = frozenset({Role.PUBLICATION, Role.SUBSCRIPTION})
SENDS: Final = frozenset({Role.PUBLICATION})
RECEIVES: Final = frozenset({Role.SUBSCRIPTION})
ADDRESS_KEYS: Final = frozenset({"endpoint", "interface", "control", "control-mode"})
GROUP_KEYS: Final = frozenset({"ttl", "fc", "max-resend"})
"""Parameters that apply only with several receivers."""
REMEDY_OF_GROUPS: Final = (
    "Leave it out, or use Channel.multicast, or Channel.mdc_publisher to publish"
)
IPC_KEYS: Final = frozenset(
    {
        *("alias", "tags", "mtu", "term-length", "init-term-id", "term-id", "term-offset"),
        *("session-id", "pub-wnd", "linger", "sparse", "tether", "stream-id"),
        "response-correlation-id",
        *("untethered-window-limit-timeout", "untethered-linger-timeout"),
        "untethered-resting-timeout",
    }
)
"""Parameters that apply to IPC."""


@final
class Channel:
    """Builds channels; each method is a mode and returns a value whose `str` is the channel URI."""

    @staticmethod
    def udp(
        endpoint: str | Address,
        *,
        interface: str | InterfaceSpec | None = None,
        control: str | Address | None = None,
        **options: Unpack[UnicastOptions],
    ) -> ChannelUri:
        """Return a unicast channel, from any number of publishers to one receiver.

        The channel can also be a destination of a publication or a subscription.

        Args:
            endpoint: Where the subscription binds and the publication sends to, as `host:port`.
            interface: For a publication: the interface to send from.
            control: For a publication: the address and port to send from. For a subscription: where
                to send status messages, instead of the source address of the data.
            options: Other parameters of a unicast channel.

        Raises:
            ChannelUriError: A value is invalid, or does not apply to unicast.
        """
        addresses = {"endpoint": endpoint, "interface": interface, "control": control}
        uri = _build("udp", BOTH, addresses, options, without=GROUP_KEYS)
        if uri.endpoint is not None and uri.endpoint.is_multicast:
            _refuse("udp", f"endpoint={endpoint} is a group: use Channel.multicast")
        return uri

    @staticmethod
    def multicast(
        group: str | Address,
        /,
        *,
        interface: str | InterfaceSpec | None = None,
        **options: Unpack[GroupOptions],
    ) -> ChannelUri:
        """Return a multicast channel, from any number of publishers to all receivers of the group.

        Args:
            group: Address and port of the group; its last byte is odd, as in `224.20.30.39:20121`.
            interface: Interface to join on and to send from; if not given, the best multicast
                interface.
            options: Other parameters of a multicast channel, such as `ttl`: how many routers a
                datagram may pass.

        Raises:
            ChannelUriError: A value is invalid, or does not apply to multicast.
        """
        addresses = {"endpoint": group, "interface": interface}
        uri = _build("multicast", BOTH, addresses, options)
        if uri.endpoint is None or not uri.endpoint.is_multicast:
            _refuse("multicast", f"{group} is the address of no group: use Channel.udp")
        return uri

    @staticmethod
    def mdc_publisher(
        control: str | Address | None = None,
        *,
        mode: Literal["dynamic", "manual"] = "dynamic",
        **options: Unpack[PublicationOptions],
    ) -> ChannelUri:
        """Return a multi-destination channel for a publication, which sends to each receiver.

        Args:
            control: Address that receivers send status messages to, and that data is sent from;
                optional with mode "manual".
            mode: "dynamic" sends to every receiver that sends status messages; "manual" sends to
                the destinations that the application adds with `add_destination`.
            options: Other parameters of a publication with several receivers.

        Raises:
            ChannelUriError: A value is invalid, or does not apply to the mode.
        """
        if mode not in {"dynamic", "manual"}:
            _refuse("mdc_publisher", f"mode={mode!r} must be 'dynamic' or 'manual'")
        if mode == "dynamic" and control is None:
            _refuse("mdc_publisher", "mode='dynamic' needs control, where receivers report to")
        addresses = {"control": control, "control_mode": ControlMode(mode)}
        return _build("mdc_publisher", SENDS, addresses, options)

    @staticmethod
    def mdc_subscriber(
        endpoint: str | Address,
        control: str | Address,
        **options: Unpack[SubscriptionOptions],
    ) -> ChannelUri:
        """Return a channel for a subscription to a publication with a dynamic control address.

        The channel can also be a destination of a subscription.

        Args:
            endpoint: Address to bind to; with port 0 the system chooses the port.
            control: Control address of the publication.
            options: Other parameters of a subscription.

        Raises:
            ChannelUriError: A value is invalid, or applies only to publications.
        """
        addresses = {
            "endpoint": endpoint,
            "control": control,
            "control_mode": ControlMode.DYNAMIC,
        }
        return _build("mdc_subscriber", RECEIVES, addresses, options)

    @staticmethod
    def mds(**options: Unpack[SubscriptionOptions]) -> ChannelUri:
        """Return a channel for a subscription that receives at several destinations.

        The application adds each destination with `add_destination`; its channel is made by
        `Channel.udp`, `multicast` or `mdc_subscriber`.

        Raises:
            ChannelUriError: A value is invalid, or applies only to publications.
        """
        return _build("mds", RECEIVES, {"control_mode": ControlMode.MANUAL}, options)

    @staticmethod
    def ipc(**options: Unpack[IpcOptions]) -> ChannelUri:
        """Return an IPC channel, which stays within one driver and sends no datagrams.

        Raises:
            ChannelUriError: A value is invalid, or applies only to networks.
        """
        return _build("ipc", BOTH, {}, options, only=IPC_KEYS, media=Media.IPC)

    @staticmethod
    def spy(channel: str | ChannelUri, **options: Unpack[SpyOptions]) -> ChannelUri:
        """Return a channel for a spy: a subscription that reads a publication of its own driver.

        Args:
            channel: Channel of the publication.
            options: Parameters of a spy; they take precedence over those of the channel.

        Raises:
            ChannelUriError: A value is invalid, or the channel is not UDP.
        """
        given = dict(options)
        _check_options("spy", frozenset({Role.SPY}), {}, given, ADDRESS_KEYS)
        uri = parse_channel(channel).replace(is_spy=True, **given)
        uri.check_subscription()
        return uri

    @overload
    @staticmethod
    def response(
        control: str | Address,
        *,
        endpoint: str | Address,
        **options: Unpack[ResponseSubscriptionOptions],
    ) -> ChannelUri: ...

    @overload
    @staticmethod
    def response(
        control: str | Address,
        *,
        correlation_id: int | Literal["prototype"],
        **options: Unpack[ResponsePublicationOptions],
    ) -> ChannelUri: ...

    @staticmethod
    def response(
        control: str | Address,
        *,
        endpoint: str | Address | None = None,
        correlation_id: int | str | None = None,
        **options: Any,
    ) -> ChannelUri:
        """Return a channel for responses, which reach only the client that sent the request.

        With `endpoint` the channel is for the client's subscription; its `registration_id` must be
        the `response_correlation_id` of the client's request channel. With `correlation_id` the
        channel is for the server's publication.

        Args:
            control: Address from which the server responds; the same for both sides.
            endpoint: Address the client binds to; with port 0 the system chooses the port.
            correlation_id: The `correlation_id` of the image of the requests, or "prototype".
            options: Other parameters of that side, as in `mdc_subscriber` and `mdc_publisher`.

        Raises:
            ChannelUriError: A value is invalid, or applies only to the other side.
        """
        if (endpoint is None) == (correlation_id is None):
            _refuse(
                "response",
                "give endpoint for the subscription of the client, or correlation_id for the "
                "publication of the server",
            )
        addresses = {
            "endpoint": endpoint,
            "control": control,
            "control_mode": ControlMode.RESPONSE,
            "response_correlation_id": correlation_id,
        }
        role = SENDS if endpoint is None else RECEIVES
        return _build("response", role, addresses, options, without=GROUP_KEYS)


def _build(
    mode: str,
    roles: frozenset[Role],
    addresses: Mapping[str, Any],
    options: Mapping[str, Any],
    *,
    without: frozenset[str] = frozenset(),
    only: frozenset[str] | None = None,
    media: Media = Media.UDP,
) -> ChannelUri:
    """Return the channel of a mode; it must be valid in at least one of the mode's roles."""
    given = {name: value for name, value in addresses.items() if value is not None}
    _check_options(mode, roles, given, options, ADDRESS_KEYS | without, only)
    uri = ChannelUri.from_parameters(media, **given, **options)
    refusals = []
    for role in sorted(roles):
        check = uri.check_publication if role is Role.PUBLICATION else uri.check_subscription
        try:
            check()
        except ChannelUriError as error:
            refusals.append(error)
    if len(refusals) == len(roles):
        raise refusals[0]
    return uri


def _check_options(
    mode: str,
    roles: frozenset[Role],
    given: Mapping[str, object],
    options: Mapping[str, object],
    without: frozenset[str],
    only: frozenset[str] | None = None,
) -> None:
    """Refuse options that contradict the mode, or that apply to none of its roles."""
    taken = {find_parameter(name).key for name in given}
    for name, value in options.items():
        parameter = find_parameter(name)
        is_possible = only is None or parameter.key in only
        if parameter.key in taken | without or not is_possible or not parameter.roles & roles:
            remedy = REMEDY_OF_GROUPS if parameter.key in GROUP_KEYS else "Leave it out"
            reason = f"{parameter.key}={value} does not go with it: {parameter.description}"
            _refuse(mode, f"{reason} {remedy}")


def _refuse(mode: str, reason: str) -> None:
    message = f"Channel.{mode}: {reason}"
    raise ChannelUriError(message)


# Flow control.

PARAMETER: Final = parameter_for_key("fc")


@final
class Fc:
    """Builds `fc` values, as in `Channel.multicast(group, fc=Fc.tagged(101, size=2))`.

    In each value `rrwm` is how many default receiver windows are resent at most for one NAK; 4 by
    default.
    """

    @staticmethod
    def max(*, rrwm: int | None = None) -> FlowControlOptions:
        """Return flow control by the fastest receiver, which waits for no slower one.

        Args:
            rrwm: How many default receiver windows are resent at most for one NAK.

        Raises:
            ChannelUriError: A value is out of range.
        """
        return _options(FlowControlStrategy.MAX, rrwm=rrwm)

    @staticmethod
    def min(
        *, size: int | None = None, timeout: int | str | None = None, rrwm: int | None = None
    ) -> FlowControlOptions:
        """Return flow control by the slowest of all receivers.

        Args:
            size: How many receivers there must be for the publication to be connected.
            timeout: How long a silent receiver is still waited for, in nanoseconds or as "5s".
            rrwm: How many default receiver windows are resent at most for one NAK.

        Raises:
            ChannelUriError: A value is out of range.
        """
        return _options(FlowControlStrategy.MIN, size=size, timeout=timeout, rrwm=rrwm)

    @staticmethod
    def tagged(
        tag: int | None = None,
        *,
        size: int | None = None,
        timeout: int | str | None = None,
        rrwm: int | None = None,
    ) -> FlowControlOptions:
        """Return flow control by the slowest receiver whose channel has `gtag=TAG`.

        Args:
            tag: Signed 64 bits; if not given, the driver's setting.
            size: How many such receivers there must be for the publication to be connected.
            timeout: How long such a receiver is still waited for while silent, in nanoseconds or
                as "5s".
            rrwm: How many default receiver windows are resent at most for one NAK.

        Raises:
            ChannelUriError: A value is out of range.
        """
        return _options(FlowControlStrategy.TAGGED, tag=tag, size=size, timeout=timeout, rrwm=rrwm)

    @staticmethod
    def named(name: str, *options: str) -> FlowControlOptions:
        """Return a flow control strategy that a package has registered, with its own options.

        Args:
            name: Name of the entry point in the group `aeron_async.flow_control`.
            options: Options of the strategy, as text.

        Raises:
            ChannelUriError: The name or an option cannot be written in a channel.
        """
        return _checked(FlowControlOptions(strategy=name, raw_options=options))


def _options(
    strategy: FlowControlStrategy,
    *,
    tag: int | None = None,
    size: int | None = None,
    timeout: int | str | None = None,
    rrwm: int | None = None,
) -> FlowControlOptions:
    if isinstance(timeout, str):
        try:
            timeout = parse_duration_ns(timeout)
        except ConfigurationError as error:
            message = f"the timeout of fc={strategy} is invalid: {error}"
            raise ChannelUriError(message) from None
    return _checked(
        FlowControlOptions(
            strategy=strategy,
            receiver_timeout_ns=timeout,
            group_tag=tag,
            group_min_size=size,
            retransmit_receiver_window_multiple=rrwm,
        )
    )


def _checked(options: FlowControlOptions) -> FlowControlOptions:
    PARAMETER.write(options)
    return options
