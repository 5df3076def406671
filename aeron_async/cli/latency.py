"""Latencies, and their exact percentiles: every value is kept, and none is put into a bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

if TYPE_CHECKING:
    from array import array

__all__ = ["PERCENTILES", "LatencySummary"]

PERCENTILES: Final = ("50", "90", "99", "99.9", "99.99")
# Ranks are computed in whole numbers: 99.99 percent of 10 000 is 9 999, and not one more.
_PARTS: Final = 10_000


@attrs.frozen(kw_only=True)
class LatencySummary:
    """What many latencies come to; all in nanoseconds.

    Attributes:
        percentiles: By name, such as "99.9": the smallest value that so many percent do not exceed.
    """

    count: int
    min_ns: int
    mean_ns: float
    max_ns: int
    percentiles: dict[str, int]

    @classmethod
    def of(cls, values_ns: array[int]) -> LatencySummary | None:
        """Return the summary of the values, in any order; None of none."""
        count = len(values_ns)
        if count == 0:
            return None
        ordered = sorted(values_ns)
        return cls(
            count=count,
            min_ns=ordered[0],
            mean_ns=sum(ordered) / count,
            max_ns=ordered[-1],
            percentiles={name: ordered[_rank(name, count) - 1] for name in PERCENTILES},
        )

    def to_json(self) -> dict[str, object]:
        """Return the summary as JSON has it, times in microseconds."""
        return {
            "count": self.count,
            "min_us": self.min_ns / 1_000,
            "mean_us": round(self.mean_ns / 1_000, 3),
            "max_us": self.max_ns / 1_000,
            "percentiles_us": {name: value / 1_000 for name, value in self.percentiles.items()},
        }


def _rank(percentile: str, count: int) -> int:
    """Return the nearest rank, from 1 to `count`."""
    parts = round(float(percentile) * _PARTS / 100)
    return max(1, -(-count * parts // _PARTS))
