"""Whole datagrams, from bytes to frames and back."""

from __future__ import annotations

from struct import pack

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.errors import ProtocolError
from aeron_async.protocol.data import DataHeader
from aeron_async.protocol.datagram import (
    INVALID,
    ControlFrame,
    DataFrame,
    OpaqueFrame,
    classify,
    encode_datagram,
    frame_type,
    frames,
)
from aeron_async.protocol.header import FrameType
from aeron_async.protocol.nak import Nak
from tests.protocol.strategies import control_frames, data_datagrams

NAK = Nak(session_id=1, stream_id=2, term_id=3, term_offset=64, length=96)
HEADER = DataHeader(frame_length=40, term_offset=32, session_id=1, stream_id=2, term_id=3)
PAD = attrs.evolve(HEADER, frame_length=96, frame_type=FrameType.PAD)


@given(data_datagrams)
def test_data_frames_and_a_closing_pad_survive_a_round_trip(values: list[DataFrame]) -> None:
    assert list(frames(encode_datagram(values))) == values


@given(control_frames)
def test_a_control_frame_is_a_datagram_of_its_own(frame: ControlFrame) -> None:
    assert list(frames(frame.encode())) == [frame]


def test_bytes_after_a_control_frame_are_shown_as_what_no_driver_reads() -> None:
    datagram = NAK.encode() + NAK.encode()
    assert list(frames(datagram)) == [NAK, OpaqueFrame(INVALID, NAK.encode())]
    assert encode_datagram(frames(datagram)) == datagram


@given(st.binary(max_size=200))
def test_random_bytes_give_frames_or_a_protocol_error(datagram: bytes) -> None:
    try:
        values = list(frames(datagram))
    except ProtocolError:
        return
    assert encode_datagram(values) == datagram


@given(
    st.sampled_from(FrameType),
    st.integers(min_value=-1, max_value=200),
    st.binary(max_size=200),
)
def test_random_bodies_give_frames_or_a_protocol_error(
    kind: FrameType, frame_length: int, body: bytes
) -> None:
    datagram = pack("<iBBH", frame_length, 0, 0, kind) + body
    try:
        values = list(frames(datagram))
    except ProtocolError:
        assert kind not in {FrameType.ATS_DATA, FrameType.EXT}
        return
    assert encode_datagram(values) == datagram


@pytest.mark.parametrize(
    "kind", [FrameType.ATS_DATA, FrameType.ATS_SETUP, FrameType.ATS_SM, FrameType.EXT]
)
def test_reserved_types_are_named_though_no_driver_takes_them(kind: FrameType) -> None:
    datagram = pack("<iBBH24x", 32, 0, 0, kind)
    assert frame_type(datagram) == INVALID
    assert classify(datagram) is kind
    assert list(frames(datagram)) == [OpaqueFrame(kind, datagram)]


def test_a_name_resolution_is_named_and_kept_whole() -> None:
    datagram = pack("<iBBH16x", 24, 0, 0, FrameType.RES)
    assert frame_type(datagram) == classify(datagram) == FrameType.RES
    assert list(frames(datagram)) == [OpaqueFrame(FrameType.RES, datagram)]


def test_a_name_resolution_longer_than_its_datagram_is_refused() -> None:
    datagram = pack("<iBBH16x", 25, 0, 0, FrameType.RES)
    with pytest.raises(ProtocolError, match="RES datagram of 24 bytes"):
        list(frames(datagram))


@pytest.mark.parametrize("datagram", [b"", bytes(7), pack("<iBBH", 8, 0, 0, 12)])
def test_what_has_no_type_has_no_name_and_no_frames(datagram: bytes) -> None:
    assert classify(datagram) is None
    with pytest.raises(ProtocolError, match=f"no frame in {len(datagram)} bytes"):
        list(frames(datagram))


def test_the_good_frames_before_a_bad_one_are_shown() -> None:
    good = DataFrame(HEADER, bytes(32))
    walk = frames(good.encode() + pack("<iBBH24x", 31, 0, 0, 1))
    assert next(walk) == good
    with pytest.raises(ProtocolError, match="frame_length is 31: at least 32, or 0"):
        next(walk)


def test_a_heartbeat_behind_another_frame_is_refused() -> None:
    heartbeat = attrs.evolve(HEADER, frame_length=0)
    datagram = DataFrame(HEADER, bytes(32)).encode() + heartbeat.encode()
    with pytest.raises(ProtocolError, match="frame_length is 0 in 96 bytes: a heartbeat travels"):
        list(frames(datagram))


def test_a_frame_length_of_zero_in_64_bytes_is_no_heartbeat() -> None:
    heartbeat = attrs.evolve(HEADER, frame_length=0)
    with pytest.raises(ProtocolError, match="frame_length is 0 in 64 bytes"):
        list(frames(heartbeat.encode() + bytes(32)))


@pytest.mark.parametrize("length", [8, 31, 33, 40, 63])
def test_a_data_datagram_that_is_not_aligned_is_refused(length: int) -> None:
    datagram = DataFrame(HEADER, bytes(32)).encode()[:length]
    with pytest.raises(ProtocolError, match=f"data datagram of {length} bytes: must be a multiple"):
        list(frames(datagram))


def test_a_data_frame_longer_than_its_datagram_is_refused() -> None:
    with pytest.raises(ProtocolError, match="frame_length is 40, with a body of 0 bytes: 32 need"):
        list(frames(HEADER.encode()))


@pytest.mark.parametrize("body_length", [0, 32, 64])
def test_a_pad_travels_without_its_body_or_with_any_of_it(body_length: int) -> None:
    datagram = PAD.encode() + bytes(body_length)
    (pad,) = frames(datagram)
    assert pad == DataFrame(PAD, bytes(body_length))
    assert pad.encode() == datagram


@pytest.mark.parametrize(
    ("header", "body_length"), [(HEADER, 31), (HEADER, 33), (HEADER, 64), (PAD, 96)]
)
def test_a_body_of_another_length_than_the_header_says_is_refused(
    header: DataHeader, body_length: int
) -> None:
    with pytest.raises(ProtocolError, match=f"with a body of {body_length} bytes"):
        DataFrame(header, bytes(body_length))


def test_the_payload_is_the_body_without_alignment() -> None:
    frame = DataFrame(HEADER, b"12345678" + bytes(24))
    assert frame.payload == b"12345678"
    assert DataFrame(attrs.evolve(HEADER, frame_length=32)).payload == b""
    assert DataFrame(attrs.evolve(HEADER, frame_length=0)).payload == b""
