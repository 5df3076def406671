"""Datagrams off a socket, and what Linux says beside them: of how many one is made, and when.

One that is made of many came as a run: datagrams of one length, only the last may be shorter, as
one sender sent them in one call or as the network card gathered them. Linux also says how many it
has dropped for want of room.

There are two readers that do the same: one in Python, which takes one run for each call, and a
compiled one, which takes many.
"""

from __future__ import annotations

import mmap
import socket
from array import array
from socket import AF_INET6, MSG_CTRUNC, SOL_SOCKET, SOL_UDP, inet_ntop, ntohs
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from aeron_async.driver.media.sockets import SO_RXQ_OVFL, SO_TIMESTAMPNS, UDP_GRO, two_tuple
from aeron_async.kernel import CompiledRunReader

if TYPE_CHECKING:
    from aeron_async.driver.media.socket_spec import SocketAddress
    from aeron_async.kernel.placing import Cuts

__all__ = ["DATAGRAM_LENGTH_MAX", "Group", "Reader", "RunReader", "decode_address", "make_reader"]

DATAGRAM_LENGTH_MAX: Final = 65_536
MEMORY_LENGTH: Final = 4 * DATAGRAM_LENGTH_MAX
"""Several runs of the longest, and still no more than the processor keeps near."""
RUNS_MAX: Final = 64
NOTHING: Final = -1
ANCILLARY_LENGTH: Final = 96
"""Room for a time, a segment length and a count, with their headers, on any machine."""
TIMESPEC: Final = Struct("@ll")
UINT16: Final = Struct("@H")
INT32: Final = Struct("@i")
UINT32: Final = Struct("@I")
IPV4_ADDRESS: Final = Struct("@HH4s")
"""Family, port and host of a `sockaddr_in`."""
IPV6_ADDRESS: Final = Struct("@HHI16sI")
"""Family, port, flow, host and link of a `sockaddr_in6`."""
# Plain integers: those of the module are enums, and to combine one with a number costs 2 us.
TRUNCATED: Final = int(MSG_CTRUNC)
# What a receive call takes of the burst limit, beyond the 1 of any datagram of a usual length.
DATAGRAMS_PER_COUNT: Final = 4
LENGTH_PER_COUNT: Final = 8_192

RunSource: TypeAlias = Any
"""A socket, or what stands in for one: asyncio's and ours have no common class."""
Group: TypeAlias = "tuple[memoryview, Cuts, SocketAddress]"
"""What came from one source, one datagram behind the other, where to cut it, and the source.

For each run two 32-bit words: where it ends, and the length of its datagrams; a datagram that came
alone is a run of one.
"""


class Reader(Protocol):
    """Receives what is there; what it says holds until it reads again."""

    @property
    def groups(self) -> list[Group]:
        """Return what came, in its order, by source."""
        ...

    @property
    def is_drained(self) -> bool:
        """Return whether nothing more is there."""
        ...

    @property
    def error(self) -> OSError | None:
        """Return what the system reported behind what came."""
        ...

    @property
    def dropped(self) -> int:
        """Return the count of datagrams dropped that came with the last; negative for none."""
        ...

    @property
    def epoch_ns(self) -> int:
        """Return when the one datagram that came was had by the system; negative for none."""
        ...

    def read(self, sock: RunSource, count_left: int, /) -> int:
        """Receive at least once; return how much of the count that used."""
        ...


class RunReader:
    """The reader in Python: one run for each call."""

    def __init__(self) -> None:
        self._view = memoryview(bytearray(DATAGRAM_LENGTH_MAX))
        self._buffers = [self._view]
        self.groups: list[Group] = []
        self.is_drained = False
        self.error: OSError | None = None
        self.dropped = self.epoch_ns = NOTHING

    def read(self, sock: RunSource, count_left: int) -> int:
        """Receive once; return what that counts.

        A run counts as a quarter of its datagrams, and what is long as one for each 8 KiB. Counted
        as one call, 64 runs of the longest would hold the loop up for 4 MiB, and of the shortest
        for 4096 datagrams; counted in full, two would end a burst, though a datagram of a run is
        far cheaper than one that comes alone.

        Args:
            sock: A non-blocking one.
            count_left: The twin goes on until it has used that.
        """
        del count_left
        self.groups = []
        self.is_drained, self.error = False, None
        self.dropped = self.epoch_ns = NOTHING
        # Costs 0.2 us more than `recvfrom_into`, a small part of what the cores do for a datagram
        # that comes alone; in runs of 46 a datagram costs 0.09 us, and nothing else says where a
        # run is to be cut.
        receive = getattr(sock, "recvmsg_into", None)
        try:
            if receive is None:
                length, address = sock.recvfrom_into(self._view)
                segment_length = 0
            else:
                length, ancillary, flags, address = receive(self._buffers, ANCILLARY_LENGTH)
                segment_length = self._heed(ancillary, flags) if ancillary else 0
        except BlockingIOError:
            self.is_drained = True
            return 0
        except OSError as error:
            self.error = error
            return 1
        count: int = length // LENGTH_PER_COUNT or 1
        if 0 < segment_length < length:
            count = max(length // (segment_length * DATAGRAMS_PER_COUNT), count)
        else:
            segment_length = length
        cuts = array("i", (length, segment_length))
        self.groups = [(self._view[:length], cuts, two_tuple(address))]
        return count

    def _heed(self, ancillary: list[tuple[int, int, bytes]], flags: int) -> int:
        """Take what the system says beside a datagram; return the segment length, 0 for none."""
        segment_length = 0
        for level, kind, value in ancillary:
            if level == SOL_UDP and kind == UDP_GRO and len(value) == INT32.size:
                (segment_length,) = INT32.unpack(value)
            elif level != SOL_SOCKET:
                continue
            elif kind == SO_RXQ_OVFL and len(value) == UINT32.size:
                (self.dropped,) = UINT32.unpack(value)
            elif kind == SO_TIMESTAMPNS and len(value) == TIMESPEC.size:
                seconds, nanoseconds = TIMESPEC.unpack(value)
                self.epoch_ns = seconds * 1_000_000_000 + nanoseconds
        # A run whose lengths are in doubt is one datagram, and repaired as that.
        return 0 if flags & TRUNCATED else segment_length


def make_reader(sock: RunSource) -> Reader:
    """Return the reader that is best for a socket."""
    # What only behaves like a socket is to be asked, not passed by.
    if CompiledRunReader is None or type(sock) is not socket.socket:
        return RunReader()
    # Mapped, because pages that nothing is ever received to are then never taken; and not shared
    # with what is forked off.
    memory = memoryview(mmap.mmap(-1, MEMORY_LENGTH, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
    cuts = memoryview(array("i", bytes(RUNS_MAX * 2 * INT32.size)))
    return CompiledRunReader(memory, cuts, decode_address)


def decode_address(raw: bytes) -> SocketAddress:
    """Return the host and port of an address as Linux has it."""
    if UINT16.unpack_from(raw)[0] == AF_INET6:
        _, port, _, host, link = IPV6_ADDRESS.unpack_from(raw)
        return two_tuple((inet_ntop(AF_INET6, host), ntohs(port), 0, link))
    _, port, host = IPV4_ADDRESS.unpack_from(raw)
    return inet_ntop(socket.AF_INET, host), ntohs(port)
