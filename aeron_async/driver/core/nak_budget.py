"""What NAKs may cost an image that is lied to: many for loss that data proves, few for the rest.

A frame that arrived behind a gap proves it; each proven gap may be asked for several times, as soon
as its delays say. Only what has no such proof draws on the budget: a gap that ends where a
heartbeat claims the sender to be, and the same gap asked for again and again. So an honest stream
is repaired at the speed of its losses, however many small gaps a second that makes, while a
heartbeat of somebody else, half a term ahead of the sender, brings a bounded number of NAKs.

Differs: Aeron repeats a NAK every 100 us without end, and believes every heartbeat.
"""

from __future__ import annotations

from typing import Final

__all__ = ["FREE_NAKS_PER_GAP", "NakBudget"]

FREE_NAKS_PER_GAP: Final = 8
"""At 30 % loss of NAKs and of what they bring, one gap in two hundred needs more than these."""

NS_PER_SECOND: Final = 1_000_000_000


class NakBudget:
    """A bucket that is full at first; no second sees more than the limit leave it.

    Args:
        limit: NAKs in a second, at least 10; a tenth of them may leave at once.
    """

    __slots__ = ("_burst_ns", "_free_count", "_interval_ns", "_is_full_ns", "_proven")

    def __init__(self, limit: int) -> None:
        burst = limit // 10
        self._interval_ns = -(-NS_PER_SECOND // (limit - burst))
        self._burst_ns = burst * self._interval_ns
        self._is_full_ns = 0
        self._free_count = 0
        self._proven = -1, -1

    def on_gap(self, start: int, end: int, *, is_proven: bool) -> None:
        """Take note of the gap that is asked for next; positions in bytes.

        A gap that only lost its front, or only its end, is still the same loss: what is asked for
        free must have both another start and another end than what was free before.
        """
        free_start, free_end = self._proven
        if not is_proven:
            self._free_count = 0
        elif start > free_start and end != free_end:
            self._proven = start, end
            self._free_count = FREE_NAKS_PER_GAP

    def try_take(self, now_ns: int) -> bool:
        """Return whether a NAK may leave now."""
        if self._free_count:
            self._free_count -= 1
            return True
        is_full_ns = max(self._is_full_ns, now_ns) + self._interval_ns
        if is_full_ns - now_ns > self._burst_ns:
            return False
        self._is_full_ns = is_full_ns
        return True

    @property
    def next_ns(self) -> int:
        """Return when the next NAK may leave that draws on the budget."""
        return self._is_full_ns + self._interval_ns - self._burst_ns
