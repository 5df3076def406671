"""Channels by what they are for: one constructor for each mode, each giving a `ChannelUri`.

A URI says a mode by what stands together in it; here the mode has a name, takes what belongs to
it, and refuses the rest. Parameters have the names of their keys, with `_` for `-`. Lengths are
bytes, or texts such as "64k"; times are nanoseconds, or texts such as "5s".

Source: Aeron `ChannelUriStringBuilder`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, final, overload

from aeron_async.client.arguments import parse_channel
from aeron_async.errors import ChannelUriError
from aeron_async.protocol.channel_uri import ChannelUri, ControlMode, Media
from aeron_async.protocol.parameters import Role, find_parameter

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Unpack

    from aeron_async.client.channel_options import (
        GroupOptions,
        IpcOptions,
        PublicationOptions,
        ResponsePublicationOptions,
        ResponseSubscriptionOptions,
        SpyOptions,
        SubscriptionOptions,
        UnicastOptions,
    )
    from aeron_async.protocol.address import Address, InterfaceSpec

__all__ = ["Channel"]

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
