from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aeron_async.logbuffer.appender import Claim, ExclusiveAppender
from aeron_async.logbuffer.scanner import scan_block, scan_for_send
from tests.logbuffer.logs import MTU_LENGTH, NO_LIMIT, TERM_LENGTH, make_log

if TYPE_CHECKING:
    from aeron_async.logbuffer.log_buffers import LogBuffers


def send(log: LogBuffers, offset: int, limit: int = MTU_LENGTH) -> tuple[int, int]:
    return scan_for_send(log.terms[0], log.term_words[0], offset, limit=limit)


def block(log: LogBuffers, offset: int, limit: int) -> int:
    return scan_block(log.term_words[0], offset, limit=limit)


def filled(*lengths: int, start: int = 0) -> LogBuffers:
    log = make_log(start_term_offset=start)
    appender = ExclusiveAppender(log)
    for length in lengths:
        appender.offer(bytes(length), limit=NO_LIMIT)
    return log


def test_an_empty_term_gives_nothing_to_send() -> None:
    assert send(make_log(), 0) == (0, 0)


def test_whole_frames_are_taken_up_to_the_limit() -> None:
    log = filled(100, 100, 100)
    assert send(log, 0) == (480, 0)
    assert send(log, 0, 480) == (480, 0)
    assert send(log, 0, 479) == (320, 0)
    assert send(log, 160, 320) == (320, 0)


def test_a_first_frame_beyond_the_limit_gives_nothing() -> None:
    log = filled(100)
    assert send(log, 0, 159) == (0, 0)
    assert send(log, 0, 0) == (0, 0)
    assert send(log, 0, -64) == (0, 0)


def test_a_frame_not_yet_committed_ends_the_scan() -> None:
    log = filled(100)
    claim = ExclusiveAppender(log).try_claim(8, limit=NO_LIMIT)
    assert isinstance(claim, Claim)
    assert send(log, 0) == (160, 0)
    claim.commit()
    assert send(log, 0) == (224, 0)


def test_padding_goes_as_a_header_and_ends_the_scan() -> None:
    log = filled(start=TERM_LENGTH - 320)
    appender = ExclusiveAppender(log)
    appender.offer(bytes(100), limit=NO_LIMIT)
    appender.offer(bytes(1000), limit=NO_LIMIT)
    start = TERM_LENGTH - 320
    assert send(log, start) == (192, 128)
    assert send(log, start, 192) == (192, 128)
    # No room for the header leaves the padding, all of it, for the next datagram.
    assert send(log, start, 191) == (160, 0)
    assert send(log, start + 160) == (32, 128)
    assert send(log, start + 160, 31) == (0, 0)


def test_padding_in_the_middle_of_a_term_ends_the_scan_too() -> None:
    log = filled(8)
    appender = ExclusiveAppender(log)
    appender.append_padding(100, limit=NO_LIMIT)
    appender.offer(bytes(8), limit=NO_LIMIT)
    assert send(log, 0) == (96, 128)
    assert send(log, 224) == (64, 0)


def test_padding_of_a_bare_header_ends_nothing() -> None:
    log = filled(8)
    appender = ExclusiveAppender(log)
    appender.append_padding(0, limit=NO_LIMIT)
    appender.offer(bytes(8), limit=NO_LIMIT)
    assert send(log, 0) == (160, 0)


def test_a_scan_ends_with_the_term() -> None:
    log = filled(32, start=TERM_LENGTH - 64)
    assert send(log, TERM_LENGTH - 64) == (64, 0)
    assert send(log, TERM_LENGTH) == (0, 0)


def test_a_block_holds_whole_frames_up_to_its_limit() -> None:
    log = filled(100, 100)
    assert block(log, 0, TERM_LENGTH) == 320
    assert block(log, 0, 320) == 320
    assert block(log, 0, 319) == 160
    assert block(log, 160, 320) == 320


def test_there_is_no_block_where_nothing_is_available() -> None:
    assert block(make_log(), 0, TERM_LENGTH) == 0
    assert block(filled(100), 0, 128) == 0
    assert block(filled(100), 160, TERM_LENGTH) == 160


def test_padding_is_a_block_of_its_own() -> None:
    log = filled(8)
    appender = ExclusiveAppender(log)
    appender.append_padding(100, limit=NO_LIMIT)
    appender.offer(bytes(8), limit=NO_LIMIT)
    assert block(log, 0, TERM_LENGTH) == 64
    # It may be longer than the limit.
    assert block(log, 64, 128) == 224
    assert block(log, 224, TERM_LENGTH) == 288


@pytest.mark.parametrize("frame_length", [128, 2**31 - 1])
def test_padding_never_goes_on_beyond_the_term(frame_length: int) -> None:
    log = make_log()
    start = TERM_LENGTH - 96
    log.term_words[0][start >> 2] = frame_length
    assert send(log, start) == (32, 64)
    assert block(log, start, TERM_LENGTH) == TERM_LENGTH
