"""Counts of values in log-linear bins, as HDR histograms have them: exact to the width of a bin.

Values below 256 have a bin each; above, every power of two is divided into 128, so that no bin is
wider than 1/128 of what is in it. All of it is integer arithmetic, here and in SQL, and adding up
counts bin by bin merges histograms without loss.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = ["NEGATIVE", "Histogram", "bin_of", "bin_sql", "lower_bound", "upper_bound"]

BITS: Final = 7
"""Each power of two has 2^BITS bins."""
NEGATIVE: Final = -1
"""The bin of all values below zero: clocks that disagree, and not latencies."""


def bin_of(value: int) -> int:
    """Return the bin of a value."""
    if value < 0:
        return NEGATIVE
    shift = max(value.bit_length() - (BITS + 1), 0)
    return (shift << BITS) + (value >> shift)


def lower_bound(index: int) -> int:
    """Return the smallest value of a bin."""
    shift = max((index >> BITS) - 1, 0)
    return (index - (shift << BITS)) << shift


def upper_bound(index: int) -> int:
    """Return the largest value of a bin."""
    return lower_bound(index + 1) - 1


def bin_sql(value: str) -> str:
    """Return what computes the bin of a bigint in Spark's SQL.

    Args:
        value: An expression, in parentheses where it needs some.
    """
    shift = f"greatest(length(bin({value})) - {BITS + 1}, 0)"
    index = f"shiftleft({shift}, {BITS}) + shiftright({value}, {shift})"
    return f"if({value} < 0, {NEGATIVE}, {index})"


@final
class Histogram:
    """How often each bin was met.

    Args:
        counts: By bin.
    """

    def __init__(self, counts: Mapping[int, int] | None = None) -> None:
        self._counts = Counter(counts or {})
        self.negative_count: int = self._counts.pop(NEGATIVE, 0)

    @classmethod
    def of(cls, values: Iterable[int]) -> Histogram:
        """Return the histogram of some values."""
        return cls(Counter(map(bin_of, values)))

    @property
    def count(self) -> int:
        """Return how many values are in it, without those below zero."""
        return self._counts.total()

    @property
    def smallest(self) -> int:
        """Return the lower bound of the first bin; 0 when there is none."""
        return lower_bound(min(self._counts)) if self._counts else 0

    @property
    def largest(self) -> int:
        """Return the upper bound of the last bin; 0 when there is none."""
        return upper_bound(max(self._counts)) if self._counts else 0

    @property
    def mean(self) -> float:
        """Return the mean, each value taken as the middle of its bin; 0 when there is none."""
        total = sum(
            count * (lower_bound(index) + upper_bound(index))
            for index, count in self._counts.items()
        )
        return total / (2 * self.count) if self.count else 0.0

    def add(self, index: int, count: int) -> None:
        """Count a bin so many times more."""
        if index == NEGATIVE:
            self.negative_count += count
        else:
            self._counts[index] += count

    def merge(self, other: Histogram) -> None:
        """Add what another one has counted."""
        self._counts.update(other._counts)
        self.negative_count += other.negative_count

    def bins(self) -> Iterator[tuple[int, int]]:
        """Yield bins and their counts, smallest values first."""
        return iter(sorted(self._counts.items()))

    def percentile(self, percent: float | str) -> int:
        """Return a value that so many percent do not exceed: the upper bound of its bin.

        Args:
            percent: From 0 to 100; as a text it is exact, such as "99.99".
        """
        rank = self.count * Fraction(str(percent)) / 100
        seen = 0
        for index, count in self.bins():
            seen += count
            if seen >= rank and seen > 0:
                return upper_bound(index)
        return 0
