"""Which bytes of a stream a capture holds: what came twice, what jumped ahead, what never came.

Everything is kept by term, because the length of a term is known only once a SETUP was seen.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import final

__all__ = ["Coverage"]


@final
class Ranges:
    """Offsets of one term that were seen, as disjoint ranges in order."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, start: int, end: int) -> bool:
        """Add a range, and return whether its start is new."""
        before = bisect_right(self._starts, start) - 1
        is_new = before < 0 or self._ends[before] <= start
        first = bisect_left(self._ends, start)
        last = bisect_right(self._starts, end)
        if first < last:
            start = min(start, self._starts[first])
            end = max(end, self._ends[last - 1])
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]
        return is_new

    @property
    def first(self) -> int:
        """Return the lowest offset seen."""
        return self._starts[0]

    @property
    def last(self) -> int:
        """Return the offset behind the highest byte seen."""
        return self._ends[-1]

    @property
    def length(self) -> int:
        """Return how many bytes were seen."""
        return sum(self._ends) - sum(self._starts)


@final
class Coverage:
    """What was seen of one stream at one place.

    Terms are counted from any one of them; positions are not needed.

    Attributes:
        gap_count: How often a frame came that was ahead of the one expected.
        gap_length: Bytes passed over by these, repaired later or not.
    """

    def __init__(self) -> None:
        self._terms: dict[int, Ranges] = {}
        self._expected: tuple[int, int] | None = None
        self.gap_count = 0
        self.gap_length = 0

    def add(self, term: int, offset: int, length: int, *, term_length: int | None) -> bool:
        """Take a frame in, and return whether it was not there before.

        Args:
            term: Count of its term.
            offset: Where in the term it begins, in bytes.
            length: How many bytes of the term it takes up; 0 for a heartbeat, which only tells how
                far the stream has come.
            term_length: In bytes, or None while it is not known.
        """
        expected = self._expected
        if expected is not None:
            skipped = distance(expected, (term, offset), term_length)
            if skipped > 0:
                self.gap_count += 1
                self.gap_length += skipped
        end = (term, offset + length)
        if expected is None or end > expected:
            self._expected = end
        if not length:
            return False
        return self._terms.setdefault(term, Ranges()).add(offset, offset + length)

    def missing_length(self, term_length: int | None) -> int:
        """Return how many bytes between the first and the furthest never came."""
        if not self._terms or self._expected is None:
            return 0
        first = min(self._terms)
        start = (first, self._terms[first].first)
        span = distance(start, self._expected, term_length)
        if term_length is None:  # What is missing at the end of a term cannot be known.
            inner = [self._terms[term].last for term in self._terms if term < self._expected[0]]
            span = sum(inner) + self._expected[1] - start[1]
        return max(0, span - sum(ranges.length for ranges in self._terms.values()))


def distance(start: tuple[int, int], end: tuple[int, int], term_length: int | None) -> int:
    """Return how many bytes lie between two places of a stream; negative the other way round.

    Without a term length only those count that are certain: none at the end of a term.
    """
    terms = end[0] - start[0]
    if terms == 0:
        return end[1] - start[1]
    if term_length is None:
        return end[1] if terms > 0 else -1
    return terms * term_length + end[1] - start[1]
