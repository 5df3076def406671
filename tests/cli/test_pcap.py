from __future__ import annotations

from io import BytesIO
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.cli.pcap import CaptureError, CaptureReader, Datagram
from tests.captures import capture_names, captures_dir, read_capture
from tests.cli.pcaps import ethernet, ipv4, ipv6, pcap

PAYLOAD = b"sixteen bytes ok"


def read(content: bytes) -> tuple[list[Datagram], CaptureReader]:
    reader = CaptureReader(BytesIO(content), "x.pcap")
    return list(reader), reader


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
def test_udp_is_found_on_every_kind_of_link(link: int, packet: bytes) -> None:
    datagrams, reader = read(pcap(packet, link=link))
    assert [datagram.payload for datagram in datagrams] == [PAYLOAD]
    assert datagrams[0].ports == (1_001, 1_002)
    assert datagrams[0].source in {"10.0.0.1:1001", "[fe80::1]:1001"}
    assert datagrams[0].destination in {"10.0.0.2:1002", "[fe80::2]:1002"}
    assert (reader.record_count, reader.foreign_count) == (1, 0)


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
def test_what_holds_no_whole_udp_datagram_is_counted(link: int, packet: bytes) -> None:
    datagrams, reader = read(pcap(packet, link=link))
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
        (b"\x0a\x0d\x0d\x0a" + bytes(40), "pcapng"),
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


@given(st.binary(max_size=300), st.sampled_from([0, 1, 12, 101, 113, 276]))
def test_no_packet_is_too_strange_to_be_counted(packet: bytes, link: int) -> None:
    datagrams, reader = read(pcap(packet, link=link))
    assert len(datagrams) + reader.foreign_count == 1


@given(st.binary(max_size=300))
def test_no_file_is_too_strange_to_be_refused(content: bytes) -> None:
    try:
        read(pcap()[:24] + content)
    except CaptureError as error:
        assert "x.pcap" in str(error)  # noqa: PT017 - that it may pass is the point


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
