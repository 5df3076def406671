"""How our own sockets are read: many datagrams for each wake-up, and what Linux says beside them.

Beside a datagram Linux says of how many it is made, when it came, and how many it has dropped for
want of room. One that is made of many came as a run: datagrams of one length, only the last may be
shorter, as one sender sent them in one call or as the network card gathered them.
"""

from __future__ import annotations

from abc import abstractmethod
from socket import AF_INET, MSG_CTRUNC, SOL_SOCKET, SOL_UDP
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from aeron_async.driver.media.buffers import DropLog
from aeron_async.driver.media.sockets import SO_RXQ_OVFL, SO_TIMESTAMPNS, UDP_GRO, two_tuple
from aeron_async.driver.media.transport import BoundedTransport

if TYPE_CHECKING:
    import asyncio
    import socket
    from collections.abc import Callable, Mapping

__all__ = ["DATAGRAM_LENGTH_MAX", "ReadingTransport", "SocketProtocol"]

DATAGRAM_LENGTH_MAX: Final = 65_536
TIMESPEC: Final = Struct("@ll")
INT32: Final = Struct("@i")
UINT32: Final = Struct("@I")
ANCILLARY_LENGTH: Final = 96
"""Room for a time, a segment length and a count, with their headers, on any machine."""
UINT32_MASK: Final = 0xFFFF_FFFF
BACKWARDS: Final = 0x8000_0000
# What a receive call takes of the burst limit, beyond the 1 of any datagram of a usual length.
DATAGRAMS_PER_COUNT: Final = 4
LENGTH_PER_COUNT: Final = 8_192


class SocketProtocol(Protocol):
    """What a protocol may want to know beside its datagrams; every method may be absent."""

    def media_timestamp_received(self, epoch_ns: int) -> None:
        """The next datagram was had by the system then, in nanoseconds since 1970."""
        ...

    def datagrams_received(
        self, data: memoryview, segment_length: int, addr: tuple[str, int]
    ) -> None:
        """Many datagrams came at once; valid only during the call."""
        ...

    def datagrams_dropped(self, count: int) -> None:
        """The system dropped so many for want of room, since it was told last."""
        ...

    def reading(self, *, is_begun: bool) -> None:
        """All that has come is about to be handed over, or has been."""
        ...


class ReadingTransport(BoundedTransport):
    """The receiving half of a transport over a socket.

    Args:
        loop: The loop that runs it.
        sock: A non-blocking datagram socket.
        protocol: Who is told what happens, of `SocketProtocol` as far as it has that.
        burst_limit: Most datagrams received in one turn of the loop; 4 of a run count as one, and
            what is long as one for each 8 KiB.
        extra: Answers of `get_extra_info`.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        protocol: asyncio.DatagramProtocol,
        *,
        burst_limit: int,
        extra: Mapping[str, Any],
    ) -> None:
        super().__init__(loop, protocol, extra)
        self._sock = sock
        self._is_ipv4 = sock.family == AF_INET
        self._burst_limit = burst_limit
        self._takes_runs = hasattr(protocol, "datagrams_received")
        self._takes_bursts = hasattr(protocol, "reading")
        self._takes_drops = hasattr(protocol, "datagrams_dropped")
        self._view = memoryview(bytearray(DATAGRAM_LENGTH_MAX))
        self._system_drop_count = 0
        self._drop_log = DropLog(extra)

    @abstractmethod
    def _on_error(self, error: OSError) -> None:
        """Take an error of receiving."""

    def _read_burst(self) -> None:
        if not self._takes_bursts:
            self._read_datagrams()
            return
        protocol = cast("SocketProtocol", self._protocol)
        protocol.reading(is_begun=True)
        try:
            self._read_datagrams()
        finally:
            protocol.reading(is_begun=False)

    def _read_datagrams(self) -> None:
        view, is_ipv4, buffers = self._view, self._is_ipv4, [self._view]
        # Costs 0.2 us more than `recvfrom_into` (1.1 against 0.9 us with all of this loop), a small
        # part of what the cores do for a datagram that comes alone; in runs of 46 a datagram costs
        # 0.09 us, and nothing else says where a run is to be cut.
        receive = getattr(self._sock, "recvmsg_into", self._receive_alone)
        deliver: Callable[..., None] = self._protocol.datagram_received
        # What is left after the burst keeps the socket readable: the loop comes back next turn.
        count_left = self._burst_limit
        while count_left > 0:
            try:
                length, ancillary, flags, address = receive(buffers, ANCILLARY_LENGTH)
            except BlockingIOError:
                return
            except OSError as error:
                self._on_error(error)
                count_left -= 1
            else:
                segment_length = self._heed(ancillary, flags) if ancillary else 0
                if not is_ipv4:
                    address = two_tuple(address)
                long_count = length // LENGTH_PER_COUNT or 1
                if 0 < segment_length < length:
                    self._deliver_run(view[:length], segment_length, address)
                    # Counted as one call, 64 runs of the longest would hold the loop up for 4 MiB,
                    # and of the shortest for 4096 datagrams; counted in full, two would end a
                    # burst, though a datagram of a run is far cheaper than one that comes alone.
                    run_count = length // (segment_length * DATAGRAMS_PER_COUNT)
                    count_left -= max(run_count, long_count)
                else:
                    deliver(view[:length], address)
                    count_left -= long_count
            if self._is_closing:
                return

    def _receive_alone(self, buffers: list[memoryview], _: int) -> tuple[Any, ...]:
        """Receive as `recvmsg_into` does, on a system without it: nothing is said beside."""
        length, address = self._sock.recvfrom_into(buffers[0])
        return length, (), 0, address

    def _deliver_run(self, run: memoryview, segment_length: int, address: Any) -> None:
        if self._takes_runs:
            cast("SocketProtocol", self._protocol).datagrams_received(run, segment_length, address)
            return
        for start in range(0, len(run), segment_length):
            # Each on its own, as if it had come so: the failure of one does not lose the others.
            datagram = run[start : start + segment_length]
            self._tell(self._protocol.datagram_received, datagram, address)
            if self._is_closing:
                return

    def _heed(self, ancillary: list[tuple[int, int, bytes]], flags: int) -> int:
        """Take what the system says beside a datagram; return the segment length, 0 for none."""
        segment_length = 0
        for level, kind, value in ancillary:
            if level == SOL_UDP and kind == UDP_GRO and len(value) == INT32.size:
                (segment_length,) = INT32.unpack(value)
            elif level != SOL_SOCKET:
                continue
            elif kind == SO_RXQ_OVFL and len(value) == UINT32.size:
                self._on_dropped(*UINT32.unpack(value))
            elif kind == SO_TIMESTAMPNS and len(value) == TIMESPEC.size:
                seconds, nanoseconds = TIMESPEC.unpack(value)
                protocol = cast("SocketProtocol", self._protocol)
                protocol.media_timestamp_received(seconds * 1_000_000_000 + nanoseconds)
        # A run whose lengths are in doubt is one datagram, and repaired as that.
        return 0 if flags & MSG_CTRUNC else segment_length

    def _on_dropped(self, system_count: int) -> None:
        """Take how many datagrams the system has dropped since the socket was opened, modulo 2^32.

        Every datagram carries the count, as it was when that was queued.
        """
        count = (system_count - self._system_drop_count) & UINT32_MASK
        # Two processors may queue datagrams in another order than they read the count.
        if not count or count >= BACKWARDS:
            return
        self._system_drop_count = system_count
        self._drop_log.note(count, self._loop.time())
        if self._takes_drops:
            cast("SocketProtocol", self._protocol).datagrams_dropped(count)
