"""How long answers take: measured by NAKs, smoothed, and forgotten when nothing is known."""

from __future__ import annotations

from aeron_async.driver.core.round_trip import (
    SHORTEST_ANSWER_NS,
    TIMES_APART_NS,
    TIMES_KEPT,
    RoundTrip,
    SmoothedTime,
)
from tests.driver.fakes import MS, US

LIMIT_NS = 10 * MS


def test_the_first_measurement_counts_three_times_as_tcp_has_it() -> None:
    time = SmoothedTime()
    assert time.overdue_ns == 0
    time.on_measured(MS)
    assert time.overdue_ns == 3 * MS


def test_equal_measurements_leave_their_own_time() -> None:
    time = SmoothedTime()
    for _ in range(100):
        time.on_measured(MS)
    assert MS <= time.overdue_ns < MS + 10 * US


def test_one_late_answer_makes_the_next_wait_longer_and_is_forgotten_in_time() -> None:
    time = SmoothedTime()
    for _ in range(100):
        time.on_measured(MS)
    time.on_measured(5 * MS)
    assert time.overdue_ns > 5 * MS
    for _ in range(100):
        time.on_measured(MS)
    assert time.overdue_ns < MS + 10 * US


def test_no_answer_is_overdue_before_the_fastest_receiver_repeats_its_nak() -> None:
    time = SmoothedTime()
    for took_ns in (0, -5, 1, 0):
        time.on_measured(took_ns)
    assert time.overdue_ns == SHORTEST_ANSWER_NS
    time.forget()
    assert time.overdue_ns == 0


def lossy(count: int, *, delay_ns: int, apart_ns: int = MS) -> RoundTrip:
    """Return the times of a stream that gets a NAK for each burst before its last."""
    times = RoundTrip()
    times.on_nak(1, 1, 0)
    for index in range(1, count + 1):
        now_ns = index * apart_ns
        times.on_sent(1_000 * index, now_ns)
        times.on_nak(1_000 * index + 500, 1_000 * (index + 1), now_ns + delay_ns)
    return times


def test_before_the_first_nak_nothing_is_kept_and_nothing_known() -> None:
    times = RoundTrip()
    for index in range(10):
        times.on_sent(index, index * MS)
    times.on_nak(5, 9, 20 * MS)
    assert times.linger_ns(LIMIT_NS) == LIMIT_NS, "when that was sent was not kept"


def test_a_linger_follows_the_round_trip_up_to_its_limit() -> None:
    for delay_ns in (300 * US, MS, 3 * MS):
        linger_ns = lossy(50, delay_ns=delay_ns).linger_ns(LIMIT_NS)
        assert delay_ns <= linger_ns < delay_ns + 100 * US
    assert lossy(50, delay_ns=20 * MS, apart_ns=MS).linger_ns(LIMIT_NS) == LIMIT_NS


def test_the_time_is_that_of_the_last_burst_that_began_before_the_end_of_the_gap() -> None:
    times = RoundTrip()
    times.on_nak(1, 1, 0)
    for index in range(1, 5):
        times.on_sent(1_000 * index, index * MS)
    # What begins at 3,000 was not sent by a heartbeat there, so the burst before is the proof.
    times.on_nak(3_000, 5_000, 6 * MS)
    assert times.linger_ns(100 * MS) == 3 * (6 - 2) * MS


def test_only_the_first_nak_for_a_gap_is_measured() -> None:
    times = lossy(50, delay_ns=MS)
    before_ns = times.linger_ns(LIMIT_NS)
    for _ in range(10):
        times.on_nak(50_500, 51_000, 60 * MS)
    assert times.linger_ns(LIMIT_NS) == before_ns


def test_a_nak_for_what_was_never_sent_is_not_measured() -> None:
    times = lossy(50, delay_ns=MS)
    before_ns = times.linger_ns(LIMIT_NS)
    times.on_nak(51_001, 51_000, 60 * MS)
    times.on_nak(50_900, 51_000, 51 * MS)
    assert abs(times.linger_ns(LIMIT_NS) - before_ns) < MS


def test_a_nak_for_what_was_sent_too_long_ago_leaves_the_limit() -> None:
    times = lossy(50, delay_ns=MS)
    for index in range(TIMES_KEPT):
        times.on_sent(100_000 + index, 100 * MS + index * TIMES_APART_NS)
    times.on_nak(60_000, 200_000, 120 * MS)
    assert times.linger_ns(LIMIT_NS) == LIMIT_NS


def test_bursts_close_to_one_another_share_a_time() -> None:
    """So the times that are kept cover more than a linger, however often a stream sends."""
    times = RoundTrip()
    times.on_nak(1, 1, 0)
    for index in range(100_000):
        times.on_sent(10 + index, index * US)
    times.on_nak(10 + 90_000, 10 + 100_000, 100 * MS)
    assert 3 * 10 * MS <= times.linger_ns(100 * MS) <= 3 * (10 * MS + TIMES_APART_NS)
