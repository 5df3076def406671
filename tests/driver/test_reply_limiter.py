"""How many answers leave in a second."""

from __future__ import annotations

from aeron_async.driver.core.budgets import ReplyLimiter
from tests.driver.fakes import SECOND


def test_one_asker_is_answered_so_often_in_a_second_and_no_more() -> None:
    limiter = ReplyLimiter(limit=100, limit_per_asker=3)
    assert [limiter.try_take("a", 5) for _ in range(5)] == [True] * 3 + [False] * 2
    assert limiter.try_take("b", 5)
    assert not limiter.try_take("a", SECOND + 4)
    assert limiter.try_take("a", SECOND + 5)


def test_all_askers_together_are_answered_so_often_and_no_more_are_remembered() -> None:
    limiter = ReplyLimiter(limit=4, limit_per_asker=3)
    assert sum(limiter.try_take(asker, 0) for asker in range(1_000)) == 4
    assert len(limiter._counts) == 4


def test_a_clock_that_goes_back_a_second_makes_nobody_wait_for_longer() -> None:
    limiter = ReplyLimiter(limit=1, limit_per_asker=1)
    assert limiter.try_take("a", 10 * SECOND)
    assert not limiter.try_take("a", 9 * SECOND)
    assert limiter.try_take("a", 11 * SECOND)


def test_none_may_be_none() -> None:
    assert not ReplyLimiter(limit=0, limit_per_asker=1).try_take("a", 0)
    assert not ReplyLimiter(limit=1, limit_per_asker=0).try_take("a", 0)
