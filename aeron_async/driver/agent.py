"""One coroutine task that does what is due, learns the next deadline, and sleeps until then.

Invariant: an agent never spins and never ticks. It sleeps on one future and at most one timer, and
is woken by either.

Source: Aeron `Agent`, `AgentRunner`; the idle strategy is the event loop's own sleep.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Final

from aeron_async.clock import NS_PER_MS, NS_PER_SECOND
from aeron_async.driver.core.loss_detector import NEVER_NS

if TYPE_CHECKING:
    from aeron_async.driver.core.system_counters import SystemCounterId, SystemCounters
    from aeron_async.driver.stall_clock import StallClock

__all__ = ["Agent"]

SOON_NS: Final = 50_000
"""Closer than this is the next turn of the loop: no timer is that fine."""
TIMER_MIN_NS: Final = NS_PER_MS
"""Both loops round timers to about a millisecond, and uvloop takes less for zero.

Differs: a NAK that is due every 100 us is repeated about every millisecond.
"""
FINE_TIMER_NS: Final = 5 * NS_PER_MS
"""Beyond this a timer may as well come a millisecond late."""
TURNS_AFTER_LAG: Final = 8
"""Turns of the loop given to sockets after a stall, before any timeout is looked at."""


class Agent(ABC):
    """The life of one agent.

    Args:
        clock: The time of its driver, which stands still while the loop does.
        system_counters: Counts cycles that took too long.
        max_cycle_time: Shows the longest cycle.
        threshold_exceeded: Counts cycles longer than the threshold.
        cycle_threshold_ns: How long a cycle may take unnoticed.

    Attributes:
        role_name: The agent's name, as its task carries it.
        due_ns: When it is to run, as its clock has it.
    """

    role_name: ClassVar[str]

    def __init__(
        self,
        *,
        clock: StallClock,
        system_counters: SystemCounters,
        max_cycle_time: SystemCounterId,
        threshold_exceeded: SystemCounterId,
        cycle_threshold_ns: int,
    ) -> None:
        self._clock = clock
        self._system_counters = system_counters
        self._max_cycle_time = system_counters[max_cycle_time]
        self._threshold_exceeded = system_counters[threshold_exceeded]
        self._cycle_threshold_ns = cycle_threshold_ns
        self.due_ns = NEVER_NS
        self._longest_cycle_ns = 0
        self._is_awake = False
        self._waiter: asyncio.Future[None] | None = None
        self._sleeps_until_ns = 0

    @abstractmethod
    async def do_work(self, now_ns: int) -> int:
        """Do what is due, and return the next deadline; 0 when there is more to do at once.

        Differs: Aeron's conductor looks at timeouts once a second; these are kept to the deadline.
        """

    def wake(self) -> None:
        """Let the agent look at once what there is to do."""
        self._is_awake = True
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def may_act(self, now_ns: int) -> bool:
        """Return whether somebody may do part of the work at once, in the agent's stead.

        Not while it works or is about to; and not where it is late, for it has to find out first
        whether the silence of the peers was its own.
        """
        return self._waiter is not None and not self._is_awake and now_ns <= self._sleeps_until_ns

    def wake_by(self, deadline_ns: int) -> None:
        """Let the agent sleep no longer than until a deadline."""
        if deadline_ns < self._sleeps_until_ns:
            self.wake()

    async def run(self) -> None:
        """Work and sleep by turns, until cancelled."""
        clock = self._clock
        clock.watch(self)
        try:
            # One reading of the clock ends one stretch and begins the next: work, sleep, work.
            # Whatever stops the process, wherever, shows in one of them.
            now_ns = clock.now_ns()
            while True:
                stalled_ns = clock.stalled_ns
                clock.expect(self, now_ns)
                deadline_ns = await self.do_work(now_ns)
                worked_ns = clock.now_ns()
                self._count_cycle(worked_ns - now_ns + clock.stalled_ns - stalled_ns)
                now_ns = await self._sleep_until(
                    deadline_ns, worked_at_ns=now_ns, started_ns=worked_ns
                )
        finally:
            clock.forget(self)

    async def _sleep_until(self, deadline_ns: int, *, worked_at_ns: int, started_ns: int) -> int:
        """Sleep until the deadline or until woken, and return the time then."""
        clock = self._clock
        self._sleeps_until_ns = deadline_ns
        stalled_ns = clock.stalled_ns
        clock.expect(self, max(deadline_ns, started_ns))
        # Soon is measured from when the work began: work that takes longer than a short retry
        # delay would otherwise be due again whenever it is done, and never sleep.
        if self._is_awake or deadline_ns - worked_at_ns < SOON_NS:
            await asyncio.sleep(0)
        elif deadline_ns == NEVER_NS:
            await self._wait(None)
        else:
            await self._wait(max(deadline_ns - started_ns, TIMER_MIN_NS))
        self._is_awake = False
        now_ns = clock.now_ns()
        if clock.stalled_ns != stalled_ns:
            # The loop was blocked: the sockets are read before any timeout is looked at.
            clock.report()
            for _ in range(TURNS_AFTER_LAG):
                await asyncio.sleep(0)
            now_ns = clock.now_ns()
        return now_ns

    async def _wait(self, delay_ns: int | None) -> None:
        """Sleep until woken, or until the delay has passed."""
        loop = asyncio.get_running_loop()
        waiter = self._waiter = loop.create_future()
        timer = None
        if delay_ns is not None:
            if delay_ns > FINE_TIMER_NS:
                # uvloop counts from the millisecond its turn began in: up to one too early, and
                # then once more for nothing.
                delay_ns += NS_PER_MS
            timer = loop.call_later(delay_ns / NS_PER_SECOND, _set_result, waiter)
        try:
            await waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()

    def _count_cycle(self, cycle_ns: int) -> None:
        """Count work in one go, a cycle of this agent or what was done in its stead."""
        if cycle_ns > self._longest_cycle_ns:
            self._longest_cycle_ns = cycle_ns
            self._max_cycle_time.set(cycle_ns)
        if cycle_ns > self._cycle_threshold_ns:
            self._threshold_exceeded.increment()


def _set_result(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
