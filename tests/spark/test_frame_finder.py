"""Both ways to find frames find the same ones, whatever lies in the payloads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.archive.disk.descriptor import RecordingDescriptor
from aeron_async.spark.frame_finder import FrameFinder, Frames
from tests.spark.recordings import HEADER, TERM, frame

GIB = 1 << 30


def descriptor(term_length: int = TERM, initial_term_id: int = 7) -> RecordingDescriptor:
    return RecordingDescriptor(
        recording_id=3,
        start_position=0,
        start_timestamp_ms=1,
        initial_term_id=initial_term_id,
        term_length=term_length,
        segment_length=max(term_length, 4 * TERM) if term_length < GIB else GIB,
        mtu_length=1408,
        session_id=5,
        stream_id=1001,
        stripped_channel="aeron:ipc",
        original_channel="aeron:ipc",
        source_identity="aeron:ipc",
    )


def wrapped(term_id: int) -> int:
    return (term_id + 2**31) % 2**32 - 2**31


def laid_out(
    bodies: list[tuple[int, bool, bytes]],
    *,
    position: int,
    each: RecordingDescriptor,
) -> tuple[bytes, list[int]]:
    """Return frames from a position on, up to the end of their term at most, and their starts."""
    content = bytearray()
    starts = []
    start = position % each.term_length
    term_id = wrapped(each.initial_term_id + position // each.term_length)
    for kind, is_planted, payload in bodies:
        offset = start + len(content)
        if is_planted:
            # A header like the one that would be at this place if a frame began here.
            planted = frame(payload, term_offset=offset + 32, term_id=term_id, length=96)
            body = planted[: len(planted) & -32]
        else:
            body = payload
        made = frame(body, term_offset=offset, term_id=term_id, kind=kind)
        if offset + len(made) > each.term_length:
            break
        starts.append(len(content))
        content += made
    return bytes(content), starts


def same(found: Frames, walked: Frames) -> None:
    assert found.starts.tolist() == walked.starts.tolist()
    assert found.ends.tolist() == walked.ends.tolist()
    assert np.array_equal(found.heads, walked.heads)
    assert (found.end, found.problem) == (walked.end, walked.problem)


bodies = st.lists(
    st.tuples(st.sampled_from([1, 1, 1, 0]), st.booleans(), st.binary(max_size=200)),
    min_size=1,
    max_size=40,
)
places = st.sampled_from(
    [
        (TERM, 0, 7),
        (TERM, TERM - 4_096, 7),
        (TERM, 3 * TERM + 96, 2**31 - 2),
        (TERM, 5 * TERM, -(2**31)),
        (GIB, GIB - 8_192, -5),
        (GIB, 2 * GIB + (1 << 29), 2**31 - 1),
    ]
)


@given(bodies=bodies, place=places, data=st.data())
def test_all_at_once_finds_what_one_by_one_does(bodies: Any, place: Any, data: Any) -> None:
    term_length, position, initial_term_id = place
    each = descriptor(term_length, initial_term_id)
    content, starts = laid_out(bodies, position=position, each=each)
    count = data.draw(st.integers(0, len(content) // 32)) * 32
    finder = FrameFinder(each)
    found = finder.find(memoryview(content[:count]), position)
    walked = finder.walk(memoryview(content[:count]), position)
    same(found, walked)
    assert found.starts.tolist() == starts[: len(found)]
    assert found.problem is None
    assert found.end <= count or found.heads[-1, 1] >> 16 == 0


@given(bodies=bodies, place=places, data=st.data())
def test_damage_is_found_at_the_same_place(bodies: Any, place: Any, data: Any) -> None:
    term_length, position, initial_term_id = place
    each = descriptor(term_length, initial_term_id)
    content, starts = laid_out(bodies, position=position, each=each)
    broken = bytearray(content)
    at = data.draw(st.sampled_from(starts or [0])) + data.draw(st.integers(0, 31))
    if at < len(broken):
        broken[at] ^= data.draw(st.integers(1, 255))
    finder = FrameFinder(each)
    found = finder.find(memoryview(broken), position)
    walked = finder.walk(memoryview(broken), position)
    same(found, walked)


def test_frames_of_several_terms_are_found_at_once() -> None:
    each = descriptor(initial_term_id=2**31 - 1)
    content = bytearray()
    for term in range(3):
        offset = 0
        while offset < TERM:
            payload = bytes(min(1_000, TERM - offset - 32))
            made = frame(payload, term_offset=offset, term_id=wrapped(2**31 - 1 + term))
            content += made
            offset += len(made)
    found = FrameFinder(each).find(memoryview(bytes(content)), 0)
    assert found.is_proven
    assert found.end == 3 * TERM
    same(found, FrameFinder(each).walk(memoryview(bytes(content)), 0))


def test_a_planted_header_is_walked_around() -> None:
    each = descriptor()
    content, starts = laid_out([(1, True, b"x" * 64), (1, False, b"y")], position=0, each=each)
    found = FrameFinder(each).find(memoryview(content), 0)
    assert not found.is_proven
    assert found.starts.tolist() == starts


def test_a_hole_ends_the_frames_there() -> None:
    each = descriptor()
    content, starts = laid_out([(1, False, b"x" * 64)] * 5, position=0, each=each)
    holed = bytearray(content)
    holed[starts[3] : starts[4]] = bytes(starts[4] - starts[3])
    found = FrameFinder(each).find(memoryview(holed), 0)
    assert found.end == starts[3]
    assert found.problem == "a frame of 0 bytes, 65248 before its term ends"


def test_padding_to_the_end_of_a_term_counts_whole() -> None:
    each = descriptor()
    head = frame(b"", term_offset=0, kind=0, length=TERM)
    found = FrameFinder(each).find(memoryview(head), 0)
    assert found.ends.tolist() == [TERM]
    assert found.end == TERM


def test_a_frame_that_goes_on_behind_its_piece_waits_for_the_next() -> None:
    each = descriptor()
    content, starts = laid_out(
        [(1, False, b"x" * 64), (1, False, b"y" * 500)], position=0, each=each
    )
    found = FrameFinder(each).find(memoryview(content[: starts[1] + 64]), 0)
    assert (len(found), found.end, found.problem) == (1, starts[1], None)


def test_the_session_is_not_looked_at() -> None:
    each = descriptor()
    content = frame(b"x", term_offset=0, session_id=-77) + frame(b"y", term_offset=64, session_id=3)
    assert len(FrameFinder(each).find(memoryview(content), 0)) == 2


@pytest.mark.parametrize(
    ("field", "value"), [(0, 31), (0, -64), (1, 1), (3, 2), (6, 99), (0, TERM + 32)]
)
def test_a_header_that_is_none_is_refused(field: int, value: int) -> None:
    each = descriptor()
    fields = [64, 0, 0xC0, 1, 0, 5, 1001, 7, 0]
    fields[field] = value
    content = HEADER.pack(*fields) + bytes(32)
    found = FrameFinder(each).find(memoryview(content), 0)
    assert len(found) == 0
    assert found.problem is not None


def test_nothing_holds_no_frame() -> None:
    found = FrameFinder(descriptor()).find(memoryview(b""), 0)
    assert (len(found), found.end, found.problem) == (0, 0, None)
