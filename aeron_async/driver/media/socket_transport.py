"""Our own non-blocking socket, watched by the loop: many datagrams for each wake-up, none queued.

Both asyncio and uvloop offer `add_reader`; neither offers batches, a bounded queue, or control
messages on their own datagram transports.
"""

from __future__ import annotations

from socket import AF_INET, SOL_SOCKET
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from aeron_async.driver.media.sockets import (
    SO_TIMESTAMPNS,
    connect_socket,
    system_address,
    two_tuple,
)
from aeron_async.driver.media.transport import BoundedTransport, Datagram, Destination

if TYPE_CHECKING:
    import asyncio
    import socket
    from collections.abc import Callable, Mapping

    from aeron_async.driver.media.socket_spec import SocketAddress

__all__ = ["DATAGRAM_LENGTH_MAX", "SocketTransport", "TimestampedProtocol"]

DATAGRAM_LENGTH_MAX: Final = 65536
TIMESPEC: Final = Struct("@ll")
ANCILLARY_LENGTH: Final = 64
"""Room for one time with its header, on any machine."""


class TimestampedProtocol(Protocol):
    """Who wants to know when the system had a datagram."""

    def media_timestamp_received(self, epoch_ns: int) -> None:
        """The next datagram was had then, in nanoseconds since 1970."""
        ...


class SocketTransport(BoundedTransport):
    """A datagram transport over `add_reader` and `add_writer`.

    Args:
        loop: The loop that runs it; it must offer `add_reader`.
        sock: A non-blocking datagram socket; the transport closes it.
        protocol: Who is told what happens.
        burst_limit: Most datagrams received in one turn of the loop.
        extra: Answers of `get_extra_info`.
        is_timestamped: Whether the protocol is a `TimestampedProtocol`, and the socket tells times.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        protocol: asyncio.DatagramProtocol,
        *,
        burst_limit: int,
        extra: Mapping[str, Any],
        is_timestamped: bool = False,
    ) -> None:
        super().__init__(loop, protocol, extra)
        self._is_timestamped = is_timestamped
        self._sock = sock
        self._fileno = sock.fileno()
        self._is_ipv4 = sock.family == AF_INET
        self._burst_limit = burst_limit
        self._view = memoryview(bytearray(DATAGRAM_LENGTH_MAX))
        self._held: tuple[bytes, Destination] | None = None
        self._is_watch_due = False

    def start(self) -> None:
        """Introduce the transport to its protocol, then begin to receive.

        Raises:
            Exception: whatever `connection_made` raised; the caller still owns the socket.
        """
        self._protocol.connection_made(self)
        self._watch()

    def sendto(self, data: Datagram, addr: Destination = None) -> None:
        """Send now, or keep this one datagram until the socket has room.

        The data may be reused once this returns. `addr` is numeric: a name would block the loop.

        Raises:
            BufferError: a datagram is already waiting.
            ClosedError: the transport is closed.
            ValueError: no data, or an address where the socket is connected, or none where not.
        """
        if self._is_blocked or not data or (addr is None) is not self._is_connected:
            self._refuse(data, addr)
        try:
            if addr is None:
                self._sock.send(data)
            else:
                if not self._is_ipv4:
                    addr = system_address(addr)
                self._sock.sendto(data, addr)
        except BlockingIOError:
            self._hold(bytes(data), addr)
        except OSError as error:
            self._on_error(error)

    def get_write_buffer_size(self) -> int:
        """Return the length of the datagram that waits, or 0."""
        return 0 if self._held is None else len(self._held[0])

    def close(self) -> None:
        """Stop receiving, let a waiting datagram leave, then close; safe to call again.

        With nothing waiting the socket is closed, and its port free, when this returns.
        """
        if self._is_closing:
            return
        self._is_closing = self._is_blocked = True
        self._loop.remove_reader(self._fileno)
        if self._held is None:
            self._finish()

    def abort(self) -> None:
        """Close at once; a waiting datagram is lost."""
        was_flushing = self._is_closing and self._held is not None
        if self._held is not None:
            self._held = None
            self._loop.remove_writer(self._fileno)
        if was_flushing:
            self._finish()
        self.close()

    def _connect(self, address: SocketAddress) -> None:
        connect_socket(self._sock, address)

    def _read_burst(self) -> None:
        receive: Callable[[memoryview], tuple[int, Any]] = (
            self._receive_timestamped if self._is_timestamped else self._sock.recvfrom_into
        )
        deliver: Callable[..., None] = self._protocol.datagram_received
        view, is_ipv4 = self._view, self._is_ipv4
        # What is left after the burst keeps the socket readable: the loop comes back next turn.
        for _ in range(self._burst_limit):
            try:
                length, address = receive(view)
            except BlockingIOError:
                return
            except OSError as error:
                self._on_error(error)
            else:
                deliver(view[:length], address if is_ipv4 else two_tuple(address))
            if self._is_closing:
                return

    def _receive_timestamped(self, view: memoryview) -> tuple[int, Any]:
        """Receive as `recvfrom_into` does, and tell the protocol when the system did."""
        length, ancillary, _, address = self._sock.recvmsg_into([view], ANCILLARY_LENGTH)
        for level, kind, value in ancillary:
            if (level, kind) == (SOL_SOCKET, SO_TIMESTAMPNS):
                seconds, nanoseconds = TIMESPEC.unpack(value)
                protocol = cast("TimestampedProtocol", self._protocol)
                protocol.media_timestamp_received(seconds * 1_000_000_000 + nanoseconds)
        return length, address

    def _hold(self, data: bytes, addr: Destination) -> None:
        self._held = data, addr
        self._is_blocked = True
        self._loop.add_writer(self._fileno, self._send_held, data, addr)
        self._tell(self._protocol.pause_writing)

    def _send_held(self, data: bytes, addr: Destination) -> None:
        failure = None
        try:
            if addr is None:
                self._sock.send(data)
            else:
                self._sock.sendto(data, addr)
        except BlockingIOError:
            return
        except OSError as error:
            failure = error
        self._held = None
        self._loop.remove_writer(self._fileno)
        if self._is_closing:
            self._finish()
        if failure is not None:
            self._on_error(failure)
        # Told of the failure, the protocol may have closed.
        if not self._is_closing:
            self._is_blocked = False
            self._tell(self._protocol.resume_writing)

    def _on_error(self, error: OSError) -> None:
        # By the contract of libuv's uv_poll, uvloop stops watching a socket for good when a poll
        # reports an error, even one that a send has fetched since; every absent peer causes one.
        # It is watched again only later: now, uvloop may still be about to forget what is added.
        if not self._is_watch_due:
            self._is_watch_due = True
            self._loop.call_soon(self._watch_again)
        self._tell_error(error)

    def _watch_again(self) -> None:
        self._is_watch_due = False
        # Both go before either returns, because uvloop keeps one dead poll for the two.
        if not self._is_closing:
            self._loop.remove_reader(self._fileno)
        if self._held is not None:
            self._loop.remove_writer(self._fileno)
        self._watch()

    def _watch(self) -> None:
        if not self._is_closing:
            self._loop.add_reader(self._fileno, self._tell, self._read_burst)
        if self._held is not None:
            self._loop.add_writer(self._fileno, self._send_held, *self._held)

    def _finish(self) -> None:
        self._sock.close()
        if not self._loop.is_closed():
            self._loop.call_soon(self._tell_lost, None)
