"""Deadlines of many calls behind one timer of the event loop, and durations as programs give them.

Most calls end long before their deadline, and soon. So a deadline is only appended to a list. The
heap gets those of calls that are still under way when the timer fires; the others leave when more
than half of the entries are of calls that have ended.

Invariant: there are at most `2 * n + SLACK` entries, where n is the most calls under way since they
were last swept.
"""

from __future__ import annotations

import asyncio
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar, final

from aeron_async.clock import NS_PER_MS, NS_PER_SECOND
from aeron_async.errors import ConfigurationError
from aeron_async.protocol.units import INT64_MAX
from aeron_async.rpc.short_ways import ShortDeadlines

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.clock import Clock

__all__ = ["Deadlines", "Expiring", "check_seconds", "nanoseconds"]

SECONDS_MOST: Final = 1e9
"""The longest duration that a program may give."""
LEAST_S: Final = NS_PER_MS / NS_PER_SECOND
"""A timer may fire up to a millisecond early: it is set again no sooner than that."""


class Expiring(Protocol):
    """What has a deadline."""

    @property
    def is_over(self) -> bool:
        """Return whether it has ended, so that its deadline means nothing any more."""
        ...


T = TypeVar("T", bound=Expiring)


@final
class Deadlines(ShortDeadlines, Generic[T]):
    """Calls a function with each call whose deadline passes.

    Args:
        clock: What the deadlines are compared with.
        on_due: Called with a call that is not over, in the event loop.
    """

    __slots__ = ("_clock", "_on_due", "_serial", "_timer")

    # The serial number keeps calls themselves from being compared.
    _heap: list[tuple[int, int, T]]
    _new: list[tuple[int, T]]

    def __init__(self, clock: Clock, on_due: Callable[[T], object]) -> None:
        super().__init__()
        self._clock = clock
        self._on_due = on_due
        self._serial = 0
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._heap) + len(self._new)

    def close(self) -> None:
        """Forget all deadlines."""
        self._new.clear()
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._due_ns = INT64_MAX

    def _set_timer(self, deadline_ns: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due_ns = deadline_ns
        delay_s = max((deadline_ns - self._clock.now_ns()) / NS_PER_SECOND, LEAST_S)
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._due_ns = INT64_MAX
        heap = self._heap
        for deadline_ns, call in self._new:
            if not call.is_over:
                self._serial += 1
                heappush(heap, (deadline_ns, self._serial, call))
        self._new.clear()
        now_ns = self._clock.now_ns()
        while heap and (heap[0][2].is_over or heap[0][0] <= now_ns):
            _, _, call = heappop(heap)
            if not call.is_over:
                self._on_due(call)
        if heap and heap[0][0] < self._due_ns:
            self._set_timer(heap[0][0])


# Durations that programs give.


def nanoseconds(seconds: float, name: str) -> int:
    """Return a duration in nanoseconds.

    Raises:
        ConfigurationError: It is no number above 0.
    """
    if type(seconds) not in {int, float} or not 0 < seconds <= SECONDS_MOST:
        message = f"{name}={seconds!r}: give seconds, above 0 and at most {SECONDS_MOST:g}"
        raise ConfigurationError(message)
    return max(1, int(seconds * NS_PER_SECOND))


def check_seconds(seconds: float, name: str) -> float:
    """Return how many seconds something may take.

    Raises:
        ConfigurationError: It is no number from 0.
    """
    if type(seconds) not in {int, float} or not 0 <= seconds <= SECONDS_MOST:
        message = f"{name}={seconds!r}: give seconds, from 0 to {SECONDS_MOST:g}"
        raise ConfigurationError(message)
    return seconds
