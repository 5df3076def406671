"""What a datagram socket is to be: addresses, groups, buffer lengths; checked before any I/O.

Source: Aeron `UdpChannelTransport`, `aeron_udp_channel_transport_init`, for which mode needs which.
"""

from __future__ import annotations

import socket
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import TYPE_CHECKING, Final

import attrs

from aeron_async.driver.core.udp_channel import format_address, wildcard_like
from aeron_async.errors import ConfigurationError

if TYPE_CHECKING:
    from aeron_async.driver.core.context import DriverContext
    from aeron_async.driver.core.udp_channel import Interface, UdpChannel
    from aeron_async.driver.media.wildcard_ports import WildcardPorts

__all__ = [
    "SocketAddress",
    "SocketSpec",
    "is_group",
    "literal",
    "receive_socket_spec",
    "send_socket_specs",
]

SocketAddress = tuple[str, int]
"""A numeric host and a port; both families alike."""

PORT_MAX: Final = 65535
SOCKET_BUFFER_LENGTH_MAX: Final = 2**31 - 1
TTL_MAX: Final = 255
IPV4_GROUPS: Final = IPv4Network("224.0.0.0/4")
IPV6_GROUPS: Final = IPv6Network("ff00::/8")


def literal(host: str) -> IPv4Address | IPv6Address | None:
    """Return the address that a numeric host stands for, or None where the host is a name."""
    try:
        return ip_address(host)
    except ValueError:
        return None


@lru_cache(maxsize=1024)
def is_group(host: str) -> bool:
    """Return whether a numeric host is a multicast group."""
    ip = ip_address(host)
    return ip in IPV4_GROUPS or ip in IPV6_GROUPS


@attrs.frozen(kw_only=True)
class SocketSpec:
    """One UDP socket, described.

    Attributes:
        local: Where to bind; the wildcard address and port 0 leave the choice to the system.
        remote: Where to connect, or None. A connected socket receives from nobody else.
        socket_sndbuf_length: SO_SNDBUF in bytes; 0 is the system's default.
        socket_rcvbuf_length: SO_RCVBUF in bytes; 0 is the system's default.
        reuse_address: Whether SO_REUSEADDR is set.
        reuse_port: Whether SO_REUSEPORT is set.
        group: The multicast group to be a member of, numeric; the socket hears no other group.
        interface: Where the group is joined, and where multicast leaves; None is the system's
            choice.
        ttl: Hops of multicast datagrams; 0 is the system's default.
        wildcard_ports: Where a local port of 0 comes from; None leaves it to the system.
        is_timestamped: Whether the protocol is told when the system had each datagram.
        is_batching: Whether many datagrams may leave, and arrive, in one call of the system.

    Raises:
        ConfigurationError: a host that is a name, two families, a group that is none, or a port,
            length or number of hops out of range.
    """

    local: SocketAddress
    remote: SocketAddress | None = None
    socket_sndbuf_length: int = 0
    socket_rcvbuf_length: int = 0
    reuse_address: bool = False
    reuse_port: bool = False
    group: str | None = None
    interface: Interface | None = None
    ttl: int = 0
    wildcard_ports: WildcardPorts | None = None
    is_timestamped: bool = False
    is_batching: bool = False

    def __attrs_post_init__(self) -> None:
        local_ip = _checked_ip(self.local, port_min=0)
        if self.remote is not None:
            remote_ip = _checked_ip(self.remote, port_min=1)
            if remote_ip.version != local_ip.version:
                message = (
                    f"a socket at {format_address(self.local)} cannot reach "
                    f"{format_address(self.remote)}: both must be IPv4, or both IPv6"
                )
                raise ConfigurationError(message)
        if self.group is not None:
            group_ip = _checked_ip((self.group, 0), port_min=0)
            if group_ip.version != local_ip.version or not is_group(self.group):
                message = f"group={self.group} must be an IPv{local_ip.version} multicast group"
                raise ConfigurationError(message)
        if not 0 <= self.ttl <= TTL_MAX:
            message = f"ttl={self.ttl} must be between 0 and {TTL_MAX} hops"
            raise ConfigurationError(message)
        for name in ("socket_sndbuf_length", "socket_rcvbuf_length"):
            length = getattr(self, name)
            if not 0 <= length <= SOCKET_BUFFER_LENGTH_MAX:
                message = f"{name}={length} must be between 0 and {SOCKET_BUFFER_LENGTH_MAX} bytes"
                raise ConfigurationError(message)

    @property
    def family(self) -> socket.AddressFamily:
        """AF_INET or AF_INET6, as the local address has it."""
        return socket.AF_INET6 if ":" in self.local[0] else socket.AF_INET


def _checked_ip(address: SocketAddress, *, port_min: int) -> IPv4Address | IPv6Address:
    host, port = address
    ip = literal(host)
    if ip is None:
        message = f"{host!r} is not a numeric address; resolve the name first"
        raise ConfigurationError(message)
    if not port_min <= port <= PORT_MAX:
        message = f"the port of {format_address(address)} must be between {port_min} and {PORT_MAX}"
        raise ConfigurationError(message)
    return ip


def send_socket_specs(
    channel: UdpChannel, context: DriverContext, *, ports: WildcardPorts | None = None
) -> tuple[SocketSpec, SocketSpec | None]:
    """Return the sockets of a sending endpoint: for data, and for control where that is another.

    Unicast: one socket, connected to the receiver. Multicast: one connected to the group, and one
    that is a member of its control group. Otherwise one that sends to whom it is told.

    Args:
        channel: Of a publication.
        context: Says what the channel leaves open.
        ports: Where a control port of 0 comes from; only an explicit control address uses them.
    """
    spec = SocketSpec(
        local=channel.local_data,
        socket_sndbuf_length=channel.uri.socket_sndbuf_length or context.socket_sndbuf_length,
        socket_rcvbuf_length=channel.uri.socket_rcvbuf_length or context.socket_rcvbuf_length,
        interface=channel.interface,
        wildcard_ports=ports if channel.has_explicit_control else None,
        is_batching=context.socket_batching,
    )
    if not channel.is_multicast:
        is_connected = (
            context.driver_connect
            and channel.has_explicit_endpoint
            and channel.control_mode is None
        )
        return attrs.evolve(spec, remote=channel.remote_data if is_connected else None), None
    assert channel.remote_control is not None
    ttl = channel.ttl or context.socket_multicast_ttl
    # Differs: Aeron leaves this socket unbound, and the system chooses among the addresses of the
    # interface; here the source of the stream is the address that the channel means.
    data = attrs.evolve(spec, local=(channel.local_data[0], 0), remote=channel.remote_data, ttl=ttl)
    return data, _member(spec, channel.remote_control, ttl)


def receive_socket_spec(
    channel: UdpChannel,
    context: DriverContext,
    *,
    ports: WildcardPorts | None = None,
    owner: UdpChannel | None = None,
) -> SocketSpec:
    """Return the socket of a receiving endpoint, or of one destination of a subscription.

    Args:
        channel: Of a subscription or its destination.
        context: Says what the channel leaves open.
        ports: Where an endpoint port of 0 comes from.
        owner: The subscription's own channel, where `channel` is that of a destination: it says
            how long the buffers are.
    """
    uri = (owner or channel).uri
    spec = SocketSpec(
        local=channel.remote_data,
        socket_sndbuf_length=uri.socket_sndbuf_length or context.socket_sndbuf_length,
        socket_rcvbuf_length=uri.socket_rcvbuf_length or context.socket_rcvbuf_length,
        interface=channel.interface,
        wildcard_ports=ports,
        is_timestamped=uri.media_receive_timestamp_offset is not None,
        is_batching=context.socket_batching,
    )
    if not channel.is_multicast:
        return spec
    ttl = channel.ttl or context.socket_multicast_ttl
    return _member(spec, channel.remote_data, ttl)


def _member(spec: SocketSpec, group: SocketAddress, ttl: int) -> SocketSpec:
    host, port = group
    return attrs.evolve(
        spec,
        local=wildcard_like(group, port),
        group=host,
        ttl=ttl,
        reuse_address=True,
        reuse_port=True,
    )
