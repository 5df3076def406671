"""How much room there is at a place that does not come in order."""

from __future__ import annotations

import pytest

from aeron_async.logbuffer.late_frames import (
    STEPS_MAX,
    Conflict,
    LateFrames,
    covering,
    shown_cover,
    shown_start,
)
from aeron_async.logbuffer.metadata import LogType
from aeron_async.logbuffer.rebuilder import insert
from tests.driver.fakes import data
from tests.logbuffer.logs import MTU_LENGTH, TERM_LENGTH, make_log


@pytest.mark.parametrize(
    ("hwm_position", "wanted_length", "room"),
    [
        (TERM_LENGTH, 1_024, 1_024),
        (TERM_LENGTH, TERM_LENGTH, TERM_LENGTH - 2_048),
        (2_048, 1_024, TERM_LENGTH - 2_048),
        (2_080, 1_024, TERM_LENGTH - 2_048),
    ],
)
def test_no_more_room_is_looked_for_than_is_wanted(
    hwm_position: int, wanted_length: int, room: int
) -> None:
    """A heartbeat far ahead of the stream does not make every datagram behind it dear."""
    late_frames = LateFrames(make_log(log_type=LogType.IMAGE))
    assert room == late_frames.room_at(
        2_048, floor_position=2_048, hwm_position=hwm_position, wanted_length=wanted_length
    )


@pytest.mark.parametrize("wanted_length", [4_096, 8_192])
def test_room_ends_where_a_frame_begins(wanted_length: int) -> None:
    log = make_log(log_type=LogType.IMAGE)
    insert(log.terms[0], log.term_words[0], 4_096, memoryview(data(4_096, 64)))
    late_frames = LateFrames(log)
    for position, room in ((2_048, 2_048), (4_064, 32), (4_096, 0)):
        assert room == late_frames.room_at(
            position, floor_position=1_024, hwm_position=16_384, wanted_length=wanted_length
        )


def test_the_frame_that_covers_a_place_is_found_from_behind() -> None:
    log = make_log(log_type=LogType.IMAGE)
    for start, length in ((0, 96), (96, 1_024)):
        insert(log.terms[0], log.term_words[0], start, memoryview(data(start, length)))
    assert shown_start(log, 0) == shown_start(log, 64) == 0
    assert shown_start(log, 96) == shown_start(log, 1_088) == 96
    assert shown_start(log, 1_120 + 2 * MTU_LENGTH) == -1


def test_where_nothing_is_known_nothing_is_claimed() -> None:
    log = make_log(log_type=LogType.IMAGE)
    late_frames = LateFrames(log)
    assert late_frames.last_frame(64, from_position=0) == 64
    assert shown_cover(log, 64, 32) == -1
    late_frames.clear(Conflict(0, 64, is_shown=False), hwm_position=128)
    assert not any(log.terms[0][:128])


def test_a_covering_frame_is_looked_for_over_so_many_gaps() -> None:
    log = make_log(log_type=LogType.IMAGE)
    for offset in range(0, 64 * 2 * STEPS_MAX, 64):
        insert(log.terms[0], log.term_words[0], offset, memoryview(data(offset, 32)))
    end = 64 * 2 * STEPS_MAX - 32
    assert covering(log.term_words[0], 0, end) == end
