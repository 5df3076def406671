"""Every frame the official driver sent decodes, is believed, and re-encodes to the same bytes."""

from __future__ import annotations

from collections import Counter
from itertools import product
from struct import pack

import pytest

from aeron_async.protocol.datagram import (
    INVALID,
    ControlFrame,
    DataFrame,
    Frame,
    OpaqueFrame,
    check_data,
    check_error,
    check_nak,
    check_setup,
    check_status_message,
    classify,
    encode_datagram,
    frame_type,
    frames,
)
from aeron_async.protocol.error import ErrorFrame
from aeron_async.protocol.header import FrameType
from aeron_async.protocol.nak import Nak
from aeron_async.protocol.setup import Setup
from aeron_async.protocol.status_message import StatusMessage
from tests.captures import (
    Packet,
    capture_names,
    captures_dir,
    frame_counts,
    read_capture,
    read_pcap,
)


def name_of(frame: Frame, datagram: bytes) -> str:
    if isinstance(frame, DataFrame):
        if frame.header.is_heartbeat:
            return "HEARTBEAT_EOS" if frame.header.is_end_of_stream else "HEARTBEAT"
        return frame.header.frame_type.name
    kind = classify(datagram)
    assert kind is not None
    return kind.name


def is_believed(frame: ControlFrame | OpaqueFrame, term_length: int) -> bool:
    match frame:
        case Setup():
            return check_setup(frame)
        case Nak():
            return check_nak(frame, term_length)
        case StatusMessage():
            return check_status_message(frame, term_length)
        case ErrorFrame():
            return check_error(frame)
        case _:
            return not isinstance(frame, OpaqueFrame)


def setups(packets: list[Packet]) -> dict[tuple[int, int], Setup]:
    values = [Setup.decode(p.payload) for p in packets if frame_type(p.payload) == FrameType.SETUP]
    return {(setup.session_id, setup.stream_id): setup for setup in values}


@pytest.mark.parametrize("name", capture_names())
def test_every_captured_datagram_is_encoded_again_byte_for_byte(name: str) -> None:
    for packet in read_capture(name):
        assert encode_datagram(frames(packet.payload)) == packet.payload
        assert encode_datagram(frames(memoryview(bytearray(packet.payload)))) == packet.payload


@pytest.mark.parametrize("name", capture_names())
def test_every_capture_holds_the_frames_its_documentation_counts(name: str) -> None:
    counts = Counter(
        name_of(frame, packet.payload)
        for packet in read_capture(name)
        for frame in frames(packet.payload)
    )
    assert dict(counts) == frame_counts(name)


@pytest.mark.parametrize("name", capture_names())
def test_every_captured_frame_passes_the_checks_of_its_receiver(name: str) -> None:
    packets = list(read_capture(name))
    streams = setups(packets)
    term_length = next(iter(streams.values())).term_length
    for packet in packets:
        assert frame_type(packet.payload) != INVALID
        values = list(frames(packet.payload))
        first = values[0]
        if not isinstance(first, DataFrame):
            assert is_believed(first, term_length)
            continue
        stream = streams[first.header.session_id, first.header.stream_id]
        covered = check_data(
            packet.payload,
            initial_term_id=stream.initial_term_id,
            term_length=stream.term_length,
        )
        lengths = [value.header.frame_length for value in values if isinstance(value, DataFrame)]
        assert covered == sum((length + 31) // 32 * 32 for length in lengths)


def pcap(*, order: str, magic: int, records: list[bytes], fraction: int = 7) -> bytes:
    head = pack(f"{order}IHHiIII", magic, 2, 4, 0, 0, 65535, 1)
    return head + b"".join(
        pack(f"{order}IIII", 3, fraction, len(record), len(record)) + record for record in records
    )


def ethernet(
    payload: bytes, *, ether_type: int = 0x0800, protocol: int = 17, options: bytes = b""
) -> bytes:
    udp = pack(">HHHH", 40001, 24010, 8 + len(payload), 0) + payload
    version_and_length = 0x40 | (20 + len(options)) // 4
    ip_header = pack(">BBHHHBBH", version_and_length, 0, 0, 0, 0, 64, protocol, 0)
    addresses = bytes((127, 0, 0, 1, 224, 20, 30, 39))
    return bytes(12) + pack(">H", ether_type) + ip_header + addresses + options + udp


@pytest.mark.parametrize(
    ("order", "resolution"), list(product("<>", ((0xA1B2C3D4, 1_000), (0xA1B23C4D, 1))))
)
def test_captures_of_either_byte_order_and_resolution_are_read(
    order: str, resolution: tuple[int, int]
) -> None:
    magic, fraction_ns = resolution
    content = pcap(order=order, magic=magic, records=[ethernet(b"one"), ethernet(b"")])
    source, destination = ("127.0.0.1", 40001), ("224.20.30.39", 24010)
    timestamp_ns = 3_000_000_000 + 7 * fraction_ns
    assert list(read_pcap(content)) == [
        Packet(timestamp_ns, source, destination, b"one"),
        Packet(timestamp_ns, source, destination, b""),
    ]


def test_what_is_not_udp_over_ipv4_is_passed_over() -> None:
    records = [
        ethernet(b"six", ether_type=0x86DD),
        ethernet(b"tcp", protocol=6),
        ethernet(b"options", options=bytes(4)) + b"ethernet trailer",
    ]
    content = pcap(order="<", magic=0xA1B2C3D4, records=records)
    assert [packet.payload for packet in read_pcap(content)] == [b"options"]


def test_without_captures_a_test_is_skipped_in_plain_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AERON_CAPTURES", "/nowhere/at/all")
    assert capture_names() == ["absent"]
    with pytest.raises(pytest.skip.Exception, match="/nowhere/at/all: set AERON_CAPTURES"):
        captures_dir()
