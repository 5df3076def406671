"""How many NAKs an image sends: as many as its losses need, and few for what it was only told."""

from __future__ import annotations

import random

import pytest

from aeron_async.driver.core.budgets import (
    CREDIT_AT_FIRST,
    CREDIT_LIMIT,
    FREE_NAKS_PER_GAP,
    HASTY_NAKS,
    NakBudget,
    NakCredit,
)
from aeron_async.driver.core.context import DriverContext
from aeron_async.driver.core.system_counters import DriverCounterId, SystemCounterId
from aeron_async.protocol.nak import NAK_LENGTH
from tests.driver.fakes import HALF_TERM, MS, SECOND, US, data, heartbeat, place
from tests.driver.rigs import ImageRig
from tests.logbuffer.logs import TERM_LENGTH

LIMIT = 1_000


def taken(budget: NakBudget, start_ns: int, end_ns: int, step_ns: int) -> list[int]:
    return [now_ns for now_ns in range(start_ns, end_ns, step_ns) if budget.try_take(now_ns)]


def most_in_a_second(times_ns: list[int]) -> int:
    return max(
        sum(start_ns <= each < start_ns + SECOND for each in times_ns) for start_ns in times_ns
    )


@pytest.mark.parametrize("limit", [10, 11, 100, LIMIT])
def test_no_second_sees_more_than_the_limit_and_a_tenth_of_it_may_leave_at_once(limit: int) -> None:
    budget = NakBudget(limit)
    assert sum(budget.try_take(5) for _ in range(2 * limit)) == limit // 10
    times_ns = taken(NakBudget(limit), 0, 3 * SECOND, 100 * US)
    assert most_in_a_second(times_ns) <= limit
    assert len(times_ns) > 2.6 * limit


def test_what_must_wait_is_told_how_long() -> None:
    budget = NakBudget(LIMIT)
    while budget.try_take(7):
        pass
    assert not budget.try_take(budget.next_ns - 1)
    assert budget.try_take(budget.next_ns)
    assert budget.next_ns > 7 + MS


def test_a_gap_that_data_proves_may_be_asked_for_several_times_free_of_the_budget() -> None:
    budget = NakBudget(10)
    budget.on_gap(0, 64, is_proven=True)
    free = FREE_NAKS_PER_GAP + 1
    assert [budget.try_take(0) for _ in range(free + 1)] == [True] * free + [False]


@pytest.mark.parametrize(
    ("start", "end", "is_proven", "is_free"),
    [
        (96, 128, True, True),
        (32, 48, True, True),
        (32, 64, True, False),
        (0, 48, True, False),
        (96, 128, False, False),
    ],
    ids=["the next gap", "a part of it", "its front filled", "its end filled", "only told"],
)
def test_only_another_gap_is_asked_for_free_again(
    start: int,
    end: int,
    is_proven: bool,  # noqa: FBT001 - a table of cases
    is_free: bool,  # noqa: FBT001 - a table of cases
) -> None:
    budget = NakBudget(10)
    budget.on_gap(0, 64, is_proven=True)
    while budget.try_take(0):
        pass
    budget.on_gap(start, end, is_proven=is_proven)
    assert budget.try_take(0) is is_free


def test_a_clock_that_goes_back_a_second_silences_nobody_for_longer() -> None:
    budget = NakBudget(LIMIT)
    assert budget.try_take(10 * SECOND)
    times_ns = taken(budget, 9 * SECOND, 11 * SECOND, MS)
    assert times_ns[0] <= 10 * SECOND
    assert most_in_a_second(times_ns) <= LIMIT


# The same in an image.


def ready(**settings: int) -> ImageRig:
    rig = ImageRig(context=DriverContext(**settings))  # type: ignore[arg-type]
    rig.image.poll(0)
    rig.outbox.take()
    return rig


@pytest.mark.untraced
def test_a_heartbeat_half_a_term_ahead_brings_few_naks() -> None:
    rig = ready()
    for now_us in range(0, 1_000_000, 50):
        if now_us % 10_000 == 0:
            rig.feed(heartbeat(HALF_TERM), now_us * US)
        rig.image.poll(now_us * US)
    assert HASTY_NAKS < rig[SystemCounterId.NAK_MESSAGES_SENT] <= 24 + 5 + 3
    assert rig.image.hwm_position == HALF_TERM


@pytest.mark.untraced
def test_heartbeats_that_run_ahead_in_every_cycle_neither_hurry_nor_stop_the_naks() -> None:
    rig = ready()
    position = 0
    for now_us in range(0, 1_000_000, 50):
        position = min(position + 32, HALF_TERM)
        rig.feed(heartbeat(position), now_us * US)
        rig.image.poll(now_us * US)
    assert HASTY_NAKS < rig[SystemCounterId.NAK_MESSAGES_SENT] <= 24 + 5


def test_a_gap_is_asked_for_in_haste_then_slowly_and_when_all_is_spent_very_slowly() -> None:
    patience = NakCredit()
    patience.on_gap(0)
    waits_ns = [patience.pay_and_wait_ns() for _ in range(CREDIT_AT_FIRST // NAK_LENGTH + 2)]
    assert waits_ns == [0] * HASTY_NAKS + [2 * MS] * 7 + [200 * MS] * 3
    patience.on_gap(0)
    assert patience.pay_and_wait_ns() == 200 * MS, "the same gap still"


def test_what_has_come_pays_for_as_many_bytes_twice_and_never_for_more_than_a_limit() -> None:
    patience = NakCredit()
    patience.on_gap(0)
    while patience.pay_and_wait_ns() < 200 * MS:
        pass
    patience.on_gap(28)
    assert [patience.pay_and_wait_ns() for _ in range(2)] == [0, 200 * MS]
    patience.on_gap(10**9)
    naks = 0
    while patience.pay_and_wait_ns() < 200 * MS:
        naks += 1
    assert naks == CREDIT_LIMIT // NAK_LENGTH - 1


@pytest.mark.untraced
def test_a_heartbeat_ahead_of_a_stream_that_flows_brings_no_nak_for_each_datagram() -> None:
    rig = ready()
    position = 0
    for step in range(8_000):
        now_ns = step * 50 * US
        if step % 100 == 0:
            rig.feed(heartbeat(rig.image._feedback.last_sm_position + HALF_TERM), now_ns)
        rig.feed(data(position, 64), now_ns)
        position += 64
        rig.image.poll(now_ns)
        rig.image.poll(now_ns + 10 * US)
        rig.consume_to(rig.image.rebuild_position)
    assert rig.image.rebuild_position == position, "the stream goes on"
    # In two fifths of a second, and a tenth of the limit may leave at once.
    assert rig[SystemCounterId.NAK_MESSAGES_SENT] <= LIMIT // 10 + LIMIT * 2 // 5


def test_one_frame_ahead_of_a_stream_that_flows_brings_no_nak_for_each_datagram() -> None:
    rig = ready()
    rig.feed(data(HALF_TERM - 64, 64), 0)
    for step in range(HALF_TERM // 64 - 1):
        rig.feed(data(step * 64, 64), step * 50 * US)
        rig.image.poll(step * 50 * US)
        rig.image.poll(step * 50 * US + 10 * US)
    assert rig[SystemCounterId.NAK_MESSAGES_SENT] < 200


def repair(rig: ImageRig, *, loss: float, trip_us: int, seed: int, end: int) -> int:
    """Let a stream of small frames through, with loss both ways; return how long it took, in us."""
    source = random.Random(seed)
    sent = now_us = 0
    answers: list[tuple[int, int, int]] = []
    while rig.image.rebuild_position < end:
        # The sender keeps a few hundred frames ahead of what is whole, at two frames a microsecond.
        while sent < min(end, rig.image.rebuild_position + 200 * 64):
            if source.random() >= loss:
                rig.feed(data(sent, 64), now_us * US)
            sent += 64
        rig.feed(heartbeat(sent), now_us * US)
        for due_us, position, length in [each for each in answers if each[0] <= now_us]:
            answers.remove((due_us, position, length))
            for at in range(position, position + length, 64):
                if source.random() >= loss:
                    rig.feed(data(at, 64), now_us * US)
        rig.image.poll(now_us * US)
        rig.consume_to(rig.image.rebuild_position)
        for position, length in rig.naks():
            if source.random() >= loss:
                answers.append((now_us + trip_us, position, length))
        now_us += 20
    return now_us


@pytest.mark.untraced
@pytest.mark.parametrize("seed", range(3))
def test_many_small_losses_are_repaired_as_fast_as_without_any_limit(seed: int) -> None:
    limited, unlimited = ready(), ready(max_naks_per_second=2**31 - 1)
    for rig in (limited, unlimited):
        rig.took_us = repair(rig, loss=0.3, trip_us=40, seed=seed, end=2 * TERM_LENGTH)  # type: ignore[attr-defined]
    assert limited.took_us == unlimited.took_us  # type: ignore[attr-defined]
    naks = limited[SystemCounterId.NAK_MESSAGES_SENT]
    assert naks == unlimited[SystemCounterId.NAK_MESSAGES_SENT]
    assert naks / (limited.took_us / 1e6) > 5 * LIMIT, "far more in a second than the limit"  # type: ignore[attr-defined]
    assert limited[DriverCounterId.NAKS_WITHHELD] == 0


def test_a_lost_tail_is_asked_for_although_no_data_proves_it() -> None:
    rig = ready(max_naks_per_second=10)
    rig.feed(heartbeat(64), 0)
    rig.image.poll(0)
    rig.image.poll(US)
    assert rig.naks() == [(0, 64)]
    withheld_ns = rig.image.poll(101 * US)
    assert rig.naks() == []
    assert rig[DriverCounterId.NAKS_WITHHELD] == 1
    rig.image.poll(withheld_ns)
    assert rig.image.poll(110 * MS) < 120 * MS
    rig.image.poll(120 * MS)
    assert rig.naks() == [(0, 64)]


def test_a_gap_of_more_than_one_piece_is_not_proven_by_its_own_middle() -> None:
    rig = ImageRig(
        spec={"term_length": 8 * 1024 * 1024}, context=DriverContext(max_naks_per_second=10)
    )
    rig.image.poll(0)
    rig.outbox.take()
    far = 3 * 1024 * 1024
    term_id, _ = place(0)
    rig.feed(data(0, 64, term_id=term_id, term_offset=far), 0)
    rig.image.poll(0)
    for step in range(20):
        rig.image.poll(US + step * 100 * US)
    assert rig.naks() == [(0, 1024 * 1024)]
