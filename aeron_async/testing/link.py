"""The way from one host to another: its conditions, its queue, and whether it is there at all.

Invariant: datagrams leave in the order they were sent, and arrive in it, unless the conditions say
they are reordered.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from aeron_async.clock import NS_PER_SECOND
from aeron_async.testing.fates import Conditions, SeededFates
from aeron_async.testing.trace import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from aeron_async.testing.fates import Fates, Passage

__all__ = ["Link"]


class Link:
    """One direction between two hosts.

    Args:
        random: The dice of this link alone, so that what happens elsewhere changes nothing here.
        conditions: How good it is.

    Attributes:
        is_lost: Told of each datagram, says whether it is lost before any dice are thrown; for
            faults that pick their victims. None picks nobody.
    """

    def __init__(self, random: Random, conditions: Conditions) -> None:
        self._random = random
        self._departures: deque[int] = deque()
        self._busy_until_ns = 0
        self._last_arrival_ns = 0
        self._cutters: set[object] = set()
        self.is_lost: Callable[[bytes], bool] | None = None
        self.set_conditions(conditions)

    @property
    def is_up(self) -> bool:
        """Whether anything gets through; setting it overrules whoever has cut the link."""
        return not self._cutters

    @is_up.setter
    def is_up(self, is_up: bool) -> None:
        self._cutters.clear()
        if not is_up:
            self._cutters.add(self)

    def cut(self, cutter: object) -> None:
        """Let nothing through until each of the cutters has mended the link, or it is set up."""
        self._cutters.add(cutter)

    def mend(self, cutter: object) -> None:
        """Undo the cut of this cutter, if it has not been undone."""
        self._cutters.discard(cutter)

    @property
    def conditions(self) -> Conditions:
        """Return how good the link is."""
        return self._conditions

    def set_conditions(self, conditions: Conditions, fates: Fates | None = None) -> None:
        """Make the link better or worse from now on.

        Args:
            conditions: The delay, bandwidth and MTU; the chances too, unless there is a script.
            fates: A script in place of the dice.
        """
        self._conditions = conditions
        self._fates = SeededFates(conditions, self._random) if fates is None else fates

    def carry(self, datagram: bytes, now_ns: int) -> tuple[Verdict, list[Passage]]:
        """Return what becomes of a datagram sent now, and what arrives when.

        The times are those of arrival, not delays.
        """
        conditions = self._conditions
        if self._cutters:
            return Verdict.PARTITIONED, []
        if len(datagram) > conditions.mtu_length:
            return Verdict.TOO_LONG, []
        departure_ns = now_ns
        if conditions.bandwidth is not None:
            departure_ns = self._depart(len(datagram), now_ns, conditions.bandwidth)
            if departure_ns < 0:
                return Verdict.QUEUE_FULL, []
        if self.is_lost is not None and self.is_lost(datagram):
            return Verdict.LOST, []
        passages = self._fates.decide(datagram)
        if not passages:
            return Verdict.LOST, []
        arrival_ns = departure_ns + conditions.delay_ns
        if conditions.jitter_ns:
            arrival_ns += self._random.randint(0, conditions.jitter_ns)
        # What was sent earlier arrives earlier: jitter is a queue somewhere, not a short cut.
        arrival_ns = self._last_arrival_ns = max(arrival_ns, self._last_arrival_ns)
        return Verdict.SENT, [(arrival_ns + extra_ns, data) for extra_ns, data in passages]

    def _depart(self, length: int, now_ns: int, bandwidth: int) -> int:
        """Return when the last bit has left, or -1 where the queue is full."""
        departures = self._departures
        while departures and departures[0] <= now_ns:
            departures.popleft()
        if len(departures) >= self._conditions.queue_limit:
            return -1
        took_ns = length * 8 * NS_PER_SECOND // bandwidth
        self._busy_until_ns = max(now_ns, self._busy_until_ns) + took_ns
        departures.append(self._busy_until_ns)
        return self._busy_until_ns
