"""Makes a non-blocking UDP socket from its description, or says what to change."""

from __future__ import annotations

import errno
import socket
from typing import TYPE_CHECKING, Final, NoReturn

from aeron_async.driver.core.udp_channel import format_address
from aeron_async.errors import ErrorCode, RegistrationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aeron_async.driver.media.socket_spec import SocketAddress, SocketSpec

__all__ = ["open_socket", "two_tuple"]

REMEDIES: Final[Mapping[int, str]] = {
    errno.EADDRINUSE: "another socket holds this port: choose another one, or stop its program",
    errno.EADDRNOTAVAIL: "no interface of this machine has this address: bind one of its own",
    errno.EACCES: "ports below 1024 and broadcast addresses need privileges: choose another",
    errno.EAFNOSUPPORT: "this machine has no such address family: use the other one",
    errno.EMFILE: "this process has too many open files: raise `ulimit -n`",
    errno.ENETUNREACH: "no route leads there: check the address and the interface",
}
OTHER_REMEDY: Final = "check the endpoint, control and interface of the channel"


def open_socket(spec: SocketSpec) -> socket.socket:
    """Return a non-blocking socket, bound, and connected where a remote address is given.

    Raises:
        RegistrationError: CHANNEL_ENDPOINT_ERROR; the system refused, the message says what.
    """
    try:
        sock = socket.socket(spec.family, socket.SOCK_DGRAM)
    except OSError as error:
        _refuse("open a socket for", spec.local, error)
    try:
        _set_options(sock, spec)
        sock.bind(spec.local)
    except OSError as error:
        sock.close()
        _refuse("bind", spec.local, error)
    if spec.remote is not None:
        try:
            sock.connect(spec.remote)
        except OSError as error:
            sock.close()
            _refuse("connect to", spec.remote, error)
    return sock


def two_tuple(address: tuple[str, int] | tuple[str, int, int, int]) -> SocketAddress:
    """Return the host and port of an address of either family."""
    return address[0], address[1]


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


def _refuse(deed: str, address: SocketAddress, error: OSError) -> NoReturn:
    remedy = REMEDIES.get(error.errno or 0, OTHER_REMEDY)
    message = f"cannot {deed} {format_address(address)}: {error.strerror or error}; {remedy}"
    raise RegistrationError(message, code=ErrorCode.CHANNEL_ENDPOINT_ERROR) from error
