"""Captures made by hand, pcap and pcapng: every kind of link, everything that can be wrong."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address
from struct import pack


def ipv4(
    payload: bytes,
    *,
    ports: tuple[int, int] = (1_001, 1_002),
    protocol: int = 17,
    fragment: int = 0,
    options: bytes = b"",
    is_segment: bool = False,
) -> bytes:
    """Return an IPv4 packet with a UDP datagram in it."""
    udp_length = 0 if is_segment else 8 + len(payload)
    udp = pack(">HHHH", *ports, udp_length, 0) + payload
    header_length = 20 + len(options)
    total = 0 if is_segment else header_length + len(udp)
    return (
        pack(">BBHHHBBH", 0x40 | header_length // 4, 0, total, 0, fragment, 64, protocol, 0)
        + IPv4Address("10.0.0.1").packed
        + IPv4Address("10.0.0.2").packed
        + options
        + udp
    )


def ipv6(
    payload: bytes, *, extensions: tuple[tuple[int, bytes], ...] = (), protocol: int = 17
) -> bytes:
    """Return an IPv6 packet with a UDP datagram in it, behind extension headers."""
    udp = pack(">HHHH", 1_001, 1_002, 8 + len(payload), 0) + payload
    kinds = [kind for kind, _ in extensions] + [protocol]
    chain = b"".join(
        pack(">BB", following, (len(body) + 2) // 8 - 1) + body
        for following, (_, body) in zip(kinds[1:], extensions, strict=True)
    )
    return (
        pack(">IHBB", 6 << 28, len(chain) + len(udp), kinds[0], 64)
        + IPv6Address("fe80::1").packed
        + IPv6Address("fe80::2").packed
        + chain
        + udp
    )


def ethernet(packet: bytes, *, kind: int = 0x0800, tags: tuple[int, ...] = ()) -> bytes:
    """Return an Ethernet frame, with VLAN tags if any, and with padding at the end."""
    tagged = b"".join(pack(">HH", tag, 5) for tag in tags)
    return bytes(12) + tagged + pack(">H", kind) + packet + bytes(6)


def pcap(
    *packets: bytes,
    link: int = 1,
    order: str = "<",
    is_ns: bool = False,
    fraction: int = 250,
) -> bytes:
    """Return a capture of the packets, a second apart."""
    magic = 0xA1B23C4D if is_ns else 0xA1B2C3D4
    records = b"".join(
        pack(f"{order}IIII", 1_000 + index, fraction, len(packet), len(packet)) + packet
        for index, packet in enumerate(packets)
    )
    return pack(f"{order}IHHiIII", magic, 2, 4, 0, 0, 65_535, link) + records


def block(
    kind: int,
    body: bytes,
    *,
    order: str = "<",
    length: int | None = None,
    repeated: int | None = None,
) -> bytes:
    """Return a block of pcapng; its lengths are true unless given."""
    padded = body + bytes(-len(body) % 4)
    length = len(padded) + 12 if length is None else length
    repeated = length if repeated is None else repeated
    return pack(f"{order}II", kind, length) + padded + pack(f"{order}I", repeated)


def options(*each: tuple[int, bytes], order: str = "<") -> bytes:
    """Return the options of a block, with their end if there are any."""
    listed = b"".join(
        pack(f"{order}HH", code, len(value)) + value + bytes(-len(value) % 4)
        for code, value in each
    )
    return listed + bytes(4) if each else b""


def section(*, order: str = "<", version: int = 1, comment: bytes = b"") -> bytes:
    """Return the header of a section whose length is not said."""
    body = pack(f"{order}IHHq", 0x1A2B3C4D, version, 0, -1)
    comments = ((1, comment),) if comment else ()
    return block(0x0A0D0D0A, body + options(*comments, order=order), order=order)


def interface(
    link: int = 1,
    *each: tuple[int, bytes],
    order: str = "<",
    snap_length: int = 0,
) -> bytes:
    """Return the description of an interface, with options."""
    body = pack(f"{order}HHI", link, 0, snap_length)
    return block(1, body + options(*each, order=order), order=order)


def enhanced(
    packet: bytes,
    *,
    number: int = 0,
    ticks: int = 1_000_000_000,
    order: str = "<",
    comment: bytes = b"",
    length: int | None = None,
) -> bytes:
    """Return an enhanced packet block; the captured length is true unless given."""
    length = len(packet) if length is None else length
    fields = pack(f"{order}IIIII", number, ticks >> 32, ticks & 0xFFFFFFFF, length, len(packet))
    comments = ((1, comment),) if comment else ()
    body = fields + packet + bytes(-len(packet) % 4) + options(*comments, order=order)
    return block(6, body, order=order)


def obsolete(
    packet: bytes, *, number: int = 0, ticks: int = 1_000_000_000, order: str = "<"
) -> bytes:
    """Return an obsolete packet block."""
    halves = (ticks >> 32, ticks & 0xFFFFFFFF)
    fields = pack(f"{order}HHIIII", number, 7, *halves, len(packet), len(packet))
    return block(2, fields + packet, order=order)


def simple(packet: bytes, *, length: int | None = None, order: str = "<") -> bytes:
    """Return a simple packet block; the original length is true unless given."""
    length = len(packet) if length is None else length
    return block(3, pack(f"{order}I", length) + packet, order=order)


def pcapng(*packets: bytes, link: int = 1, order: str = "<", ticks: int = 1_000_000_000) -> bytes:
    """Return a capture of the packets by one interface, a microsecond apart."""
    return (
        section(order=order)
        + interface(link, order=order)
        + b"".join(
            enhanced(packet, ticks=ticks + index, order=order)
            for index, packet in enumerate(packets)
        )
    )
