"""The loop's own datagram transport under our contract, for loops that cannot watch a socket.

The loop's write queue has no limit, so `LoopTransport` asks for a pause at the first datagram that
the loop cannot send. One flaw remains: uvloop prints the error of a datagram that failed after
waiting to standard output.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol, cast

from aeron_async.driver.media.socket_transport import DATAGRAM_LENGTH_MAX
from aeron_async.driver.media.sockets import connect_socket, system_address, two_tuple
from aeron_async.driver.media.transport import BoundedTransport, Datagram, Destination

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping

    from aeron_async.driver.media.sockets import SocketAddress

__all__ = ["LoopTransport", "open_loop_transport"]


class InnerTransport(Protocol):
    """The methods that the datagram transports of asyncio and uvloop have in common."""

    def sendto(self, data: bytes, addr: Destination = None, /) -> None:
        """Send, or queue."""
        ...

    def get_write_buffer_size(self) -> int:
        """Return the bytes queued."""
        ...

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the marks at which the protocol is paused and resumed, in bytes."""
        ...

    def close(self) -> None:
        """Send what is queued, then close."""
        ...

    def abort(self) -> None:
        """Close at once."""
        ...


class LoopTransport(BoundedTransport):
    """A datagram transport over the one that `create_datagram_endpoint` returns.

    Args:
        loop: The loop that runs it.
        sock: The socket that was passed to the loop.
        protocol: The protocol to call.
        extra: Answers of `get_extra_info`.

    Attributes:
        failure: The error of the protocol's `connection_made`, to be raised by the opener.
    """

    _inner: InnerTransport

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        protocol: asyncio.DatagramProtocol,
        extra: Mapping[str, Any],
    ) -> None:
        super().__init__(loop, protocol, extra)
        self._sock = sock
        self._is_attached = False
        self._last_length = 0
        self._is_waiting = False
        self.failure: Exception | None = None

    def sendto(self, data: Datagram, addr: Destination = None) -> None:
        """Send now, or leave this one datagram to the loop until the socket has room.

        The data may be reused once this returns. `addr` is numeric: a name would block the loop.

        Raises:
            BufferError: a datagram is already waiting.
            ClosedError: the transport is closed.
            ValueError: no data; or an address on a connected socket, or none on another.
        """
        if self._is_blocked or not data or (addr is None) is not self._is_connected:
            self._refuse(data, addr)
        # uvloop would keep a view of a waiting datagram, not a copy, and the log changes under it.
        self._last_length = len(data)
        self._inner.sendto(bytes(data), None if addr is None else system_address(addr))

    def get_write_buffer_size(self) -> int:
        """Return the length of the waiting datagram, or 0."""
        return self._last_length if self._is_waiting else 0

    def close(self) -> None:
        """Stop receiving, send a waiting datagram, then close; safe to call again."""
        self._is_closing = self._is_blocked = True
        self._inner.close()

    def abort(self) -> None:
        """Close at once; a waiting datagram is lost."""
        self._is_closing = self._is_blocked = True
        # asyncio's transport fails when it is aborted after the end.
        if self._is_attached:
            self._inner.abort()

    def _connect(self, address: SocketAddress) -> None:
        # Below the loop, which only knows that its socket is connected, not to which peer.
        connect_socket(self._sock, address)

    def on_made(self, inner: InnerTransport) -> None:
        """Store the loop's transport, and call `connection_made` of the protocol."""
        self._inner = inner
        self._is_attached = True
        inner.set_write_buffer_limits(high=0)
        if hasattr(inner, "max_size"):
            # asyncio allocates this much for each datagram. Its default is 256 KiB, which the C
            # library may map and unmap each time: measured, that makes receiving four times slower.
            inner.max_size = DATAGRAM_LENGTH_MAX
        try:
            self._protocol.connection_made(self)
        except Exception as error:  # noqa: BLE001 - raised by the opener, not into the loop
            self.failure = error
            self.abort()

    def on_received(self, data: bytes, addr: SocketAddress) -> None:
        """Pass a datagram from the loop to the protocol."""
        self._tell(self._protocol.datagram_received, data, addr)

    def on_error(self, error: Exception) -> None:
        """Pass an error from the loop to the protocol."""
        self._tell_error(error)

    def on_pause(self) -> None:
        """Record that a datagram waits in the loop."""
        self._is_blocked = self._is_waiting = True
        # Since Python 3.13 asyncio counts eight bytes for an address, and up to 3.13.5 it never
        # subtracts them again: with a limit of 0 it would not resume after the first pause.
        uncounted = max(0, self._inner.get_write_buffer_size() - self._last_length)
        self._inner.set_write_buffer_limits(high=uncounted, low=uncounted)
        self._tell(self._protocol.pause_writing)

    def on_resume(self) -> None:
        """Record that the waiting datagram has been sent."""
        self._is_waiting = False
        if not self._is_closing:
            self._is_blocked = False
            self._tell(self._protocol.resume_writing)

    def on_lost(self, error: Exception | None) -> None:
        """Record that the loop has closed the socket."""
        self._is_closing = self._is_blocked = True
        self._is_attached = self._is_waiting = False
        self._tell_lost(error)


class _Adapter(asyncio.DatagramProtocol):
    """The protocol that the loop calls."""

    def __init__(self, transport: LoopTransport) -> None:
        self._transport = transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport.on_made(cast("InnerTransport", transport))

    def datagram_received(self, data: bytes, addr: tuple[str | Any, int]) -> None:
        self._transport.on_received(data, two_tuple(addr))

    def error_received(self, exc: Exception) -> None:
        self._transport.on_error(exc)

    def pause_writing(self) -> None:
        self._transport.on_pause()

    def resume_writing(self) -> None:
        self._transport.on_resume()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport.on_lost(exc)


async def open_loop_transport(
    loop: asyncio.AbstractEventLoop,
    sock: socket.socket,
    protocol: asyncio.DatagramProtocol,
    *,
    extra: Mapping[str, Any],
) -> LoopTransport:
    """Pass a non-blocking datagram socket to the loop; from then on the transport closes it.

    Raises:
        Exception: what `connection_made` raised; the socket is then closed.
    """
    transport = LoopTransport(loop, sock, protocol, extra)
    try:
        await loop.create_datagram_endpoint(lambda: _Adapter(transport), sock=sock)
    except BaseException:
        transport.abort()
        raise
    if transport.failure is not None:
        raise transport.failure
    return transport
