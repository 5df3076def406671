"""A simulated UDP socket: the contract of `driver/media/transport.py` over a simulated network.

Invariant: what a protocol is given is valid only during the call; the simulator takes it back
afterwards, so that whoever kept it finds out.
"""

from __future__ import annotations

import errno
import os
from array import array
from typing import TYPE_CHECKING, Any, Final, cast

from aeron_async.driver.media.transport import BoundedTransport, Datagram, Destination
from aeron_async.testing.sim_buffer import ReceiveBuffer
from aeron_async.testing.trace import Verdict

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping
    from contextvars import Context
    from random import Random

    from aeron_async.driver.media.socket_transport import SocketProtocol
    from aeron_async.driver.media.sockets import SocketAddress, SocketSpec
    from aeron_async.testing.sim_host import SimHost
    from aeron_async.testing.virtual_clock import VirtualTime

__all__ = ["DATAGRAM_LENGTH_MAX", "SimTransport"]

DATAGRAM_LENGTH_MAX: Final = 65_507
"""The most that UDP over IPv4 can carry, in bytes."""
BURST_LIMIT: Final = 64
"""Datagrams read in one turn; a run is read whole."""
RETRY_NS: Final = 100_000
"""How long a socket without room stays so, at the least."""


class SimTransport(BoundedTransport):
    """One open socket of a simulated host.

    Args:
        host: Whose socket it is.
        loop: The loop in virtual time.
        protocol: Who is told what happens.
        context: In which it is told: that of the process which opened the socket.
        extra: Answers of `get_extra_info`, `sockname` and `peername` among them.
        spec: What it was to be.
        rcvbuf_length: Bytes that wait to be read; more are dropped, as the kernel drops them.
        coin: Decides which datagrams that are alone are given as a run of one.

    Attributes:
        host: As given.
        spec: As given.
        local: What it is bound to.
        peer: What it is connected to, or None.
    """

    def __init__(
        self,
        host: SimHost,
        loop: VirtualTime,
        protocol: asyncio.DatagramProtocol,
        *,
        context: Context,
        extra: Mapping[str, Any],
        spec: SocketSpec,
        rcvbuf_length: int,
        coin: Random,
    ) -> None:
        super().__init__(loop, protocol, extra)
        self.local: SocketAddress = extra["sockname"]
        self.peer: SocketAddress | None = extra["peername"]
        self.host = host
        self.spec = spec
        self._virtual = loop
        self._context = context
        takes_runs = spec.is_batching and hasattr(protocol, "datagrams_received")
        self._takes_many_runs = takes_runs and hasattr(protocol, "runs_received")
        self._arrived = ReceiveBuffer(rcvbuf_length, is_gathering=takes_runs, coin=coin)
        self._is_reading = False
        self._held: tuple[bytes, Destination] | None = None

    def start(self) -> None:
        """Introduce the transport to its protocol."""
        self._protocol.connection_made(self)

    # What leaves.

    def sendto(self, data: Datagram, addr: Destination = None) -> None:
        """Send now, or keep this one datagram until the socket has room.

        Raises:
            BufferError: A datagram is already waiting.
            ClosedError: The transport is closed.
            ValueError: No data, or an address where the socket is connected, or none where not.
        """
        if self._is_blocked or not data or (addr is None) is not self._is_connected:
            self._refuse(data, addr)
        error_number = self.host.send_error(len(data))
        if error_number == errno.EAGAIN:
            self._held = bytes(data), addr
            self._is_blocked = True
            self._virtual.call_at_ns(
                self._virtual.now_ns + RETRY_NS, self._send_held, context=self._context
            )
            self._tell(self._protocol.pause_writing)
        elif error_number:
            error = OSError(error_number, os.strerror(error_number))
            self._tell_error(error)
        else:
            self.host.send(self, bytes(data), self.peer if addr is None else addr)

    def get_write_buffer_size(self) -> int:
        """Return the length of the datagram that waits, or 0."""
        return 0 if self._held is None else len(self._held[0])

    def close(self) -> None:
        """Stop receiving, let a waiting datagram leave, then close; safe to call again."""
        if self._is_closing:
            return
        self._is_closing = self._is_blocked = True
        self._arrived.clear()
        if self._held is None:
            self._finish()

    def abort(self) -> None:
        """Close at once; a waiting datagram is lost."""
        was_flushing = self._is_closing and self._held is not None
        self._held = None
        if was_flushing:
            self._finish()
        self.close()

    def _connect(self, address: SocketAddress) -> None:
        self.peer = address

    def _send_held(self) -> None:
        if self._held is None:
            return
        (data, addr), self._held = self._held, None
        self.host.send(self, data, self.peer if addr is None else addr)
        if self._is_closing:
            self._finish()
            return
        self._is_blocked = False
        self._tell(self._protocol.resume_writing)

    def _finish(self) -> None:
        self.host.forget(self)
        if not self._loop.is_closed():
            self._virtual.call_soon(self._tell_lost, None, context=self._context)

    # What arrives.

    def arrive(self, datagram: bytes, source: SocketAddress) -> Verdict | None:
        """Put a datagram in the receive buffer; return why it was dropped, if it was."""
        if self.peer is not None and source != self.peer:
            return Verdict.NOT_THE_PEER
        if not self._arrived.try_add(datagram, source, self._virtual.now_ns):
            return Verdict.BUFFER_FULL
        self.read_soon()
        return None

    def refuse(self, error: OSError) -> None:
        """Tell a connected socket that nobody listens where it sends to."""
        if not self._is_closing:
            self._virtual.call_soon(
                self._tell, self._protocol.error_received, error, context=self._context
            )

    def read_soon(self) -> None:
        """Let the protocol have what has arrived, unless its process stands still."""
        if self._arrived and not self._is_reading and not self.host.is_paused:
            self._is_reading = True
            self._virtual.call_soon(self._read, context=self._context)

    def _read(self) -> None:
        self._is_reading = False
        if self.host.is_paused:
            return
        count_left = BURST_LIMIT
        runs: list[list[bytes]] = []
        while self._arrived and count_left > 0:
            datagrams, source, is_run = self._arrived.take()
            count_left -= len(datagrams)
            for datagram in datagrams:
                self.host.note_delivered(source, self.local, datagram)
            runs.append(datagrams)
            if count_left > 0 and self._takes_many_runs and self._arrived.next_source == source:
                continue
            self._lend(runs, source, is_run=is_run)
            runs = []
            if self._is_closing:
                return
        self.read_soon()

    def _lend(self, runs: list[list[bytes]], source: SocketAddress, *, is_run: bool) -> None:
        buffer, cuts = bytearray(), array("i")
        for datagrams in runs:
            buffer += b"".join(datagrams)
            cuts.extend((len(buffer), len(datagrams[0])))
        view = memoryview(buffer)
        protocol = cast("SocketProtocol", self._protocol)
        if len(runs) > 1:
            self._tell(protocol.runs_received, view, cuts, source)
        elif is_run:
            self._tell(protocol.datagrams_received, view, cuts[1], source)
        else:
            self._tell(self._protocol.datagram_received, view, source)
        view.release()
        # Refused where the protocol kept a slice, whose bytes a real socket would write over.
        self._tell(buffer.clear)
