"""RES frames: their bytes, how entries are spread over frames, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.errors import ProtocolError
from aeron_async.protocol.datagram import OpaqueFrame, frame_type, frames
from aeron_async.protocol.header import FrameType
from aeron_async.protocol.resolution import Resolution, encode_resolutions, resolutions

HERE = Resolution(name=b"here", address=bytes([10, 0, 0, 1]), port=8050, age_ms=2_000, is_self=True)
THERE = Resolution(name=b"there", address=bytes(15) + b"\x01", port=0x1F73)

entries = st.builds(
    Resolution,
    name=st.binary(min_size=1, max_size=512),
    address=st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16),
    port=st.integers(0, 65_535),
    age_ms=st.integers(-(2**31), 2**31 - 1),
    is_self=st.booleans(),
)


def test_a_frame_has_the_bytes_of_the_official_layout() -> None:
    (frame,) = encode_resolutions([HERE, THERE], 1408)
    assert frame.hex() == (
        "40000000" "00000700"
        "0180721f" "d0070000" "0a000001" "0400" "68657265" + "00" * 6
        + "0200731f" "00000000" + "00" * 15 + "01" "0500" "7468657265" "00"
    )  # fmt: skip
    assert list(resolutions(frame)) == [HERE, THERE]
    assert list(frames(frame)) == [OpaqueFrame(FrameType.RES, frame)]


@given(st.lists(entries, max_size=40), st.integers(600, 2_000))
def test_entries_come_back_from_frames_that_fit_the_mtu(
    given_entries: list[Resolution], mtu_length: int
) -> None:
    encoded = list(encode_resolutions(given_entries, mtu_length))
    assert all(len(each) <= mtu_length and not len(each) % 8 for each in encoded)
    assert [entry for frame in encoded for entry in resolutions(frame)] == given_entries


def test_an_entry_that_fits_no_frame_is_left_out() -> None:
    long = Resolution(name=bytes(512), address=bytes(4), port=1)
    assert [
        entry
        for frame in encode_resolutions([HERE, long, THERE], 100)
        for entry in resolutions(frame)
    ] == [HERE, THERE]


@given(st.binary(max_size=200))
def test_no_bytes_bring_anything_but_entries_or_a_refusal(body: bytes) -> None:
    frame = (8 + len(body)).to_bytes(4, "little") + bytes([0, 0, 7, 0]) + body
    try:
        found = list(resolutions(frame))
    except ProtocolError:
        return
    assert frame_type(frame) == FrameType.RES
    assert sum(entry.length for entry in found) >= len(body)
    assert all(1 <= len(entry.name) <= 512 for entry in found)


def changed(at: int, value: bytes) -> bytes:
    (frame,) = encode_resolutions([HERE], 1408)
    return frame[:at] + value + frame[at + len(value) :]


@pytest.mark.parametrize(
    ("frame", "match"),
    [
        (changed(8, b"\x03"), "entry of type 3 at 8"),
        (changed(8, b"\x02"), "entry of 24 bytes at 8 of a RES frame is too short"),
        (changed(20, b"\x00\x00"), "name of 0 bytes"),
        (changed(20, b"\xff\xff"), "name of -1 bytes"),
        (changed(20, b"\x0b\x00"), "name of 11 bytes at 22 of a RES frame of 32 bytes"),
        (changed(0, b"\x21"), "33"),
        (changed(4, b"\x01"), "version"),
    ],
)
def test_what_is_no_entry_is_refused(frame: bytes, match: str) -> None:
    with pytest.raises(ProtocolError, match=match):
        list(resolutions(frame))
