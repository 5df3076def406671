"""A shared publisher stops half-way, in each of the places where it can."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aeron_async.logbuffer import rebuilder
from aeron_async.logbuffer.appender import AppendResult, Claim, SharedAppender
from aeron_async.logbuffer.position import pack_tail
from aeron_async.logbuffer.rebuilder import HoleScan, UnblockResult, unblock
from tests.logbuffer.logs import (
    INITIAL_TERM_ID,
    NO_LIMIT,
    SESSION_ID,
    STREAM_ID,
    TERM_LENGTH,
    header,
    make_log,
    read_all,
)

if TYPE_CHECKING:
    from aeron_async.logbuffer.log_buffers import LogBuffers

IDS = (SESSION_ID, STREAM_ID, INITIAL_TERM_ID, 0)


def reserve(log: LogBuffers, size: int) -> None:
    """Do what a publisher does first, and no more."""
    log.metadata.set_tail(0, log.metadata.tail(0) + size)


def test_nothing_is_done_to_a_log_that_is_not_blocked() -> None:
    log = make_log()
    SharedAppender(log).offer(b"x", limit=NO_LIMIT)
    before = bytes(log._base)
    assert unblock(log, 0) is UnblockResult.NO_ACTION
    assert unblock(log, 64) is UnblockResult.NO_ACTION
    assert bytes(log._base) == before


def test_a_claim_never_committed_becomes_padding() -> None:
    log = make_log()
    appender = SharedAppender(log)
    appender.offer(b"before", limit=NO_LIMIT)
    claim = appender.try_claim(100, limit=NO_LIMIT)
    assert isinstance(claim, Claim)
    appender.offer(b"after", limit=NO_LIMIT)
    assert read_all(log) == [b"before"]
    assert unblock(log, 64) is UnblockResult.UNBLOCKED
    assert header(log, 64) == (132, 0, 0xC0, 0, 64, *IDS)
    assert read_all(log) == [b"before", b"after"]


def test_room_reserved_and_never_opened_becomes_padding_up_to_the_next_frame() -> None:
    log = make_log()
    appender = SharedAppender(log)
    reserve(log, 160)
    # As long as nothing lies behind it, nobody can tell how long it is.
    assert unblock(log, 0) is UnblockResult.NO_ACTION
    appender.offer(b"after", limit=NO_LIMIT)
    assert unblock(log, 0) is UnblockResult.UNBLOCKED
    assert header(log, 0) == (160, 0, 0xC0, 0, 0, *IDS)
    assert read_all(log) == [b"after"]


def test_room_is_left_to_a_publisher_that_wakes_up_in_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = make_log()
    reserve(log, 64)
    SharedAppender(log).offer(b"after", limit=NO_LIMIT)
    before = bytes(log._base)
    monkeypatch.setattr(rebuilder, "is_hole", lambda *_: False)
    assert unblock(log, 0) is UnblockResult.NO_ACTION
    assert bytes(log._base) == before


@pytest.mark.parametrize("room", [32, 320])
def test_an_end_crossed_and_never_padded_is_padded_and_rotated(room: int) -> None:
    log = make_log(start_term_offset=TERM_LENGTH - room)
    reserve(log, 1024)
    assert unblock(log, TERM_LENGTH - room) is UnblockResult.UNBLOCKED_TO_END
    assert header(log, TERM_LENGTH - room) == (room, 0, 0xC0, 0, TERM_LENGTH - room, *IDS)
    assert log.metadata.active_term_count == 1
    assert log.metadata.tail(1) == pack_tail(INITIAL_TERM_ID + 1, 0)
    assert SharedAppender(log).offer(b"next", limit=NO_LIMIT) == TERM_LENGTH + 64


def test_a_frame_found_before_the_end_of_a_full_term_ends_the_padding() -> None:
    log = make_log(start_term_offset=TERM_LENGTH - 320)
    reserve(log, 160)
    assert SharedAppender(log).offer(b"x" * 128, limit=NO_LIMIT) == TERM_LENGTH
    assert unblock(log, TERM_LENGTH - 320) is UnblockResult.UNBLOCKED
    assert header(log, TERM_LENGTH - 320)[0] == 160
    assert log.metadata.active_term_count == 0


def test_a_full_term_never_rotated_is_rotated() -> None:
    log = make_log(start_term_offset=TERM_LENGTH - 64)
    appender = SharedAppender(log)
    assert appender.offer(b"x" * 32, limit=NO_LIMIT) == TERM_LENGTH
    assert unblock(log, TERM_LENGTH) is UnblockResult.UNBLOCKED
    assert log.metadata.active_term_count == 1
    assert unblock(log, TERM_LENGTH) is UnblockResult.NO_ACTION


def test_a_rotation_stopped_before_the_count_is_finished() -> None:
    log = make_log(start_term_offset=TERM_LENGTH)
    log.metadata.set_tail(1, pack_tail(INITIAL_TERM_ID + 1, 0))
    assert unblock(log, TERM_LENGTH) is UnblockResult.UNBLOCKED
    assert log.metadata.active_term_count == 1
    assert log.metadata.tail(1) == pack_tail(INITIAL_TERM_ID + 1, 0)


def test_a_loser_that_never_rotated_leaves_it_to_the_next() -> None:
    log = make_log(start_term_offset=TERM_LENGTH)
    reserve(log, 4096)
    appender = SharedAppender(log)
    assert appender.offer(b"x", limit=NO_LIMIT) == AppendResult.ADMIN_ACTION
    assert appender.offer(b"x", limit=NO_LIMIT) == TERM_LENGTH + 64


@pytest.mark.parametrize("frame_length", [-128, -(2**31)])
def test_a_frame_opened_with_a_length_beyond_its_term_ends_with_it(frame_length: int) -> None:
    log = make_log()
    start = TERM_LENGTH - 96
    log.term_words[0][start >> 2] = frame_length
    assert unblock(log, start) is UnblockResult.UNBLOCKED
    assert header(log, start) == (96, 0, 0xC0, 0, start, *IDS)


def test_a_long_hole_is_scanned_in_parts_and_becomes_padding_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rebuilder, "GAP_LENGTH_LIMIT", 320)
    log = make_log()
    reserve(log, 1_600)
    SharedAppender(log).offer(b"after", limit=NO_LIMIT)
    scan = HoleScan()
    results = [unblock(log, 0, scan) for _ in range(5)]
    assert results == [UnblockResult.UNFINISHED] * 4 + [UnblockResult.UNBLOCKED]
    assert header(log, 0) == (1_600, 0, 0xC0, 0, 0, *IDS)
    assert read_all(log) == [b"after"]


def test_a_scan_begins_anew_where_the_readers_are_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebuilder, "GAP_LENGTH_LIMIT", 320)
    log = make_log()
    appender = SharedAppender(log)
    reserve(log, 640)
    appender.offer(b"after", limit=NO_LIMIT)
    reserve(log, 96)
    appender.offer(b"later", limit=NO_LIMIT)
    scan = HoleScan()
    assert unblock(log, 0, scan) is UnblockResult.UNFINISHED
    # The publisher goes on after all, and another one has died behind it.
    log.term_words[0][0] = 640
    assert unblock(log, 0, scan) is UnblockResult.NO_ACTION
    assert unblock(log, 704, scan) is UnblockResult.UNBLOCKED
    assert header(log, 704)[0] == 96


def test_room_that_nothing_follows_is_left_however_long_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rebuilder, "GAP_LENGTH_LIMIT", 320)
    log = make_log()
    reserve(log, 700)
    scan = HoleScan()
    results = [unblock(log, 0, scan) for _ in range(4)]
    unfinished = UnblockResult.UNFINISHED
    assert results == [unfinished, unfinished, UnblockResult.NO_ACTION, unfinished]
    assert not any(log.terms[0])
