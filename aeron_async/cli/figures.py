"""Numbers formatted for people, and latency summaries with exact percentiles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from aeron_async.clock import NS_PER_MS, NS_PER_SECOND, NS_PER_US

if TYPE_CHECKING:
    from array import array

__all__ = [
    "PERCENTILES",
    "LatencySummary",
    "format_bytes",
    "format_count",
    "format_ns",
    "format_per_second",
    "format_throughput",
    "per_second",
    "plural",
]

_BYTE_UNITS: Final = ((10**9, "GB"), (10**6, "MB"), (10**3, "kB"))
_TIME_UNITS: Final = ((NS_PER_SECOND, "s"), (NS_PER_MS, "ms"), (NS_PER_US, "μs"))


def format_count(count: float) -> str:
    """Return `1,234,567`; a fraction is rounded."""
    return f"{count:,.0f}"


def plural(count: int, thing: str) -> str:
    """Return `1 message` or `1,000 messages`."""
    return f"{format_count(count)} {thing}{'' if count == 1 else 's'}"


def per_second(amount: float, elapsed_ns: int) -> float:
    """Return a rate; 0 if no time has passed."""
    return amount * NS_PER_SECOND / elapsed_ns if elapsed_ns > 0 else 0.0


def format_per_second(rate: float) -> str:
    """Return `281,204 msg/s`."""
    return f"{format_count(rate)} msg/s"


def format_throughput(bytes_per_second: float) -> str:
    """Return `28.1 MB/s`; one MB is a million bytes, as networks count them."""
    return f"{format_bytes(bytes_per_second)}/s"


def format_bytes(length: float) -> str:
    """Return `17 B`, `1.5 kB` or `28.1 MB`, in powers of ten."""
    for scale, unit in _BYTE_UNITS:
        if abs(length) >= scale:
            return f"{length / scale:.1f} {unit}"
    return f"{length:.0f} B"


def format_ns(duration_ns: float) -> str:
    """Return a duration with three significant figures: `850 ns`, `12.3 μs`, `1.23 ms`."""
    for scale, unit in _TIME_UNITS:
        if duration_ns >= scale:
            value = duration_ns / scale
            return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f} {unit}"  # noqa: PLR2004 - places, so that three figures are left
    return f"{duration_ns:.0f} ns"


PERCENTILES: Final = ("50", "90", "99", "99.9", "99.99")
# Ranks are computed in integers, so that 99.99 percent of 10 000 is 9 999, and not one more.
_PARTS: Final = 10_000


@attrs.frozen(kw_only=True)
class LatencySummary:
    """Summary of many latencies, in nanoseconds.

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
        """Return the summary of values in any order; None if there are none."""
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
        """Return the summary as a JSON object, with times in microseconds."""
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
