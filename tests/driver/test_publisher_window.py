"""How far publishers may go, how the log is cleaned for them, and claims that nobody commits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aeron_async.clock import NEVER_NS
from aeron_async.driver.core.publisher_window import BlockedPublisherCheck, PublisherWindow
from aeron_async.logbuffer.appender import Claim, SharedAppender
from aeron_async.logbuffer.position import pack_tail
from tests.driver.fakes import HALF_TERM, SECOND, Counts
from tests.logbuffer.logs import INITIAL_TERM_ID, NO_LIMIT, TERM_LENGTH, make_log

if TYPE_CHECKING:
    from aeron_async.logbuffer.log_buffers import LogBuffers

TIMEOUT_NS = 15 * SECOND


class Window:
    """A publisher window over a log of which every byte is dirty."""

    def __init__(self, position: int = 0, window_length: int = HALF_TERM) -> None:
        self.log = make_log()
        for term in self.log.terms:
            term[:] = b"\xff" * TERM_LENGTH
        self.counter = Counts().new()
        self.window = PublisherWindow(
            self.log, self.counter, window_length=window_length, position=position
        )

    def is_clean(self, start: int, end: int) -> bool:
        """Return whether a range that wraps around the three terms is zero."""
        terms = b"".join(self.log.terms)
        return not any(terms[start % len(terms) : (end - 1) % len(terms) + 1])


def test_the_limit_starts_at_the_start_of_the_stream() -> None:
    rig = Window(position=96)
    assert rig.window.limit == rig.counter.get() == 96


def test_the_limit_runs_a_window_ahead_of_the_slowest_consumer() -> None:
    rig = Window(window_length=4_096)
    assert rig.window.advance(0)
    assert rig.window.limit == rig.counter.get() == 4_096
    assert rig.window.advance(64)
    assert rig.window.limit == rig.counter.get() == 4_160


def test_the_limit_does_not_move_for_a_consumer_that_does_not() -> None:
    rig = Window()
    rig.window.advance(1_024)
    assert not rig.window.advance(1_024)
    assert not rig.window.advance(512)
    assert rig.window.limit == 1_024 + HALF_TERM


def test_what_lies_a_term_behind_the_consumer_is_cleaned_as_the_limit_rises() -> None:
    rig = Window()
    rig.window.advance(TERM_LENGTH)
    assert not rig.is_clean(0, 32)
    rig.window.advance(TERM_LENGTH + 4_096)
    assert rig.is_clean(0, 4_096)
    assert not rig.is_clean(4_096, 4_128)
    assert rig.window.limit == TERM_LENGTH + 4_096 + HALF_TERM


def test_cleaning_stops_at_the_end_of_a_term_and_goes_on_in_the_next_call() -> None:
    rig = Window()
    rig.window.advance(TERM_LENGTH + 32_000)
    rig.window.advance(2 * TERM_LENGTH + 320)
    assert rig.is_clean(0, TERM_LENGTH)
    assert not rig.is_clean(TERM_LENGTH, TERM_LENGTH + 32)
    rig.window.advance(2 * TERM_LENGTH + 352)
    assert rig.is_clean(TERM_LENGTH, TERM_LENGTH + 352)


def test_the_limit_may_enter_the_third_term_only_when_it_has_begun_to_be_clean() -> None:
    # From a clean position of 0: the terms of the proposal are 1, then 2, then 2 again.
    rig = Window()
    assert rig.window.advance(TERM_LENGTH + HALF_TERM - 32)
    at_the_edge = rig.window.limit
    assert at_the_edge == 2 * TERM_LENGTH - 32
    other = Window()
    assert not other.window.advance(3 * TERM_LENGTH), "two terms ahead of a whole dirty one"
    assert other.window.limit == 0
    assert other.is_clean(0, TERM_LENGTH)
    assert other.window.advance(3 * TERM_LENGTH), "the next call cleans the next"
    assert other.is_clean(TERM_LENGTH, 2 * TERM_LENGTH)


def test_a_gap_of_two_terms_is_enough_inside_a_term() -> None:
    rig = Window()
    assert rig.window.advance(TERM_LENGTH + 32)
    assert rig.window.advance(TERM_LENGTH + HALF_TERM)
    # Clean up to half of term 0, and the proposal begins term 2.
    assert rig.window.limit == 2 * TERM_LENGTH


def test_the_limit_falls_back_to_what_was_sent_and_rises_again() -> None:
    rig = Window()
    rig.window.advance(TERM_LENGTH + 640)
    rig.window.retract(TERM_LENGTH + 320)
    assert rig.window.limit == rig.counter.get() == TERM_LENGTH + 320
    assert rig.is_clean(0, 640)
    rig.window.retract(TERM_LENGTH + 640)
    assert rig.window.limit == TERM_LENGTH + 320
    assert rig.window.advance(TERM_LENGTH + 640)


def test_falling_back_cleans_as_well() -> None:
    rig = Window()
    rig.window.advance(TERM_LENGTH)
    rig.window.retract(TERM_LENGTH + 1_024)
    assert rig.is_clean(0, 1_024)


def test_closing_sets_the_limit_to_where_the_publishers_stand() -> None:
    rig = Window()
    rig.window.advance(0)
    rig.window.close(160)
    assert rig.window.limit == rig.counter.get() == 160


class Blocked:
    """A check over a log that several publishers write to."""

    def __init__(self) -> None:
        self.log: LogBuffers = make_log()
        self.counter = Counts().new()
        self.appender = SharedAppender(self.log)
        self.check = BlockedPublisherCheck(
            self.log, self.counter, timeout_ns=TIMEOUT_NS, position=0, now_ns=0
        )

    def claim(self, length: int = 100) -> Claim:
        claim = self.appender.try_claim(length, limit=NO_LIMIT)
        assert isinstance(claim, Claim)
        return claim

    def poll(self, now_ns: int, sender_position: int = 0) -> int:
        return self.check.poll(
            sender_position=sender_position,
            producer_position=self.appender.position,
            now_ns=now_ns,
        )


def test_nothing_is_blocked_while_all_is_sent() -> None:
    rig = Blocked()
    assert rig.poll(10**15) == NEVER_NS
    rig.claim()
    # The time counts from when there was something to send, however long there was nothing.
    assert rig.poll(2 * 10**15) == 2 * 10**15 + TIMEOUT_NS
    assert rig.check.unblocks_ns(0, 2 * 10**15 + 1) == 2 * 10**15 + TIMEOUT_NS


def test_a_claim_not_looked_at_yet_has_the_whole_timeout() -> None:
    rig = Blocked()
    rig.poll(0)
    rig.claim()
    assert rig.check.unblocks_ns(0, 10**15) == 10**15 + TIMEOUT_NS


def test_a_claim_that_stands_for_the_timeout_becomes_padding() -> None:
    rig = Blocked()
    rig.claim()
    assert rig.poll(0) == TIMEOUT_NS
    assert rig.poll(TIMEOUT_NS - 1) == TIMEOUT_NS
    assert rig.counter.get() == 0
    assert rig.poll(TIMEOUT_NS) == TIMEOUT_NS, "and is to be sent at once"
    assert rig.counter.get() == 1
    assert rig.log.term_words[0][0] == 132


def test_progress_of_the_sender_starts_the_time_again() -> None:
    rig = Blocked()
    rig.claim()
    rig.claim()
    rig.poll(0)
    assert rig.poll(9 * SECOND, sender_position=160) == 24 * SECOND
    rig.poll(23 * SECOND, sender_position=160)
    assert rig.counter.get() == 0


def test_what_is_committed_but_held_back_by_a_window_is_left_alone() -> None:
    rig = Blocked()
    rig.appender.offer(bytes(100), limit=NO_LIMIT)
    rig.poll(0)
    assert rig.poll(TIMEOUT_NS) == TIMEOUT_NS + 1 * SECOND
    assert rig.counter.get() == 0
    assert rig.log.term_words[0][0] == 132


def test_a_publisher_found_blocked_is_looked_at_every_second() -> None:
    rig = Blocked()
    # A reservation whose publisher died before it wrote anything: nothing says how long it is.
    rig.log.metadata.set_tail(0, pack_tail(INITIAL_TERM_ID, 160))
    rig.poll(0)
    assert rig.poll(TIMEOUT_NS) == TIMEOUT_NS + 1 * SECOND
    rig.appender.offer(bytes(8), limit=NO_LIMIT)
    assert rig.poll(TIMEOUT_NS + 1 * SECOND) == TIMEOUT_NS + 1 * SECOND
    assert rig.counter.get() == 1
    assert rig.log.term_words[0][0] == 160


def test_a_term_that_nobody_rotated_is_rotated() -> None:
    rig = Blocked()
    while rig.appender.position < TERM_LENGTH:
        rig.appender.offer(bytes(96), limit=NO_LIMIT)
    assert rig.log.metadata.active_term_count == 0
    assert rig.poll(0, sender_position=TERM_LENGTH) == TIMEOUT_NS
    rig.poll(TIMEOUT_NS, sender_position=TERM_LENGTH)
    assert rig.log.metadata.active_term_count == 1
    assert rig.counter.get() == 1


@pytest.mark.parametrize("sender_position", [0, 160])
def test_unblocking_tells_whether_there_was_anything_to_unblock(sender_position: int) -> None:
    rig = Blocked()
    rig.claim()
    assert rig.check.unblock(sender_position) is (sender_position == 0)
    assert rig.counter.get() == (sender_position == 0)
