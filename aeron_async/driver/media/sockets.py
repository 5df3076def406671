"""UDP sockets: their description, ports, options, opening and buffer lengths.

Invariant: `WildcardPorts` stores only which port to try next. Whether a port is free, only the
system knows.

A receive buffer smaller than the receiver window loses datagrams in every burst, and only resends
show it. So `ShortageLog` warns once of each shortage, and names the setting that corrects it.

Source: Aeron `WildcardPortManager`, `aeron_port_manager.c`, `UdpChannelTransport`,
`aeron_udp_channel_transport_init`, also for which mode needs which socket.
"""

from __future__ import annotations

import contextlib
import errno
import math
import socket
import struct
import sys
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import TYPE_CHECKING, Any, Final, NoReturn

import attrs

from aeron_async.driver.core.congestion_control.auto_window import WISHED_RCVBUF_LENGTH
from aeron_async.driver.core.stream_params import is_window_auto
from aeron_async.driver.core.stream_settings import DEFAULT_RCVBUF_LENGTH
from aeron_async.driver.core.udp_channel import format_address, wildcard_like
from aeron_async.errors import ConfigurationError, ErrorCode, RegistrationError
from aeron_async.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from aeron_async.driver.core.context import DriverContext
    from aeron_async.driver.core.udp_channel import Interface, UdpChannel
    from aeron_async.protocol.channel_uri import ChannelUri

__all__ = [
    "SO_RXQ_OVFL",
    "SO_TIMESTAMPNS",
    "UDP_GRO",
    "UDP_SEGMENT",
    "BufferLengths",
    "DropLog",
    "ShortageLog",
    "SocketAddress",
    "SocketSpec",
    "WildcardPorts",
    "connect_socket",
    "is_group",
    "literal",
    "offers_segmentation",
    "open_socket",
    "receive_socket_spec",
    "refuse_timestamps",
    "send_socket_specs",
    "system_address",
    "two_tuple",
]


# Ports.


@attrs.define(eq=False)
class WildcardPorts:
    """A range of ports, and the one to try next.

    Differs: Aeron knows only the ports of its own sockets, and fails on one that another program
    holds; here every port of the range is tried.

    Attributes:
        low: The first port of the range.
        high: The last one.
    """

    low: int
    high: int
    _next_port: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._next_port = self.low

    @classmethod
    def of(cls, port_range: tuple[int, int]) -> WildcardPorts | None:
        """Return the ports of a setting, or None for 0 and 0, which let the system choose."""
        low, high = port_range
        return None if low == high == 0 else cls(low, high)

    def candidates(self) -> Iterator[int]:
        """Yield every port once, starting after the port that was last taken."""
        first = self._next_port
        # Port 0 is left out of a range from 0: to the system it means any port at all.
        for port in (*range(first, self.high + 1), *range(self.low, first)):
            if port:
                yield port

    def take(self, port: int) -> None:
        """Continue after a port that could be bound."""
        self._next_port = port + 1 if port < self.high else self.low

    def refuse(self, host: str) -> NoReturn:
        """Refuse the socket: no port of the range could be bound.

        Raises:
            RegistrationError: CHANNEL_ENDPOINT_ERROR, always.
        """
        message = (
            f"no available ports in range {self.low} {self.high} on {host}: widen the setting "
            "sender_wildcard_port_range or receiver_wildcard_port_range, or close a channel"
        )
        raise RegistrationError(message, code=ErrorCode.CHANNEL_ENDPOINT_ERROR)


SocketAddress = tuple[str, int]
"""A numeric host and a port, for both families."""

# Descriptions.

PORT_MAX: Final = 65535
SOCKET_BUFFER_LENGTH_MAX: Final = 2**31 - 1
TTL_MAX: Final = 255
IPV4_GROUPS: Final = IPv4Network("224.0.0.0/4")
IPV6_GROUPS: Final = IPv6Network("ff00::/8")


def literal(host: str) -> IPv4Address | IPv6Address | None:
    """Return the address of a numeric host, or None if the host is a name."""
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
    """The settings of one UDP socket.

    Attributes:
        local: The address to bind; the wildcard address and port 0 leave the choice to the system.
        remote: The address to connect to, or None. A connected socket receives from no other.
        socket_sndbuf_length: SO_SNDBUF in bytes; 0 is the system's default.
        socket_rcvbuf_length: SO_RCVBUF in bytes; 0 is the system's default.
        wished_rcvbuf_length: The same if the system grants it; less is no shortage.
        reuse_address: Whether SO_REUSEADDR is set.
        reuse_port: Whether SO_REUSEPORT is set.
        group: The multicast group to join, numeric; the socket receives from no other group.
        interface: The interface for joining the group and sending multicast; None is the system's
            choice.
        ttl: Hops of multicast datagrams; 0 is the system's default.
        wildcard_ports: The ports to try for a local port of 0; None leaves it to the system.
        is_timestamped: Whether the protocol gets the time at which the system had each datagram.
        is_batching: Whether one system call may send, and receive, many datagrams.

    Raises:
        ConfigurationError: a host that is a name, two families, a group that is no multicast
            address, or a port, length or number of hops out of range.
    """

    local: SocketAddress
    remote: SocketAddress | None = None
    socket_sndbuf_length: int = 0
    socket_rcvbuf_length: int = 0
    wished_rcvbuf_length: int = 0
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
        """AF_INET or AF_INET6, the family of the local address."""
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
    """Return the sockets of a send endpoint: for data, and for control if that is separate.

    Unicast: one socket, connected to the receiver. Multicast: one connected to the group, and one
    that is a member of its control group. Otherwise one that is not connected.

    Args:
        channel: The channel of a publication.
        context: Gives the values that the channel leaves out.
        ports: The ports to try for a control port of 0; only for an explicit control address.
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
    # Differs: Aeron leaves this socket unbound, and the system chooses an address of the interface;
    # here the source of the stream is the address given by the channel.
    data = attrs.evolve(spec, local=(channel.local_data[0], 0), remote=channel.remote_data, ttl=ttl)
    return data, _member(spec, channel.remote_control, ttl)


def receive_socket_spec(
    channel: UdpChannel,
    context: DriverContext,
    *,
    ports: WildcardPorts | None = None,
    owner: UdpChannel | None = None,
) -> SocketSpec:
    """Return the socket of a receive endpoint, or of one destination of a subscription.

    Args:
        channel: The channel of the subscription or of its destination.
        context: Gives the values that the channel leaves out.
        ports: The ports to try for an endpoint port of 0.
        owner: The subscription's own channel, if `channel` is that of a destination: it gives the
            buffer lengths.
    """
    uri = (owner or channel).uri
    spec = SocketSpec(
        local=channel.remote_data,
        socket_sndbuf_length=uri.socket_sndbuf_length or context.socket_sndbuf_length,
        socket_rcvbuf_length=uri.socket_rcvbuf_length or context.socket_rcvbuf_length,
        wished_rcvbuf_length=wished_rcvbuf_length(uri, context),
        interface=channel.interface,
        wildcard_ports=ports,
        is_timestamped=uri.media_receive_timestamp_offset is not None,
        is_batching=context.socket_batching,
    )
    if not channel.is_multicast:
        return spec
    ttl = channel.ttl or context.socket_multicast_ttl
    return _member(spec, channel.remote_data, ttl)


def wished_rcvbuf_length(uri: ChannelUri, context: DriverContext) -> int:
    """Return the receive buffer that a window needs in order to grow, in bytes; 0 for none.

    A buffer that the channel has chosen, or another one of the context than the default, stays as
    it is.
    """
    is_chosen = (
        uri.socket_rcvbuf_length is not None
        or context.socket_rcvbuf_length != DEFAULT_RCVBUF_LENGTH
    )
    return 0 if is_chosen or not is_window_auto(uri, context) else WISHED_RCVBUF_LENGTH


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


# Opening.

REMEDIES: Final[Mapping[int, str]] = {
    errno.EADDRINUSE: "another socket holds this port: choose another one, or stop its program",
    errno.EADDRNOTAVAIL: "no interface of this machine has this address: choose one of its own",
    errno.EACCES: "ports below 1024 and broadcast addresses need privileges: choose another",
    errno.EAFNOSUPPORT: "this machine lacks this address family: use the other (IPv4 or IPv6)",
    errno.EMFILE: "this process has too many open files: raise `ulimit -n`",
    errno.ENODEV: "no interface can join the group: check interface= of the channel",
    errno.ENETUNREACH: "there is no route to it: check the address and the interface",
}
# From the Linux headers; the module `socket` has none of them.
IP_MULTICAST_ALL: Final = 49
IPV6_MULTICAST_ALL: Final = 29
SO_TIMESTAMPNS: Final = 35
SO_RXQ_OVFL: Final = 40
UDP_SEGMENT: Final = 103
UDP_GRO: Final = 104
# Host, port, flow and scope.
IPV6_TUPLE_LENGTH: Final = 4
OTHER_REMEDY: Final = "check the endpoint, control and interface of the channel"


def refuse_timestamps(spec: SocketSpec, what: str) -> None:
    """Refuse a socket that must give the time of each datagram, if that is asked for.

    Args:
        spec: The socket.
        what: What cannot give the time.

    Raises:
        RegistrationError: NOT_SUPPORTED.
    """
    if spec.is_timestamped:
        message = (
            f"media-rcv-ts-offset is not supported by {what}: it needs Linux and the transport "
            "'socket'; channel-rcv-ts-offset has the driver's own time"
        )
        raise RegistrationError(message, code=ErrorCode.NOT_SUPPORTED)


def open_socket(spec: SocketSpec) -> socket.socket:
    """Return a non-blocking socket that is bound, and connected if a remote address is given.

    Raises:
        RegistrationError: CHANNEL_ENDPOINT_ERROR; the system refused, and the message says why.
    """
    try:
        sock = socket.socket(spec.family, socket.SOCK_DGRAM)
    except OSError as error:
        _refuse("open a socket for", spec.local, error)
    deed, address = "bind", spec.local
    try:
        _set_options(sock, spec)
        _bind(sock, spec)
        if spec.group is not None:
            deed, address = "join", (spec.group, spec.local[1])
            _join(sock, spec.group, spec)
        if spec.remote is not None:
            deed, address = "connect to", spec.remote
            sock.connect(_scoped(spec.remote, spec))
    except OSError as error:
        sock.close()
        _refuse(deed, address, error)
    except RegistrationError:
        sock.close()
        raise
    return sock


def connect_socket(sock: socket.socket, address: SocketAddress) -> None:
    """Connect a connected socket to another peer; its local port stays.

    Raises:
        RegistrationError: CHANNEL_ENDPOINT_ERROR; the system refused, and the old peer stays.
    """
    try:
        sock.connect(system_address(address))
    except OSError as error:
        _refuse("connect to", address, error)


def offers_segmentation(sock: socket.socket) -> bool:
    """Return whether the system itself segments a batch into datagrams.

    A system without this option would send the batch as one datagram without an error.
    """
    if sys.platform != "linux":
        return False
    try:
        sock.getsockopt(socket.SOL_UDP, UDP_SEGMENT)
    except OSError:
        return False
    return True


def two_tuple(address: tuple[Any, ...]) -> SocketAddress:
    """Return the host and port of an address of either family.

    A link-local host, such as fe80::1, gets the number of its link, so that it can be answered.
    """
    if len(address) == IPV6_TUPLE_LENGTH and address[3] and "%" not in address[0]:
        return f"{address[0]}%{address[3]}", address[1]
    return address[0], address[1]


def system_address(address: SocketAddress) -> tuple[Any, ...]:
    """Return an address as sockets expect it: with the index of the link of a link-local host.

    Raises:
        OSError: There is no such link.
    """
    host, scope, link = address[0].partition("%")
    if not scope:
        return address
    index = int(link) if link.isdecimal() else socket.if_nametoindex(link)
    return host, address[1], 0, index


def _set_options(sock: socket.socket, spec: SocketSpec) -> None:
    sock.setblocking(False)
    if spec.family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    if spec.reuse_address:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if spec.reuse_port:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    if spec.socket_sndbuf_length:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, spec.socket_sndbuf_length)
    receive_buffer_length = max(spec.socket_rcvbuf_length, spec.wished_rcvbuf_length)
    if receive_buffer_length:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_length)
    if spec.is_timestamped:
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    if sys.platform == "linux":
        _set_reading_options(sock, spec)
    if spec.group is not None or (spec.remote is not None and is_group(spec.remote[0])):
        _set_multicast_options(sock, spec)


def _set_reading_options(sock: socket.socket, spec: SocketSpec) -> None:
    # Older kernels lack these options, and nothing depends on them.
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, SO_RXQ_OVFL, 1)
    # The datagrams of a batch share one time, but each needs its own.
    if spec.is_batching and not spec.is_timestamped:
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_UDP, UDP_GRO, 1)


def _set_multicast_options(sock: socket.socket, spec: SocketSpec) -> None:
    interface = spec.interface
    if spec.family == socket.AF_INET6:
        level, ttl_option = socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS
        if interface is not None and interface.index:
            sock.setsockopt(level, socket.IPV6_MULTICAST_IF, interface.index)
    else:
        level, ttl_option = socket.IPPROTO_IP, socket.IP_MULTICAST_TTL
        if interface is not None:
            sock.setsockopt(level, socket.IP_MULTICAST_IF, _ipv4_membership("0.0.0.0", spec))  # noqa: S104 - of no group
    if spec.ttl:
        sock.setsockopt(level, ttl_option, spec.ttl)
    if spec.group is not None and sys.platform == "linux":
        # By default Linux delivers to a socket any group that any socket of the machine has joined.
        option = IPV6_MULTICAST_ALL if spec.family == socket.AF_INET6 else IP_MULTICAST_ALL
        with contextlib.suppress(OSError):
            sock.setsockopt(level, option, 0)


def _bind(sock: socket.socket, spec: SocketSpec) -> None:
    ports = spec.wildcard_ports
    host, port = spec.local
    if port or ports is None:
        sock.bind(_scoped(spec.local, spec))
        return
    for candidate in ports.candidates():
        try:
            sock.bind(_scoped((host, candidate), spec))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            ports.take(candidate)
            return
    ports.refuse(host)


def _join(sock: socket.socket, group: str, spec: SocketSpec) -> None:
    if spec.family == socket.AF_INET6:
        index = 0 if spec.interface is None else spec.interface.index
        membership = ip_address(group).packed + struct.pack("@I", index)
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, membership)
    else:
        membership = _ipv4_membership(group, spec)
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)


def _ipv4_membership(group: str, spec: SocketSpec) -> bytes:
    """Return a `struct ip_mreqn`: two interfaces may share an address, but never an index."""
    interface = spec.interface
    address, index = ("0.0.0.0", 0) if interface is None else (interface.address, interface.index)  # noqa: S104 - the system's choice
    return socket.inet_aton(group) + socket.inet_aton(address) + struct.pack("@i", index)


def _scoped(address: SocketAddress, spec: SocketSpec) -> tuple[Any, ...]:
    """Return an address as sockets expect it, with the link of a link-local host or group."""
    interface = spec.interface
    if "%" in address[0] or interface is None or not interface.index:
        return system_address(address)
    ip = ip_address(address[0])
    is_scoped = spec.family == socket.AF_INET6 and (ip.is_link_local or is_group(address[0]))
    return (*address, 0, interface.index) if is_scoped else address


def _refuse(deed: str, address: SocketAddress, error: OSError) -> NoReturn:
    remedy = REMEDIES.get(error.errno or 0, OTHER_REMEDY)
    message = f"cannot {deed} {format_address(address)}: {error.strerror or error}; {remedy}"
    # The message contains all that the system's error says.
    raise RegistrationError(message, code=ErrorCode.CHANNEL_ENDPOINT_ERROR) from None


# Buffer lengths.

# Linux doubles the requested length, to cover its own bookkeeping, and reports the double.
REPORTED_PER_GRANTED: Final = 2 if sys.platform == "linux" else 1

DROP_LOG_INTERVAL_S: Final = 1.0

_log: Final[Any] = get_logger(__name__)


@attrs.frozen(kw_only=True)
class BufferLengths:
    """The granted lengths of a socket's buffers, in bytes, comparable with the requested ones.

    Where the system's default is used, a length is what the kernel reports, as in Aeron.

    Attributes:
        granted_sndbuf_length: SO_SNDBUF.
        granted_rcvbuf_length: SO_RCVBUF.
    """

    granted_sndbuf_length: int
    granted_rcvbuf_length: int

    @classmethod
    def of(cls, sock: socket.socket, spec: SocketSpec) -> BufferLengths:
        """Return the lengths of an open socket."""
        return cls(
            granted_sndbuf_length=_granted(sock, socket.SO_SNDBUF, spec.socket_sndbuf_length),
            granted_rcvbuf_length=_granted(
                sock, socket.SO_RCVBUF, spec.socket_rcvbuf_length or spec.wished_rcvbuf_length
            ),
        )


MEMINFO: Final = struct.Struct("9I")
SO_MEMINFO: Final = 55
"""Linux tells by it what a socket holds, its limits, and how many datagrams it has dropped."""


def receive_state(sock: socket.socket | None) -> tuple[int, int | None, int | None]:
    """Return how much a socket has dropped, how many bytes it holds, and how many it may hold.

    The lengths include the system's overhead. Where the system does not say, they are None.
    """
    if sock is None or sys.platform != "linux":
        return 0, None, None
    try:
        held = sock.getsockopt(socket.SOL_SOCKET, SO_MEMINFO, MEMINFO.size)
    except OSError:
        # It is closed, or the kernel is older than 4.12.
        return 0, None, None
    queued, buffer, *_, dropped = MEMINFO.unpack(held)
    return dropped, queued, buffer


class ShortageLog:
    """Logs one warning for each setting and length that was not granted, for all sockets together.

    Differs: Aeron compares with the length that Linux doubled, so it does not notice a buffer of
    which only half was granted.
    """

    def __init__(self) -> None:
        self._seen: set[tuple[str, int]] = set()

    def note(self, spec: SocketSpec, granted: BufferLengths) -> None:
        """Warn if a buffer is shorter than requested."""
        self._compare(
            "net.core.wmem_max", spec, spec.socket_sndbuf_length, granted.granted_sndbuf_length
        )
        self._compare(
            "net.core.rmem_max", spec, spec.socket_rcvbuf_length, granted.granted_rcvbuf_length
        )

    def _compare(self, sysctl: str, spec: SocketSpec, asked: int, granted: int) -> None:
        if granted >= asked or (sysctl, asked) in self._seen:
            return
        self._seen.add((sysctl, asked))
        _log.warning(
            "socket_buffer_clamped",
            local=format_address(spec.local),
            asked_length=asked,
            granted_length=granted,
            remedy=f"sysctl -w {sysctl}={asked}",
        )


class DropLog:
    """Logs a warning for datagrams that the system dropped, at most once a second in all."""

    def __init__(self) -> None:
        self._count = 0
        self._next_s = -math.inf

    def note(self, count: int, extra: Mapping[str, Any], now_s: float) -> None:
        """Warn of dropped datagrams, with all those since the last warning.

        Args:
            count: How many were dropped.
            extra: From the socket's transport: `sockname` and `granted_rcvbuf_length`.
            now_s: The loop's time.
        """
        self._count += count
        if now_s < self._next_s:
            return
        self._next_s = now_s + DROP_LOG_INTERVAL_S
        _log.warning(
            "datagrams_dropped",
            local=format_address(extra.get("sockname", ("", 0))),
            count=self._count,
            granted_rcvbuf_length=extra.get("granted_rcvbuf_length", 0),
            remedy="raise socket_rcvbuf_length, or so-rcvbuf of the channel (SO_RCVBUF), "
            "and sysctl net.core.rmem_max with it",
        )
        self._count = 0


def _granted(sock: socket.socket, option: int, asked: int) -> int:
    reported = sock.getsockopt(socket.SOL_SOCKET, option)
    return reported // REPORTED_PER_GRANTED if asked else reported
