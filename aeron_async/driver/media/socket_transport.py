"""A batching datagram transport over a non-blocking socket that the loop watches.

Both asyncio and uvloop offer `add_reader`; neither offers batches, a bounded queue, or control
messages on its own datagram transport.

A segment batch (short: batch) is datagrams of one length one after the other, of which only the
last may be shorter. One system call passes it to or from Linux:

- received (UDP_GRO): as one sender sent them in one call, or as the network card gathered them.
  Linux also reports how many datagrams it has dropped because the buffer was full;
- sent (UDP_SEGMENT): Linux segments the batch itself. Each datagram has its own headers, and no
  receiver sees a difference. On the loopback, a datagram of 1408 bytes costs 0.09 us in a batch
  of 46, and 1.6 us alone.

There are two implementations of `Reader` that do the same: `BatchReader` in Python, which receives
one batch per call, and a compiled one, which receives many.
"""

from __future__ import annotations

import errno
import mmap
import os
import socket
import sys
from abc import abstractmethod
from array import array
from functools import partial
from socket import (
    AF_INET,
    AF_INET6,
    MSG_CTRUNC,
    SOL_SOCKET,
    SOL_UDP,
    htons,
    inet_ntop,
    inet_pton,
    ntohs,
)
from struct import Struct
from struct import error as StructError  # noqa: N812 - it is a class
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, cast

if sys.platform == "linux":
    from fcntl import ioctl
    from termios import TIOCOUTQ

from aeron_async._speedups import (
    CompiledBatchReader,
    LoneReading,
    send_segmented,
    send_to_many,
)
from aeron_async.driver.core.udp_channel import format_address
from aeron_async.driver.media.sockets import (
    SO_RXQ_OVFL,
    SO_TIMESTAMPNS,
    UDP_GRO,
    UDP_SEGMENT,
    DropLog,
    connect_socket,
    offers_segmentation,
    system_address,
    two_tuple,
)
from aeron_async.driver.media.transport import SLICE_COUNT, BoundedTransport
from aeron_async.logs import get_logger

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping, Sequence

    from aeron_async.driver.media.sockets import SocketAddress
    from aeron_async.driver.media.transport import Datagram, Destination
    from aeron_async.logbuffer.placing import SegmentTable

__all__ = [
    "DATAGRAM_LENGTH_MAX",
    "BatchReader",
    "Group",
    "Reader",
    "ReadingTransport",
    "SocketProtocol",
    "SocketTransport",
    "decode_address",
    "make_reader",
]

# Reading from a socket.

DATAGRAM_LENGTH_MAX: Final = 65_536
MEMORY_LENGTH: Final = 4 * DATAGRAM_LENGTH_MAX
"""Room for several batches of the greatest length, small enough for the processor's cache."""
BATCHES_MAX: Final = 64
NOTHING: Final = -1
ANCILLARY_LENGTH: Final = 96
"""Room for a timestamp, a segment length and a drop count with their headers, on any machine."""
TIMESPEC: Final = Struct("@ll")
UINT16: Final = Struct("@H")
INT32: Final = Struct("@i")
UINT32: Final = Struct("@I")
IPV4_ADDRESS: Final = Struct("@HH4s")
"""Family, port and host of a `sockaddr_in`."""
IPV6_ADDRESS: Final = Struct("@HHI16sI")
"""Family, port, flow, host and link of a `sockaddr_in6`."""
IPV4_PADDING_LENGTH: Final = 8
"""Bytes at the end of a `sockaddr_in` that mean nothing."""
# Plain integers: those of the module are enums, and combining one with a number costs 2 us.
TRUNCATED: Final = int(MSG_CTRUNC)
# What one receive call uses of the burst limit, beyond the 1 of any datagram of usual length.
DATAGRAMS_PER_COUNT: Final = 8
LENGTH_PER_COUNT: Final = 16_384

BatchSource: TypeAlias = Any
"""A socket, or its replacement in a test: asyncio's and ours have no common class."""
Group: TypeAlias = "tuple[memoryview, SegmentTable, SocketAddress]"
"""Segment batches from one source, one after the other, their segment table, and the source.

A single datagram is a batch of one.
"""


class Reader(Protocol):
    """Receives what is there; its attributes are valid until the next `read`."""

    @property
    def groups(self) -> list[Group]:
        """Return the received datagrams, in order, grouped by source."""
        ...

    @property
    def is_drained(self) -> bool:
        """Return whether the socket is empty."""
        ...

    @property
    def error(self) -> OSError | None:
        """Return the error that the system reported after the received datagrams."""
        ...

    @property
    def dropped(self) -> int:
        """Return the system's drop count from the last datagram; negative if there is none."""
        ...

    @property
    def epoch_ns(self) -> int:
        """Return when the system had the single datagram; negative if unknown."""
        ...

    def read(self, sock: BatchSource, count_left: int, /) -> int:
        """Receive at least once; return how much of `count_left` that used."""
        ...


class BatchReader:
    """The reader in Python: one batch per call."""

    dropped: Any
    epoch_ns: Any

    def __init__(self) -> None:
        self._view = memoryview(bytearray(DATAGRAM_LENGTH_MAX))
        self._buffers = [self._view]
        self.groups: list[Group] = []
        self.is_drained: bool = False
        self.error: OSError | None = None
        self.dropped = self.epoch_ns = NOTHING

    def read(self, sock: BatchSource, count_left: int) -> int:
        """Receive once; return how much of the count that used.

        A batch counts as an eighth of its datagrams, and long data as one for each 16 KiB. If each
        call counted as one, 64 of the longest batches would hold the loop up for 4 MiB, and 64 of
        the shortest for 4096 datagrams. If each datagram counted as one, two batches would end a
        burst, although a datagram in a batch is far cheaper than a single one.

        Args:
            sock: A non-blocking socket.
            count_left: Used by the compiled reader, which continues until it has used that.
        """
        del count_left
        self.groups = []
        self.is_drained, self.error = False, None
        self.dropped = self.epoch_ns = NOTHING
        # This costs 0.2 us more than `recvfrom_into`, a small part of the work of the cores for a
        # single datagram; in batches of 46 a datagram costs 0.09 us, and there is no other way to
        # learn where the datagrams of a batch end.
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
        segments = array("i", (length, segment_length))
        self.groups = [(self._view[:length], segments, two_tuple(address))]
        return count

    def _heed(self, ancillary: list[tuple[int, int, bytes]], flags: int) -> int:
        """Read the control messages of a datagram; return the segment length, 0 for none."""
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
        # Without a certain segment length, treat the batch as one datagram; resends repair it.
        return 0 if flags & TRUNCATED else segment_length


def make_reader(sock: BatchSource) -> Reader:
    """Return the best reader for a socket."""
    # A replacement for a socket must be called, not bypassed by its file descriptor.
    if CompiledBatchReader is None or type(sock) is not socket.socket:
        return BatchReader()
    # Mapped, so that pages that are never received into are never allocated; and private, so that
    # it is not shared with a forked process.
    memory = memoryview(mmap.mmap(-1, MEMORY_LENGTH, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
    segments = memoryview(array("i", bytes(BATCHES_MAX * 2 * INT32.size)))
    return CompiledBatchReader(memory, segments, decode_address)


def decode_address(raw: bytes) -> SocketAddress:
    """Return the host and port of an address in Linux's format."""
    if UINT16.unpack_from(raw)[0] == AF_INET6:
        _, port, _, host, link = IPV6_ADDRESS.unpack_from(raw)
        return two_tuple((inet_ntop(AF_INET6, host), ntohs(port), 0, link))
    _, port, host = IPV4_ADDRESS.unpack_from(raw)
    return inet_ntop(socket.AF_INET, host), ntohs(port)


# The receiving half of the transport.

UINT32_MASK: Final = 0xFFFF_FFFF
BACKWARDS: Final = 0x8000_0000
ONE_BATCH: Final = 2
"""Words that describe one batch."""


class SocketProtocol(Protocol):
    """Optional methods of a protocol, called in addition to those of asyncio."""

    def media_timestamp_received(self, epoch_ns: int) -> None:
        """The system had the next datagram at this time, in nanoseconds since 1970."""
        ...

    def datagrams_received(
        self, data: memoryview, segment_length: int, addr: tuple[str, int]
    ) -> None:
        """Many datagrams arrived together; valid only during the call."""
        ...

    def batches_received(
        self, data: memoryview, segments: SegmentTable, addr: tuple[str, int]
    ) -> None:
        """Several batches arrived one after another; valid only during the call.

        Args:
            data: Their datagrams, one after the other.
            segments: For each batch, its end in `data` and the length of its datagrams, in bytes;
                the last datagram of a batch may be shorter. A single datagram is a batch of one.
            addr: The address all of them came from.
        """
        ...

    def datagrams_dropped(self, count: int) -> None:
        """The system dropped this many datagrams since the last call, because of a full buffer."""
        ...

    def reading(self, is_begun: bool, /) -> None:  # noqa: FBT001 - a callback of one meaning
        """All that has arrived is about to be passed on, or has been."""
        ...

    def take_alone(self, datagram: Datagram, addr: tuple[str, int], /) -> bool:
        """Take a datagram that needs no burst; return False to get it in the usual way."""
        ...

    def taken_alone(self) -> None:
        """Act on the datagrams that `take_alone` has taken, as far as there are any."""
        ...


class ReadingTransport(BoundedTransport):
    """The receiving half of a transport over a socket.

    Args:
        loop: The loop that runs it.
        sock: A non-blocking datagram socket.
        protocol: The protocol to call; it may have methods of `SocketProtocol`.
        burst_limit: Most datagrams received in one turn of the loop; 8 of a batch count as one, and
            long data as one for each 16 KiB.
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
        self._takes_many_batches = hasattr(protocol, "batches_received")
        self._takes_batches = hasattr(protocol, "datagrams_received")
        self._takes_bursts = hasattr(protocol, "reading")
        self._takes_drops = hasattr(protocol, "datagrams_dropped")
        self._reader: Reader = make_reader(sock)
        self._on_readable: tuple[Callable[..., object], ...] = self._tell, self._read_burst
        take_alone = getattr(protocol, "take_alone", None)
        if LoneReading is not None and take_alone and type(self._reader) is CompiledBatchReader:
            # A datagram that needs no more than this is not worth a burst.
            lone = take_alone, cast("SocketProtocol", protocol).taken_alone
            fail = partial(self._report, "take_alone")
            go_on = partial(self._tell, self._read_burst)
            reading = LoneReading(self._reader, sock, *lone, burst_limit, fail, go_on)
            self._on_readable = (reading,)
        self._system_drop_count = 0
        self._drop_log: DropLog = extra.get("drop_log") or DropLog()

    @abstractmethod
    def _on_error(self, error: OSError) -> None:
        """Handle an error of receiving."""

    def _read_burst(self) -> None:
        if self._is_closing:
            return
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
        # What is left after the burst keeps the socket readable: the loop calls again next turn.
        count_left = self._burst_limit
        while count_left > 0:
            count_left -= reader.read(self._sock, count_left)
            # Each call is guarded by itself: a failure does not lose what was received behind it.
            if reader.dropped >= 0:
                self._tell(self._on_dropped, reader.dropped)
            if reader.epoch_ns >= 0:
                protocol = cast("SocketProtocol", self._protocol)
                self._tell(protocol.media_timestamp_received, reader.epoch_ns)
            for data, segments, address in reader.groups:
                if segments[1] >= len(data):
                    self._tell(self._protocol.datagram_received, data, address)
                elif len(segments) == ONE_BATCH:
                    self._tell(self._deliver_batch, data, segments[1], address)
                else:
                    self._tell(self._deliver_batches, data, segments, address)
                if self._is_closing:
                    return
            if reader.error is not None:
                self._on_error(reader.error)
            if reader.is_drained or self._is_closing:
                return

    def _deliver_batch(self, batch: memoryview, segment_length: int, address: Any) -> None:
        if segment_length >= len(batch):
            self._protocol.datagram_received(cast("bytes", batch), address)
        elif self._takes_batches:
            cast("SocketProtocol", self._protocol).datagrams_received(
                batch, segment_length, address
            )
        else:
            for start in range(0, len(batch), segment_length):
                # Each on its own, as if received so: one that fails does not lose the others.
                datagram = batch[start : start + segment_length]
                self._tell(self._protocol.datagram_received, datagram, address)
                if self._is_closing:
                    return

    def _deliver_batches(self, data: memoryview, segments: SegmentTable, address: Any) -> None:
        if self._takes_many_batches:
            cast("SocketProtocol", self._protocol).batches_received(data, segments, address)
            return
        start = 0
        for index in range(0, len(segments), 2):
            end = segments[index]
            self._tell(self._deliver_batch, data[start:end], segments[index + 1], address)
            if self._is_closing:
                return
            start = end

    def _on_dropped(self, system_count: int) -> None:
        """Take how many datagrams the system has dropped since the socket was opened, modulo 2^32.

        Every datagram carries the count at the time it was queued.
        """
        count = (system_count - self._system_drop_count) & UINT32_MASK
        # Two processors may queue datagrams in another order than that of their counts.
        if not count or count >= BACKWARDS:
            return
        self._system_drop_count = system_count
        self._drop_log.note(count, self._extra, self._loop.time())
        if self._takes_drops:
            cast("SocketProtocol", self._protocol).datagrams_dropped(count)


# The sending half.

SEGMENT_COUNT_MAX: Final = 64
"""Linux 6.9 and later accept 128 in one call; all older versions accept this many."""
BATCH_LENGTH_MAX: Final = 65_507
"""The most that one datagram over IPv4 can carry, in bytes; IPv6 could carry 20 more."""
MESSAGE_OVERHEAD: Final = 2_048
"""Bytes that a message takes in a send buffer beyond its data, at most, on a device of our time."""
ADDRESSES_MAX: Final = 1_024
"""Most addresses in the cache; with more of them, each may have to be encoded again."""
# A network card's driver cannot compute the checksums, or a segment is too long to pass the network
# in one piece, which old kernels call invalid. Sending datagrams one by one works in both cases.
SEGMENTATION_REFUSALS: Final = frozenset({errno.EIO, errno.EINVAL, errno.EMSGSIZE})

_log: Final[Any] = get_logger(__name__)


class RawAddresses(dict["SocketAddress", bytes]):
    """Addresses of one family in Linux's format, each encoded when it is first looked up."""

    def __init__(self, family: int) -> None:
        self._family = family

    def __missing__(self, address: SocketAddress) -> bytes:
        """Encode an address.

        Raises:
            OSError: It is of another family.
            ValueError: Its link has a name, which may get another number.
        """
        host, _, link = address[0].partition("%")
        packed = inet_pton(self._family, host)
        family, port = self._family, htons(address[1])
        if family == AF_INET:
            raw = IPV4_ADDRESS.pack(family, port, packed) + bytes(IPV4_PADDING_LENGTH)
        else:
            raw = IPV6_ADDRESS.pack(family, port, 0, packed, int(link or 0))
        if len(self) >= ADDRESSES_MAX:
            self.clear()
        self[address] = raw
        return raw


class SocketTransport(ReadingTransport):
    """A datagram transport over `add_reader` and `add_writer`.

    Args:
        loop: The loop that runs it; it must offer `add_reader`.
        sock: A non-blocking datagram socket; the transport closes it.
        protocol: The protocol to call; it may have methods of `SocketProtocol`.
        burst_limit: Most datagrams received in one turn of the loop; see `ReadingTransport`.
        extra: Answers of `get_extra_info`.
        is_batching: Whether to send batches by single system calls, where the system supports that.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        protocol: asyncio.DatagramProtocol,
        *,
        burst_limit: int,
        extra: Mapping[str, Any],
        is_batching: bool = False,
    ) -> None:
        super().__init__(loop, sock, protocol, burst_limit=burst_limit, extra=extra)
        self._fileno = sock.fileno()
        # A replacement for a socket must be called, not bypassed by its file descriptor.
        self._raw_fd = self._fileno if type(sock) is socket.socket and self._is_connected else None
        self.raw_fd = self._raw_fd
        self._is_segmenting = is_batching and offers_segmentation(sock)
        self._is_sending_many = (
            send_segmented is not None and type(sock) is socket.socket and sys.platform == "linux"
        )
        self._raw_addresses = RawAddresses(sock.family)
        self._sndbuf_length = sock.getsockopt(SOL_SOCKET, socket.SO_SNDBUF)
        self._held: tuple[bytes, Destination] | None = None
        self._is_watch_due = False

    def start(self) -> None:
        """Call `connection_made` of the protocol, then start to receive.

        Raises:
            Exception: what `connection_made` raised; the caller still owns the socket.
        """
        self._protocol.connection_made(self)
        self._watch()

    def sendto(self, data: Datagram, addr: Destination = None) -> None:
        """Send now, or keep this one datagram until the socket has room.

        The data may be reused once this returns. `addr` is numeric: a name would block the loop.

        Raises:
            BufferError: a datagram is already waiting.
            ClosedError: the transport is closed.
            ValueError: no data; or an address on a connected socket, or none on another.
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

    def send_batch(self, data: memoryview, segment_length: int, addr: Destination = None) -> int:
        """Send one datagram after another; return the bytes sent, or held to be sent first.

        The same as in every transport, but with many datagrams per call where the system can.

        Raises:
            BufferError: A datagram is already waiting.
            ClosedError: The transport is closed.
            ValueError: No data, a segment length below 1, or an address on a connected socket, or
                none on another.
        """
        if (
            not self._is_segmenting
            or self._is_blocked
            or not 0 < segment_length < len(data)
            or segment_length > BATCH_LENGTH_MAX // 2
            or (addr is None) is not self._is_connected
        ):
            return super().send_batch(data, segment_length, addr)
        length_max = segment_length * min(SEGMENT_COUNT_MAX, BATCH_LENGTH_MAX // segment_length)
        control = ((SOL_UDP, UDP_SEGMENT, UINT16.pack(segment_length)),)
        left_length, last_start, target = 0, len(data) - segment_length, addr
        # A single datagram that is left is no batch.
        while left_length < last_start:
            part = data[left_length : left_length + length_max]
            try:
                if addr is not None and not self._is_ipv4:
                    target = system_address(addr)
                self._sock.sendmsg((part,), control, 0, target)
            except OSError as error:
                if error.errno in SEGMENTATION_REFUSALS:
                    self._forgo_segmentation(segment_length, error)
                    break
                return left_length + self._hold_or_tell(part[:segment_length], target, error)
            left_length += len(part)
        if left_length < len(data):
            left_length += super().send_batch(data[left_length:], segment_length, addr)
        return left_length

    def send_batches(
        self, data: memoryview, segments: SegmentTable, addr: Destination = None
    ) -> int:
        """Send segment batches; return the bytes sent, or held to be sent first.

        The same as in every transport, but with many batches per call where the system can.

        Raises:
            BufferError: A datagram is already waiting.
            ClosedError: The transport is closed.
            ValueError: No data, a segment length below 1, or an address on a connected socket, or
                none on another.
        """
        index = start = 0
        while (
            self._is_sending_many
            and self._is_segmenting
            and not self._is_blocked
            and addr is None
            and self._is_connected
            and index < len(segments)
        ):
            assert send_segmented is not None
            start, index, number = send_segmented(self._sock, data, segments, index, start)
            if index >= len(segments):
                break
            batch, segment_length = data[start : segments[index]], segments[index + 1]
            if number and not (number in SEGMENTATION_REFUSALS and segment_length < len(batch)):
                error = OSError(number, os.strerror(number))
                return start + self._hold_or_tell(batch[:segment_length], addr, error)
            if number:
                self._forgo_segmentation(segment_length, OSError(number, os.strerror(number)))
            # Any other problem shows when the batch is sent on its own.
            left_length = self.send_batch(batch, segment_length, addr)
            start += left_length
            index += 2
            if left_length < len(batch) or self._is_blocked:
                return start
        return self._send_batches_from(index, start, data, segments, addr)

    def send_to_many(
        self, data: memoryview, segments: SegmentTable, addresses: Sequence[SocketAddress]
    ) -> tuple[int, int]:
        """Send segment batches to each address; return the bytes sent, and how many were missed.

        The same as in every transport, but with many slices per call where the system can.

        Raises:
            Exception: As `send_batch`.
        """
        raw_addresses = self._encode(addresses)
        if not raw_addresses:
            return super().send_to_many(data, segments, addresses)
        assert send_to_many is not None
        index = start = missed_count = 0
        while True:
            start, stop, index, which, number = send_to_many(
                self._sock, data, segments, index, start, raw_addresses, *self._slices(addresses)
            )
            if index == len(segments):
                return start, missed_count
            if not number:
                break
            # The others get the slice one after the other.
            part, segment_length = data[start:stop], segments[index + 1]
            left_lengths, error = [len(part)] * which, OSError(number, os.strerror(number))
            if number in SEGMENTATION_REFUSALS and segment_length < len(part):
                self._forgo_segmentation(segment_length, error)
            else:
                address = addresses[which] if self._is_ipv4 else system_address(addresses[which])
                left_lengths.append(self._hold_or_tell(part[:segment_length], address, error))
            sent_length, missed = self._send_slice(part, segment_length, addresses, left_lengths)
            start += sent_length
            missed_count += missed
            if self._is_blocked:
                return start, missed_count
            if start == segments[index]:
                index += 2
        # What is wrong with the batch shows when it is sent one slice after the other.
        start, missed = self._send_to_many_from(index, start, data, segments, addresses)
        return start, missed_count + missed

    @property
    def unconnected_fd(self) -> int | None:
        """Return the descriptor by which compiled code may send to an address; None without one."""
        can_send = self._is_sending_many and not (self._is_connected or self._is_blocked)
        return self._fileno if can_send else None

    def raw_address(self, address: SocketAddress) -> bytes | None:
        """Return an address in Linux's format; None if it has none for compiled code."""
        raw_addresses = self._encode((address,))
        return raw_addresses[0] if raw_addresses else None

    def _encode(self, addresses: Sequence[SocketAddress]) -> tuple[bytes, ...]:
        """Return addresses in Linux's format; none if they cannot be sent to in one call."""
        if not self._is_sending_many or self._is_connected or self._is_blocked:
            return ()
        try:
            return tuple(map(self._raw_addresses.__getitem__, addresses))
        except (OSError, ValueError, OverflowError, StructError):
            return ()

    def _slices(self, addresses: Sequence[SocketAddress]) -> tuple[int, int]:
        """Return the datagrams of a slice, and for longer ones the length of the send buffer."""
        if not self._is_segmenting:
            return 1, 0
        if len(addresses) == 1:
            return SEGMENT_COUNT_MAX, 0
        return SLICE_COUNT, self._sndbuf_length

    def _slice_count(
        self, length: int, segment_length: int, addresses: Sequence[SocketAddress]
    ) -> int:
        slice_count, sndbuf_length = self._slices(addresses)
        if sndbuf_length and addresses and length > slice_count * segment_length:
            (queued,) = INT32.unpack(ioctl(self._fileno, TIOCOUTQ, bytes(INT32.size)))
            room = (sndbuf_length - queued) // len(addresses) - MESSAGE_OVERHEAD
            slice_count = max(slice_count, room // segment_length)
        return max(1, min(slice_count, SEGMENT_COUNT_MAX, BATCH_LENGTH_MAX // segment_length))

    def get_write_buffer_size(self) -> int:
        """Return the length of the waiting datagram, or 0."""
        return 0 if self._held is None else len(self._held[0])

    def close(self) -> None:
        """Stop receiving, send a waiting datagram, then close; safe to call again.

        If no datagram waits, the socket is closed and its port free when this returns.
        """
        if self._is_closing:
            return
        self._is_closing = self._is_blocked = True
        self.raw_fd = self._raw_fd = None
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

    def _hold_or_tell(self, datagram: memoryview, addr: Destination, error: OSError) -> int:
        """Hold a datagram for which the socket has no room, or report an error.

        Returns:
            The length of the held datagram, or 0.
        """
        if isinstance(error, BlockingIOError):
            self._hold(bytes(datagram), addr)
            return len(datagram)
        self._on_error(error)
        return 0

    def _forgo_segmentation(self, segment_length: int, error: OSError) -> None:
        self._is_segmenting = False
        _log.info(
            "segmentation_unavailable",
            local=format_address(self.get_extra_info("sockname", ("", 0))),
            segment_length=segment_length,
            reason=error.strerror or str(error),
        )

    def _hold(self, data: bytes, addr: Destination) -> None:
        self._held = data, addr
        self._is_blocked = True
        self.raw_fd = None
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
        # The protocol may have closed the transport when it got the error.
        if not self._is_closing:
            self._is_blocked = False
            self.raw_fd = self._raw_fd
            self._tell(self._protocol.resume_writing)

    def on_send_error(self, error: OSError) -> None:
        """Handle the error of a send by `raw_fd`."""
        self._on_error(error)

    def _on_error(self, error: OSError) -> None:
        # By the contract of libuv's uv_poll, uvloop stops watching a socket for good when a poll
        # reports an error, even one that a send has fetched since; every absent peer causes one.
        # The socket is watched again only later: now, uvloop may still drop what is added.
        if not self._is_watch_due:
            self._is_watch_due = True
            self._loop.call_soon(self._watch_again)
        self._tell_error(error)

    def _watch_again(self) -> None:
        self._is_watch_due = False
        # Remove both before adding either, because uvloop keeps one dead poll for the two.
        if not self._is_closing:
            self._loop.remove_reader(self._fileno)
        if self._held is not None:
            self._loop.remove_writer(self._fileno)
        self._watch()

    def _watch(self) -> None:
        if not self._is_closing:
            self._loop.add_reader(self._fileno, *self._on_readable)
        if self._held is not None:
            self._loop.add_writer(self._fileno, self._send_held, *self._held)

    def _finish(self) -> None:
        self._sock.close()
        if not self._loop.is_closed():
            self._loop.call_soon(self._tell_lost, None)
