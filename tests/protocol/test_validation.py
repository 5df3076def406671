"""Which datagrams are believed: each limit from both of its sides."""

from __future__ import annotations

from struct import pack, unpack_from

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.protocol.data import encode_heartbeat
from aeron_async.protocol.datagram import (
    HEARTBEAT,
    INVALID,
    OLD_TERM,
    ControlFrame,
    check_data,
    frame_type,
)
from aeron_async.protocol.header import FrameType, wrap_int32
from tests.protocol.strategies import control_frames

TERM_LENGTH = 65536
TERM_ID = 7
MINIMUM_LENGTHS = {
    FrameType.PAD: 32,
    FrameType.DATA: 32,
    FrameType.NAK: 28,
    FrameType.SM: 36,
    FrameType.ERR: 40,
    FrameType.SETUP: 40,
    FrameType.RTTM: 40,
    FrameType.RES: 22,
    FrameType.RSP_SETUP: 20,
}
CONTROL_TYPES = [kind for kind in MINIMUM_LENGTHS if kind > FrameType.DATA]


def datagram_of(kind: int, length: int, *, frame_length: int, version: int = 0) -> bytes:
    return (pack("<iBBH", frame_length, version, 0, kind) + bytes(max(0, length - 8)))[:length]


def data(term_offset: int, frame_length: int, *, kind: int = 1, body: int | None = None) -> bytes:
    header = pack("<iBBHiiiiq", frame_length, 0, 0xC0, kind, term_offset, 1, 2, TERM_ID, 0)
    aligned_length = (frame_length + 31) // 32 * 32
    return header + bytes(max(0, aligned_length - 32) if body is None else body)


def pad(term_offset: int, frame_length: int) -> bytes:
    return data(term_offset, frame_length, kind=0, body=0)


def checked(datagram: bytes, *, initial_term_id: int = TERM_ID) -> int:
    return check_data(datagram, initial_term_id=initial_term_id, term_length=TERM_LENGTH)


@pytest.mark.parametrize(("kind", "length"), MINIMUM_LENGTHS.items())
def test_each_type_has_its_shortest_datagram(kind: FrameType, length: int) -> None:
    assert frame_type(datagram_of(kind, length, frame_length=length)) == kind
    assert frame_type(datagram_of(kind, length - 1, frame_length=length - 1)) == INVALID


@pytest.mark.parametrize("kind", CONTROL_TYPES)
def test_a_control_frame_must_end_within_its_datagram(kind: FrameType) -> None:
    assert frame_type(datagram_of(kind, 44, frame_length=44)) == kind
    assert frame_type(datagram_of(kind, 44, frame_length=45)) == INVALID


@pytest.mark.parametrize("kind", CONTROL_TYPES)
def test_a_control_frame_must_hold_its_own_fields(kind: FrameType) -> None:
    length = MINIMUM_LENGTHS[kind]
    assert frame_type(datagram_of(kind, 64, frame_length=length)) == kind
    assert frame_type(datagram_of(kind, 64, frame_length=length - 1)) == INVALID
    assert frame_type(datagram_of(kind, 64, frame_length=0)) == INVALID


@pytest.mark.parametrize("kind", [FrameType.PAD, FrameType.DATA])
@pytest.mark.parametrize("length", [33, 40, 63])
def test_data_datagrams_are_whole_alignments(kind: FrameType, length: int) -> None:
    assert frame_type(datagram_of(kind, length, frame_length=length)) == INVALID


@pytest.mark.parametrize("kind", [FrameType.PAD, FrameType.DATA])
@pytest.mark.parametrize("frame_length", [0, 32, 4096, 2**31 - 1])
def test_the_length_of_a_data_frame_is_left_to_its_stream(
    kind: FrameType, frame_length: int
) -> None:
    assert frame_type(datagram_of(kind, 64, frame_length=frame_length)) == kind


@pytest.mark.parametrize("kind", [FrameType.PAD, FrameType.DATA])
@pytest.mark.parametrize("frame_length", [-1, 1, 8, 24, 31])
def test_no_data_frame_is_shorter_than_its_header(kind: FrameType, frame_length: int) -> None:
    for length in (32, 64):
        assert frame_type(datagram_of(kind, length, frame_length=frame_length)) == INVALID


@pytest.mark.parametrize("kind", MINIMUM_LENGTHS)
def test_negative_lengths_and_other_versions_are_invalid(kind: FrameType) -> None:
    assert frame_type(datagram_of(kind, 64, frame_length=-1)) == INVALID
    assert frame_type(datagram_of(kind, 64, frame_length=40, version=1)) == INVALID


@pytest.mark.parametrize("kind", [8, 9, 10, 12, 255, 256, 0x7FFF, 0xFFFF])
def test_reserved_and_unknown_types_are_invalid(kind: int) -> None:
    assert frame_type(datagram_of(kind, 64, frame_length=64)) == INVALID


@pytest.mark.parametrize("length", range(8))
def test_less_than_a_header_is_invalid(length: int) -> None:
    assert frame_type(bytes(length)) == INVALID


@given(control_frames)
def test_a_control_frame_is_recognised_by_its_type(frame: ControlFrame) -> None:
    expected = {
        "Setup": FrameType.SETUP,
        "StatusMessage": FrameType.SM,
        "Nak": FrameType.NAK,
        "RttMeasurement": FrameType.RTTM,
        "ErrorFrame": FrameType.ERR,
        "ResponseSetup": FrameType.RSP_SETUP,
    }
    assert frame_type(memoryview(frame.encode())) == expected[type(frame).__name__]


def test_frames_of_one_term_are_believed_and_measured() -> None:
    assert checked(data(64, 33)) == 64
    assert checked(data(64, 33) + data(128, 32) + data(160, 96)) == 192
    assert checked(data(TERM_LENGTH - 1408, 1408)) == 1408


def test_an_empty_message_is_no_heartbeat() -> None:
    assert checked(data(0, 32)) == 32


@pytest.mark.parametrize("frame_length", [32, 33, 65472])
def test_a_pad_counts_in_full_though_only_its_header_travels(frame_length: int) -> None:
    assert checked(pad(64, frame_length)) == (frame_length + 31) // 32 * 32


def test_a_pad_may_close_a_datagram_and_a_term() -> None:
    assert checked(pad(TERM_LENGTH - 32, 32)) == 32
    assert checked(data(65184, 96) + pad(65280, 256)) == 352


def test_a_pad_may_bring_its_body() -> None:
    assert checked(data(0, 96, kind=0)) == 96
    assert checked(data(0, 96, kind=0) + data(96, 40)) == 160


def test_a_pad_without_its_body_cannot_be_followed() -> None:
    assert checked(pad(0, 96) + data(96, 32)) == 96
    assert checked(pad(0, 64) + data(64, 64)) == INVALID


@pytest.mark.parametrize("term_offset", [0, 32, TERM_LENGTH - 32])
def test_a_heartbeat_is_32_bytes_of_no_length(term_offset: int) -> None:
    datagram = encode_heartbeat(
        session_id=1, stream_id=2, term_id=TERM_ID + 1, term_offset=term_offset
    )
    assert checked(datagram) == HEARTBEAT


def test_a_length_of_zero_in_a_longer_datagram_is_invalid() -> None:
    assert checked(data(0, 0, body=32)) == INVALID
    assert checked(data(0, 32) + data(32, 0)) == INVALID


@pytest.mark.parametrize("frame_length", [-(2**31), -32, -1, 1, 8, 31])
def test_a_frame_shorter_than_its_header_is_invalid(frame_length: int) -> None:
    assert checked(data(0, frame_length, body=0)) == INVALID
    assert checked(data(0, 32) + data(32, frame_length, body=0)) == INVALID
    assert checked(data(0, frame_length, kind=0, body=0)) == INVALID


@pytest.mark.parametrize("term_offset", [-32, -(2**31), 1, 31, 33, TERM_LENGTH, 2**31 - 32])
def test_an_offset_outside_the_term_or_between_alignments_is_invalid(term_offset: int) -> None:
    assert checked(data(term_offset, 32)) == INVALID
    assert checked(data(term_offset, 0)) == INVALID


@pytest.mark.parametrize("second_offset", [0, 32, 96, 65])
def test_a_second_frame_at_another_offset_takes_the_first_down_with_it(second_offset: int) -> None:
    assert checked(data(0, 64) + data(64, 32)) == 96
    assert checked(data(0, 64) + data(second_offset, 32)) == INVALID


@pytest.mark.parametrize("kind", [2, 3, 5, 0x101, 0xFFFF])
def test_frames_of_another_type_are_invalid(kind: int) -> None:
    assert checked(data(0, 32) + data(32, 32, kind=kind)) == INVALID


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("frame_length", [33, 64, 2**31 - 1])
def test_no_frame_reaches_beyond_its_term(kind: int, frame_length: int) -> None:
    assert checked(data(TERM_LENGTH - 32, frame_length, kind=kind, body=0)) == INVALID


def test_a_data_frame_that_its_datagram_does_not_hold_is_invalid() -> None:
    assert checked(data(0, 96, body=32)) == INVALID
    assert checked(data(0, 32) + data(32, 64, body=0)) == INVALID


@pytest.mark.parametrize("length", [0, 8, 31, 33, 63])
def test_what_is_not_whole_alignments_covers_nothing(length: int) -> None:
    assert checked((pad(0, 96) + bytes(32))[:length]) == INVALID


def test_a_term_before_the_first_is_old_whatever_else_is_wrong() -> None:
    assert checked(data(0, 32), initial_term_id=TERM_ID + 1) == OLD_TERM
    assert checked(data(1, 3, body=0), initial_term_id=TERM_ID + 1) == OLD_TERM


@pytest.mark.parametrize("initial_term_id", [0, 5, -1, 0x7FFF_FFFF, -0x8000_0000])
def test_a_stream_that_has_used_up_its_terms_sends_heartbeats(initial_term_id: int) -> None:
    at_the_end = pack("<i", wrap_int32(initial_term_id + 2**31)) + bytes(8)
    heartbeat = bytes(4) + data(0, 32)[4:20] + at_the_end
    assert checked(heartbeat, initial_term_id=initial_term_id) == HEARTBEAT
    assert checked(data(0, 32)[:20] + at_the_end, initial_term_id=initial_term_id) == OLD_TERM
    behind = heartbeat[:8] + pack("<i", 32) + heartbeat[12:]
    assert checked(behind, initial_term_id=initial_term_id) == OLD_TERM


@pytest.mark.parametrize(
    ("term_id", "expected"),
    [(0x7FFF_FFFF, 32), (-0x8000_0000, 32), (0x7FFF_FFFE, OLD_TERM), (-2, 32), (-1, OLD_TERM)],
)
def test_term_ids_are_compared_across_the_wrap(term_id: int, expected: int) -> None:
    datagram = data(0, 32)[:20] + pack("<i", term_id) + bytes(8)
    assert checked(datagram, initial_term_id=0x7FFF_FFFF) == expected


def as_documented(datagram: bytes, *, initial_term_id: int, term_length: int) -> int:
    """Follow the reference rule by rule, without an eye to speed."""
    if len(datagram) < 32 or len(datagram) % 32 != 0:
        return INVALID
    term_offset, term_id = unpack_from("<i8xi", datagram, 8)
    term_count = wrap_int32(term_id - initial_term_id)
    if term_count == -(2**31) and term_offset == 0:
        return HEARTBEAT if len(datagram) == 32 and datagram[:4] == bytes(4) else OLD_TERM
    if term_count < 0:
        return OLD_TERM
    if term_offset in range(0, term_length, 32):
        if len(datagram) == 32 and datagram[:4] == bytes(4):
            return HEARTBEAT
        return walked(datagram, term_offset, term_length)
    return INVALID


def walked(datagram: bytes, term_offset: int, term_length: int) -> int:
    covered, kind = 0, -1
    while covered <= len(datagram) - 32:
        frame_length, kind, frame_offset = unpack_from("<i2xHi", datagram, covered)
        if frame_length < 32 or kind not in {0, 1} or frame_offset != term_offset + covered:
            return INVALID
        covered += (frame_length + 31) // 32 * 32
        if term_offset + covered > term_length:
            return INVALID
    is_consumed = covered == len(datagram) or (covered > len(datagram) and kind == 0)
    return covered if is_consumed else INVALID


@given(
    st.lists(
        st.tuples(
            st.sampled_from([0, 1, 1, 1, 2]),
            st.sampled_from([0, 1, 32, 33, 64, 96, 200]),
            st.sampled_from([0, 0, 0, 32, -32]),
            st.booleans(),
        ),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from([0, 64, TERM_LENGTH - 128, TERM_LENGTH - 32, TERM_LENGTH, -32, 5]),
    st.integers(min_value=TERM_ID - 2, max_value=TERM_ID + 2),
)
def test_every_datagram_is_judged_as_documented(
    parts: list[tuple[int, int, int, bool]], term_offset: int, initial_term_id: int
) -> None:
    datagram = b""
    running = term_offset
    for kind, frame_length, shift, with_body in parts:
        body = None if with_body else 0
        datagram += data(running + shift, frame_length, kind=kind, body=body)
        running += (frame_length + 31) // 32 * 32
    expected = as_documented(datagram, initial_term_id=initial_term_id, term_length=TERM_LENGTH)
    assert checked(datagram, initial_term_id=initial_term_id) == expected


@given(st.binary(max_size=160))
def test_random_bytes_are_judged_and_never_raise(datagram: bytes) -> None:
    view = memoryview(datagram)
    assert frame_type(view) in {INVALID, *MINIMUM_LENGTHS}
    result = check_data(view, initial_term_id=0, term_length=TERM_LENGTH)
    assert result == as_documented(datagram, initial_term_id=0, term_length=TERM_LENGTH)
