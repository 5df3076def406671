"""What a datagram socket is to be: addresses, buffer lengths, sharing; checked before any I/O."""

from __future__ import annotations

import socket
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

import attrs

from aeron_async.driver.core.udp_channel import format_address
from aeron_async.errors import ConfigurationError

__all__ = ["SocketAddress", "SocketSpec", "literal"]

SocketAddress = tuple[str, int]
"""A numeric host and a port; both families alike."""

PORT_MAX: Final = 65535
SOCKET_BUFFER_LENGTH_MAX: Final = 2**31 - 1


def literal(host: str) -> IPv4Address | IPv6Address | None:
    """Return the address that a numeric host stands for, or None where the host is a name."""
    try:
        return ip_address(host)
    except ValueError:
        return None


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

    Raises:
        ConfigurationError: a host that is a name, two families, a port or length out of range.
    """

    local: SocketAddress
    remote: SocketAddress | None = None
    socket_sndbuf_length: int = 0
    socket_rcvbuf_length: int = 0
    reuse_address: bool = False
    reuse_port: bool = False

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
