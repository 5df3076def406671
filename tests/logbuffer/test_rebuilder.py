from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from aeron_async.logbuffer.appender import ExclusiveAppender
from aeron_async.logbuffer.metadata import LogType
from aeron_async.logbuffer.rebuilder import FILLED, GAP_LENGTH_LIMIT, fill_gap, insert, scan_for_gap
from tests.logbuffer.logs import (
    INITIAL_TERM_ID,
    NO_LIMIT,
    SESSION_ID,
    STREAM_ID,
    TERM_LENGTH,
    header,
    make_log,
)

if TYPE_CHECKING:
    from aeron_async.logbuffer.log_buffers import LogBuffers


@pytest.fixture
def image() -> LogBuffers:
    return make_log(log_type=LogType.IMAGE)


def packets() -> list[memoryview]:
    """Return three datagrams of 160, 320 and 64 bytes, at offsets 0, 160 and 480."""
    log = make_log()
    appender = ExclusiveAppender(log)
    for fill in (b"a", b"b", b"c"):
        appender.offer(fill * 100, limit=NO_LIMIT)
    appender.offer(b"d" * 10, limit=NO_LIMIT)
    term = log.terms[0]
    return [term[:160], term[160:480], term[480:544]]


def place(image: LogBuffers, offset: int, packet: memoryview) -> bool:
    return insert(image.terms[0], image.term_words[0], offset, packet)


def gap(image: LogBuffers, offset: int, limit: int) -> tuple[int, int]:
    return scan_for_gap(image.term_words[0], offset, limit=limit)


def test_a_datagram_lands_as_it_was_sent(image: LogBuffers) -> None:
    first, second, third = packets()
    assert place(image, 160, second)
    assert place(image, 480, third)
    assert place(image, 0, first)
    assert bytes(image.terms[0][:544]) == bytes(first) + bytes(second) + bytes(third)


def test_the_second_of_two_copies_is_refused(image: LogBuffers) -> None:
    first, *_ = packets()
    assert place(image, 0, first)
    before = bytes(image.terms[0])
    assert not place(image, 0, memoryview(bytearray(first)[:4] + bytes(156)))
    assert bytes(image.terms[0]) == before


def test_a_datagram_may_reach_over_frames_that_are_there(image: LogBuffers) -> None:
    first, second, third = packets()
    whole = memoryview(bytes(first) + bytes(second) + bytes(third))
    assert place(image, 160, second)
    assert place(image, 0, whole)
    assert bytes(image.terms[0][:544]) == bytes(whole)


@pytest.mark.parametrize("offset", [-32, 16, TERM_LENGTH - 128, TERM_LENGTH, 2**31 - 32])
def test_what_does_not_fit_the_term_is_refused(image: LogBuffers, offset: int) -> None:
    assert not place(image, offset, packets()[0])
    assert not any(image.terms[0])


def test_a_padding_header_stands_for_all_of_its_length(image: LogBuffers) -> None:
    frame = struct.pack("<iBBHiiiiq", 6400, 0, 0xC0, 0, TERM_LENGTH - 6400, 1, 2, 3, 0)
    assert place(image, TERM_LENGTH - 6400, memoryview(frame))
    assert gap(image, TERM_LENGTH - 6400, TERM_LENGTH) == (TERM_LENGTH, 0)


def test_without_a_gap_the_scan_reaches_its_limit(image: LogBuffers) -> None:
    for offset, packet in zip((0, 160, 480), packets(), strict=True):
        place(image, offset, packet)
    assert gap(image, 0, 544) == (544, 0)
    assert gap(image, 160, 544) == (544, 0)
    assert gap(image, 544, 544) == (544, 0)


def test_a_gap_reaches_to_the_next_frame(image: LogBuffers) -> None:
    first, _, third = packets()
    place(image, 480, third)
    assert gap(image, 0, 544) == (0, 480)
    place(image, 0, first)
    assert gap(image, 0, 544) == (160, 320)


def test_a_gap_at_the_end_reaches_to_the_limit(image: LogBuffers) -> None:
    place(image, 0, packets()[0])
    assert gap(image, 0, 192) == (160, 32)
    assert gap(image, 0, TERM_LENGTH) == (160, TERM_LENGTH - 160)


def test_a_frame_that_claims_more_than_has_come_is_part_of_the_gap(image: LogBuffers) -> None:
    image.term_words[0][(TERM_LENGTH - 64) >> 2] = 2**31 - 1
    assert gap(image, TERM_LENGTH - 64, TERM_LENGTH) == (TERM_LENGTH - 64, 64)


def test_a_gap_given_up_becomes_padding() -> None:
    image = make_log(log_type=LogType.IMAGE, initial_term_id=2**31 - 1)
    term_id = -(2**31)
    assert fill_gap(image, term_id=term_id, offset=160, length=320)
    assert header(image, 160, partition=1) == (
        320, 0, 0xC0, 0, 160, SESSION_ID, STREAM_ID, term_id, FILLED,
    )  # fmt: skip


@pytest.mark.parametrize("late", [160, 288, 448])
def test_a_gap_that_is_none_any_more_is_left_alone(image: LogBuffers, late: int) -> None:
    image.term_words[0][late >> 2] = 64
    before = bytes(image.terms[0])
    assert not fill_gap(image, term_id=INITIAL_TERM_ID, offset=160, length=320)
    assert bytes(image.terms[0]) == before


def test_a_gap_of_any_length_costs_no_more_than_one_of_a_mebibyte() -> None:
    words = memoryview(bytearray(4 * GAP_LENGTH_LIMIT)).cast("i")
    assert scan_for_gap(words, 0, limit=4 * GAP_LENGTH_LIMIT) == (0, GAP_LENGTH_LIMIT)
    frame = 1280 * 32
    words[frame >> 2] = 0x7F00
    assert scan_for_gap(words, 64, limit=4 * GAP_LENGTH_LIMIT) == (64, frame - 64)
    assert scan_for_gap(words, frame - 32, limit=frame) == (frame - 32, 32)


@pytest.mark.parametrize("end", [64, 4096, 4128, 4160, 20_480, 20_512, 20_544, 65_504])
def test_the_end_of_a_gap_is_found_however_far_it_is_looked_for_at_once(end: int) -> None:
    words = memoryview(bytearray(TERM_LENGTH)).cast("i")
    words[end >> 2] = 0x7F00
    assert scan_for_gap(words, 32, limit=TERM_LENGTH) == (32, end - 32)
    assert scan_for_gap(words, 32, limit=end) == (32, end - 32)


def test_what_is_no_frame_and_no_hole_either_is_told_as_one_slot(image: LogBuffers) -> None:
    words = image.term_words[0]
    words[0] = -64
    assert scan_for_gap(words, 0, limit=4096) == (0, 4096)
    assert not fill_gap(image, term_id=INITIAL_TERM_ID, offset=0, length=4096)
