"""Packet captures in the classic pcap format, read record by record, down to the UDP payload.

File header, 24 bytes: magic (which tells byte order and resolution), version, zone, accuracy, snap
length, link type. Record header, 16 bytes: seconds, fraction, captured length, original length.
Packets other than UDP over IP are counted and skipped, because captures hold all kinds of packets.

Source: the pcap file format, draft-ietf-opsawg-pcap; the registry of link types.
"""

from __future__ import annotations

import struct
from ipaddress import IPv6Address
from struct import Struct
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple, final

from aeron_async.clock import NS_PER_SECOND
from aeron_async.errors import AeronError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = ["CaptureError", "CaptureReader", "Datagram"]

FILE_HEADER_LENGTH: Final = 24
RECORD_HEADER_LENGTH: Final = 16
# No capture program writes a longer record, so a longer one is damaged.
RECORD_LENGTH_MAX: Final = 256 * 1024
# Byte order, and unit of fractions in nanoseconds, by magic number.
MAGICS: Final[Mapping[bytes, tuple[str, int]]] = {
    b"\xd4\xc3\xb2\xa1": ("<", 1_000),
    b"\xa1\xb2\xc3\xd4": (">", 1_000),
    b"\x4d\x3c\xb2\xa1": ("<", 1),
    b"\xa1\xb2\x3c\x4d": (">", 1),
}
PCAPNG_MAGIC: Final = b"\x0a\x0d\x0d\x0a"

VLAN_TYPES: Final = frozenset({0x8100, 0x88A8})
IP_TYPES: Final = frozenset({0x0800, 0x86DD})
UDP: Final = 17
# Hop-by-hop options, routing and destination options; the second byte holds the length.
IPV6_EXTENSIONS: Final = frozenset({0, 43, 60})
IPV4_FRAGMENT_MASK: Final = 0x3FFF

_UINT16: Final = Struct(">H")
_UDP: Final = Struct(">HHH")
_IPV4: Final = Struct(">BxHxxHxB2x4s4s")
_IPV6: Final = Struct(">B3xHBx16s16s")


class CaptureError(AeronError):
    """The file is no capture, or is incomplete; the message names the offset."""


class Datagram(NamedTuple):
    """One UDP datagram; the time is nanoseconds since 1970, addresses are `host:port`."""

    timestamp_ns: int
    source: str
    destination: str
    ports: tuple[int, int]
    payload: bytes


@final
class CaptureReader:
    """Reads a capture: iterate over its datagrams, once.

    Args:
        file: Open at its first byte; the reader reads it piece by piece and never seeks.
        name: Name in messages.

    Attributes:
        record_count: Packets read so far.
        foreign_count: Packets so far that hold no whole UDP datagram: other protocols, fragments of
            IP, and packets that the capture program cut off.

    Raises:
        CaptureError: The file is no capture, or its link type is unknown.
    """

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        self._name = name
        self.record_count: int = 0
        self.foreign_count: int = 0
        header = file.read(FILE_HEADER_LENGTH)
        if header[:4] == PCAPNG_MAGIC:
            message = f"{name} is of the pcapng format: convert it with `editcap -F pcap`"
            raise CaptureError(message)
        if len(header) < FILE_HEADER_LENGTH or header[:4] not in MAGICS:
            message = f"{name} is no packet capture: it begins with {header[:4].hex() or 'nothing'}"
            raise CaptureError(message)
        order, self._fraction_ns = MAGICS[header[:4]]
        self._record = Struct(f"{order}IIII")
        # The upper bits hold the length of a checksum that no program records.
        link_type = Struct(f"{order}I").unpack_from(header, 20)[0] & 0xFFFF
        if link_type not in LINKS:
            message = f"{name} is a capture of link type {link_type}, which is not known here"
            raise CaptureError(message)
        self._find_ip = LINKS[link_type]

    def __iter__(self) -> Iterator[Datagram]:
        """Yield the datagrams in order.

        Raises:
            CaptureError: The file ends, or is invalid, in the middle of a record.
        """
        offset = FILE_HEADER_LENGTH
        while header := self._file.read(RECORD_HEADER_LENGTH):
            if len(header) < RECORD_HEADER_LENGTH:
                self._refuse("ends in the middle of a record header", offset)
            seconds, fraction, length, _ = self._record.unpack(header)
            if length > RECORD_LENGTH_MAX:
                self._refuse(f"claims a packet of {length} bytes", offset)
            packet = self._file.read(length)
            if len(packet) < length:
                self._refuse(f"ends after {len(packet)} of {length} bytes of a packet", offset)
            offset += RECORD_HEADER_LENGTH + length
            self.record_count += 1
            try:
                found = udp_of(packet, self._find_ip(packet))
            except (IndexError, struct.error):  # It is shorter than its own headers.
                found = None
            if found is None:
                self.foreign_count += 1
                continue
            source, destination, ports, payload = found
            timestamp_ns = seconds * NS_PER_SECOND + fraction * self._fraction_ns
            yield Datagram(timestamp_ns, source, destination, ports, payload)

    def _refuse(self, what: str, offset: int) -> None:
        message = f"{self._name} {what} at offset {offset}; {self.record_count} packets were read"
        raise CaptureError(message)


def udp_of(packet: bytes, start: int | None) -> tuple[str, str, tuple[int, int], bytes] | None:
    """Return source, destination, ports and payload of the IP packet at `start`, if it is UDP."""
    if start is None:
        return None
    version = packet[start] >> 4
    if version == 4:  # noqa: PLR2004 - the version of IP is its name
        first, total, fragment, protocol, source, destination = _IPV4.unpack_from(packet, start)
        if protocol != UDP or fragment & IPV4_FRAGMENT_MASK:
            return None
        hosts = (dotted(source), dotted(destination))
        # Large segments leave some drivers with a total length of 0.
        end = start + total if total else len(packet)
        start += (first & 0x0F) * 4
    elif version == 6:  # noqa: PLR2004 - as above
        _, length, protocol, source, destination = _IPV6.unpack_from(packet, start)
        hosts = (f"[{IPv6Address(source)}]", f"[{IPv6Address(destination)}]")
        start += _IPV6.size
        end = start + length if length else len(packet)
        while protocol in IPV6_EXTENSIONS:
            protocol, start = packet[start], start + (packet[start + 1] + 1) * 8
        if protocol != UDP:  # A fragment header is no extension here, so fragments end here too.
            return None
    else:
        return None
    source_port, destination_port, udp_length = _UDP.unpack_from(packet, start)
    payload_end = start + (udp_length or end - start)
    if payload_end > len(packet):
        return None
    return (
        f"{hosts[0]}:{source_port}",
        f"{hosts[1]}:{destination_port}",
        (source_port, destination_port),
        packet[start + 8 : payload_end],
    )


def dotted(address: bytes) -> str:
    """Return the usual form of an IPv4 address."""
    return ".".join(map(str, address))


def behind_ethernet(packet: bytes) -> int | None:
    """Return where IP begins behind an Ethernet header with any number of VLAN tags."""
    start = 14
    (kind,) = _UINT16.unpack_from(packet, start - 2)
    while kind in VLAN_TYPES:
        start += 4
        (kind,) = _UINT16.unpack_from(packet, start - 2)
    return start if kind in IP_TYPES else None


def behind_cooked(packet: bytes) -> int | None:
    """Return where IP begins in a capture of all interfaces of Linux."""
    return 16 if _UINT16.unpack_from(packet, 14)[0] in IP_TYPES else None


def behind_cooked_v2(packet: bytes) -> int | None:
    """Return where IP begins in a capture of all interfaces of Linux, second version."""
    return 20 if _UINT16.unpack_from(packet, 0)[0] in IP_TYPES else None


LINKS: Final[Mapping[int, Callable[[bytes], int | None]]] = {
    0: lambda _packet: 4,  # loopback of BSD; the version of IP tells the family as well
    1: behind_ethernet,
    12: lambda _packet: 0,  # raw IP, as several systems number it
    14: lambda _packet: 0,
    101: lambda _packet: 0,
    108: lambda _packet: 4,  # loopback of OpenBSD
    113: behind_cooked,
    228: lambda _packet: 0,  # IPv4 only
    229: lambda _packet: 0,  # IPv6 only
    276: behind_cooked_v2,
}
"""Where IP begins in a packet, by link type; None if the packet holds something else."""
