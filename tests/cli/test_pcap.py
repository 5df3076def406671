from __future__ import annotations

from io import BytesIO
from struct import pack
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.cli.pcap import (
    BLOCK_LENGTH_MAX,
    INTERFACES_MAX,
    CaptureError,
    CaptureReader,
    Datagram,
)
from tests.captures import capture_names, captures_dir, read_capture
from tests.cli.pcaps import (
    block,
    enhanced,
    ethernet,
    interface,
    ipv4,
    ipv6,
    obsolete,
    pcap,
    pcapng,
    section,
    simple,
)
from tests.fuzz.parsers import CaptureFile

if TYPE_CHECKING:
    from collections.abc import Callable

PAYLOAD = b"sixteen bytes ok"


def read(content: bytes) -> tuple[list[Datagram], CaptureReader]:
    reader = CaptureReader(BytesIO(content), "x.pcap")
    return list(reader), reader


@pytest.mark.parametrize("make", [pcap, pcapng])
@pytest.mark.parametrize(
    ("link", "packet"),
    [
        (1, ethernet(ipv4(PAYLOAD))),
        (1, ethernet(ipv6(PAYLOAD), kind=0x86DD)),
        (1, ethernet(ipv4(PAYLOAD), tags=(0x8100,))),
        (1, ethernet(ipv4(PAYLOAD), tags=(0x88A8, 0x8100))),
        (1, ethernet(ipv4(PAYLOAD, options=bytes(8)))),
        (0, pack("<I", 2) + ipv4(PAYLOAD)),
        (0, pack("<I", 30) + ipv6(PAYLOAD)),
        (108, pack(">I", 2) + ipv4(PAYLOAD)),
        (12, ipv4(PAYLOAD)),
        (14, ipv4(PAYLOAD)),
        (101, ipv4(PAYLOAD, is_segment=True)),
        (101, ipv6(PAYLOAD)),
        (101, ipv6(PAYLOAD, extensions=((0, bytes(6)), (60, bytes(14))))),
        (228, ipv4(PAYLOAD)),
        (229, ipv6(PAYLOAD)),
        (113, bytes(14) + pack(">H", 0x0800) + ipv4(PAYLOAD)),
        (276, pack(">H", 0x86DD) + bytes(18) + ipv6(PAYLOAD)),
    ],
)
def test_udp_is_found_on_every_kind_of_link(
    link: int, packet: bytes, make: Callable[..., bytes]
) -> None:
    datagrams, reader = read(make(packet, link=link))
    assert [datagram.payload for datagram in datagrams] == [PAYLOAD]
    assert datagrams[0].ports == (1_001, 1_002)
    assert datagrams[0].source in {"10.0.0.1:1001", "[fe80::1]:1001"}
    assert datagrams[0].destination in {"10.0.0.2:1002", "[fe80::2]:1002"}
    assert (reader.record_count, reader.foreign_count) == (1, 0)


@pytest.mark.parametrize("make", [pcap, pcapng])
@pytest.mark.parametrize(
    ("link", "packet"),
    [
        (1, ethernet(b"", kind=0x0806)),
        (1, b"short"),
        (1, ethernet(ipv4(PAYLOAD, protocol=6))),
        (1, ethernet(ipv4(PAYLOAD, fragment=0x2000))),
        (1, ethernet(ipv4(PAYLOAD, fragment=185))),
        (1, ethernet(ipv4(PAYLOAD))[:40]),
        (1, ethernet(ipv4(PAYLOAD))[:-8]),
        (1, ethernet(ipv6(PAYLOAD, protocol=6), kind=0x86DD)),
        (101, ipv6(PAYLOAD, extensions=((44, bytes(6)),))),
        (101, b"\x00" * 60),
        (101, b""),
        (113, bytes(14) + pack(">H", 0x0004) + ipv4(PAYLOAD)),
        (276, pack(">H", 0x0004) + bytes(18) + ipv4(PAYLOAD)),
    ],
)
def test_what_holds_no_whole_udp_datagram_is_counted(
    link: int, packet: bytes, make: Callable[..., bytes]
) -> None:
    datagrams, reader = read(make(packet, link=link))
    assert (datagrams, reader.record_count, reader.foreign_count) == ([], 1, 1)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(("is_ns", "timestamp_ns"), [(False, 250_000), (True, 250)])
def test_either_byte_order_and_resolution_is_read(
    order: str,
    is_ns: bool,  # noqa: FBT001 - one of the cases
    timestamp_ns: int,
) -> None:
    datagrams, _ = read(pcap(ipv4(PAYLOAD), link=101, order=order, is_ns=is_ns))
    assert datagrams[0].timestamp_ns == 1_000 * 10**9 + timestamp_ns


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"", "begins with nothing"),
        (b"GIF89a", "begins with 47494638"),
        (pcap()[:20], "is no packet capture"),
        (b"\x0a\x0d\x0d\x0a" + bytes(40), "pcapng format, but has byte order 00000000"),
        (section(version=2), "version 2 of the pcapng format at offset 0"),
        (section()[:23], "ends in the middle of a section header at offset 0; 0 packets"),
        (pcap(link=147), "link type 147"),
    ],
)
def test_what_is_no_capture_is_refused(content: bytes, part: str) -> None:
    with pytest.raises(CaptureError, match=part):
        CaptureReader(BytesIO(content), "x.pcap")


@pytest.mark.parametrize(
    ("cut", "part"),
    [
        (3, "ends after .* bytes of a packet at offset 84; 1 packets were read"),
        (50, "ends in the middle of a record header at offset 84"),
    ],
)
def test_a_truncated_capture_is_named_with_the_offset(cut: int, part: str) -> None:
    packet = ipv4(PAYLOAD)
    reader = CaptureReader(BytesIO(pcap(packet, packet, link=101)[:-cut]), "x.pcap")
    datagrams = iter(reader)
    assert next(datagrams).payload == PAYLOAD
    with pytest.raises(CaptureError, match=part):
        next(datagrams)


def test_a_record_of_impossible_length_is_not_believed() -> None:
    content = pcap(ipv4(PAYLOAD), link=101) + pack("<IIII", 0, 0, 2**31, 2**31)
    with pytest.raises(CaptureError, match="claims a packet of 2147483648 bytes at offset 84"):
        read(content)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(
    ("options", "ticks", "timestamp_ns"),
    [
        ((), 1_700_000_000_123_456, 1_700_000_000_123_456_000),
        (((9, b"\x06"),), 1_700_000_000_123_456, 1_700_000_000_123_456_000),
        (((9, b"\x09"),), 1_700_000_000_123_456_789, 1_700_000_000_123_456_789),
        (((9, b"\x00"),), 1_700_000_000, 1_700_000_000_000_000_000),
        (((9, b"\x0c"),), 2**64 - 1, (2**64 - 1) // 1_000),
        (((9, b"\x8a"),), 1_024 * 7 + 1, 7_000_976_562),
        (((9, b"\x7f"),), 2**64 - 1, 0),
        (((9, b"\xff"),), 2**64 - 1, 0),
        (((2, b"eth0"), (1, b"odd"), (9, b"\x09")), 5, 5),
        (((9, b"\x09"), (0, b""), (9, b"\x00")), 5, 5),
    ],
)
def test_time_is_exact_at_every_resolution(
    order: str, options: tuple[tuple[int, bytes], ...], ticks: int, timestamp_ns: int
) -> None:
    packet = ipv4(PAYLOAD)
    content = (
        section(order=order, comment=b"by hand")
        + interface(101, *options, order=order)
        + enhanced(packet, ticks=ticks, order=order, comment=b"the first")
        + obsolete(packet, ticks=ticks, order=order)
    )
    assert [datagram.timestamp_ns for datagram in read(content)[0]] == [timestamp_ns] * 2


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("seconds", [-5, 0, 2**40])
def test_the_offset_of_an_interface_is_added(order: str, seconds: int) -> None:
    content = (
        section(order=order)
        + interface(101, (14, pack(f"{order}q", seconds)), order=order)
        + enhanced(ipv4(PAYLOAD), ticks=7, order=order)
    )
    assert read(content)[0][0].timestamp_ns == seconds * 10**9 + 7_000


def test_a_simple_packet_has_the_time_of_the_packet_before_it() -> None:
    packet = ipv4(PAYLOAD)
    content = (
        section()
        + interface(101)
        + simple(packet)
        + enhanced(packet, ticks=9)
        + simple(packet)
        + section(order=">")
        + interface(101, order=">")
        + simple(packet, order=">")
    )
    datagrams, _ = read(content)
    assert [datagram.timestamp_ns for datagram in datagrams] == [0, 9_000, 9_000, 9_000]
    assert [datagram.payload for datagram in datagrams] == [PAYLOAD] * 4


def test_a_simple_packet_ends_at_the_snap_length() -> None:
    packet = ipv4(PAYLOAD)
    content = (
        section()
        + interface(101, snap_length=len(packet) - 1)
        + simple(packet)
        + section()
        + interface(101, snap_length=len(packet))
        + simple(packet, length=9_000)
    )
    datagrams, reader = read(content)
    assert [datagram.payload for datagram in datagrams] == [PAYLOAD]
    assert (reader.record_count, reader.foreign_count) == (2, 1)


def test_every_interface_has_its_own_link_and_resolution() -> None:
    packet = ipv4(PAYLOAD)
    content = (
        section()
        + interface(1)
        + interface(113, (9, b"\x09"))
        + enhanced(bytes(14) + pack(">H", 0x0800) + packet, number=1, ticks=3)
        + enhanced(ethernet(packet), number=0, ticks=3)
        + interface(147)
        + interface(276, (9, b"\x03"))
        + obsolete(pack(">H", 0x0800) + bytes(18) + packet, number=3, ticks=3)
        + enhanced(packet, number=2)
    )
    datagrams, reader = read(content)
    assert [datagram.timestamp_ns for datagram in datagrams] == [3, 3_000, 3_000_000]
    assert [datagram.payload for datagram in datagrams] == [PAYLOAD] * 3
    assert (reader.record_count, reader.foreign_count) == (4, 1)


def test_a_section_begins_with_interfaces_and_byte_order_of_its_own() -> None:
    packet = ipv4(PAYLOAD)
    first = section() + interface(0) + interface(101) + enhanced(packet, number=1)
    second = section(order=">") + interface(101, order=">") + enhanced(packet, order=">")
    datagrams, reader = read(first + second)
    assert [datagram.payload for datagram in datagrams] == [PAYLOAD] * 2
    with pytest.raises(CaptureError, match=f"names interface 0 of 0 at offset {len(first) + 28}"):
        read(first + section() + enhanced(packet))
    assert reader.record_count == 2


def test_packets_of_unknown_links_alone_are_refused_by_their_type() -> None:
    content = pcapng(PAYLOAD, PAYLOAD, link=147)
    with pytest.raises(CaptureError, match="of link type 147, which is not known here"):
        read(content)
    reader = CaptureReader(BytesIO(section() + interface(147)), "x.pcapng")
    assert list(reader) == []


@pytest.mark.parametrize("kind", [0, 4, 5, 0x0BAD, 0x80000001])
@pytest.mark.parametrize("length", [0, 65_536, 65_540, 3_000_000])
def test_other_blocks_are_skipped(kind: int, length: int) -> None:
    content = (
        section() + interface(101) + block(kind, bytes(length)) + enhanced(ipv4(PAYLOAD), ticks=1)
    )
    assert read_thriftily(content)[0].payload == PAYLOAD


def test_a_long_section_header_is_skipped_too() -> None:
    body = pack("<IHHq", 0x1A2B3C4D, 1, 0, -1) + bytes(200_000)
    content = block(0x0A0D0D0A, body) + interface(101) + enhanced(ipv4(PAYLOAD))
    assert read_thriftily(content)[0].payload == PAYLOAD


PACKET = ipv4(PAYLOAD)
START = section() + interface(101) + enhanced(PACKET)


@pytest.mark.parametrize(
    ("more", "part"),
    [
        (enhanced(PACKET)[:-1], "ends after 75 of 76 bytes of a block"),
        (enhanced(PACKET)[:9], "ends after 9 of 76 bytes of a block"),
        (enhanced(PACKET)[:8], "ends after 8 of 76 bytes of a block"),
        (enhanced(PACKET)[:7], "ends in the middle of a block header"),
        (section()[:20], "ends in the middle of a section header"),
        (section()[:26], "ends after 26 of 28 bytes of a block"),
        (block(5, bytes(200_000))[:150_000], "ends after 150000 of 200012 bytes of a block"),
        (block(5, b"", length=2**32 - 4), "ends after 12 of 4294967292 bytes of a block"),
        (block(5, b"", length=0), "claims a block of 0 bytes"),
        (block(5, b"", length=8), "claims a block of 8 bytes"),
        (block(5, b"", length=13), "claims a block of 13 bytes"),
        (block(6, bytes(16)), "claims a block of 28 bytes"),
        (block(6, b"", length=2**32 - 4), "claims a block of 4294967292 bytes"),
        (block(6, b"", length=BLOCK_LENGTH_MAX + 4), "claims a block of 524292 bytes"),
        (block(3, b""), "claims a block of 12 bytes"),
        (block(2, bytes(16)), "claims a block of 28 bytes"),
        (block(1, bytes(4)), "claims a block of 16 bytes"),
        (block(1, b"", length=2**31), "claims a block of 2147483648 bytes"),
        (block(0x0A0D0D0A, section()[8:-4], length=24), "claims a block of 24 bytes"),
        (block(5, bytes(8), repeated=24), "has a block of 20 bytes that ends as one of 24"),
        (enhanced(PACKET, length=2**32 - 1), "claims a packet of 4294967295 bytes at"),
        (enhanced(PACKET, length=45), "claims a packet of 45 bytes, more than its block"),
        (simple(PACKET, length=45), "claims a packet of 45 bytes, more than its block"),
        (enhanced(PACKET, number=1), "names interface 1 of 1"),
        (enhanced(PACKET, number=2**32 - 1), "names interface 4294967295 of 1"),
        (obsolete(PACKET, number=65_535), "names interface 65535 of 1"),
        (interface(1, (9, b"\x06\x06")), "has an interface whose option 9 has 2 bytes"),
        (interface(1, (14, bytes(4))), "has an interface whose option 14 has 4 bytes"),
        (block(1, bytes(8) + b"\x02\x00\xff\xff"), "claims an option of 65535 bytes"),
        (section(version=3), "is of version 3 of the pcapng format"),
        (b"\x0a\x0d\x0d\x0a" + bytes(24), "has byte order 00000000"),
    ],
)
def test_damage_is_named_with_the_offset_of_its_block(more: bytes, part: str) -> None:
    reader = CaptureReader(BytesIO(START + more), "x.pcapng")
    datagrams = iter(reader)
    assert next(datagrams).payload == PAYLOAD
    with pytest.raises(CaptureError, match=part) as caught:
        next(datagrams)
    assert f" at offset {len(START)}; 1 packets were read" in str(caught.value)


def test_interfaces_of_a_section_are_limited() -> None:
    many = section() + interface(101) * INTERFACES_MAX
    assert len(read(many + enhanced(PACKET, number=INTERFACES_MAX - 1))[0]) == 1
    assert len(read(many + many + enhanced(PACKET))[0]) == 1
    with pytest.raises(CaptureError, match=f"more than {INTERFACES_MAX} interfaces"):
        read(many + interface(101))


def read_thriftily(content: bytes) -> list[Datagram]:
    return list(CaptureReader(CaptureFile(content), "x.pcap"))


@given(st.binary(max_size=300), st.sampled_from([0, 1, 12, 101, 113, 276]))
def test_no_packet_is_too_strange_to_be_counted(packet: bytes, link: int) -> None:
    datagrams, reader = read(pcap(packet, link=link))
    assert len(datagrams) + reader.foreign_count == 1


BLOCKS = st.one_of(
    st.builds(
        block,
        st.sampled_from([0, 1, 2, 3, 5, 6, 0x0A0D0D0A]) | st.integers(0, 2**32 - 1),
        st.binary(max_size=60),
        order=st.sampled_from("<>"),
        length=st.none() | st.sampled_from([0, 12, 28, 32, 2**32 - 4]),
        repeated=st.none() | st.integers(0, 2**32 - 1),
    ),
    st.builds(
        interface,
        st.sampled_from([0, 1, 101, 147, 276]),
        st.tuples(st.sampled_from([0, 2, 9, 14]), st.binary(max_size=9)),
        order=st.sampled_from("<>"),
        snap_length=st.integers(0, 2**32 - 1),
    ),
    st.builds(
        enhanced,
        st.binary(max_size=60) | st.just(PACKET),
        number=st.sampled_from([0, 1, 2**32 - 1]),
        ticks=st.integers(0, 2**64 - 1),
        order=st.sampled_from("<>"),
        length=st.none() | st.integers(0, 2**32 - 1),
    ),
    st.builds(simple, st.binary(max_size=60), order=st.sampled_from("<>")),
    st.builds(obsolete, st.binary(max_size=60), order=st.sampled_from("<>")),
    st.builds(section, order=st.sampled_from("<>")),
    st.binary(max_size=40),
)


@given(
    st.one_of(
        st.binary(max_size=300),
        st.binary(max_size=300).map(pcap()[:24].__add__),
        st.lists(BLOCKS, max_size=8).map(lambda blocks: section() + b"".join(blocks)),
        st.lists(BLOCKS, max_size=8).map(lambda blocks: START + b"".join(blocks)),
    )
)
def test_no_file_is_too_strange_to_be_refused(content: bytes) -> None:
    try:
        read_thriftily(content)
    except CaptureError as error:
        assert "x.pcap" in str(error)  # noqa: PT017 - that it may pass is the point


@given(st.integers(0, len(START) - 1), st.sampled_from([1, 0x80, 0xFF]))
def test_a_changed_byte_ends_in_packets_or_one_error(at: int, change: int) -> None:
    content = bytearray(START * 2)
    content[at] ^= change
    try:
        datagrams = read_thriftily(bytes(content))
    except CaptureError as error:
        assert "x.pcap" in str(error)  # noqa: PT017 - as above
    else:
        assert len(datagrams) <= 2


@given(st.integers(0, len(START) * 2 - 1))
def test_of_a_truncated_pcapng_is_read_what_is_whole(length: int) -> None:
    content = (START * 2)[:length]
    datagrams: list[Datagram] = []
    first = (len(section()), len(section() + interface(101)), len(START))
    is_whole = length in {*first, *(len(START) + each for each in first)}
    try:
        datagrams += iter(CaptureReader(BytesIO(content), "x.pcapng"))
    except CaptureError as error:
        assert "x.pcapng" in str(error)  # noqa: PT017 - as above
        assert not is_whole
    else:
        assert is_whole
    assert len(datagrams) <= length // len(START)


@pytest.mark.parametrize("name", capture_names())
def test_captures_of_the_official_driver_are_read_whole(name: str) -> None:
    content = (captures_dir() / f"{name}.pcap").read_bytes()
    datagrams, reader = read(content)
    expected = list(read_capture(name))
    assert [datagram.payload for datagram in datagrams] == [packet.payload for packet in expected]
    assert [datagram.timestamp_ns for datagram in datagrams] == [
        packet.timestamp_ns for packet in expected
    ]
    assert reader.foreign_count == 0
