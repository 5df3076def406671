"""Idle strategies: their official names and values, and what is said about wrong ones."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.errors import ConfigurationError
from aeron_async.idle_strategy import (
    BackoffIdleStrategy,
    BusySpinIdleStrategy,
    IdleStrategy,
    NoOpIdleStrategy,
    SleepingIdleStrategy,
    YieldingIdleStrategy,
    format_idle_strategy,
    parse_idle_strategy,
)

periods = st.integers(1, 2**63 - 1)
counts = st.integers(0, 10**18 - 1)
strategies = st.one_of(
    st.just(BusySpinIdleStrategy()),
    st.just(NoOpIdleStrategy()),
    st.just(YieldingIdleStrategy()),
    st.builds(SleepingIdleStrategy, periods),
    st.tuples(counts, counts, periods, periods).map(
        lambda each: BackoffIdleStrategy(*each[:2], *sorted(each[2:]))
    ),
)


@pytest.mark.parametrize(
    ("name", "java_name", "strategy"),
    [
        ("backoff", "BackoffIdleStrategy", BackoffIdleStrategy(10, 20, 1_000, 1_000_000)),
        ("yield", "YieldingIdleStrategy", YieldingIdleStrategy()),
        ("spin", "BusySpinIdleStrategy", BusySpinIdleStrategy()),
        ("noop", "NoOpIdleStrategy", NoOpIdleStrategy()),
        ("sleep-ns", "SleepingIdleStrategy", SleepingIdleStrategy(1_000)),
        ("sleep-ms", "SleepingMillisIdleStrategy", SleepingIdleStrategy(1_000_000)),
    ],
)
def test_every_official_name_means_what_it_means_there(
    name: str, java_name: str, strategy: IdleStrategy
) -> None:
    assert parse_idle_strategy(name) == strategy
    assert parse_idle_strategy(f"org.agrona.concurrent.{java_name}") == strategy


@pytest.mark.parametrize(
    ("name", "values", "strategy"),
    [
        ("backoff", "1-2-3us-4ms", BackoffIdleStrategy(1, 2, 3_000, 4_000_000)),
        ("backoff", "0-0-1-1", BackoffIdleStrategy(0, 0, 1, 1)),
        ("sleep-ns", "5us", SleepingIdleStrategy(5_000)),
        ("sleep-ms", "2ms", SleepingIdleStrategy(2_000_000)),
        ("sleeping", "7", SleepingIdleStrategy(7)),
    ],
)
def test_values_are_those_of_the_c_driver(name: str, values: str, strategy: IdleStrategy) -> None:
    assert parse_idle_strategy(name, values) == strategy


@given(strategies)
def test_what_is_printed_can_be_read(strategy: IdleStrategy) -> None:
    assert parse_idle_strategy(*format_idle_strategy(strategy)) == strategy


@pytest.mark.parametrize(
    "name", ["", "Backoff", "sleep", "controllable", "BackoffIdleStrategy", "a\x00b" * 999]
)
def test_the_error_about_an_unknown_name_lists_all_that_are_possible(name: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_idle_strategy(name)
    text = str(caught.value)
    for possible in ("backoff", "yield", "spin", "noop", "sleep-ns", "sleep-ms", "sleeping"):
        assert possible in text
    assert "org.agrona.concurrent.YieldingIdleStrategy" in text
    assert len(text) < 800


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("backoff", "10-20-1us"),
        ("backoff", "10-20-1us-1ms-"),
        ("backoff", "-1-20-1us-1ms"),
        ("backoff", "10-20-1us-1m"),
        ("backoff", "10-20-2us-1us"),
        ("backoff", "10-20-0-1us"),
        ("backoff", f"{10**30}-20-1us-1ms"),
        ("backoff", "\u0661-20-1us-1ms"),
        ("sleep-ns", "0"),
        ("sleep-ns", "1-2"),
        ("sleep-ns", "soon"),
        ("yield", "1us"),
        ("spin", "1"),
        ("noop", "x"),
    ],
)
def test_values_that_a_strategy_does_not_take_are_refused(name: str, values: str) -> None:
    with pytest.raises(ConfigurationError):
        parse_idle_strategy(name, values)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (SleepingIdleStrategy, {"sleep_period_ns": 0}),
        (SleepingIdleStrategy, {"sleep_period_ns": 2**63}),
        (SleepingIdleStrategy, {"sleep_period_ns": 1.5}),
        (BackoffIdleStrategy, {"max_spins": -1}),
        (BackoffIdleStrategy, {"max_yields": "20"}),
        (BackoffIdleStrategy, {"min_park_period_ns": 0}),
        (BackoffIdleStrategy, {"max_park_period_ns": 999}),
        (BackoffIdleStrategy, {"max_park_period_ns": None}),
    ],
)
def test_a_strategy_names_its_wrong_value(kind: Any, values: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=f"{next(iter(values))} of {kind.__name__}"):
        kind(**values)


def test_strategies_are_values() -> None:
    assert BackoffIdleStrategy() == BackoffIdleStrategy(10, 20, 1_000, 1_000_000)
    assert hash(SleepingIdleStrategy(5)) == hash(SleepingIdleStrategy(5))
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        BackoffIdleStrategy().max_spins = 1  # type: ignore[misc]
