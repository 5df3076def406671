"""The event loop that an object belongs to, and how long its calls may hold it.

A count alone would be either too small to be cheap or, where there is work between two messages,
too large to be fair: so it is looked at the clock, though not for every message. How many messages
there are between two looks follows from how long they took the last time.
"""

from __future__ import annotations

import os
from threading import get_ident
from typing import TYPE_CHECKING, Final, final

from aeron_async._speedups import WHY_PURE

if TYPE_CHECKING:
    import asyncio

    from aeron_async.clock import Clock

__all__ = [
    "FIRST_STRIDE",
    "HomeLoop",
    "Turn",
]


class Forks:
    """How often this process was forked off from one that had imported this.

    A counter, for asking the system for the process id is slow.
    """

    count: int = 0

    @classmethod
    def note(cls) -> None:
        """Count one: called in the child."""
        cls.count += 1


os.register_at_fork(after_in_child=Forks.note)


class HomeLoop:
    """The event loop that an object belongs to, told from others for every message.

    In one thread there runs one loop at a time; so it is the loop that runs here if this is its
    thread, and it runs.
    """

    __slots__ = ("_forks", "_is_running", "_thread_id", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop: asyncio.AbstractEventLoop = loop
        self._is_running = loop.is_running
        self._thread_id = get_ident()
        self._forks = Forks.count

    def is_here(self) -> bool:
        """Return whether the loop runs here: in this thread of this process."""
        return get_ident() == self._thread_id and Forks.count == self._forks and self._is_running()


if not TYPE_CHECKING and WHY_PURE is None:
    from aeron_async._speedups.paths import HomeLoop


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

    Only what was done without a break counts. Whether there was one says a callback that the loop
    was given when the stretch began: once it has run, others have had their turn.

    Args:
        loop: The event loop.
        clock: Reads the time.

    Attributes:
        stride: Messages until the next look.
    """

    __slots__ = ("_began_ns", "_clock", "_count", "_is_broken_off", "_looked_ns", "_loop", "stride")

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self.stride: int = FIRST_STRIDE
        self._loop = loop
        self._clock = clock
        self._began_ns = self._looked_ns = 0
        self._count = 0
        # Before the first look nothing is known: it begins the first stretch.
        self._is_broken_off = True

    def is_over(self) -> bool:
        """Look whether the loop should have its turn now; `stride` messages after the last look."""
        now_ns = self._clock.now_ns()
        if self._is_broken_off:
            self._begin(now_ns)
            return False
        took_ns = now_ns - self._looked_ns
        self._looked_ns = now_ns
        self._count += self.stride
        if took_ns > LONG_NS:
            self.stride = max(1, self.stride // 2)
        elif took_ns < SHORT_NS:
            self.stride = min(LONGEST_STRIDE, self.stride * 2)
        return self._count > MOST_MESSAGES or now_ns - self._began_ns >= LONGEST_NS

    def begin(self) -> None:
        """Begin anew: the loop has had its turn."""
        self._begin(self._clock.now_ns())

    def _begin(self, now_ns: int) -> None:
        self._count = 0
        self._began_ns = self._looked_ns = now_ns
        if self._is_broken_off:
            self._is_broken_off = False
            self._loop.call_soon(self._break_off)

    def _break_off(self) -> None:
        self._is_broken_off = True
