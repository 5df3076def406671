from __future__ import annotations

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.errors import ProtocolError
from aeron_async.protocol.header import (
    DataFlags,
    ErrorFlags,
    FrameType,
    RttFlags,
    SetupFlags,
    StatusMessageFlags,
    align_frame,
    check_header,
    wrap_int32,
)


@pytest.mark.parametrize(
    ("length", "aligned_length"), [(0, 0), (1, 32), (31, 32), (32, 32), (33, 64), (1408, 1408)]
)
def test_a_frame_takes_up_whole_alignments(length: int, aligned_length: int) -> None:
    assert align_frame(length) == aligned_length


@given(st.integers(min_value=0, max_value=2**31 - 1))
def test_alignment_adds_less_than_one_alignment(length: int) -> None:
    assert align_frame(length) % 32 == 0
    assert 0 <= align_frame(length) - length < 32


@pytest.mark.parametrize(
    ("value", "wrapped"),
    [
        (0, 0),
        (0x7FFF_FFFF, 0x7FFF_FFFF),
        (0x8000_0000, -0x8000_0000),
        (0xFFFF_FFFF, -1),
        (-0x8000_0001, 0x7FFF_FFFF),
        (1 << 32, 0),
    ],
)
def test_term_ids_wrap_at_thirty_two_bits(value: int, wrapped: int) -> None:
    assert wrap_int32(value) == wrapped


@given(st.integers(min_value=-(2**31), max_value=2**31 - 1), st.integers())
def test_wrapping_forgets_whole_turns_only(value: int, turns: int) -> None:
    assert wrap_int32(value + (turns << 32)) == value


def test_frame_types_and_flags_have_the_numbers_of_the_wire() -> None:
    assert {kind.name: kind.value for kind in FrameType} == {
        "PAD": 0,
        "DATA": 1,
        "NAK": 2,
        "SM": 3,
        "ERR": 4,
        "SETUP": 5,
        "RTTM": 6,
        "RES": 7,
        "ATS_DATA": 8,
        "ATS_SETUP": 9,
        "ATS_SM": 10,
        "RSP_SETUP": 11,
        "EXT": 0xFFFF,
    }
    assert DataFlags.UNFRAGMENTED == DataFlags.BEGIN_FRAGMENT | DataFlags.END_FRAGMENT == 0xC0
    assert DataFlags.END_OF_STREAM | DataFlags.REVOKED == 0x30
    assert (StatusMessageFlags.SEND_SETUP, StatusMessageFlags.END_OF_STREAM) == (0x80, 0x40)
    assert (SetupFlags.SEND_RESPONSE, SetupFlags.GROUP) == (0x80, 0x40)
    assert (RttFlags.REPLY, ErrorFlags.HAS_GROUP_TAG) == (0x80, 0x08)


def test_flags_keep_bits_they_do_not_know() -> None:
    assert SetupFlags(0x4F) == 0x4F
    assert SetupFlags.GROUP in SetupFlags(0x4F)


@pytest.mark.parametrize(
    ("datagram", "complaint"),
    [
        (bytes(27), "NAK datagram of 27 bytes: at least 28 needed"),
        (pack("<iBBH20x", 28, 1, 0, 2), "NAK frame of version 1: only 0 is known"),
        (pack("<iBBH20x", 28, 0, 0, 3), "frame of type 0x0003: NAK is 0x0002"),
        (pack("<iBBH20x", 29, 0, 0, 2), "NAK frame_length is 29: must be within 28..28"),
        (pack("<iBBH20x", 27, 0, 0, 2), "NAK frame_length is 27: must be within 28..28"),
        (pack("<iBBH20x", -28, 0, 0, 2), "NAK frame_length is -28: must be within 28..28"),
    ],
)
def test_a_header_that_cannot_be_meant_is_refused_with_value_and_limit(
    datagram: bytes, complaint: str
) -> None:
    with pytest.raises(ProtocolError, match=complaint):
        check_header(datagram, FrameType.NAK, 28)


def test_a_header_gives_length_and_flags() -> None:
    datagram = pack("<iBBH24x", 30, 0, 0x81, 2)
    assert check_header(datagram, FrameType.NAK, 28) == (30, 0x81)
