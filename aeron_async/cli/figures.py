"""Numbers as people read them: grouped, rounded to what matters, and with their unit."""

from __future__ import annotations

from typing import Final

from aeron_async.clock import NS_PER_MS, NS_PER_SECOND, NS_PER_US

__all__ = [
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
    """Return `1,234,567`; a fraction is rounded away."""
    return f"{count:,.0f}"


def plural(count: int, thing: str) -> str:
    """Return `1 message` or `1,000 messages`."""
    return f"{format_count(count)} {thing}{'' if count == 1 else 's'}"


def per_second(amount: float, elapsed_ns: int) -> float:
    """Return a rate; over no time at all it is 0."""
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
    """Return a duration with three figures that matter: `850 ns`, `12.3 μs`, `1.23 ms`."""
    for scale, unit in _TIME_UNITS:
        if duration_ns >= scale:
            value = duration_ns / scale
            return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f} {unit}"  # noqa: PLR2004 - places, so that three figures are left
    return f"{duration_ns:.0f} ns"
