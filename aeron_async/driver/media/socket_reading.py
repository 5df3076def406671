"""How our own sockets are read: many datagrams for each wake-up."""

from __future__ import annotations

from abc import abstractmethod
from socket import AF_INET
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from aeron_async.driver.media.buffers import DropLog
from aeron_async.driver.media.run_reader import DATAGRAM_LENGTH_MAX, make_reader
from aeron_async.driver.media.transport import BoundedTransport

if TYPE_CHECKING:
    import asyncio
    import socket
    from collections.abc import Mapping

    from aeron_async.driver.media.run_reader import Reader
    from aeron_async.kernel.placing import Cuts

__all__ = ["DATAGRAM_LENGTH_MAX", "ReadingTransport", "SocketProtocol"]

UINT32_MASK: Final = 0xFFFF_FFFF
BACKWARDS: Final = 0x8000_0000
ONE_RUN: Final = 2
"""Words that tell of one run."""


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

    def runs_received(self, data: memoryview, cuts: Cuts, addr: tuple[str, int]) -> None:
        """Several runs came one after another; valid only during the call.

        Args:
            data: Their datagrams, one behind the other.
            cuts: For each run where it ends in the data, and the length of its datagrams in bytes;
                its last may be shorter. One that came alone is a run of one.
            addr: Where all of them came from.
        """
        ...

    def datagrams_dropped(self, count: int) -> None:
        """The system dropped so many for want of room, since it was told last."""
        ...

    def reading(self, is_begun: bool, /) -> None:  # noqa: FBT001 - a callback of one meaning
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
        self._takes_many_runs = hasattr(protocol, "runs_received")
        self._takes_runs = hasattr(protocol, "datagrams_received")
        self._takes_bursts = hasattr(protocol, "reading")
        self._takes_drops = hasattr(protocol, "datagrams_dropped")
        self._reader: Reader = make_reader(sock)
        self._system_drop_count = 0
        self._drop_log: DropLog = extra.get("drop_log") or DropLog()

    @abstractmethod
    def _on_error(self, error: OSError) -> None:
        """Take an error of receiving."""

    def _read_burst(self) -> None:
        if not self._takes_bursts:
            self._read_datagrams()
            return
        protocol: Any = self._protocol
        protocol.reading(True)
        try:
            self._read_datagrams()
        finally:
            protocol.reading(False)

    def _read_datagrams(self) -> None:
        reader = self._reader
        # What is left after the burst keeps the socket readable: the loop comes back next turn.
        count_left = self._burst_limit
        while count_left > 0:
            count_left -= reader.read(self._sock, count_left)
            # Whatever fails is told by itself: it does not cost what was received behind it.
            if reader.dropped >= 0:
                self._tell(self._on_dropped, reader.dropped)
            if reader.epoch_ns >= 0:
                protocol = cast("SocketProtocol", self._protocol)
                self._tell(protocol.media_timestamp_received, reader.epoch_ns)
            for data, cuts, address in reader.groups:
                if cuts[1] >= len(data):
                    self._tell(self._protocol.datagram_received, data, address)
                elif len(cuts) == ONE_RUN:
                    self._tell(self._deliver_run, data, cuts[1], address)
                else:
                    self._tell(self._deliver_runs, data, cuts, address)
                if self._is_closing:
                    return
            if reader.error is not None:
                self._on_error(reader.error)
            if reader.is_drained or self._is_closing:
                return

    def _deliver_run(self, run: memoryview, segment_length: int, address: Any) -> None:
        if segment_length >= len(run):
            self._protocol.datagram_received(cast("bytes", run), address)
        elif self._takes_runs:
            cast("SocketProtocol", self._protocol).datagrams_received(run, segment_length, address)
        else:
            for start in range(0, len(run), segment_length):
                # Each on its own, as if it had come so: one that fails does not lose the others.
                datagram = run[start : start + segment_length]
                self._tell(self._protocol.datagram_received, datagram, address)
                if self._is_closing:
                    return

    def _deliver_runs(self, data: memoryview, cuts: Cuts, address: Any) -> None:
        if self._takes_many_runs:
            cast("SocketProtocol", self._protocol).runs_received(data, cuts, address)
            return
        start = 0
        for index in range(0, len(cuts), 2):
            end = cuts[index]
            self._tell(self._deliver_run, data[start:end], cuts[index + 1], address)
            if self._is_closing:
                return
            start = end

    def _on_dropped(self, system_count: int) -> None:
        """Take how many datagrams the system has dropped since the socket was opened, modulo 2^32.

        Every datagram carries the count, as it was when that was queued.
        """
        count = (system_count - self._system_drop_count) & UINT32_MASK
        # Two processors may queue datagrams in another order than they read the count.
        if not count or count >= BACKWARDS:
            return
        self._system_drop_count = system_count
        self._drop_log.note(count, self._extra, self._loop.time())
        if self._takes_drops:
            cast("SocketProtocol", self._protocol).datagrams_dropped(count)
