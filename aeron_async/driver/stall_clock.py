"""The clock of one driver, which leaves out stalls of the event loop, and the log of those stalls.

The loop stalls when a callback blocks it, in a debugger, or while a laptop sleeps. The driver does
not run then, and what its peers send waits in the sockets. If that time counted, every peer would
seem to have been silent. So the cores of a driver get a monotonic time that leaves it out.

Differs: Aeron's agents spin on cores of their own, and count such a stall as silence of the peers.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, ClassVar, Final, Protocol, final

from aeron_async._speedups import WHY_PURE
from aeron_async.clock import NEVER_NS, NS_PER_MS, NS_PER_SECOND
from aeron_async.driver.core.system_counters import DriverCounterId
from aeron_async.logs import get_logger
from aeron_async.text import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.clock import Clock
    from aeron_async.driver.core.system_counters import SystemCounters

__all__ = ["StallClock", "StallLog"]


class WatchedAgent(Protocol):
    """The attributes of an agent that a clock uses.

    Attributes:
        role_name: For the log.
        due_ns: When the agent must run next, in the clock's nanoseconds.
    """

    role_name: ClassVar[str]
    due_ns: int


@final
class StallClock:
    """A monotonic clock that stops while its event loop is blocked.

    The agents tell the clock when they are due. If none has run by the threshold after that, the
    loop was blocked. The first reading of the clock after it, by a readable socket or by the agent
    itself, then returns a time no later than the threshold. A loop that is blocked again and again
    still makes progress, so silent peers still time out.

    Args:
        clock: The machine's clock, or a test's.
        threshold_ns: How late an agent may be before that counts as a stall.

    Attributes:
        stalled_ns: How much time has been left out so far.
        stall_log: Counts and logs stalls; None before the driver has started.
    """

    def __init__(self, clock: Clock, *, threshold_ns: int) -> None:
        self.epoch_ms: Callable[[], int] = clock.epoch_ms
        self.epoch_ns: Callable[[], int] = clock.epoch_ns
        self.stalled_ns: int = 0
        self.stall_log: StallLog | None = None
        self._true_ns = clock.now_ns
        self._threshold_ns = threshold_ns
        self._agents: list[WatchedAgent] = []
        # The earliest time at which any agent could be late.
        self._look_ns = NEVER_NS
        self._late_ns = 0
        self._late_agent = ""

    def now_ns(self) -> int:
        """Return monotonic time in nanoseconds, without the stalls of the loop."""
        now_ns = self._true_ns() - self.stalled_ns
        return now_ns if now_ns <= self._look_ns else self._leave_out(now_ns)

    def watch(self, agent: WatchedAgent) -> None:
        """Watch an agent, from its next `expect` on."""
        agent.due_ns = NEVER_NS
        self._agents.append(agent)

    def forget(self, agent: WatchedAgent) -> None:
        """Stop watching an agent that ends."""
        self._agents.remove(agent)

    def expect(self, agent: WatchedAgent, due_ns: int) -> None:
        """Record when an agent must run; `NEVER_NS` for one that waits for something else."""
        agent.due_ns = due_ns
        self._look_ns = min(self._look_ns, due_ns + self._threshold_ns)

    def report(self) -> None:
        """Count and log the longest stall since the last report, if there was one.

        The agents call it: reading the clock must do nothing that could fail.
        """
        late_ns, self._late_ns = self._late_ns, 0
        if late_ns and self.stall_log is not None:
            self.stall_log.on_pause(late_ns, self._true_ns(), self._late_agent)

    def _leave_out(self, now_ns: int) -> int:
        """Leave out the time by which the most overdue agent exceeds the threshold."""
        threshold_ns = self._threshold_ns
        overdue: WatchedAgent | None = None
        due_ns = NEVER_NS
        for agent in self._agents:
            if agent.due_ns < due_ns:
                overdue, due_ns = agent, agent.due_ns
        late_ns = now_ns - due_ns
        if overdue is not None and late_ns > threshold_ns:
            if late_ns > self._late_ns:
                self._late_ns, self._late_agent = late_ns, overdue.role_name
            self.stalled_ns += late_ns - threshold_ns
            now_ns = due_ns = due_ns + threshold_ns
            for agent in self._agents:
                agent.due_ns = max(agent.due_ns, now_ns)
        self._look_ns = due_ns + threshold_ns
        return now_ns


if not TYPE_CHECKING and WHY_PURE is None:
    from aeron_async._speedups.clocks import StallClock


ASYNCIO_LOGGER: Final = "asyncio"
SLOW_CALLBACK: Final = "Executing "
"""How the line of asyncio, and of uvloop, about a slow callback begins in debug mode."""

LAG_CLASSES: Final = 40
"""Powers of two of nanoseconds: the last counts all beyond nine minutes."""

log: Final = get_logger(__name__)


@final
class SlowCallbacks:
    """Records the slowest callback of the event loop, which times callbacks in its debug mode.

    The loop logs each callback that took longer than its `slow_callback_duration`. A filter reads
    these lines here; they still go where the application sends them.
    """

    def __init__(self) -> None:
        self._slowest_s = 0.0
        self._text = ""

    def watch(self) -> None:
        """Start to read the loop's log lines."""
        logging.getLogger(ASYNCIO_LOGGER).addFilter(self._take)

    def close(self) -> None:
        """Stop reading the loop's log lines."""
        logging.getLogger(ASYNCIO_LOGGER).removeFilter(self._take)

    def take(self) -> str:
        """Return the slowest callback since the last call; empty if none was slow."""
        text, self._text, self._slowest_s = self._text, "", 0.0
        return text

    def _take(self, record: logging.LogRecord) -> bool:
        duration = record.args[-1] if isinstance(record.args, tuple) and record.args else None
        is_slow_callback = isinstance(record.msg, str) and record.msg.startswith(SLOW_CALLBACK)
        if is_slow_callback and isinstance(duration, float) and duration >= self._slowest_s:
            self._slowest_s = duration
            self._text = printable(record.getMessage().removeprefix(SLOW_CALLBACK))
        return True


@final
class StallLog:
    """Counts each stall of the loop, and logs one line a second at most.

    Args:
        system_counters: The driver's counters.
        threshold_ns: How late an agent may be before that counts; for the log.

    Attributes:
        lags: How often the timer of an agent was late; entry `n` counts below 2 ** n ns.
        lag_ns: The sum of these times.
    """

    def __init__(self, system_counters: SystemCounters, *, threshold_ns: int) -> None:
        self._count = system_counters[DriverCounterId.LOOP_LAG_COUNT]
        self._max_ns = system_counters[DriverCounterId.LOOP_LAG_MAX_NS]
        self._threshold_ns = threshold_ns
        # By powers of two: how often an agent's timer was late by so many nanoseconds, and the sum.
        self.lags: list[int] = [0] * LAG_CLASSES
        self.lag_ns: int = 0
        self._logged_ns: int | None = None
        # Since the last line.
        self._pauses = 0
        self._longest_ns = 0
        self._slow_callbacks: SlowCallbacks | None = None

    def watch_callbacks(self) -> None:
        """Add the slowest callback to each line; the loop is in debug mode, and times them."""
        self._slow_callbacks = SlowCallbacks()
        self._slow_callbacks.watch()

    def close(self) -> None:
        """Stop watching callbacks."""
        if self._slow_callbacks is not None:
            self._slow_callbacks.close()
            self._slow_callbacks = None

    def on_wake(self, late_ns: int) -> None:
        """Count how late an agent was that its timer, or something after that, has woken."""
        self.lags[min(late_ns.bit_length(), LAG_CLASSES - 1)] += 1
        self.lag_ns += late_ns

    def on_pause(self, late_ns: int, now_ns: int, agent: str) -> None:
        """Count a stall, and log it unless a line was logged less than a second ago.

        Args:
            late_ns: How late the most overdue agent was.
            now_ns: The time now, stalls included.
            agent: The name of that agent.
        """
        self._pauses += 1
        self._count.increment()
        self._longest_ns = max(self._longest_ns, late_ns)
        self._max_ns.propose_max(late_ns)
        is_soon = self._logged_ns is not None and now_ns - self._logged_ns < NS_PER_SECOND
        if not is_soon:
            self._say(now_ns, agent)

    def _say(self, now_ns: int, agent: str) -> None:
        fields: dict[str, object] = {
            "agent": agent,
            "late_ms": self._longest_ns // NS_PER_MS,
            "pauses": self._pauses,
            "threshold_ms": self._threshold_ns // NS_PER_MS,
        }
        ran = "" if self._slow_callbacks is None else self._slow_callbacks.take()
        if ran:
            fields["ran"] = ran
        self._pauses, self._longest_ns, self._logged_ns = 0, 0, now_ns
        log.warning(
            "event_loop_lagged",
            **fields,
            remedy="move blocking work off the loop, for example with asyncio.to_thread; the "
            "loop's debug mode shows what ran",
        )
