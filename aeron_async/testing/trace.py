"""Trace of every datagram of a world, and its capture file.

A `Trace` stores no events; a `Watcher` may.

`PcapWriter` gives each datagram an IP and a UDP header that it makes itself, without Ethernet;
times are virtual, from 1970.

Source: pcap with nanoseconds, link type 101 (raw IP), https://www.tcpdump.org/linktypes.html.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from hashlib import blake2b
from ipaddress import ip_address
from struct import Struct
from typing import TYPE_CHECKING, Final

from aeron_async.clock import NS_PER_SECOND
from aeron_async.driver.media.sockets import SocketAddress

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self

__all__ = [
    "PcapWriter",
    "Trace",
    "Verdict",
    "Watcher",
]

EVENT: Final = Struct("<qBHHI")


class Verdict(IntEnum):
    """What happened to a datagram at one point of its way."""

    SENT = 0
    """The datagram entered the link; `DELIVERED` follows for what arrives."""
    DELIVERED = 1
    """The process that owns the socket has read it."""
    LOST = 2
    PARTITIONED = 3
    QUEUE_FULL = 4
    TOO_LONG = 5
    """It was longer than the link carries."""
    NO_ROUTE = 6
    """No host has the address."""
    NO_SOCKET = 7
    """The host has no socket there; a connected sender gets a refusal."""
    NOT_THE_PEER = 8
    """The socket is connected to another address."""
    BUFFER_FULL = 9
    """The socket's receive buffer was full."""
    REFUSED = 10
    """The sender's own system refused it."""


Watcher = Callable[[int, Verdict, SocketAddress, SocketAddress, bytes], None]
"""Called with the time in nanoseconds, the verdict, the source, the destination, and the bytes."""


class Trace:
    """The events of one network.

    Attributes:
        counts: How many events of each verdict.
    """

    def __init__(self) -> None:
        self.counts: list[int] = [0] * len(Verdict)
        self._hash = blake2b(digest_size=16)
        self._watchers: list[Watcher] = []

    def note(
        self,
        now_ns: int,
        verdict: Verdict,
        source: SocketAddress,
        destination: SocketAddress,
        datagram: bytes,
    ) -> None:
        """Record an event."""
        self.counts[verdict] += 1
        self._hash.update(
            EVENT.pack(now_ns, verdict, source[1], destination[1], len(datagram)) + datagram
        )
        for watcher in self._watchers:
            watcher(now_ns, verdict, source, destination, datagram)

    def watch(self, watcher: Watcher) -> None:
        """Call a watcher with every event from now on; see `Watcher` for its arguments."""
        self._watchers.append(watcher)

    def digest(self) -> str:
        """Return the hash of all events so far; runs with the same digest had the same events."""
        return self._hash.hexdigest()


MAGIC_NANOSECONDS: Final = 0xA1B2_3C4D
LINKTYPE_RAW: Final = 101
SNAP_LENGTH: Final = 262_144
FILE_HEADER: Final = Struct("<IHHiIII")
RECORD_HEADER: Final = Struct("<IIII")
IPV4_HEADER: Final = Struct(">BBHHHBBH4s4s")
IPV6_HEADER: Final = Struct(">IHBB16s16s")
UDP_HEADER: Final = Struct(">HHHH")
UDP: Final = 17
HOP_LIMIT: Final = 64
LENGTH_LIMIT: Final = 256 * 1024 * 1024


class PcapWriter:
    """Capture file of a world; a `Watcher` of its trace.

    Args:
        path: Path of the file, which is overwritten.
        verdicts: Verdicts of the events to write. By default those of sending, lost or not: a
            capture taken at the senders.
        length_limit: Bytes after which nothing more is written.

    Attributes:
        count: Datagrams written.
        skipped_count: Datagrams left out because of the limit.
    """

    def __init__(
        self,
        path: Path,
        *,
        verdicts: frozenset[Verdict] = frozenset(Verdict)
        - {Verdict.DELIVERED, Verdict.BUFFER_FULL, Verdict.NO_SOCKET, Verdict.NOT_THE_PEER},
        length_limit: int = LENGTH_LIMIT,
    ) -> None:
        self.count: int = 0
        self.skipped_count: int = 0
        self._verdicts = verdicts
        self._left = length_limit
        self._file = path.open("wb")
        self._file.write(FILE_HEADER.pack(MAGIC_NANOSECONDS, 2, 4, 0, 0, SNAP_LENGTH, LINKTYPE_RAW))

    def __call__(
        self,
        now_ns: int,
        verdict: Verdict,
        source: SocketAddress,
        destination: SocketAddress,
        datagram: bytes,
    ) -> None:
        """Write a datagram, if its verdict is wanted."""
        if verdict not in self._verdicts:
            return
        packet = udp_packet(source, destination, datagram)
        self._left -= RECORD_HEADER.size + len(packet)
        if self._left < 0:
            self.skipped_count += 1
            return
        seconds, nanoseconds = divmod(now_ns, NS_PER_SECOND)
        self._file.write(RECORD_HEADER.pack(seconds, nanoseconds, len(packet), len(packet)))
        self._file.write(packet)
        self.count += 1

    def close(self) -> None:
        """Finish the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def udp_packet(source: SocketAddress, destination: SocketAddress, payload: bytes) -> bytes:
    """Return an IP packet with a payload; the UDP checksum is left out."""
    length = UDP_HEADER.size + len(payload)
    udp = UDP_HEADER.pack(source[1], destination[1], length, 0) + payload
    source_ip, destination_ip = ip_address(source[0]), ip_address(destination[0])
    if source_ip.version == 6:  # noqa: PLR2004 - the version of IP
        version = 6 << 28
        addresses = source_ip.packed, destination_ip.packed
        return IPV6_HEADER.pack(version, length, UDP, HOP_LIMIT, *addresses) + udp
    total = IPV4_HEADER.size + length
    fields = (0x45, 0, total, 0, 0, HOP_LIMIT, UDP)
    addresses = source_ip.packed, destination_ip.packed
    header = IPV4_HEADER.pack(*fields, 0, *addresses)
    return IPV4_HEADER.pack(*fields, _checksum(header), *addresses) + udp


def _checksum(header: bytes) -> int:
    total = sum(int.from_bytes(header[i : i + 2], "big") for i in range(0, len(header), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
