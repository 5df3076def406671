"""Makes a non-blocking UDP socket from its description, or says what to change.

Source: Aeron `aeron_udp_channel_transport_init`.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import struct
import sys
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final, NoReturn

from aeron_async.driver.core.udp_channel import format_address
from aeron_async.driver.media.socket_spec import is_group
from aeron_async.errors import ErrorCode, RegistrationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aeron_async.driver.media.socket_spec import SocketAddress, SocketSpec

__all__ = [
    "SO_RXQ_OVFL",
    "SO_TIMESTAMPNS",
    "UDP_GRO",
    "UDP_SEGMENT",
    "connect_socket",
    "offers_segmentation",
    "open_socket",
    "refuse_timestamps",
    "system_address",
    "two_tuple",
]

REMEDIES: Final[Mapping[int, str]] = {
    errno.EADDRINUSE: "another socket holds this port: choose another one, or stop its program",
    errno.EADDRNOTAVAIL: "no interface of this machine has this address: bind one of its own",
    errno.EACCES: "ports below 1024 and broadcast addresses need privileges: choose another",
    errno.EAFNOSUPPORT: "this machine has no such address family: use the other one",
    errno.EMFILE: "this process has too many open files: raise `ulimit -n`",
    errno.ENODEV: "no interface can join the group: check interface= of the channel",
    errno.ENETUNREACH: "no route leads there: check the address and the interface",
}
# Of the Linux headers; the module `socket` has none of them.
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
    """Refuse a socket that is to tell when the system had each datagram, if that is asked.

    Args:
        spec: The socket.
        what: What it is that cannot tell.

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
    """Return a non-blocking socket, bound, and connected where a remote address is given.

    Raises:
        RegistrationError: CHANNEL_ENDPOINT_ERROR; the system refused, the message says what.
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
    """Connect a socket that is connected to somebody else; its local port stays.

    Raises:
        RegistrationError: CHANNEL_ENDPOINT_ERROR; the system refused, and the peer is the old one.
    """
    try:
        sock.connect(system_address(address))
    except OSError as error:
        _refuse("connect to", address, error)


def offers_segmentation(sock: socket.socket) -> bool:
    """Return whether the system cuts a run of datagrams into segments itself.

    One that knows nothing of it would send the run as one datagram, and not complain.
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

    A host that every link has, such as fe80::1, gets the number of its link: it can be answered.
    """
    if len(address) == IPV6_TUPLE_LENGTH and address[3] and "%" not in address[0]:
        return f"{address[0]}%{address[3]}", address[1]
    return address[0], address[1]


def system_address(address: SocketAddress) -> tuple[Any, ...]:
    """Return an address as sockets want it: the link of a host that every link has by its number.

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
    if spec.socket_rcvbuf_length:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, spec.socket_rcvbuf_length)
    if spec.is_timestamped:
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    if sys.platform == "linux":
        _set_reading_options(sock, spec)
    if spec.group is not None or (spec.remote is not None and is_group(spec.remote[0])):
        _set_multicast_options(sock, spec)


def _set_reading_options(sock: socket.socket, spec: SocketSpec) -> None:
    # What an old kernel does not know, it does without: nothing depends on either.
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, SO_RXQ_OVFL, 1)
    # The datagrams of a run have one time between them, and a timestamp is of each.
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
        # By default Linux gives a socket whatever group any other socket of the machine has joined.
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
    """Return a `struct ip_mreqn`: two interfaces may have one address, but no two one index."""
    interface = spec.interface
    address, index = ("0.0.0.0", 0) if interface is None else (interface.address, interface.index)  # noqa: S104 - the system's choice
    return socket.inet_aton(group) + socket.inet_aton(address) + struct.pack("@i", index)


def _scoped(address: SocketAddress, spec: SocketSpec) -> tuple[Any, ...]:
    """Return what the system wants to be told: which link an address is of that many links have."""
    interface = spec.interface
    if "%" in address[0] or interface is None or not interface.index:
        return system_address(address)
    ip = ip_address(address[0])
    is_scoped = spec.family == socket.AF_INET6 and (ip.is_link_local or is_group(address[0]))
    return (*address, 0, interface.index) if is_scoped else address


def _refuse(deed: str, address: SocketAddress, error: OSError) -> NoReturn:
    remedy = REMEDIES.get(error.errno or 0, OTHER_REMEDY)
    message = f"cannot {deed} {format_address(address)}: {error.strerror or error}; {remedy}"
    # The message says all that the error of the system does.
    raise RegistrationError(message, code=ErrorCode.CHANNEL_ENDPOINT_ERROR) from None
