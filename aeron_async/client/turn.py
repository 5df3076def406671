"""How long one task may go on before the event loop has its turn.

A count alone would be either too small to be cheap or, where there is work between two messages,
too large to be fair: so it is looked at the clock, though not for every message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from aeron_async.clock import Clock

__all__ = ["Turn"]

LONGEST_NS: Final = 500_000
MOST_LOOKS: Final = 16


@final
class Turn:
    """One stretch of work of one task; over after 500 microseconds, or 16 looks."""

    __slots__ = ("_began_ns", "_looks")

    def __init__(self) -> None:
        # Before the first look nothing is known: it ends the turn.
        self._looks = MOST_LOOKS
        self._began_ns = 0

    def is_over(self, clock: Clock) -> bool:
        """Look whether the loop should have its turn now."""
        self._looks += 1
        return self._looks > MOST_LOOKS or clock.now_ns() - self._began_ns >= LONGEST_NS

    def begin(self, clock: Clock) -> None:
        """Begin anew: the loop has had its turn."""
        self._looks = 0
        self._began_ns = clock.now_ns()
