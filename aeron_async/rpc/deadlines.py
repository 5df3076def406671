"""Deadlines of many calls behind one timer of the event loop.

Most calls end long before their deadline. Their entry stays until it is due, or until more than
half of the entries are of calls that have ended.

Invariant: there are at most `2 * n + SLACK` entries, where n is the most calls under way since the
heap was last swept.
"""

from __future__ import annotations

import asyncio
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar, final

from aeron_async.clock import NS_PER_MS, NS_PER_SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.clock import Clock

__all__ = ["Deadlines", "Expiring"]

SLACK: Final = 64
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
class Deadlines(Generic[T]):
    """Calls a function with each call whose deadline passes.

    Args:
        clock: What the deadlines are compared with.
        on_due: Called with a call that is not over, in the event loop.
    """

    __slots__ = ("_clock", "_due_ns", "_entries", "_on_due", "_serial", "_sweep_at", "_timer")

    def __init__(self, clock: Clock, on_due: Callable[[T], object]) -> None:
        self._clock = clock
        self._on_due = on_due
        # The serial number keeps calls themselves from being compared.
        self._entries: list[tuple[int, int, T]] = []
        self._serial = 0
        self._sweep_at = SLACK
        self._timer: asyncio.TimerHandle | None = None
        self._due_ns = 0

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, deadline_ns: int, call: T) -> None:
        """Call the function at that time, unless the call is over by then."""
        entries = self._entries
        if len(entries) >= self._sweep_at:
            self._sweep()
        self._serial += 1
        heappush(entries, (deadline_ns, self._serial, call))
        if self._timer is None or deadline_ns < self._due_ns:
            self._set_timer(deadline_ns)

    def close(self) -> None:
        """Forget all deadlines."""
        self._entries.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _sweep(self) -> None:
        self._entries[:] = [each for each in self._entries if not each[2].is_over]
        heapify(self._entries)
        self._sweep_at = 2 * len(self._entries) + SLACK

    def _set_timer(self, deadline_ns: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due_ns = deadline_ns
        delay_s = max((deadline_ns - self._clock.now_ns()) / NS_PER_SECOND, LEAST_S)
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        entries = self._entries
        now_ns = self._clock.now_ns()
        while entries and (entries[0][2].is_over or entries[0][0] <= now_ns):
            _, _, call = heappop(entries)
            if not call.is_over:
                self._on_due(call)
        if entries and self._timer is None:
            self._set_timer(entries[0][0])
