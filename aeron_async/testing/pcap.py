"""Writes datagrams to a capture file that Wireshark and `aeron-async decode` read.

Each gets an IP and a UDP header of its own making, without Ethernet; times are virtual, from 1970.

Source: pcap with nanoseconds, link type 101 (raw IP), https://www.tcpdump.org/linktypes.html.
"""

from __future__ import annotations

from ipaddress import ip_address
from struct import Struct
from typing import TYPE_CHECKING, Final

from aeron_async.clock import NS_PER_SECOND
from aeron_async.testing.trace import Verdict

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self

    from aeron_async.driver.media.sockets import SocketAddress

__all__ = ["PcapWriter"]

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
    """A capture file of what happened in a world; a `Watcher` of its trace.

    Args:
        path: Of the file, which is made anew.
        verdicts: Of the events that are written. By default what was sent, lost or not: a capture
            taken at the senders.
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
        self.count = 0
        self.skipped_count = 0
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
    """Return an IP packet that carries the payload; the UDP checksum is left out."""
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
