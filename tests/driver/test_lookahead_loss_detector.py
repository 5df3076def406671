"""Gaps behind the first one: asked for a few at a time, and again when an answer is overdue."""

from __future__ import annotations

from array import array
from itertools import pairwise

import pytest

from aeron_async.clock import NEVER_NS
from aeron_async.driver.core.budgets import CREDIT_AT_FIRST, CREDIT_FOR_FIRST_GAP
from aeron_async.driver.core.feedback_delay import GroupDelay, StaticDelay
from aeron_async.driver.core.loss_detector import (
    GAPS_AT_ONCE,
    GAPS_KEPT,
    REPEATS_AT_ONCE,
    REPEATS_MAX,
    RequestedGaps,
)
from aeron_async.driver.core.losses import Losses
from aeron_async.logbuffer.late_frames import Conflict
from aeron_async.protocol.nak import NAK_LENGTH
from tests.driver.fakes import HALF_TERM, MS, SECOND, US, data, heartbeat, nak, place
from tests.driver.rigs import ImageRig, PublicationRig
from tests.logbuffer.logs import TERM_LENGTH

STEP = 128
"""A frame of 64 bytes, and one that is missing."""


def ready(join_position: int = 0, **settings: object) -> ImageRig:
    """Return the rig of a stream that has moved on, and paid for what it may ask."""
    rig = ImageRig(join_position=join_position, **settings)  # type: ignore[arg-type]
    for position in range(join_position + 64, join_position + 64 * STEP, 64):
        rig.feed(data(position, 64), 0)
    rig.image.poll(0)
    rig.feed(data(join_position, 64), 0)
    rig.image.poll(0)
    rig.read()
    rig.image.poll(0)
    rig.outbox.take()
    return rig


def feed_every_other(rig: ImageRig, count: int, now_ns: int, start: int = 64 * STEP) -> int:
    """Let every other frame arrive; return where they end."""
    for index in range(count):
        rig.feed(data(start + index * STEP + 64, 64), now_ns)
    return start + count * STEP


def gaps(start: int, end: int) -> list[tuple[int, int]]:
    return [(position, 64) for position in range(start, end, STEP)]


def test_every_gap_behind_the_first_is_asked_for_with_it_and_then_no_more() -> None:
    rig = ready()
    end = feed_every_other(rig, 10, 0)
    rig.image.poll(0)
    assert rig.naks() == gaps(64 * STEP, end)
    for now_us in range(1, 100):
        rig.image.poll(now_us * US)
    assert rig.naks() == []
    rig.image.poll(100 * US)
    assert rig.naks() == [(64 * STEP, 64)]


def test_of_what_comes_later_only_the_new_gaps_are_asked_for() -> None:
    rig = ready()
    middle = feed_every_other(rig, 3, 0)
    rig.image.poll(0)
    rig.outbox.take()
    end = feed_every_other(rig, 3, 20 * US, middle)
    rig.image.poll(20 * US)
    assert rig.naks() == gaps(middle, end)


def test_more_gaps_than_a_sender_remembers_wait_for_their_turn() -> None:
    rig = ready()
    end = feed_every_other(rig, 40, 0)
    assert rig.image.poll(0) == 100 * US
    first = 64 * STEP
    assert rig.naks() == gaps(first, first + (1 + GAPS_AT_ONCE) * STEP)
    rig.image.poll(50 * US)
    assert rig.naks() == []
    rig.image.poll(100 * US)
    assert rig.naks()[1:] == gaps(
        first + (1 + GAPS_AT_ONCE) * STEP, first + (1 + 2 * GAPS_AT_ONCE) * STEP
    )
    rig.image.poll(200 * US)
    assert rig.naks()[1:] == gaps(first + (1 + 2 * GAPS_AT_ONCE) * STEP, end)
    rig.image.poll(300 * US)
    assert rig.naks() == [(first, 64)]


def test_a_sender_that_was_asked_for_all_at_once_still_knows_the_first() -> None:
    rig, sender = ready(), PublicationRig()
    sender.connect(0)
    sender.hear(0, 9 * MS, receiver_window=HALF_TERM)
    sender.poll(10 * MS)
    end = feed_every_other(rig, 40, 0)
    for _ in range(end // 64):
        sender.offer(bytes(32))
    sender.poll(10 * MS)
    sender.outbox.take()
    rig.image.poll(0)
    for position, length in rig.naks():
        sender.hear_nak(nak(position, length), 11 * MS)
    assert len(sender.poll(11 * MS)) == 1 + GAPS_AT_ONCE
    sender.hear_nak(nak(64 * STEP, 64), 12 * MS)
    assert sender.poll(12 * MS) == [], "its answer is under way"


def test_a_gap_that_becomes_the_first_is_asked_for_again_when_its_answer_has_not_come() -> None:
    rig = ready()
    first = 64 * STEP
    feed_every_other(rig, 3, 0)
    rig.image.poll(0)
    rig.outbox.take()
    rig.feed(data(first, 64), 30 * US)
    assert rig.image.poll(30 * US) == 100 * US
    assert rig.naks() == []
    rig.image.poll(100 * US)
    assert rig.naks() == [(first + STEP, 64)]


def answered(rig: ImageRig, start: int = 64 * STEP, took_us: int = 20) -> int:
    """Let gaps behind the first be asked for and filled, so that it is known how long that takes.

    The first gap stays open. Return where its stretch ends.
    """
    end = feed_every_other(rig, 10, 0, start)
    rig.image.poll(0)
    rig.outbox.take()
    for position in range(start + STEP, end, STEP):
        rig.feed(data(position, 64), took_us * US)
    rig.image.poll(took_us * US)
    assert set(rig.naks()) <= {(start, 64)}
    return end


def feed_as_a_batch(rig: ImageRig, position: int, now_ns: int) -> None:
    """Let a frame arrive where a socket reads several datagrams at once."""
    frame = data(position, 64)
    placed = rig.image.insert_packets_fast(
        memoryview(frame), array("i", (64, 64)), 0, 0, rig.connection(), *place(position), now_ns
    )
    assert placed == 64


def test_an_answer_that_is_overdue_is_asked_for_again_before_its_gap_is_the_first() -> None:
    rig = ready()
    middle = answered(rig, took_us=300)
    end = feed_every_other(rig, 5, 400 * US, middle)
    rig.image.poll(400 * US)
    assert [each for each in rig.naks() if each[0] >= middle] == gaps(middle, end)
    rig.feed(data(middle, 64), 700 * US)
    rig.image.poll(700 * US)
    assert [each for each in rig.naks() if each[0] >= middle] == []
    deadline_ns, now_us = 0, 700
    found: list[tuple[int, int]] = []
    while not found and now_us < 2_000:
        now_us += 10
        deadline_ns = rig.image.poll(now_us * US)
        found = [each for each in rig.naks() if each[0] >= middle]
    assert found == gaps(middle + STEP, end)
    # The mean of ten answers in 300 us, and four times what is left of a first deviation of 150.
    assert 400 + 300 <= now_us <= 400 + 300 + 4 * 150
    assert deadline_ns <= (now_us + 300 + 4 * 150) * US


def test_only_the_hole_that_is_left_of_a_gap_is_asked_for_again() -> None:
    rig = ready()
    middle = answered(rig)
    for position in (middle + 64, middle + 256):
        rig.feed(data(position, 64), 100 * US)
    rig.image.poll(100 * US)
    assert rig.naks()[-1] == (middle + 128, 128)
    feed_as_a_batch(rig, middle + 128, 110 * US)
    naks = []
    for now_us in range(120, 400, 10):
        rig.image.poll(now_us * US)
        naks += [each for each in rig.naks() if each[0] > middle + 64]
    assert set(naks) == {(middle + 192, 64)}


def test_what_was_filled_from_its_middle_is_not_asked_for_again_but_for_its_hole() -> None:
    rig = ready()
    middle = answered(rig)
    for position in (middle + 64, middle + 256):
        rig.feed(data(position, 64), 100 * US)
    rig.image.poll(100 * US)
    rig.outbox.take()
    rig.feed(data(middle + 192, 64), 110 * US)
    naks = []
    for now_us in range(120, 400, 10):
        rig.image.poll(now_us * US)
        naks += [each for each in rig.naks() if each[0] > middle + 64]
    assert set(naks) == {(middle + 128, 64)}


def behind_first(rig: ImageRig) -> list[tuple[int, int]]:
    """Return the gaps behind the first one that were asked for since the last look."""
    first = rig.image.rebuild_position
    return [each for each in rig.naks() if each[0] > first]


def test_a_stream_that_does_not_move_on_repeats_its_requests_for_the_credit_that_it_has() -> None:
    rig = ImageRig()
    rig.feed(data(64, 64), 0)
    feed_every_other(rig, 4, 0, 128)
    rig.image.poll(0)
    rig.feed(data(128, 64), 10 * US)
    asked = len(behind_first(rig))
    for now_us in range(20, 1_000_000, 50):
        rig.image.poll(now_us * US)
        asked += len(behind_first(rig))
    spare = (CREDIT_AT_FIRST - CREDIT_FOR_FIRST_GAP) // NAK_LENGTH
    assert 4 < asked <= spare + 1
    # It has moved on, and so may ask again.
    for position in range(0, 2_048, 64):
        rig.feed(data(position, 64), SECOND)
    feed_every_other(rig, 2, SECOND, 2_048)
    rig.image.poll(SECOND)
    assert behind_first(rig)


def overdue(rig: ImageRig, count: int) -> tuple[int, int]:
    """Let so many gaps behind the first be asked for in vain; return where, and when by."""
    middle = answered(rig)
    feed_every_other(rig, count, 20 * US, middle)
    now_us = 20
    asked: list[tuple[int, int]] = []
    while len(asked) < count:
        rig.image.poll(now_us * US)
        asked += behind_first(rig)
        now_us += 1
    return middle, now_us


def test_new_gaps_do_not_wait_for_those_without_an_answer() -> None:
    rig = ready()
    middle, now_us = overdue(rig, 15)
    now_us += 200
    start = middle + 15 * STEP
    feed_every_other(rig, 40, now_us * US, start)
    rig.image.poll(now_us * US)
    asked = behind_first(rig)
    repeated = [each for each in asked if each[0] < start]
    assert len(repeated) == REPEATS_AT_ONCE
    assert len(asked) == GAPS_AT_ONCE
    # No more repeats follow before the time in which a NAK may be repeated.
    rig.image.poll(now_us * US + 50 * US)
    assert behind_first(rig) == []


def test_a_request_is_repeated_a_few_times_and_ever_more_slowly() -> None:
    rig = ready()
    middle, now_us = overdue(rig, 1)
    times: list[int] = []
    for each_us in range(now_us, 1_000_000, 50):
        rig.image.poll(each_us * US)
        times += [each_us for position, _ in behind_first(rig) if position == middle]
    assert len(times) == REPEATS_MAX
    waits = [later - sooner for sooner, later in pairwise(times)]
    assert all(later >= 1.9 * sooner for sooner, later in pairwise(waits[:5]))


def test_the_wait_grows_until_it_is_known_that_answers_take_longer() -> None:
    rig = ready()
    start = answered(rig)
    rig.feed(data(64 * STEP, 64), 30 * US)
    now_us, asked = 1_000, 0
    for _ in range(16):
        end = feed_every_other(rig, 4, now_us * US, start)
        for _ in range(100):
            rig.image.poll(now_us * US)
            asked += len(behind_first(rig))
            now_us += 50
        for position in range(start, end, STEP):
            rig.feed(data(position, 64), now_us * US)
        rig.image.poll(now_us * US)
        rig.read()
        rig.image.poll(now_us * US)
        start = end
    ahead = rig.image._gaps._ahead
    assert ahead is not None
    assert ahead._requested.answers.overdue_ns >= 5 * MS
    assert asked < 16 * 4 * 8


def test_an_answer_that_takes_seconds_does_not_keep_the_next_gap_waiting() -> None:
    """An outage ends: what was asked for in it says nothing of how long answers take."""
    rig = ready()
    middle = answered(rig)
    feed_every_other(rig, 2, MS, middle)
    rig.image.poll(MS)
    rig.feed(data(64 * STEP, 64), MS)
    for now_ms in range(2, 3_000):
        rig.image.poll(now_ms * MS)
    rig.feed(data(middle, 64), 3 * SECOND)
    rig.feed(data(middle + STEP, 64), 3 * SECOND)
    rig.image.poll(3 * SECOND)
    rig.read()
    rig.image.poll(3 * SECOND)
    rig.outbox.take()
    start = middle + 2 * STEP
    feed_every_other(rig, 2, 3 * SECOND, start)
    rig.image.poll(3 * SECOND)
    rig.feed(data(start, 64), 3 * SECOND + MS)
    rig.outbox.take()
    for now_us in range(1_000, 7_000, 100):
        rig.image.poll(3 * SECOND + now_us * US)
    assert (start + STEP, 64) in rig.naks()


def test_a_gap_that_becomes_the_first_waits_ten_milliseconds_at_most() -> None:
    gaps_asked = RequestedGaps()
    gaps_asked.on_asked(0, 64, 0)
    gaps_asked.on_placed(0, 64, SECOND)
    gaps_asked.on_asked(STEP, STEP + 64, SECOND)
    assert gaps_asked.answers.overdue_ns == SECOND
    assert gaps_asked.answer_ns(STEP) == SECOND + 10 * MS
    assert gaps_asked.answer_ns(2 * STEP) == 0


def test_what_becomes_the_first_gap_waits_for_its_answer_and_not_longer() -> None:
    rig = ready()
    middle = answered(rig, took_us=400)
    first = 64 * STEP
    feed_every_other(rig, 2, 500 * US, middle)
    rig.image.poll(500 * US)
    rig.outbox.take()
    rig.feed(data(first, 64), 900 * US)
    rig.feed(data(middle, 64), 900 * US)
    now_us = 900
    while not (naks := rig.naks()):
        rig.image.poll(now_us * US)
        now_us += 10
    assert naks == [(middle + STEP, 64)]
    assert 970 <= now_us <= 1_010


def test_what_was_filled_by_the_long_way_is_not_asked_for_again() -> None:
    rig = ready()
    middle = answered(rig)
    for position in (middle + 64, middle + 256):
        rig.feed(data(position, 64), 100 * US)
    rig.image.poll(100 * US)
    rig.outbox.take()
    rig.feed(data(middle + 128, 128), 110 * US)
    for now_us in range(120, 2_000, 10):
        rig.image.poll(now_us * US)
    assert [each for each in behind_first(rig) if each[0] > middle] == []


COVERING = data(64 * STEP + 128, 512)[:32] + bytes(480)
"""An honest frame that covers the position at which a stranger wants to place one."""
INSIDE = 64 * STEP + 192


def repaired(rig: ImageRig) -> list[bytes]:
    """Let an honest sender resend all; return what a reader gets."""
    start = 64 * STEP
    honest = data(start, 64), data(start + 64, 64), COVERING, data(start + 640, 64)
    for turn in range(1, 11):
        now_ns = turn * 2 * MS
        for datagram in honest:
            rig.feed(datagram, now_ns)
        rig.image.poll(now_ns)
    return rig.read()


def test_no_scan_begins_where_only_a_heartbeat_says_that_a_frame_begins() -> None:
    """Nothing may be placed inside a frame that covers the place, and that came later."""
    rig = ready()
    rig.feed(heartbeat(INSIDE), 0)
    rig.image.poll(0)
    rig.feed(COVERING, 10 * US)
    rig.feed(data(64 * STEP + 640, 64), 10 * US)
    rig.image.poll(10 * US)
    rig.feed(data(INSIDE, 64), 20 * US)
    rig.image.poll(20 * US)
    assert repaired(rig)[2] == COVERING[32:]


def test_no_scan_goes_on_behind_a_frame_that_was_removed() -> None:
    rig = ready()
    for position in (64 * STEP + 64, 64 * STEP + 128):
        rig.feed(data(position, 64), 0)
    rig.image.poll(0)
    for now_us in (10, 20):
        rig.feed(COVERING, now_us * US)
    rig.feed(data(64 * STEP + 640, 64), 20 * US)
    rig.image.poll(20 * US)
    rig.feed(data(INSIDE, 64), 30 * US)
    rig.image.poll(30 * US)
    assert repaired(rig)[2] == COVERING[32:]


def test_a_gap_that_begins_with_a_frame_by_now_is_not_asked_for_again() -> None:
    rig = ready()
    middle = answered(rig)
    feed_every_other(rig, 3, 20 * US, middle)
    rig.image.poll(20 * US)
    rig.outbox.take()
    ahead = rig.image._gaps._ahead
    assert ahead is not None
    ahead._requested.on_asked(middle + 64, middle + 192, 20 * US)
    for now_us in range(30, 500, 10):
        rig.image.poll(now_us * US)
    assert middle + 64 not in [position for position, _ in rig.naks()]


def test_a_repeat_that_could_not_be_paid_for_follows_when_the_stream_has_moved_on() -> None:
    rig = ready()
    middle = answered(rig)
    feed_every_other(rig, 2, 20 * US, middle)
    rig.image.poll(20 * US)
    credit = rig.image._gaps._credit
    while credit.try_spend():
        pass
    rig.outbox.take()
    for now_us in range(30, 500, 10):
        rig.image.poll(now_us * US)
    assert behind_first(rig) == []
    rig.feed(data(64 * STEP, 64), 500 * US)
    rig.image.poll(500 * US)
    rig.image.poll(800 * US)
    assert behind_first(rig) == [(middle + STEP, 64)]


def test_after_frames_were_removed_gaps_are_looked_for_anew() -> None:
    rig = ready()
    middle = answered(rig)
    feed_every_other(rig, 3, 20 * US, middle)
    rig.image.poll(20 * US)
    rig.outbox.take()
    late_frames = rig.image._late_frames
    assert late_frames is not None
    end = middle + 3 * STEP
    late_frames.clear(Conflict(middle + 64, middle + 128, is_shown=False), hwm_position=end)
    rig.image.poll(30 * US)
    asked = behind_first(rig)
    assert (middle, 128 + 64) in asked
    assert asked[-1] == (middle + 2 * STEP, 64)


def test_as_many_gaps_are_remembered_as_a_window_may_have_and_the_oldest_are_forgotten() -> None:
    gaps_asked = RequestedGaps()
    for index in range(2 * GAPS_KEPT):
        gaps_asked.on_asked(index * STEP, index * STEP + 64, index)
    assert [index for index in range(2 * GAPS_KEPT) if index * STEP in gaps_asked] == list(
        range(GAPS_KEPT, 2 * GAPS_KEPT)
    )
    gaps_asked.clear()
    assert GAPS_KEPT * STEP not in gaps_asked
    assert gaps_asked.deadline_ns == NEVER_NS


def test_a_request_that_was_repeated_is_measured_only_while_nothing_else_is_known() -> None:
    gaps_asked = RequestedGaps()
    gaps_asked.on_asked(0, 64, 0, repeat_count=1)
    gaps_asked.on_placed(0, 64, 5 * MS)
    assert gaps_asked.answers.usual_ns == 15 * MS
    gaps_asked.on_asked(STEP, STEP + 64, 6 * MS)
    gaps_asked.on_placed(STEP, STEP + 64, 7 * MS)
    assert gaps_asked.answers.usual_ns == 3 * MS
    gaps_asked.on_asked(2 * STEP, 2 * STEP + 64, 8 * MS, repeat_count=1)
    gaps_asked.on_placed(2 * STEP, 2 * STEP + 64, 28 * MS)
    assert gaps_asked.answers.usual_ns == 3 * MS


def test_the_rest_of_a_gap_says_nothing_of_how_long_answers_take() -> None:
    gaps_asked = RequestedGaps()
    gaps_asked.on_asked(0, 256, 0)
    gaps_asked.on_placed(0, 64, MS)
    assert gaps_asked.answers.usual_ns == 3 * MS
    for position in (64, 128, 192):
        gaps_asked.on_placed(position, position + 64, MS)
    assert gaps_asked.answers.usual_ns == 3 * MS
    assert gaps_asked.deadline_ns == NEVER_NS


@pytest.mark.parametrize(
    ("round_trip_us", "apart_us"), [(10_000, 1_000), (2_000, 400), (500, 250), (200, 100)]
)
def test_each_gap_is_asked_for_once_where_every_answer_comes(
    round_trip_us: int, apart_us: int
) -> None:
    """Each becomes the first before its answer comes, and yet it is known how long that takes."""
    rig = ready()
    answers: list[tuple[int, int]] = []
    position, asked = 64 * STEP, 0
    for now_us in range(0, 150 * apart_us + 2 * round_trip_us, 50):
        now_ns = now_us * US
        while answers and answers[0][0] <= now_us:
            rig.feed(data(answers.pop(0)[1], 64), now_ns)
        if now_us % apart_us == 0 and now_us < 150 * apart_us:
            rig.feed(data(position + 64, 64), now_ns)
            position += STEP
        rig.image.poll(now_ns)
        rig.read()
        rig.image.poll(now_ns)
        for start, _ in rig.naks():
            asked += 1
            answers.append((now_us + round_trip_us, start))
    assert rig.image.rebuild_position == position
    assert 150 <= asked <= 1.25 * 150


def test_a_gap_that_has_become_the_first_is_left_to_the_first_detector() -> None:
    gaps_asked = RequestedGaps()
    gaps_asked.on_asked(0, 64, 0)
    gaps_asked.on_placed(0, 64, 100 * US)
    for index in (1, 2, 3):
        gaps_asked.on_asked(index * STEP, index * STEP + 64, MS)
    found = gaps_asked.take_overdue(2 * STEP + 64, 9, 2 * MS)
    assert [(start, gap.end) for start, gap in found.items()] == [(3 * STEP, 3 * STEP + 64)]
    assert not gaps_asked.take_overdue(2 * STEP + 64, 9, 2 * MS)


def test_a_filled_stream_asks_for_nothing_and_sleeps() -> None:
    rig = ready()
    first = 64 * STEP
    end = feed_every_other(rig, 40, 0)
    rig.image.poll(0)
    rig.outbox.take()
    for position in range(first, end, STEP):
        rig.feed(data(position, 64), 50 * US)
    assert rig.image.poll(50 * US) > 100 * MS
    rig.image.poll(100 * US)
    assert rig.naks() == []
    assert rig.image.rebuild_position == end


def test_gaps_are_asked_for_across_the_end_of_a_term_but_for_one_that_ends_with_it() -> None:
    rig = ready(TERM_LENGTH - 64 * STEP - 4 * STEP)
    start = TERM_LENGTH - 4 * STEP
    for position in range(start, TERM_LENGTH + 4 * STEP, STEP):
        rig.feed(data(position + 64, 64), 0)
    rig.image.poll(0)
    assert rig.naks() == gaps(start, TERM_LENGTH + 4 * STEP)
    rig = ready(TERM_LENGTH - 64 * STEP - 4 * STEP)
    rig.feed(data(start + 64, 64), 0)
    rig.feed(data(TERM_LENGTH + 64, 64), 0)
    rig.image.poll(0)
    assert rig.naks() == [(start, 64)], "where it ends is not seen from its term"


def test_what_only_a_heartbeat_tells_of_is_not_asked_for_ahead() -> None:
    rig = ready()
    end = feed_every_other(rig, 2, 0)
    rig.feed(heartbeat(end + 640), 0)
    rig.image.poll(0)
    assert rig.naks() == gaps(64 * STEP, end)


def test_a_configured_delay_is_kept_and_counts_for_each_gap_from_when_it_was_seen() -> None:
    rig = ready(feedback_delay=StaticDelay(initial_ns=1 * MS, retry_ns=15 * MS))
    middle = feed_every_other(rig, 3, 0)
    assert rig.image.poll(0) == 1 * MS
    assert rig.naks() == []
    end = feed_every_other(rig, 3, 500 * US, middle)
    assert rig.image.poll(500 * US) == 1 * MS
    assert rig.image.poll(1 * MS) == 16 * MS
    assert rig.naks() == gaps(64 * STEP, middle)
    assert rig.image.poll(1 * MS + 10 * US) == 2 * MS + 10 * US
    rig.image.poll(2 * MS + 10 * US)
    assert rig.naks() == gaps(middle, end)


def test_what_comes_in_the_delay_is_not_asked_for() -> None:
    rig = ready(feedback_delay=StaticDelay(initial_ns=1 * MS, retry_ns=15 * MS))
    first = 64 * STEP
    feed_every_other(rig, 3, 0)
    rig.image.poll(0)
    rig.feed(data(first + STEP, 64), 100 * US)
    rig.image.poll(1 * MS)
    assert rig.naks() == [(first, 64), (first + 2 * STEP, 64)]


def test_a_group_asks_for_one_gap_after_the_other() -> None:
    delay = GroupDelay(max_backoff_ns=10 * MS, group_size=10, random=lambda: 0.0)
    rig = ready(feedback_delay=delay)
    feed_every_other(rig, 3, 0)
    rig.image.poll(0)
    assert set(rig.naks()) == {(64 * STEP, 64)}


def test_an_unreliable_stream_asks_for_nothing() -> None:
    rig = ready(is_reliable=False)
    feed_every_other(rig, 3, 0)
    rig.image.poll(0)
    assert rig.naks() == []


def test_a_stream_that_has_not_moved_on_leaves_what_it_may_ask_to_its_first_gap() -> None:
    rig = ImageRig()
    rig.image.poll(0)
    rig.outbox.take()
    feed_every_other(rig, 200, 0, 0)
    asked = []
    for now_us in range(0, 50_000, 50):
        rig.image.poll(now_us * US)
        asked += rig.naks()
    ahead = [each for each in asked if each != (0, 64)]
    assert len(asked) <= CREDIT_AT_FIRST // NAK_LENGTH + 1
    assert 0 < len(ahead) <= (CREDIT_AT_FIRST - CREDIT_FOR_FIRST_GAP) // NAK_LENGTH
    assert ahead == gaps(STEP, STEP + len(ahead) * STEP)


def test_a_stream_that_has_not_moved_on_is_polled_for_its_first_gap_alone() -> None:
    counts = []
    for delay in (None, GroupDelay(max_backoff_ns=0, group_size=1, random=lambda: 0.0)):
        rig = ImageRig(feedback_delay=delay)
        rig.image.poll(0)
        feed_every_other(rig, 40, 0, 0)
        now_ns, poll_count, alive_ns = 0, 0, 100 * MS
        while now_ns < 5 * SECOND:
            if now_ns >= alive_ns:
                rig.feed(data(64, 64), now_ns)
                alive_ns += 100 * MS
            # No agent has a finer timer.
            now_ns = max(rig.image.poll(now_ns), now_ns + 1 * MS)
            poll_count += 1
        counts.append(poll_count)
    assert counts[0] <= counts[1] < 100


def test_what_a_stream_could_not_pay_for_is_asked_for_as_soon_as_it_moves_on() -> None:
    rig = ImageRig()
    rig.image.poll(0)
    rig.outbox.take()
    feed_every_other(rig, 40, 0, 0)
    rig.image.poll(0)
    *_, (last, _) = rig.naks()
    rig.feed(data(0, 64), 50 * US)
    rig.image.poll(50 * US)
    paid_count = 2 * STEP // NAK_LENGTH
    asked = rig.naks()
    assert paid_count <= len(asked) <= paid_count + 1
    assert asked == gaps(last + STEP, last + (1 + len(asked)) * STEP)
    rig.feed(data(30 * STEP, 64), 60 * US)
    rig.image.poll(60 * US)
    assert rig.naks() == [], "the first gap is where it was"
    for position in range(STEP, 40 * STEP, STEP):
        rig.feed(data(position, 64), 70 * US)
    assert rig.image.poll(70 * US) > 100 * MS
    assert rig.naks() == []


def test_forged_payload_where_a_gap_would_begin_is_left_for_when_it_is_the_first() -> None:
    rig = ready()
    end = feed_every_other(rig, 2, 0)
    rig.feed(data(end + 640, 64), 0)
    # A length that no frame before the next one can have.
    rig.log.term_words[0][end >> 2] = HALF_TERM
    rig.image.poll(0)
    assert rig.naks() == gaps(64 * STEP, end)


def test_a_forged_length_that_begins_a_gap_is_left_for_when_it_is_the_first() -> None:
    rig = ready()
    end = feed_every_other(rig, 2, 0)
    rig.feed(data(end + 640, 64), 0)
    # As that of a frame that is not there yet, with data behind it.
    rig.log.term_words[0][end >> 2] = -640
    rig.image.poll(0)
    assert rig.naks() == gaps(64 * STEP, end)


def test_a_gap_that_ends_where_all_was_looked_through_is_not_proven_by_what_lies_in_the_term() -> (
    None
):
    rig = ready()
    end = feed_every_other(rig, 2, 0)
    rig.feed(heartbeat(end + 640), 0)
    # Left there by somebody whose frame would begin beyond all that is known to have been sent.
    rig.log.term_words[0][(end + 640) >> 2] = 64
    rig.image.poll(0)
    assert rig.naks() == gaps(64 * STEP, end)


@pytest.mark.parametrize("seconds", [1, 3])
def test_a_silent_source_is_not_kept_awake_for(seconds: int) -> None:
    rig = ready()
    feed_every_other(rig, 40, 0)
    rig.image.poll(0)
    now_ns = (5 + seconds) * SECOND
    rig.outbox.take()
    assert rig.image.poll(now_ns) > now_ns + 10 * MS
    assert rig.naks() == []


@pytest.mark.parametrize(("took_us", "waits_us"), [(200, (200, 300)), (950, (100, 110))])
def test_the_first_gap_is_asked_for_again_when_its_answer_is_overdue_where_answers_are_quick(
    took_us: int, waits_us: tuple[int, int]
) -> None:
    """Else every 100 us: waiting for a slow answer costs more than a NAK that was not needed."""
    rig = ready()
    middle = answered(rig, took_us=took_us)
    start_us = 20 * took_us
    feed_every_other(rig, 1, start_us * US, middle)
    rig.feed(data(64 * STEP, 64), start_us * US)
    rig.image.poll(start_us * US)
    naks, now_us = rig.naks(), start_us
    assert naks == [(middle, 64)]
    while not (naks := rig.naks()):
        now_us += 10
        rig.image.poll(now_us * US)
    assert naks == [(middle, 64)]
    # The mean of nine equal answers, and four times what is left of their first deviation.
    assert waits_us[0] <= now_us - start_us <= waits_us[1]


def test_what_the_first_gap_has_repeated_is_measured_from_its_first_request() -> None:
    rig = ready()
    first = 64 * STEP
    feed_every_other(rig, 2, 0)
    rig.image.poll(0)
    rig.feed(data(first, 64), 10 * US)
    for now_us in range(10, 3_000, 100):
        rig.image.poll(now_us * US)
    rig.feed(data(first + STEP, 64), 3 * MS)
    ahead = rig.image._gaps._ahead
    assert ahead is not None
    assert ahead._requested.answers.usual_ns == 9 * MS
    # One that is certain takes its place.
    ahead._requested.on_asked(2 * TERM_LENGTH, 2 * TERM_LENGTH + 64, 5 * MS)
    ahead._requested.on_placed(2 * TERM_LENGTH, 2 * TERM_LENGTH + 64, 6 * MS)
    assert ahead._requested.answers.usual_ns == 3 * MS


def test_requests_without_an_answer_do_not_hurry_those_for_the_first_gap() -> None:
    counts = []
    for is_doubled in (False, True):
        rig = ready()
        middle = answered(rig, took_us=600)
        ahead = rig.image._gaps._ahead
        assert ahead is not None
        if is_doubled:
            ahead._requested.answers.on_unanswered()
        rig.feed(data(64 * STEP, 64), 700 * US)
        rig.image.poll(700 * US)
        rig.outbox.take()
        feed_every_other(rig, 1, 700 * US, middle)
        naks: list[tuple[int, int]] = []
        for now_us in range(700, 4_700, 20):
            rig.image.poll(now_us * US)
            naks += rig.naks()
        counts.append(len(naks))
    assert counts[0] == counts[1] <= 7


def test_a_loss_is_recorded_once_though_gaps_are_looked_for_anew() -> None:
    losses: list[int] = []
    rig = ready(losses=Losses(losses.append))
    losses.clear()
    feed_every_other(rig, 8, 0)
    rig.image.poll(0)
    ahead = rig.image._gaps._ahead
    assert ahead is not None
    ahead.on_removed()
    for now_us in range(10, 500, 10):
        rig.image.poll(now_us * US)
    assert losses == [64] * 8
