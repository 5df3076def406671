"""How long one task may go on before the event loop has its turn.

A count alone would be either too small to be cheap or, where there is work between two messages,
too large to be fair: so it is looked at the clock, though not for every message. How many messages
there are between two looks follows from how long they took the last time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from aeron_async.clock import Clock

__all__ = ["FIRST_STRIDE", "Turn"]

LONGEST_NS: Final = 500_000
"""A turn that has taken so long is over."""
SHORT_NS: Final = 50_000
"""A stretch between two looks that took less lets the next one be longer."""
LONG_NS: Final = 200_000
"""A stretch that took more lets the next one be shorter."""
FIRST_STRIDE: Final = 64
"""Messages between two looks, to begin with."""
LONGEST_STRIDE: Final = 512
MOST_MESSAGES: Final = 1_024
"""After so many messages a turn is over whatever the time: some clocks stand still."""


@final
class Turn:
    """One stretch of work of one task; over after 500 microseconds, or 1024 messages.

    Attributes:
        stride: Messages until the next look.
    """

    __slots__ = ("_began_ns", "_count", "_looked_ns", "stride")

    def __init__(self) -> None:
        self.stride = FIRST_STRIDE
        self._began_ns = self._looked_ns = 0
        # Before the first look nothing is known: it ends the turn.
        self._count = MOST_MESSAGES

    def is_over(self, clock: Clock) -> bool:
        """Look whether the loop should have its turn now; `stride` messages after the last look."""
        now_ns = clock.now_ns()
        took_ns = now_ns - self._looked_ns
        self._looked_ns = now_ns
        self._count += self.stride
        if took_ns > LONG_NS:
            self.stride = max(1, self.stride // 2)
        elif took_ns < SHORT_NS:
            self.stride = min(LONGEST_STRIDE, self.stride * 2)
        return self._count > MOST_MESSAGES or now_ns - self._began_ns >= LONGEST_NS

    def begin(self, clock: Clock) -> None:
        """Begin anew: the loop has had its turn."""
        self._count = 0
        self._began_ns = self._looked_ns = clock.now_ns()
