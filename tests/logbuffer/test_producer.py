from __future__ import annotations

from aeron_async.logbuffer.appender import ExclusiveAppender, SharedAppender
from aeron_async.logbuffer.log_buffers import LogBuffers, LogSpec, producer_position

TERM_LENGTH = 65536


def make_log(*, start_term_id: int | None = None, start_term_offset: int = 0) -> LogBuffers:
    spec = LogSpec(
        session_id=7,
        stream_id=1001,
        initial_term_id=-5,
        term_length=TERM_LENGTH,
        mtu_length=1408,
        start_term_id=start_term_id,
        start_term_offset=start_term_offset,
    )
    return LogBuffers.create(spec)


def test_a_fresh_log_starts_at_zero_and_an_appended_one_where_the_message_ends() -> None:
    log = make_log()
    assert producer_position(log) == 0
    assert SharedAppender(log).offer(bytes(100), limit=TERM_LENGTH) == producer_position(log) == 160


def test_a_log_may_start_in_a_later_term() -> None:
    log = make_log(start_term_id=-3, start_term_offset=4096)
    assert producer_position(log) == 2 * TERM_LENGTH + 4096


def test_a_tail_beyond_the_term_counts_as_its_end() -> None:
    log = make_log(start_term_id=-5, start_term_offset=TERM_LENGTH - 64)
    log.metadata.set_tail(0, log.metadata.tail(0) + 4096)
    assert producer_position(log) == TERM_LENGTH


def test_exclusive_publishers_are_seen_too() -> None:
    log = make_log()
    appender = ExclusiveAppender(log)
    position = appender.offer(bytes(3000), limit=TERM_LENGTH)
    assert position == producer_position(log) == appender.position
