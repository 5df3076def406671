"""The network interface of a driver, and its implementation for this machine.

A simulated network implements the same `Network` as `SystemNetwork`; no code above sees the
difference.

Source: Aeron `NetworkUtil`, `InterfaceSearchAddress`, `aeron_netutil.c`.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, get_args

import attrs

from aeron_async.driver.media.loop_transport import open_loop_transport
from aeron_async.driver.media.socket_transport import SocketTransport
from aeron_async.driver.media.sockets import (
    BufferLengths,
    DropLog,
    ShortageLog,
    SocketAddress,
    literal,
    open_socket,
    refuse_timestamps,
    two_tuple,
)
from aeron_async.errors import ConfigurationError, ErrorCode, RegistrationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.driver.media.sockets import SocketSpec

__all__ = [
    "InterfaceAddress",
    "Network",
    "SystemNetwork",
    "TransportKind",
    "resolve_host",
    "system_interfaces",
]


@attrs.frozen(kw_only=True)
class InterfaceAddress:
    """One address of one interface of this machine.

    Attributes:
        name: Name of the interface, such as `eth0`.
        index: The system's number of the interface.
        address: Numeric, without a scope.
        prefix_length: Leading bits of its own network.
        is_up: Whether the interface is in use.
        is_loopback: Whether the interface leads to this machine itself.
        is_multicast: Whether the interface can carry multicast.
    """

    name: str
    index: int
    address: str
    prefix_length: int
    is_up: bool = True
    is_loopback: bool = False
    is_multicast: bool = True

    def __str__(self) -> str:
        down = "" if self.is_up else ", down"
        return f"{self.name} {self.address}/{self.prefix_length}{down}"


def system_interfaces() -> tuple[InterfaceAddress, ...]:
    """Return the addresses of this machine, in the order of their interface numbers.

    Blocks for as long as the system takes; do not call it in the event loop.
    """
    import psutil  # noqa: PLC0415 - takes 20 ms to load, and most drivers never ask

    stats = psutil.net_if_stats()
    found = [
        InterfaceAddress(
            name=name,
            index=_index_of(name),
            address=each.address.partition("%")[0],
            prefix_length=_prefix_length(each.address.partition("%")[0], each.netmask),
            is_up=stats[name].isup,
            is_loopback="loopback" in stats[name].flags.split(","),
            is_multicast="multicast" in stats[name].flags.split(","),
        )
        for name, addresses in psutil.net_if_addrs().items()
        for each in addresses
        if each.family in {socket.AF_INET, socket.AF_INET6} and name in stats
    ]
    # In the system's order; psutil has sorted them by name and family.
    return tuple(sorted(found, key=lambda each: each.index))


def _prefix_length(host: str, netmask: str | None) -> int:
    return int(ip_address(netmask)).bit_count() if netmask else ip_address(host).max_prefixlen


def _index_of(name: str) -> int:
    try:
        return socket.if_nametoindex(name)
    except OSError:
        # An alias such as eth0:1 has no number of its own; its address is enough.
        return 0


async def resolve_host(host: str, port: int, *, loop: asyncio.AbstractEventLoop) -> SocketAddress:
    """Return the numeric address of a host: IPv4 if it has one, else IPv6.

    A numeric host is returned as it is, without a look-up. Of several addresses the first counts.

    Raises:
        RegistrationError: UNKNOWN_HOST; the name has no address, or is no valid name.

    Source: Aeron `aeron_ip_addr_resolver`.
    """
    if literal(host) is not None:
        return host, port
    try:
        infos = await loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    # A label over 63 characters fails in Python's own codec, before the look-up.
    except (OSError, UnicodeError) as error:
        raise _unknown(host, f"{error}") from None
    for family in (socket.AF_INET, socket.AF_INET6):
        for found_family, _, _, _, address in infos:
            if found_family == family:
                return str(address[0]), port
    raise _unknown(host, "no IPv4 or IPv6 address")


def _unknown(host: str, reason: str) -> RegistrationError:
    message = (
        f"cannot resolve host {host!r}: {reason}; "
        "check the name in the channel and the resolver of this machine, or write the address"
    )
    return RegistrationError(message, code=ErrorCode.UNKNOWN_HOST)


TransportKind = Literal["auto", "socket", "loop"]

BURST_LIMIT_DEFAULT: Final = 64


class Network(Protocol):
    """Opens datagram transports, resolves names and lists interfaces."""

    async def open(
        self, protocol_factory: Callable[[], asyncio.DatagramProtocol], spec: SocketSpec
    ) -> asyncio.DatagramTransport:
        """Open a transport that keeps the contract of `media/transport.py`.

        Its `get_extra_info` answers `sockname` and `peername` as (host, port) in both families,
        the latter None if not connected, and `granted_sndbuf_length` and `granted_rcvbuf_length`
        in bytes.

        Raises:
            RegistrationError: CHANNEL_ENDPOINT_ERROR; the system refused the socket.
        """
        ...

    async def resolve(
        self, host: str, port: int, *, is_re_resolution: bool = False
    ) -> SocketAddress:
        """Return the numeric address of a host: IPv4 if it has one, else IPv6.

        Args:
            host: A name, or numeric already.
            port: Returned with the address.
            is_re_resolution: Whether it was resolved before, and may have changed since.

        Raises:
            RegistrationError: UNKNOWN_HOST.
        """
        ...

    async def interfaces(self) -> tuple[InterfaceAddress, ...]:
        """Return the addresses of this machine, in the order of its system."""
        ...


class SystemNetwork:
    """The network of this machine.

    Args:
        transport: `socket` watches a socket of our own and receives in batches; `loop` uses the
            loop's own datagram transport; `auto` is `socket` if the loop has `add_reader`.
        burst_limit: Most datagrams that one socket of our own receives in one turn of the loop;
            batches and long datagrams count differently: see `ReadingTransport`.

    Raises:
        ConfigurationError: an unknown transport, or a burst limit below 1.
    """

    def __init__(
        self, transport: TransportKind = "auto", burst_limit: int = BURST_LIMIT_DEFAULT
    ) -> None:
        if transport not in get_args(TransportKind):
            choices = ", ".join(get_args(TransportKind))
            message = f"transport={transport!r} must be one of {choices}"
            raise ConfigurationError(message)
        if burst_limit < 1:
            message = f"burst_limit={burst_limit} must be 1 or more datagrams"
            raise ConfigurationError(message)
        self._transport = transport
        self._burst_limit = burst_limit
        self._shortages = ShortageLog()
        self._drop_log = DropLog()

    async def open(
        self, protocol_factory: Callable[[], asyncio.DatagramProtocol], spec: SocketSpec
    ) -> asyncio.DatagramTransport:
        """Open a socket and its transport; if that is cancelled or fails, nothing stays open.

        Raises:
            RegistrationError: CHANNEL_ENDPOINT_ERROR; the system refused the socket. NOT_SUPPORTED;
                the socket cannot give the timestamps asked for.
            ConfigurationError: `socket` was demanded of a loop without `add_reader`.
        """
        loop = asyncio.get_running_loop()
        if sys.platform != "linux":
            refuse_timestamps(spec, sys.platform)
        sock = open_socket(spec)
        try:
            extra = self._describe(sock, spec)
            protocol = protocol_factory()
            if not self._is_watching(loop, sock):
                refuse_timestamps(spec, "the transport 'loop'")
                return await open_loop_transport(loop, sock, protocol, extra=extra)
            transport = SocketTransport(
                loop,
                sock,
                protocol,
                burst_limit=self._burst_limit,
                extra=extra,
                is_batching=spec.is_batching,
            )
            transport.start()
        except BaseException:
            sock.close()
            raise
        return transport

    async def resolve(
        self, host: str, port: int, *, is_re_resolution: bool = False
    ) -> SocketAddress:
        """Return the numeric address of a host: IPv4 if it has one, else IPv6.

        Raises:
            RegistrationError: UNKNOWN_HOST.
        """
        del is_re_resolution
        return await resolve_host(host, port, loop=asyncio.get_running_loop())

    async def interfaces(self) -> tuple[InterfaceAddress, ...]:
        """Return the addresses of this machine, in the order of its system."""
        return await asyncio.get_running_loop().run_in_executor(None, system_interfaces)

    def _describe(self, sock: socket.socket, spec: SocketSpec) -> dict[str, Any]:
        granted = BufferLengths.of(sock, spec)
        self._shortages.note(spec, granted)
        return {
            "socket": sock,
            "sockname": two_tuple(sock.getsockname()),
            "peername": None if spec.remote is None else two_tuple(sock.getpeername()),
            # Shared by all sockets, so that a flood causes few lines.
            "drop_log": self._drop_log,
            **attrs.asdict(granted),
        }

    def _is_watching(self, loop: asyncio.AbstractEventLoop, sock: socket.socket) -> bool:
        if self._transport == "loop":
            return False
        try:
            # Changes nothing, and fails exactly if `add_reader` would.
            loop.remove_reader(sock)
        except NotImplementedError:
            if self._transport == "auto":
                return False
            message = (
                f"transport='socket' needs add_reader, which {type(loop).__name__} lacks; "
                "choose 'auto' or 'loop'"
            )
            raise ConfigurationError(message) from None
        return True
