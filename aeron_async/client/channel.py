"""Channels by their mode, and the options that each mode takes.

A URI says a mode by parameters that stand together in it. Here each mode is a method of `Channel`,
which takes the parameters that belong to the mode and refuses the others. `Fc` makes the values of
one parameter, `fc`.

Parameters have the names of their keys, with `_` for `-`; the page of channel parameters says what
each does. Lengths are bytes, or texts such as "64k"; times are nanoseconds, or texts such as "5s".

Source: Aeron `ChannelUriStringBuilder`, `ChannelUriStringBuilder.taggedFlowControl` and its
neighbours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict, final, overload

from aeron_async.client.arguments import parse_channel
from aeron_async.errors import ChannelUriError, ConfigurationError
from aeron_async.protocol.channel_uri import (
    ChannelUri,
    ControlMode,
    FlowControlOptions,
    FlowControlStrategy,
    Media,
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
    """What says which stream is meant, and how people call it."""

    session_id: int | TagReference | str
    tags: Tags | str
    alias: str


class Untethered(TypedDict, total=False):
    """When a slow subscriber is left behind, and comes back."""

    untethered_window_limit_timeout: int | str
    untethered_linger_timeout: int | str
    untethered_resting_timeout: int | str


class Sockets(TypedDict, total=False):
    """What both sides say of their sockets and their memory."""

    so_sndbuf: int | str
    so_rcvbuf: int | str
    sparse: bool
    ats: bool


class Terms(TypedDict, total=False):
    """What a publication says of its log."""

    mtu: int | str
    term_length: int | str
    init_term_id: int
    term_id: int
    term_offset: int
    pub_wnd: int | str
    linger: int | str
    stream_id: int


class Sending(TypedDict, total=False):
    """What a publication says of its sending."""

    eos: bool
    ssc: bool
    response_correlation_id: int | str
    channel_snd_ts_offset: int | str


class Receiving(TypedDict, total=False):
    """What a subscription says."""

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
    """For `Channel.udp`, which serves both sides."""


class GroupOptions(Named, Untethered, Sockets, Terms, Sending, Receiving, total=False):
    """For `Channel.multicast`, which serves both sides."""

    ttl: int | str
    fc: FlowControlOptions | str
    max_resend: int


class PublicationOptions(Named, Untethered, Sockets, Terms, Sending, total=False):
    """For `Channel.mdc_publisher`."""

    ttl: int | str
    fc: FlowControlOptions | str
    max_resend: int


class SubscriptionOptions(Named, Untethered, Sockets, Receiving, total=False):
    """For `Channel.mdc_subscriber` and `Channel.mds`."""

    ttl: int | str


class ResponsePublicationOptions(Named, Untethered, Sockets, Terms, total=False):
    """For `Channel.response` of a server."""

    eos: bool
    ssc: bool
    channel_snd_ts_offset: int | str


class ResponseSubscriptionOptions(Named, Untethered, Sockets, Receiving, total=False):
    """For `Channel.response` of a client."""


class IpcOptions(Named, Untethered, Terms, total=False):
    """For `Channel.ipc`, which serves both sides."""

    sparse: bool
    tether: bool
    response_correlation_id: int | str


class SpyOptions(Named, Untethered, total=False):
    """For `Channel.spy`."""

    tether: bool


# Modes.

BOTH: Final = frozenset({Role.PUBLICATION, Role.SUBSCRIPTION})
SENDS: Final = frozenset({Role.PUBLICATION})
RECEIVES: Final = frozenset({Role.SUBSCRIPTION})
ADDRESS_KEYS: Final = frozenset({"endpoint", "interface", "control", "control-mode"})
GROUP_KEYS: Final = frozenset({"ttl", "fc", "max-resend"})
"""Parameters for which there must be several receivers."""
IPC_KEYS: Final = frozenset(
    {
        *("alias", "tags", "mtu", "term-length", "init-term-id", "term-id", "term-offset"),
        *("session-id", "pub-wnd", "linger", "sparse", "tether", "stream-id"),
        "response-correlation-id",
        *("untethered-window-limit-timeout", "untethered-linger-timeout"),
        "untethered-resting-timeout",
    }
)
"""Parameters that mean something where nothing is sent."""


@final
class Channel:
    """Makes channels; each method is a mode, and gives a value that prints as its URI."""

    @staticmethod
    def udp(
        endpoint: str | Address,
        *,
        interface: str | InterfaceSpec | None = None,
        control: str | Address | None = None,
        **options: Unpack[UnicastOptions],
    ) -> ChannelUri:
        """Return a channel from any number of publishers to one receiver.

        It serves as a destination of a publication or a subscription, too.

        Args:
            endpoint: Where the subscription binds and the publication sends, as `host:port`.
            interface: Of the publication, to send from.
            control: Of the publication, to send from: an address with its port. Of a subscription,
                where it reports to, instead of where the data comes from.
            options: Anything else that a unicast channel may say.

        Raises:
            ChannelUriError: A value cannot be meant, or does not go with unicast.
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
        """Return a channel from any number of publishers to whoever joins the group.

        Args:
            group: Address and port of the group; its last byte is odd, as in `224.20.30.39:20121`.
            interface: Where to join and to send; the best multicast interface when not given.
            options: Anything else that a multicast channel may say, such as `ttl`: how many
                routers a datagram may pass.

        Raises:
            ChannelUriError: A value cannot be meant, or does not go with multicast.
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
        """Return a channel for a publication that sends to each of its receivers one by one.

        Args:
            control: Where receivers report to, and data is sent from. A manual one can do without.
            mode: "dynamic" sends to every receiver that reports; "manual" to the destinations that
                `add_destination` names.
            options: Anything else that a publication to a group may say.

        Raises:
            ChannelUriError: A value cannot be meant, or does not go with the mode.
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

        It serves as a destination of a subscription, too.

        Args:
            endpoint: Where to bind; port 0 lets the system choose.
            control: Of the publication.
            options: Anything else that a subscription may say.

        Raises:
            ChannelUriError: A value cannot be meant, or is for publications.
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

        Those are given to `add_destination`: `Channel.udp`, `multicast` or `mdc_subscriber`.

        Raises:
            ChannelUriError: A value cannot be meant, or is for publications.
        """
        return _build("mds", RECEIVES, {"control_mode": ControlMode.MANUAL}, options)

    @staticmethod
    def ipc(**options: Unpack[IpcOptions]) -> ChannelUri:
        """Return a channel within one driver, where nothing is sent.

        Raises:
            ChannelUriError: A value cannot be meant, or is for networks.
        """
        return _build("ipc", BOTH, {}, options, only=IPC_KEYS, media=Media.IPC)

    @staticmethod
    def spy(channel: str | ChannelUri, **options: Unpack[SpyOptions]) -> ChannelUri:
        """Return a channel for a subscription that reads a publication of its own driver.

        Args:
            channel: Of the publication.
            options: What a spy may say; it goes before what the channel says.

        Raises:
            ChannelUriError: A value cannot be meant, or the channel is none of the network.
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
        """Return a channel for answers that reach only the client that asked.

        With `endpoint` it is for the client's subscription; the `registration_id` of that goes into
        the `response_correlation_id` of the channel of its requests. With `correlation_id` it is
        for the server's publication.

        Args:
            control: Where the server answers from; both sides say it.
            endpoint: Where the client binds; port 0 lets the system choose.
            correlation_id: That of the image of the requests, or "prototype".
            options: What else that side may say, as in `mdc_subscriber` and `mdc_publisher`.

        Raises:
            ChannelUriError: A value cannot be meant, or is for the other side.
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
    """Return the channel of a mode, checked in the roles that it can have."""
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
    """Refuse options that say something else than the mode, or something to nobody."""
    taken = {find_parameter(name).key for name in given}
    for name, value in options.items():
        parameter = find_parameter(name)
        is_possible = only is None or parameter.key in only
        if parameter.key in taken | without or not is_possible or not parameter.roles & roles:
            _refuse(mode, f"{parameter.key}={value} does not go with it: {parameter.description}")


def _refuse(mode: str, reason: str) -> None:
    message = f"Channel.{mode}: {reason}"
    raise ChannelUriError(message)


# Flow control.

PARAMETER: Final = parameter_for_key("fc")


@final
class Fc:
    """Makes the value of `fc` in a channel: `Channel.multicast(group, fc=Fc.tagged(101, size=2))`.

    In each of them `rrwm` is how many default receiver windows one NAK may bring, 4 by default.
    """

    @staticmethod
    def max(*, rrwm: int | None = None) -> FlowControlOptions:
        """Return the pace of the fastest: nobody is waited for.

        Raises:
            ChannelUriError: A value out of range.
        """
        return _options(FlowControlStrategy.MAX, rrwm=rrwm)

    @staticmethod
    def min(
        *, size: int | None = None, timeout: int | str | None = None, rrwm: int | None = None
    ) -> FlowControlOptions:
        """Return the pace of the slowest: everybody is waited for.

        Args:
            size: How many receivers must be there for the publication to be connected.
            timeout: How long a silent receiver is still waited for, in nanoseconds or as "5s".
            rrwm: How many default receiver windows one NAK may bring.

        Raises:
            ChannelUriError: A value out of range.
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
        """Return the pace of the slowest that says `gtag=TAG`: only those are waited for.

        Args:
            tag: Signed 64 bits; that of the driver's settings when not given.
            size: How many of them must be there for the publication to be connected.
            timeout: How long a silent one is still waited for, in nanoseconds or as "5s".
            rrwm: How many default receiver windows one NAK may bring.

        Raises:
            ChannelUriError: A value out of range.
        """
        return _options(FlowControlStrategy.TAGGED, tag=tag, size=size, timeout=timeout, rrwm=rrwm)

    @staticmethod
    def named(name: str, *options: str) -> FlowControlOptions:
        """Return a strategy that a package has registered, with options of its own.

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
            message = f"the timeout of fc={strategy} cannot be meant: {error}"
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
