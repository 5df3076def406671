"""The schedule of an agent: the items to poll now, and those to poll at a deadline.

The cost depends on events, not on the number of streams: deadlines are in a heap, in which each
item has at most a few entries however often its deadline changes. Thousands of silent streams put
each of their deadlines behind the one before, since all have the same interval. Those need no heap:
they are in a queue, and what comes first is the first of either.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from itertools import count, islice
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from aeron_async._speedups import WHY_PURE
from aeron_async.clock import NEVER_NS

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Schedule"]

T = TypeVar("T")
QUEUE_SPAN_NS: Final = 300_000_000
"""A later deadline does not enter the queue: all that came behind it would have to use the heap."""


class Schedule(Generic[T]):
    """Items of one agent, ready now or at a deadline in nanoseconds of its clock."""

    def __init__(self) -> None:
        self._ready: dict[T, None] = {}
        self._deadlines: dict[T, int] = {}
        # The earliest heap entry of each item. If a deadline moves later, the entry stays: it is
        # checked when it comes up, and pushed again if the item is due later.
        self._armed: dict[T, int] = {}
        self._heap: list[tuple[int, int, T]] = []
        self._queue: deque[tuple[int, int, T]] = deque()
        self._queue_limit_ns = 0
        self._sequence = count()

    def __len__(self) -> int:
        return len(self._ready.keys() | self._deadlines.keys())

    def __iter__(self) -> Iterator[T]:
        # Not a union of sets, whose order would depend on memory addresses.
        return iter({**self._ready, **self._deadlines})

    @property
    def has_ready(self) -> bool:
        """Return whether any item must be polled now."""
        return bool(self._ready)

    def ready(self, item: T) -> None:
        """Let the item be polled as soon as possible."""
        self._ready[item] = None

    def at(self, item: T, deadline_ns: int) -> None:
        """Let the item be polled at `deadline_ns`, unless it becomes ready before."""
        self._deadlines[item] = deadline_ns
        if deadline_ns == NEVER_NS:
            return
        armed_ns = self._armed.get(item)
        if armed_ns is None or deadline_ns < armed_ns:
            self._armed[item] = deadline_ns
            entry = (deadline_ns, next(self._sequence), item)
            queue = self._queue
            if deadline_ns <= self._queue_limit_ns and (not queue or deadline_ns >= queue[-1][0]):
                queue.append(entry)
            else:
                heappush(self._heap, entry)

    def remove(self, item: T) -> None:
        """Remove the item."""
        self._ready.pop(item, None)
        self._deadlines.pop(item, None)
        self._armed.pop(item, None)

    def expired(self, now_ns: int, limit: int) -> list[T]:
        """Return only items whose deadline has come; the caller must put back each.

        Items that are ready stay so, and those beyond `limit` come next time.
        """
        heap, queue, armed, deadlines = self._heap, self._queue, self._armed, self._deadlines
        expired: list[T] = []
        self._queue_limit_ns = now_ns + QUEUE_SPAN_NS
        # Differs: in Aeron a deadline has passed one nanosecond after its instant. A driver that
        # sleeps until a deadline would wake up too early to act on it.
        while len(expired) < limit:
            # As `_pop`; thousands of silent streams come here ten times a second.
            if queue and not (heap and heap[0] < queue[0]):
                if queue[0][0] > now_ns:
                    break
                armed_ns, _, item = queue.popleft()
            elif heap and heap[0][0] <= now_ns:
                armed_ns, _, item = heappop(heap)
            else:
                break
            if armed.get(item) != armed_ns:
                continue
            del armed[item]
            deadline_ns = deadlines[item]
            if deadline_ns > now_ns:
                self.at(item, deadline_ns)
            elif item not in self._ready:
                expired.append(item)
        return expired

    def settle(self, item: T, deadline_ns: int, now_ns: int) -> None:
        """Put back an item that `expired` has returned, with what its fast way has answered.

        Without a later time the item is ready; one that was early keeps its deadline instead.
        """
        if deadline_ns > now_ns:
            self.at(item, deadline_ns)
        elif self._deadlines[item] <= now_ns:
            self.ready(item)
        else:
            self.at(item, self._deadlines[item])

    def _pop(self, now_ns: int) -> T | None:
        """Remove the first entry, and return its item if that is due now."""
        heap, queue = self._heap, self._queue
        is_queued = queue and not (heap and heap[0] < queue[0])
        armed_ns, _, item = queue.popleft() if is_queued else heappop(heap)
        if self._armed.get(item) != armed_ns:
            return None
        del self._armed[item]
        deadline_ns = self._deadlines[item]
        if deadline_ns <= now_ns:
            return item
        self.at(item, deadline_ns)
        return None

    def due(self, now_ns: int, limit: int | None = None) -> list[T]:
        """Return, once each, the items that are ready or whose deadline has come.

        Items beyond `limit` stay ready, ahead of those that become ready later.
        """
        self._queue_limit_ns = now_ns + QUEUE_SPAN_NS
        while self._first_ns() <= now_ns:
            item = self._pop(now_ns)
            if item is not None:
                self._ready[item] = None
        return self.take(limit)

    def take(self, limit: int | None = None) -> list[T]:
        """Return only the items that are ready; those beyond `limit` stay ready."""
        if not self._ready:
            return []
        due = list(self._ready) if limit is None else list(islice(self._ready, limit))
        if len(due) == len(self._ready):
            self._ready.clear()
        else:
            for item in due:
                del self._ready[item]
        return due

    def next_deadline_ns(self) -> int:
        """Return the next deadline; 0 if an item is ready already."""
        return 0 if self._ready else self._first_ns()

    def _first_ns(self) -> int:
        """Return the deadline of the first entry."""
        heap, queue = self._heap, self._queue
        first_ns = heap[0][0] if heap else NEVER_NS
        return min(first_ns, queue[0][0]) if queue else first_ns


if not TYPE_CHECKING and WHY_PURE is None:
    from aeron_async._speedups.silence import Schedule
