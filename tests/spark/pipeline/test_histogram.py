"""Bins: exact to their width, without gaps between them, and mergeable."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.spark.pipeline.histogram import (
    NEGATIVE,
    Histogram,
    bin_of,
    bins_of,
    lower_bound,
    upper_bound,
)

VALUES = st.integers(0, (1 << 63) - 1)


@given(VALUES)
def test_a_value_lies_in_its_bin_and_the_bin_is_narrow(value: int) -> None:
    index = bin_of(value)
    assert lower_bound(index) <= value <= upper_bound(index)
    assert upper_bound(index) - lower_bound(index) <= value / 128


@given(st.integers(0, 7_000))
def test_bins_lie_side_by_side(index: int) -> None:
    assert bin_of(lower_bound(index)) == index == bin_of(upper_bound(index))
    assert lower_bound(index + 1) == upper_bound(index) + 1


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(0, 62).map(lambda n: 1 << n)))
def test_bins_of_an_array_are_those_of_its_values(values: list[int]) -> None:
    edges = [each + more for each in values for more in (-1, 0, 1)]
    found = np.clip(np.array(edges, object), -(1 << 63), (1 << 63) - 1).astype(np.int64)
    assert bins_of(found).tolist() == [bin_of(each) for each in found.tolist()]


@given(st.lists(st.integers(-5, 10**12)), st.lists(st.integers(-5, 10**12)))
def test_adding_counts_is_counting_all_at_once(one: list[int], other: list[int]) -> None:
    merged, more = Histogram.of(one), Histogram.of(other)
    for index, count in (*more.bins(), (NEGATIVE, more.negative_count)):
        merged.add(index, count)
    whole = Histogram.of(one + other)
    assert list(merged.bins()) == list(whole.bins())
    assert merged.negative_count == whole.negative_count == sum(v < 0 for v in one + other)


@given(st.lists(st.integers(0, 10**9), min_size=1), st.sampled_from(["50", "99", "99.9", "100"]))
def test_a_percentile_is_that_of_the_values_to_the_width_of_a_bin(
    values: list[int], percent: str
) -> None:
    rank = -(-len(values) * int(float(percent) * 1_000) // 100_000)
    exact = sorted(values)[rank - 1]
    assert bin_of(Histogram.of(values).percentile(percent)) == bin_of(exact)


def test_what_is_below_zero_is_counted_apart() -> None:
    histogram = Histogram()
    histogram.add(NEGATIVE, 2)
    histogram.add(bin_of(7), 1)
    assert (histogram.count, histogram.negative_count, bin_of(-1)) == (1, 2, NEGATIVE)
    assert (histogram.smallest, histogram.largest) == (7, 7)


def test_an_empty_histogram_has_zeros() -> None:
    empty = Histogram()
    assert (empty.count, empty.smallest, empty.largest) == (0, 0, 0)
    assert empty.percentile(99) == 0
