from __future__ import annotations

from array import array
from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.cli.figures import (
    PERCENTILES,
    LatencySummary,
    format_bytes,
    format_count,
    format_ns,
    format_per_second,
    format_throughput,
    per_second,
    plural,
)


@pytest.mark.parametrize(
    ("length", "text"),
    [(0, "0 B"), (999, "999 B"), (1_500, "1.5 kB"), (28_100_000, "28.1 MB"), (2e9, "2.0 GB")],
)
def test_lengths_are_in_powers_of_ten(length: float, text: str) -> None:
    assert format_bytes(length) == text
    assert format_throughput(length) == f"{text}/s"


@pytest.mark.parametrize(
    ("duration_ns", "text"),
    [
        (850, "850 ns"),
        (1_234, "1.23 μs"),
        (12_345, "12.3 μs"),
        (123_456, "123 μs"),
        (1_234_567, "1.23 ms"),
        (5_000_000_000, "5.00 s"),
    ],
)
def test_durations_have_three_figures(duration_ns: int, text: str) -> None:
    assert format_ns(duration_ns) == text


def test_counts_are_grouped_and_things_are_plural() -> None:
    assert format_count(1_234_567) == "1,234,567"
    assert format_per_second(281_204.4) == "281,204 msg/s"
    assert plural(1, "message") == "1 message"
    assert plural(0, "message") == "0 messages"


def test_no_time_has_no_rate() -> None:
    assert per_second(5, 0) == 0
    assert per_second(5, 500_000_000) == 10


def test_of_nothing_there_is_no_summary() -> None:
    assert LatencySummary.of(array("q")) is None


def test_the_percentiles_of_ten_thousand_are_exact() -> None:
    summary = LatencySummary.of(array("q", range(10_000, 0, -1)))
    assert summary is not None
    assert summary.percentiles == {
        "50": 5_000,
        "90": 9_000,
        "99": 9_900,
        "99.9": 9_990,
        "99.99": 9_999,
    }
    assert (summary.min_ns, summary.mean_ns, summary.max_ns) == (1, 5_000.5, 10_000)
    assert summary.to_json()["percentiles_us"] == {
        "50": 5.0,
        "90": 9.0,
        "99": 9.9,
        "99.9": 9.99,
        "99.99": 9.999,
    }


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=300))
def test_a_percentile_is_the_smallest_value_that_enough_do_not_exceed(values: list[int]) -> None:
    summary = LatencySummary.of(array("q", values))
    assert summary is not None
    for name in PERCENTILES:
        wanted = max(1, ceil(Fraction(name) / 100 * len(values)))
        enough = [v for v in values if sum(other <= v for other in values) >= wanted]
        assert summary.percentiles[name] == min(enough)
