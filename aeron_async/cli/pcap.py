"""Packet captures, pcap and pcapng, read packet by packet down to the UDP payload.

A pcap file is a file header of 24 bytes (magic, which tells byte order and resolution, version,
zone, accuracy, snap length, link type) and records. The header of a record is 16 bytes: seconds,
fraction, captured length, original length.

A pcapng file, which Wireshark writes unless told otherwise, is a row of blocks, each with its
length before and behind it. A section header sets the byte order, interface descriptions give
link types and resolutions by number, and packet blocks name the interface they are from. Blocks
of other types are skipped. A packet of an interface whose link type is unknown is counted and
skipped; a capture that holds no other packets is refused.

Packets other than UDP over IP are counted and skipped, because captures hold all kinds of packets.

Invariant: no length in a file is believed before it is compared with a limit, so memory is at most
one block and the interfaces of one section, whatever the file says.

No library reads the files here, for none both bounds what a hostile file costs and keeps times to
the nanosecond. For a block of 1 GiB, dpkt 1.9.8 takes 3 GiB, pypcapkit 1.4.1 takes 4, python-pcapng
2.1.1 and scapy 2.8 (GPL) take 1. dpkt, python-pcapng and pktcap 0.1.3, which is bounded otherwise,
give times as floats, 240 ns apart these days. dpkt takes all packets for those of the first
interface; python-pcapng reads no pipe; scapy does not say that a file is cut off, and pypcapkit
returns no packet of such a file. cypcap 0.6.3, which is libpcap, refuses interfaces of different
links and sections of different byte orders. pycapng 0.19.7 stops without an error at big-endian
sections.

Source: the file formats, draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng; the registry of link
types.
"""

from __future__ import annotations

import struct
from ipaddress import IPv6Address
from math import gcd
from struct import Struct
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple, NoReturn, TypeAlias, final

import attrs

from aeron_async.clock import NS_PER_SECOND
from aeron_async.errors import AeronError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Link: TypeAlias = Callable[[bytes], int | None]
    Packet: TypeAlias = tuple[bytes, Link, int]

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

# The type of a section header block, the same in either byte order.
PCAPNG_MAGIC: Final = b"\x0a\x0d\x0d\x0a"
PCAPNG_VERSION: Final = 1
SECTION_HEADER: Final = 0x0A0D0D0A
INTERFACE_DESCRIPTION: Final = 1
OBSOLETE_PACKET: Final = 2
SIMPLE_PACKET: Final = 3
ENHANCED_PACKET: Final = 6
PACKETS: Final = frozenset({OBSOLETE_PACKET, SIMPLE_PACKET, ENHANCED_PACKET})
# Fixed fields of the blocks that are read, with type and both lengths.
BLOCK_LENGTHS_MIN: Final[Mapping[int, int]] = {
    SECTION_HEADER: 28,
    INTERFACE_DESCRIPTION: 20,
    OBSOLETE_PACKET: 32,
    SIMPLE_PACKET: 16,
    ENHANCED_PACKET: 32,
}
BLOCK_HEADER_LENGTH: Final = 8
BLOCK_LENGTH_MIN: Final = 12
# Room for the longest packet and for as many bytes of options, which are mostly comments.
BLOCK_LENGTH_MAX: Final = 2 * RECORD_LENGTH_MAX
SKIP_LENGTH: Final = 64 * 1024
# An interface takes 20 bytes of a file and some hundred of memory.
INTERFACES_MAX: Final = 4_096
OPTION_END: Final = 0
OPTION_RESOLUTION: Final = 9
OPTION_TIME_OFFSET: Final = 14
TICKS_PER_SECOND: Final = 1_000_000

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
    """One UDP datagram; the time is nanoseconds since 1970, addresses are `host:port`.

    A simple packet block holds no time: its datagram has that of the packet before it, or 0.
    """

    timestamp_ns: int
    source: str
    destination: str
    ports: tuple[int, int]
    payload: bytes


@final
class ByteOrder:
    """The fields of pcapng blocks in one byte order."""

    def __init__(self, order: str) -> None:
        self.block: Struct = Struct(f"{order}II")
        self.version: Struct = Struct(f"{order}H")
        self.interface: Struct = Struct(f"{order}HxxI")
        self.option: Struct = Struct(f"{order}HH")
        self.time_offset: Struct = Struct(f"{order}q")
        self.enhanced: Struct = Struct(f"{order}IIII")
        self.obsolete: Struct = Struct(f"{order}HxxIII")
        self.length: Struct = Struct(f"{order}I")


BYTE_ORDERS: Final[Mapping[bytes, ByteOrder]] = {
    b"\x4d\x3c\x2b\x1a": ByteOrder("<"),
    b"\x1a\x2b\x3c\x4d": ByteOrder(">"),
}


@final
@attrs.frozen
class PcapInterface:
    """An interface of a pcapng section; a tick lasts `ns / ticks` nanoseconds."""

    link_type: int
    find_ip: Link
    snap_length: int
    ns: int
    ticks: int
    offset_ns: int

    def timestamp_ns(self, high: int, low: int) -> int:
        """Return the time of a packet, of which a block holds the halves."""
        return (high << 32 | low) * self.ns // self.ticks + self.offset_ns


@final
class CaptureReader:
    """Reads a capture, pcap or pcapng: iterate over its datagrams, once.

    Args:
        file: Open at its first byte; the reader reads it piece by piece and never seeks.
        name: Name in messages.

    Attributes:
        record_count: Packets read so far.
        foreign_count: Packets so far that hold no whole UDP datagram: other protocols, fragments of
            IP, and packets that the capture program cut off.

    Raises:
        CaptureError: The file is no capture, or the link type of a pcap file is unknown.
    """

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        self._name = name
        self.record_count: int = 0
        self.foreign_count: int = 0
        header = file.read(FILE_HEADER_LENGTH)
        if header[:4] == PCAPNG_MAGIC:
            self._order = self._byte_order(header, 0)
            self._packets = self._pcapng_packets(header)
            return
        if len(header) < FILE_HEADER_LENGTH or header[:4] not in MAGICS:
            message = f"{name} is no packet capture: it begins with {header[:4].hex() or 'nothing'}"
            raise CaptureError(message)
        # The upper bits hold the length of a checksum that no program records.
        order, fraction_ns = MAGICS[header[:4]]
        link_type = Struct(f"{order}I").unpack_from(header, 20)[0] & 0xFFFF
        if link_type not in LINKS:
            self._refuse_link(link_type)
        self._packets = self._pcap_packets(order, fraction_ns, LINKS[link_type])

    def __iter__(self) -> Iterator[Datagram]:
        """Yield the datagrams in order.

        Raises:
            CaptureError: The file ends, or is invalid, in the middle of a packet or block, or all
                its packets are of link types that are unknown.
        """
        for packet, find_ip, timestamp_ns in self._packets:
            self.record_count += 1
            try:
                found = udp_of(packet, find_ip(packet))
            except (IndexError, struct.error):  # It is shorter than its own headers.
                found = None
            if found is None:
                self.foreign_count += 1
                continue
            source, destination, ports, payload = found
            yield Datagram(timestamp_ns, source, destination, ports, payload)

    def _refuse(self, what: str, offset: int) -> NoReturn:
        message = f"{self._name} {what} at offset {offset}; {self.record_count} packets were read"
        raise CaptureError(message)

    def _refuse_link(self, link_type: int) -> NoReturn:
        message = f"{self._name} is a capture of link type {link_type}, which is not known here"
        raise CaptureError(message)

    # pcap

    def _pcap_packets(self, order: str, fraction_ns: int, find_ip: Link) -> Iterator[Packet]:
        record = Struct(f"{order}IIII")
        offset = FILE_HEADER_LENGTH
        while header := self._file.read(RECORD_HEADER_LENGTH):
            if len(header) < RECORD_HEADER_LENGTH:
                self._refuse("ends in the middle of a record header", offset)
            seconds, fraction, length, _ = record.unpack(header)
            if length > RECORD_LENGTH_MAX:
                self._refuse(f"claims a packet of {length} bytes", offset)
            packet = self._file.read(length)
            if len(packet) < length:
                self._refuse(f"ends after {len(packet)} of {length} bytes of a packet", offset)
            offset += RECORD_HEADER_LENGTH + length
            yield packet, find_ip, seconds * NS_PER_SECOND + fraction * fraction_ns

    # pcapng

    def _pcapng_packets(self, header: bytes) -> Iterator[Packet]:
        """Yield the packets of all sections; `header` is what was read of the first one."""
        offset = 0
        timestamp_ns = 0
        interfaces: list[PcapInterface] = []
        unknown_link: int | None = None
        is_any_known = False
        while header:
            if header[:4] == PCAPNG_MAGIC:
                if offset:
                    header += self._file.read(FILE_HEADER_LENGTH - len(header))
                    self._order = self._byte_order(header, offset)
                interfaces = []
            kind, body, length = self._block(header, offset)
            if kind == INTERFACE_DESCRIPTION:
                interfaces.append(self._interface(body, len(interfaces), offset))
            elif kind in PACKETS:
                packet, interface, time_ns = self._packet(kind, body, interfaces, offset)
                if time_ns is not None:
                    timestamp_ns = time_ns
                if interface.find_ip is not no_ip:
                    is_any_known = True
                elif unknown_link is None:
                    unknown_link = interface.link_type
                yield packet, interface.find_ip, timestamp_ns
            offset += length
            header = self._file.read(BLOCK_HEADER_LENGTH)
        if unknown_link is not None and not is_any_known:
            self._refuse_link(unknown_link)

    def _byte_order(self, header: bytes, offset: int) -> ByteOrder:
        """Return the byte order of the section that begins with `header`."""
        if len(header) < FILE_HEADER_LENGTH:
            self._refuse("ends in the middle of a section header", offset)
        order = BYTE_ORDERS.get(header[8:12])
        if order is None:
            self._refuse(
                f"is of the pcapng format, but has byte order {header[8:12].hex()}", offset
            )
        (version,) = order.version.unpack_from(header, 12)
        if version != PCAPNG_VERSION:
            self._refuse(f"is of version {version} of the pcapng format", offset)
        return order

    def _block(self, header: bytes, offset: int) -> tuple[int, bytes, int]:
        """Return type, body and whole length of a block; the body ends with the second length.

        A block that is of no use here is skipped piece by piece; its body is only the last piece.
        """
        if len(header) < BLOCK_HEADER_LENGTH:
            self._refuse("ends in the middle of a block header", offset)
        kind, length = self._order.block.unpack_from(header)
        is_skipped = kind == SECTION_HEADER or kind not in BLOCK_LENGTHS_MIN
        if (
            length % 4
            or length < BLOCK_LENGTHS_MIN.get(kind, BLOCK_LENGTH_MIN)
            or (length > BLOCK_LENGTH_MAX and not is_skipped)
        ):
            self._refuse(f"claims a block of {length} bytes", offset)
        rest = length - len(header)
        while is_skipped and rest > SKIP_LENGTH:
            skipped = len(self._file.read(min(SKIP_LENGTH, rest - 4)))
            if not skipped:
                break
            rest -= skipped
        # The rest is longer only if the file ends in a block that is skipped.
        body = self._file.read(min(rest, BLOCK_LENGTH_MAX))
        if len(body) < rest:
            read = length - rest + len(body)
            self._refuse(f"ends after {read} of {length} bytes of a block", offset)
        (repeated,) = self._order.length.unpack_from(body, rest - 4)
        if repeated != length:
            self._refuse(f"has a block of {length} bytes that ends as one of {repeated}", offset)
        return kind, body, length

    def _interface(self, body: bytes, number: int, offset: int) -> PcapInterface:
        if number == INTERFACES_MAX:
            self._refuse(f"describes more than {INTERFACES_MAX} interfaces", offset)
        link_type, snap_length = self._order.interface.unpack_from(body)
        ticks = TICKS_PER_SECOND
        offset_ns = 0
        for code, value in self._options(body[8:-4], offset):
            if code == OPTION_RESOLUTION and len(value) == 1:
                ticks = (2 if value[0] & 0x80 else 10) ** (value[0] & 0x7F)
            elif code == OPTION_TIME_OFFSET and len(value) == self._order.time_offset.size:
                offset_ns = self._order.time_offset.unpack(value)[0] * NS_PER_SECOND
            elif code in {OPTION_RESOLUTION, OPTION_TIME_OFFSET}:
                self._refuse(f"has an interface whose option {code} has {len(value)} bytes", offset)
        common = gcd(NS_PER_SECOND, ticks)
        return PcapInterface(
            link_type,
            LINKS.get(link_type, no_ip),
            snap_length,
            NS_PER_SECOND // common,
            ticks // common,
            offset_ns,
        )

    def _options(self, options: bytes, offset: int) -> Iterator[tuple[int, bytes]]:
        start = 0
        while start < len(options):
            code, length = self._order.option.unpack_from(options, start)
            if code == OPTION_END:
                return
            start += self._order.option.size
            if start + length > len(options):
                self._refuse(f"claims an option of {length} bytes", offset)
            yield code, options[start : start + length]
            start += length + -length % 4

    def _packet(
        self, kind: int, body: bytes, interfaces: list[PcapInterface], offset: int
    ) -> tuple[bytes, PcapInterface, int | None]:
        """Return a packet, its interface, and its time if the block has one."""
        if kind == SIMPLE_PACKET:
            number, high, low, start = 0, 0, 0, 4
            (length,) = self._order.length.unpack_from(body)
        else:
            fields = self._order.enhanced if kind == ENHANCED_PACKET else self._order.obsolete
            number, high, low, length = fields.unpack_from(body)
            start = 20
        if number >= len(interfaces):
            self._refuse(f"names interface {number} of {len(interfaces)}", offset)
        interface = interfaces[number]
        if kind == SIMPLE_PACKET and interface.snap_length:
            length = min(length, interface.snap_length)
        if length > RECORD_LENGTH_MAX:
            self._refuse(f"claims a packet of {length} bytes", offset)
        if start + length > len(body) - 4:
            self._refuse(f"claims a packet of {length} bytes, more than its block", offset)
        time_ns = None if kind == SIMPLE_PACKET else interface.timestamp_ns(high, low)
        return body[start : start + length], interface, time_ns


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


def no_ip(_packet: bytes) -> None:
    """Return None: nothing is known of what the packet holds."""


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
