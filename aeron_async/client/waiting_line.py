"""Tasks that wait for the same thing, and are served in the order in which they came.

Only the first in line is ever woken. Leaving, for whatever reason, it wakes the next: success goes
on down the line, one that finds nothing stays first and stops it, and no wake-up is lost with a
task that is cancelled. However many wait, news that helps nobody costs one attempt.

Invariant: whoever is first either has been woken, or has found nothing since the last ring.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import final

__all__ = ["WaitingLine"]


@final
class Place:
    """One place in a line, and since when it is taken; in nanoseconds."""

    __slots__ = ("since_ns",)

    def __init__(self, since_ns: int) -> None:
        self.since_ns = since_ns


@final
class WaitingLine:
    """A line of tasks of one loop; each joins, waits as often as it must, and leaves."""

    __slots__ = ("_waiters",)

    def __init__(self) -> None:
        # Not a dict: that one looks for its first entry behind all that have gone before it.
        self._waiters: OrderedDict[Place, asyncio.Future[None] | None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._waiters)

    def since_ns(self) -> int | None:
        """Return since when the first in line waits; None where no task does."""
        for place in self._waiters:
            return place.since_ns
        return None

    def join(self, now_ns: int = 0) -> Place:
        """Stand at the end, and return the place; it must be left again."""
        place = Place(now_ns)
        self._waiters[place] = None
        return place

    async def wait(self, place: Place) -> None:
        """Wait to be woken, once."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[place] = waiter
        try:
            await waiter
        finally:
            self._waiters[place] = None

    def leave(self, place: Place) -> None:
        """Give a place up; the next one tries if it was the first."""
        is_first = next(iter(self._waiters)) is place
        del self._waiters[place]
        if is_first:
            self.ring()

    def ring(self) -> None:
        """Wake the first in line."""
        if self._waiters:
            self._wake(next(iter(self._waiters.values())))

    def ring_all(self) -> None:
        """Wake everybody: there is nothing left to wait for."""
        for waiter in self._waiters.values():
            self._wake(waiter)

    def _wake(self, waiter: asyncio.Future[None] | None) -> None:
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
