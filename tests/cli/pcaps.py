"""Packet captures made by hand: every kind of link, and everything that can be wrong with one."""

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
