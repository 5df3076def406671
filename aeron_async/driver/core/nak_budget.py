"""What NAKs may cost an image that is lied to: many for loss that data proves, few for the rest.

A frame that arrived behind a gap proves it; each proven gap may be asked for several times, as soon
as its delays say. Only what has no such proof draws on the budget: a gap that ends where a
heartbeat claims the sender to be, and the same gap asked for again and again. So an honest stream
is repaired at the speed of its losses, however many small gaps a second that makes, while a
heartbeat of somebody else, half a term ahead of the sender, brings a bounded number of NAKs.

Nor are NAKs for what does not come repeated at that speed for long. Whoever begins streams by the
dozen, in the name of somebody else, and claims to have sent much of each, would otherwise have a
thousand NAKs a second sent to that somebody for each stream: a hundred bytes for every one. So a
stream that does not move on has a few NAKs, and then five a second.

Differs: Aeron repeats a NAK every 100 us without end, and believes every heartbeat.
"""

from __future__ import annotations

from typing import Final

from aeron_async.protocol.nak import NAK_LENGTH

__all__ = [
    "CREDIT_AT_FIRST",
    "CREDIT_LIMIT",
    "FREE_NAKS_PER_GAP",
    "HASTY_NAKS",
    "NakBudget",
    "NakPatience",
]

FREE_NAKS_PER_GAP: Final = 8
"""At 30 % loss of NAKs and of what they bring, one gap in two hundred needs more than these."""

HASTY_NAKS: Final = 16
"""Repeats of one gap as fast as the feedback delay says."""
REPEAT_WAIT_NS: Final = 2_000_000
"""Further repeats; a sender ignores them for 10 ms after each answer."""
LONGEST_WAIT_NS: Final = 200_000_000
"""As long as between two status messages of an image that is told nothing new."""
CREDIT_AT_FIRST: Final = 24 * NAK_LENGTH
CREDIT_FOR_FIRST_GAP: Final = 12 * NAK_LENGTH
CREDIT_PER_BYTE: Final = 2
"""At 30 % loss a stream of 100-byte messages pays for more NAKs than its gaps can need."""
CREDIT_LIMIT: Final = 64 * 1024
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


class NakPatience:
    """Asks more slowly for what does not come, and very slowly for what is not paid for.

    A gap is asked for a few times in haste, then often enough to be heard soon after a sender has
    turned a deaf ear for 10 ms. And all NAKs of a stream together are paid for by what they bring:
    two bytes for each byte that the stream has moved on, so that nobody gets much more out than in.
    """

    __slots__ = ("_count", "_credit", "_start")

    def __init__(self) -> None:
        self._start = -1
        self._count = 0
        self._credit = CREDIT_AT_FIRST

    def on_gap(self, start: int) -> None:
        """Take note of where the first gap begins, in bytes; further on, something has come."""
        if start > self._start:
            if self._start >= 0:
                earned = CREDIT_PER_BYTE * (start - self._start)
                self._credit = min(self._credit + earned, CREDIT_LIMIT)
            self._start = start
            self._count = 0

    @property
    def can_spend(self) -> bool:
        """Return whether a gap behind the first may be asked for: some is left for the first."""
        return self._credit >= CREDIT_FOR_FIRST_GAP

    def try_spend(self) -> bool:
        """Pay for a gap behind the first; return False where that must wait for credit."""
        if not self.can_spend:
            return False
        self._credit -= NAK_LENGTH
        return True

    def wait_ns(self) -> int:
        """Return how long to wait, at the least, after the NAK that leaves now."""
        self._credit = max(0, self._credit - NAK_LENGTH)
        if self._credit < NAK_LENGTH:
            return LONGEST_WAIT_NS
        self._count += 1
        return 0 if self._count <= HASTY_NAKS else REPEAT_WAIT_NS
