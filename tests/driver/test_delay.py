"""How long to wait before asking for lost data."""

from __future__ import annotations

import math
import random

import pytest

from aeron_async.driver.core.context import DriverContext
from aeron_async.driver.core.feedback_delay import NO_DELAY, GroupDelay, StaticDelay
from aeron_async.driver.core.stream_params import choose_delay
from tests.driver.fakes import MS, US

BACKOFF_NS = 10 * MS
GROUP_SIZE = 10
RATE = math.log(GROUP_SIZE) + 1


def group_delay(draw: float) -> GroupDelay:
    return GroupDelay(max_backoff_ns=BACKOFF_NS, group_size=GROUP_SIZE, random=lambda: draw)


def formula(draw: float) -> float:
    """Return the delay as RFC 5401 and Aeron write it, x and all."""
    span = math.exp(RATE) - 1
    x = draw * RATE / BACKOFF_NS + RATE / (BACKOFF_NS * span)
    return BACKOFF_NS / RATE * math.log(x * span * BACKOFF_NS / RATE)


def test_a_static_delay_is_always_the_same() -> None:
    delay = StaticDelay(initial_ns=3, retry_ns=7)
    assert [delay.initial_ns(), delay.retry_ns(), delay.initial_ns()] == [3, 7, 3]


def test_the_defaults_give_the_published_rate_and_scale() -> None:
    assert pytest.approx(3.302585, abs=1e-6) == RATE
    assert pytest.approx(3.0279 * MS, rel=1e-4) == BACKOFF_NS / RATE


@pytest.mark.parametrize("draw", [0.0, 1e-9, 0.001, 0.25, 0.5, 0.75, 0.999, 1 - 2**-53])
def test_a_group_delay_follows_the_formula(draw: float) -> None:
    assert group_delay(draw).initial_ns() == pytest.approx(formula(draw), abs=2)
    assert group_delay(draw).retry_ns() == group_delay(draw).initial_ns()


def test_a_group_delay_reaches_from_nothing_to_the_longest() -> None:
    assert group_delay(0.0).initial_ns() == 0
    assert BACKOFF_NS - 2 <= group_delay(1 - 2**-53).initial_ns() <= BACKOFF_NS
    assert group_delay(1.0).initial_ns() <= BACKOFF_NS


def test_group_delays_are_distributed_as_the_formula_says() -> None:
    delay = GroupDelay(
        max_backoff_ns=BACKOFF_NS, group_size=GROUP_SIZE, random=random.Random(5401).random
    )
    drawn = sorted(delay.initial_ns() for _ in range(20_000))
    assert drawn[0] >= 0
    assert drawn[-1] <= BACKOFF_NS
    # The mean of T/lambda ln(1 + u s) over u, with s = e^lambda - 1.
    span = math.exp(RATE) - 1
    mean = BACKOFF_NS / RATE * (RATE * (1 + span) / span - 1)
    assert sum(drawn) / len(drawn) == pytest.approx(mean, rel=0.01)
    for quantile in (0.1, 0.25, 0.5, 0.75, 0.9):
        assert drawn[int(quantile * len(drawn))] == pytest.approx(formula(quantile), rel=0.03)
    # One receiver in ten expects to be first well before the round trip of a local network.
    assert sum(each < BACKOFF_NS / 2 for each in drawn) < len(drawn) / 4


def test_every_wait_of_a_group_is_drawn_anew() -> None:
    draws = iter([0.1, 0.9, 0.5])
    delay = GroupDelay(max_backoff_ns=BACKOFF_NS, group_size=10, random=lambda: next(draws))
    assert len({delay.initial_ns(), delay.retry_ns(), delay.retry_ns()}) == 3


def choose(
    *,
    is_reliable: bool = True,
    is_group: bool = False,
    nak_delay_ns: int | None = None,
    context: DriverContext | None = None,
) -> tuple[int, int]:
    delay = choose_delay(
        context or DriverContext(),
        is_reliable=is_reliable,
        is_group=is_group,
        nak_delay_ns=nak_delay_ns,
        random=lambda: 0.5,
    )
    return delay.initial_ns(), delay.retry_ns()


def test_unicast_asks_at_once_and_again_after_a_hundred_microseconds() -> None:
    assert choose() == (0, 100 * US)


def test_a_delay_that_a_poll_takes_by_itself_is_none() -> None:
    assert choose(nak_delay_ns=1 * US) == (0, 100 * US)
    assert choose(nak_delay_ns=1 * US + 1) == (1 * US + 1, 100 * US + 100)


def test_unicast_takes_the_delay_of_the_channel_and_multiplies_it() -> None:
    assert choose(nak_delay_ns=5 * MS) == (5 * MS, 500 * MS)


def test_unicast_takes_delay_and_ratio_of_the_context() -> None:
    context = DriverContext(nak_unicast_delay_ns=1 * MS, nak_unicast_retry_delay_ratio=15)
    assert choose(context=context) == (1 * MS, 15 * MS)


def test_a_delay_of_zero_does_not_make_the_retries_spin() -> None:
    assert choose(nak_delay_ns=0) == (0, 100 * US)


def test_a_group_backs_off_whatever_the_channel_says_of_unicast() -> None:
    expected = int(formula(0.5))
    assert choose(is_group=True, nak_delay_ns=1) == pytest.approx((expected, expected), abs=2)


def test_an_unreliable_stream_does_not_wait_at_all() -> None:
    assert choose(is_reliable=False, is_group=True, nak_delay_ns=1) == (0, 0)
    assert (NO_DELAY.initial_ns(), NO_DELAY.retry_ns()) == (0, 0)
