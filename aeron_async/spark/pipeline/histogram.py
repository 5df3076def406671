"""Histogram of values in log-linear bins, like an HDR histogram: exact to the width of a bin.

Values below 256 have a bin each. Above, every power of two is divided into 128 bins, so no bin is
wider than 1/128 of its values. All results are exact integers, and adding counts bin by bin merges
histograms without loss.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import TYPE_CHECKING, Final, final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from numpy.typing import NDArray

__all__ = ["NEGATIVE", "Histogram", "bin_of", "bins_of", "lower_bound", "upper_bound"]

BITS: Final = 7
"""A power of two has 2^BITS bins."""
NEGATIVE: Final = -1
"""Bin of all negative values, which come from clocks that disagree and are no latencies."""


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


def bins_of(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the bin of each value."""
    # The exponent of a double is the bit length, or one more if the value was rounded up.
    lengths = np.frexp(values.astype(np.float64))[1].astype(np.int64)
    lengths -= (values >> np.maximum(lengths - 1, 0)) == 0
    shifts = np.maximum(lengths - (BITS + 1), 0)
    found: NDArray[np.int64] = np.where(values < 0, NEGATIVE, (shifts << BITS) + (values >> shifts))
    return found


@final
class Histogram:
    """Count of values in each bin.

    Args:
        counts: Counts by bin.
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
        """Return the number of values, without negative ones."""
        return self._counts.total()

    @property
    def smallest(self) -> int:
        """Return the lower bound of the first bin; 0 if there is none."""
        return lower_bound(min(self._counts)) if self._counts else 0

    @property
    def largest(self) -> int:
        """Return the upper bound of the last bin; 0 if there is none."""
        return upper_bound(max(self._counts)) if self._counts else 0

    def add(self, index: int, count: int) -> None:
        """Add to the count of a bin."""
        if index == NEGATIVE:
            self.negative_count += count
        else:
            self._counts[index] += count

    def bins(self) -> Iterator[tuple[int, int]]:
        """Yield bins and their counts, in ascending order."""
        return iter(sorted(self._counts.items()))

    def percentile(self, percent: float | str) -> int:
        """Return a value that so many percent do not exceed: the upper bound of its bin.

        Args:
            percent: From 0 to 100; exact if given as text, such as "99.99".
        """
        rank = self.count * Fraction(str(percent)) / 100
        seen = 0
        for index, count in self.bins():
            seen += count
            if seen >= rank and seen > 0:
                return upper_bound(index)
        return 0
