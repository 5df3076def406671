"""What all NAKs of a publication together may bring."""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from aeron_async.driver.core.budgets import RetransmitBudget
from aeron_async.driver.core.context import DriverContext
from tests.driver.fakes import MS, SECOND, US

KIB = 1024
MIB = 1024 * KIB
ENDLESS = 2**40
LOSS_RATE = 0.3


class Rig:
    def __init__(self, **changes: Any) -> None:
        self.budget = RetransmitBudget(DriverContext(**changes), mtu_length=8_192, position=0)
        self.sent = 0

    def take(self, now_ns: int, length: int = ENDLESS) -> int:
        return self.budget.take(length, sender_position=self.sent, now_ns=now_ns)


def test_a_burst_is_granted_at_once_and_then_the_base_by_the_second() -> None:
    rig = Rig()
    assert rig.take(SECOND) == 2 * MIB
    assert rig.take(SECOND) == 0
    assert rig.take(SECOND + 500 * MS) == 512 * KIB
    assert rig.take(2 * SECOND) == 512 * KIB
    assert rig.take(100 * SECOND) == 2 * MIB, "the bucket holds no more"


def test_a_clock_that_is_set_back_neither_earns_nor_costs_anything() -> None:
    rig = Rig()
    assert rig.take(100 * SECOND, MIB) == MIB
    assert rig.take(10 * SECOND, MIB) == MIB
    assert rig.take(10 * SECOND) == 0
    assert rig.take(9 * SECOND) == 0
    assert rig.take(9 * SECOND + 500 * MS) == 512 * KIB


def test_half_of_what_is_sent_may_be_sent_again() -> None:
    rig = Rig(max_retransmit_base_count=0)
    rig.take(0)
    rig.sent += 1 * MIB
    assert rig.take(0) == 512 * KIB


def test_a_receiver_window_larger_than_the_base_is_granted_each_second() -> None:
    rig = Rig()
    rig.budget.window_length = 8 * MIB
    rig.take(0)
    assert rig.take(125 * MS) == 1 * MIB


def test_nothing_is_lost_to_rounding_however_often_it_asks() -> None:
    rig = Rig()
    rig.take(0)
    assert sum(rig.take(now_ns) for now_ns in range(0, SECOND + 1, 100_000)) == MIB


def test_one_linger_brings_no_more_than_its_limit_whatever_the_burst() -> None:
    rig = Rig(max_retransmit_burst_length=64 * MIB)
    assert rig.take(0) == 16 * MIB
    assert rig.take(9 * MS) == 0
    assert rig.take(10 * MS) == 16 * MIB


def test_what_was_granted_and_not_used_is_granted_again() -> None:
    rig = Rig(max_retransmit_base_count=0, max_retransmit_linger_length=2 * MIB)
    assert rig.take(0) == 2 * MIB
    rig.budget.give_back(100)
    assert rig.take(0) == 100


def denied_count(percent: int) -> int:
    """Return how many resends are denied to honest repair of 70 MB, sent at 100 MB/s."""
    rig = Rig(max_retransmit_base_count=0, max_retransmit_percent=percent)
    random = Random(7)
    denied = 0
    for number in range(50_000):
        rig.sent += 1_408
        while random.random() < LOSS_RATE:
            denied += rig.take(number * 14 * US, 1_408) < 1_408
    return denied


def test_honest_repair_at_a_loss_of_thirty_percent_is_never_denied() -> None:
    assert denied_count(50) == 0
    assert denied_count(25) > 5_000, "what was rejected, and why"


STEPS = st.lists(
    st.tuples(st.integers(0, 2 * SECOND), st.integers(0, 4 * MIB), st.integers(0, 8 * MIB)),
    max_size=30,
)


@given(STEPS)
def test_over_any_time_resends_stay_within_burst_base_and_share(
    steps: list[tuple[int, int, int]],
) -> None:
    rig = Rig()
    now_ns = granted = 0
    for step_ns, sent, asked in steps:
        now_ns += step_ns
        rig.sent += sent
        granted += rig.take(now_ns, asked)
        assert granted <= 2 * MIB + MIB * now_ns // SECOND + rig.sent // 2
