"""The datagram seam: what everything above programs against, and the machine's own network.

A simulated network implements the same `Network`; nothing above can tell the difference.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, get_args

import attrs

from aeron_async.driver.media.buffers import BufferLengths, DropLog, ShortageLog
from aeron_async.driver.media.interfaces import system_interfaces
from aeron_async.driver.media.loop_transport import open_loop_transport
from aeron_async.driver.media.resolver import resolve_host
from aeron_async.driver.media.socket_transport import SocketTransport
from aeron_async.driver.media.sockets import open_socket, refuse_timestamps, two_tuple
from aeron_async.errors import ConfigurationError

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from aeron_async.driver.media.interfaces import InterfaceAddress
    from aeron_async.driver.media.socket_spec import SocketAddress, SocketSpec

__all__ = ["Network", "SystemNetwork", "TransportKind"]

TransportKind = Literal["auto", "socket", "loop"]

BURST_LIMIT_DEFAULT: Final = 64


class Network(Protocol):
    """Where datagram transports come from, and names become addresses."""

    async def open(
        self, protocol_factory: Callable[[], asyncio.DatagramProtocol], spec: SocketSpec
    ) -> asyncio.DatagramTransport:
        """Open a transport that keeps the contract of `media/transport.py`.

        Its `get_extra_info` answers `sockname` and `peername` as (host, port) in both families,
        the latter None where not connected, and `granted_sndbuf_length` and
        `granted_rcvbuf_length` in bytes.

        Raises:
            RegistrationError: CHANNEL_ENDPOINT_ERROR; the system refused the socket.
        """
        ...

    async def resolve(
        self, host: str, port: int, *, is_re_resolution: bool = False
    ) -> SocketAddress:
        """Return the numeric address of a host: IPv4 where it has one, else IPv6.

        Args:
            host: A name, or already numeric.
            port: Passed on.
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
            loop's own datagram transport; `auto` is `socket` wherever the loop has `add_reader`.
        burst_limit: Most datagrams that one socket of our own receives in one turn of the loop;
            those that come in runs, or are long, count otherwise: see `ReadingTransport`.

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
        """Open a socket and its transport; a cancelled or failed opening leaves nothing behind.

        Raises:
            RegistrationError: CHANNEL_ENDPOINT_ERROR; the system refused the socket. NOT_SUPPORTED;
                it is to tell of times that it cannot know.
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
        """Return the numeric address of a host: IPv4 where it has one, else IPv6.

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
            # Of all sockets: their lines are few, however many of them a flood finds.
            "drop_log": self._drop_log,
            **attrs.asdict(granted),
        }

    def _is_watching(self, loop: asyncio.AbstractEventLoop, sock: socket.socket) -> bool:
        if self._transport == "loop":
            return False
        try:
            # Changes nothing, and fails exactly where `add_reader` would.
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
