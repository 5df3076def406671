"""A channel with resolved addresses: what to bind, where to send, and its identity.

Two channels with the same canonical form share an endpoint. Names stay names in that form, so a
name that resolves to another address later is still the same channel.

Source: Aeron `UdpChannel`, `aeron_udp_channel_finish_parse`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from aeron_async.errors import ConfigurationError, ErrorCode, RegistrationError
from aeron_async.protocol.address import Address as WrittenAddress
from aeron_async.protocol.address import multicast_control_address
from aeron_async.protocol.channel_uri import ControlMode

if TYPE_CHECKING:
    from aeron_async.driver.core.outbox import Address
    from aeron_async.protocol.channel_uri import ChannelUri

__all__ = ["Interface", "UdpChannel", "format_address", "needs_unique_suffix", "wildcard_like"]

WILDCARDS: Final = {4: "0.0.0.0", 6: "::"}  # noqa: S104 - to bind to, as Aeron does when nothing is said


@attrs.frozen(kw_only=True)
class Interface:
    """A local interface, by one of its addresses.

    Attributes:
        address: Numeric, without a scope.
        index: The system's interface number, which is also the scope of its IPv6 addresses; 0
            leaves the choice to the system.
        name: Such as `eth0`; empty if unknown.
        port: Local source port of a unicast publication; 0 lets the system choose.
    """

    address: str
    index: int = 0
    name: str = ""
    port: int = 0


@attrs.frozen(kw_only=True)
class UdpChannel:
    """One channel of any mode, ready for its sockets.

    Attributes:
        uri: As the client wrote it.
        canonical_form: Its identity; channels with equal forms share an endpoint.
        remote_data: The address a sender sends to, and a receiver binds, or the group that a
            receiver joins. The wildcard address and port 0 if the channel has no endpoint.
        remote_control: The address receivers report to: the control address of a multicast group,
            or the explicit control address of a subscription; None means the source of a stream.
        local_data: The address a sender binds: its control address, its interface, or the wildcard
            address and port 0.
        interface: The interface for joining groups and sending multicast; None unless multicast,
            or given.
        is_multicast: Whether data goes to a group.
        has_explicit_endpoint: Whether the channel has an endpoint.
        has_explicit_control: Whether it has a control address; beside a group it does not count.
        control_mode: As given.
        ttl: Hops of multicast datagrams; 0 leaves it to the settings of the driver.
    """

    uri: ChannelUri
    canonical_form: str
    remote_data: Address
    remote_control: Address | None
    local_data: Address
    interface: Interface | None
    is_multicast: bool
    has_explicit_endpoint: bool
    has_explicit_control: bool
    control_mode: ControlMode | None
    ttl: int

    @property
    def is_manual(self) -> bool:
        """Return whether the application adds the destinations."""
        return self.control_mode is ControlMode.MANUAL

    @property
    def is_dynamic(self) -> bool:
        """Return whether receivers become destinations by sending status messages."""
        return self.control_mode is ControlMode.DYNAMIC

    @property
    def is_response(self) -> bool:
        """Return whether this is the channel of a response, or of a subscription to responses."""
        return self.control_mode is ControlMode.RESPONSE

    @property
    def is_multi_destination(self) -> bool:
        """Return whether a sender sends every datagram to each of several destinations."""
        return self.is_manual or self.is_dynamic

    @property
    def has_group_semantics(self) -> bool:
        """Return whether a stream may have several receivers."""
        return self.is_multicast or self.is_multi_destination

    @property
    def is_wildcard(self) -> bool:
        """Return whether it has no address, so that only its tag can identify an endpoint."""
        return all(
            address == wildcard_like(address) for address in (self.remote_data, self.local_data)
        )

    @classmethod
    def for_publication(
        cls,
        uri: ChannelUri,
        *,
        endpoint: Address | None = None,
        control: Address | None = None,
        interface: Interface | None = None,
        unique_suffix: str = "",
    ) -> UdpChannel:
        """Return the channel of a sender.

        Args:
            uri: As the client wrote it.
            endpoint: Its endpoint, resolved; None if it has none.
            control: Its control address, resolved; None if it has none.
            interface: The interface found for `interface=`; a multicast channel always has one.
            unique_suffix: Keeps two channels apart for which the system chooses the port.

        Raises:
            RegistrationError: INVALID_CHANNEL; two families, or a group that ends in an even byte.
        """
        return _channel(uri, endpoint, control, interface, _suffix(uri, unique_suffix))

    @classmethod
    def for_subscription(
        cls,
        uri: ChannelUri,
        *,
        endpoint: Address | None = None,
        control: Address | None = None,
        interface: Interface | None = None,
        unique_suffix: str = "",
    ) -> UdpChannel:
        """Return the channel of a receiver.

        Args:
            uri: As the client wrote it.
            endpoint: Its endpoint, resolved; None if it has none. Port 0 lets the system choose.
            control: Its control address, resolved; None if it has none.
            interface: The interface found for `interface=`; a multicast channel always has one.
            unique_suffix: Keeps two channels apart for which the system chooses the port.

        Raises:
            RegistrationError: INVALID_CHANNEL; two families, or a group that ends in an even byte.
        """
        channel = _channel(uri, endpoint, control, interface, _suffix(uri, unique_suffix))
        return _reporting(channel)

    @classmethod
    def for_send_destination(
        cls, uri: ChannelUri, *, endpoint: Address, interface: Interface | None = None
    ) -> UdpChannel:
        """Return the channel of a publication's destination; only its `remote_data` is used.

        Args:
            uri: As the client wrote it.
            endpoint: The address to send to, resolved.
            interface: The interface found for `interface=`; a multicast channel always has one.

        Raises:
            RegistrationError: As for a publication.
        """
        return _channel(uri, endpoint, None, interface, "")

    @classmethod
    def for_receive_destination(
        cls,
        uri: ChannelUri,
        *,
        endpoint: Address | None = None,
        control: Address | None = None,
        interface: Interface | None = None,
    ) -> UdpChannel:
        """Return the channel of a subscription's destination, which has a socket of its own.

        Its canonical form has no suffix, so that the same text removes the destination again.

        Args:
            uri: As the client wrote it.
            endpoint: The address to bind or the group to join, resolved; None if it has none.
            control: The address to report to, resolved; None if it has none.
            interface: The interface found for `interface=`; a multicast channel always has one.

        Raises:
            RegistrationError: As for a subscription.
        """
        return _reporting(_channel(uri, endpoint, control, interface, ""))


def needs_unique_suffix(uri: ChannelUri) -> bool:
    """Return whether the system chooses a port, so that two equal URIs are two channels."""
    if uri.endpoint is None and uri.control is None:
        return True
    return any(each is not None and each.port == 0 for each in (uri.endpoint, uri.control))


def wildcard_like(address: Address, port: int = 0) -> Address:
    """Return the wildcard address of the same family, with port 0 unless another is given."""
    return (WILDCARDS[6 if ":" in address[0] else 4], port)


def format_address(address: Address) -> str:
    """Return an address as channel URIs write it: `host:port` or `[ipv6]:port`."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def control_address_of(group: Address) -> Address:
    """Return the address that the receivers of a resolved multicast group report to.

    Raises:
        RegistrationError: INVALID_CHANNEL; the group ends in an even byte.
    """
    try:
        control = multicast_control_address(WrittenAddress.of(*group))
    except ConfigurationError as error:
        raise RegistrationError(str(error), code=ErrorCode.INVALID_CHANNEL) from error
    return control.host, control.port


def _channel(
    uri: ChannelUri,
    endpoint: Address | None,
    control: Address | None,
    interface: Interface | None,
    suffix: str,
) -> UdpChannel:
    assert (uri.endpoint is None) is (endpoint is None), "what is written is resolved"
    remote = endpoint or wildcard_like(control or (WILDCARDS[4], 0))
    is_multicast = endpoint is not None and WrittenAddress.of(*endpoint).is_multicast
    assert interface is not None or not is_multicast, "multicast needs an interface"
    # A multicast group has its own control address, so an explicit one is ignored.
    explicit_control = None if is_multicast else control
    local = explicit_control or wildcard_like(remote)
    if explicit_control is None and interface is not None:
        local = (interface.address, interface.port)
    _check_family(uri, local, remote)
    if is_multicast:
        written_local, written_remote, suffix = format_address(local), format_address(remote), ""
    else:
        written_local, written_remote = format_address(local), format_address(remote)
        if explicit_control is not None and uri.control is not None:
            written_local = uri.control.identity
        if uri.endpoint is not None:
            written_remote = uri.endpoint.identity
    return UdpChannel(
        uri=uri,
        canonical_form=f"UDP-{written_local}-{written_remote}{suffix}",
        remote_data=remote,
        remote_control=control_address_of(remote) if is_multicast else None,
        local_data=local,
        interface=interface,
        is_multicast=is_multicast,
        has_explicit_endpoint=endpoint is not None,
        has_explicit_control=explicit_control is not None,
        control_mode=uri.control_mode,
        ttl=uri.ttl or 0 if is_multicast else 0,
    )


def _reporting(channel: UdpChannel) -> UdpChannel:
    if not channel.has_explicit_control:
        return channel
    return attrs.evolve(channel, remote_control=channel.local_data)


def _suffix(uri: ChannelUri, unique_suffix: str) -> str:
    if not needs_unique_suffix(uri):
        return ""
    tag = uri.channel_tag
    return f"-{unique_suffix}" if tag is None else f"#{tag}"


def _check_family(uri: ChannelUri, local: Address, remote: Address) -> None:
    if (":" in local[0]) is not (":" in remote[0]):
        message = (
            f"the local address {local[0]} and the endpoint {remote[0]} mix IPv4 and IPv6: {uri}"
        )
        raise RegistrationError(message, code=ErrorCode.INVALID_CHANNEL)
