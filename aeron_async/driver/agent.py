"""An agent: a task that does the work that is due, and sleeps until the next deadline.

Invariant: an agent neither spins nor ticks. It sleeps on one future and at most one timer, and is
woken by either.

Source: Aeron `Agent`, `AgentRunner`; the idle strategy is the event loop's own sleep.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Final

from aeron_async.clock import NEVER_NS, NS_PER_MS, NS_PER_SECOND
from aeron_async.driver.core.lanes import Sleeping

if TYPE_CHECKING:
    from aeron_async.driver.core.system_counters import SystemCounterId, SystemCounters
    from aeron_async.driver.stall_clock import StallClock

__all__ = ["Agent"]

SOON_NS: Final = 50_000
"""A deadline closer than this is met by the next turn of the loop: no timer is that precise."""
TIMER_MIN_NS: Final = NS_PER_MS
"""The shortest timer: both loops round to about a millisecond, and uvloop down to zero.

Differs: a NAK that is due every 100 us is repeated about every millisecond.
"""
FINE_TIMER_NS: Final = 5 * NS_PER_MS
"""A timer longer than this may be a millisecond late."""
TURNS_AFTER_LAG: Final = 8
"""Turns of the loop given to sockets after a stall, before any timeout is checked."""


class Agent(Sleeping, ABC):
    """A task that works and sleeps by turns.

    Args:
        clock: The driver's clock, which stops while the loop is blocked.
        system_counters: The driver's counters.
        max_cycle_time: The counter of the longest cycle.
        threshold_exceeded: The counter of cycles longer than the threshold.
        cycle_threshold_ns: How long a cycle may take without being counted.

    Attributes:
        role_name: The agent's name, which its task also has.
        due_ns: When it must run next, by its clock.
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
        self.cycle_count: int = 0
        self._longest_cycle_ns = 0
        self._is_awake = False
        self._waiter = None
        self._sleeps_until_ns = 0

    @abstractmethod
    async def do_work(self, now_ns: int) -> int:
        """Do the work that is due; return the next deadline, or 0 if there is more at once.

        Differs: Aeron's conductor checks timeouts once a second; here they are met at the deadline.
        """

    def wake(self) -> None:
        """Wake the agent to check its work at once."""
        self._is_awake = True
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def wake_by(self, deadline_ns: int) -> None:
        """Let the agent sleep until `deadline_ns` at the latest."""
        if deadline_ns < self._sleeps_until_ns:
            self.wake()

    async def run(self) -> None:
        """Work and sleep by turns, until cancelled."""
        clock = self._clock
        clock.watch(self)
        try:
            # One reading of the clock ends one period and begins the next: work, sleep, work. So a
            # stall at any place is part of one of them.
            now_ns = clock.now_ns()
            while True:
                began_ns, stalled_ns = now_ns, clock.stalled_ns
                clock.expect(self, began_ns)
                self._sleeps_until_ns = deadline_ns = await self.do_work(began_ns)
                now_ns = clock.now_ns()
                self._count_cycle(now_ns - began_ns + clock.stalled_ns - stalled_ns)
                stalled_ns = clock.stalled_ns
                clock.expect(self, max(deadline_ns, now_ns))
                # Measured from when the work began: otherwise work that takes longer than a short
                # retry delay would be due again whenever it ends, and the agent would never sleep.
                timer_ns = NEVER_NS
                if self._is_awake or deadline_ns - began_ns < SOON_NS:
                    await asyncio.sleep(0)
                elif deadline_ns == NEVER_NS:
                    await self._wait(None)
                else:
                    timer_ns = now_ns + max(deadline_ns - now_ns, TIMER_MIN_NS)
                    await self._wait(timer_ns - now_ns)
                self._is_awake = False
                now_ns = clock.now_ns()
                late_ns = now_ns + clock.stalled_ns - stalled_ns - timer_ns
                if late_ns >= 0 and clock.stall_log is not None:
                    clock.stall_log.on_wake(late_ns)
                if clock.stalled_ns != stalled_ns:
                    now_ns = await self._let_sockets_be_read()
        finally:
            clock.forget(self)

    async def _wait(self, delay_ns: int | None) -> None:
        """Sleep until woken, or until the delay has passed."""
        loop = asyncio.get_running_loop()
        waiter = self._waiter = loop.create_future()
        timer = None
        if delay_ns is not None:
            if delay_ns > FINE_TIMER_NS:
                # uvloop counts from the millisecond in which its turn began, so the timer would
                # come up to one millisecond early, and a second one would be needed.
                delay_ns += NS_PER_MS
            timer = loop.call_later(delay_ns / NS_PER_SECOND, _set_result, waiter)
        try:
            await waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()

    async def _let_sockets_be_read(self) -> int:
        """Let what came while the loop was blocked be read before any timeout; return the time."""
        self._clock.report()
        for _ in range(TURNS_AFTER_LAG):
            await asyncio.sleep(0)
        return self._clock.now_ns()

    def _count_cycle(self, cycle_ns: int) -> None:
        """Count a cycle of this agent, or a part of its work that a callback did."""
        self.cycle_count += 1
        if cycle_ns > self._longest_cycle_ns:
            self._longest_cycle_ns = cycle_ns
            self._max_cycle_time.set(cycle_ns)
        if cycle_ns > self._cycle_threshold_ns:
            self._threshold_exceeded.increment()


def _set_result(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
