"""What is said of pauses of the event loop: each counted once, and one line a second at most.

Every agent notices a pause by itself. Pauses that overlap are one.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, final

from aeron_async.clock import NS_PER_MS, NS_PER_SECOND
from aeron_async.driver.core.system_counters import DriverCounterId
from aeron_async.logs import get_logger
from aeron_async.text import printable

if TYPE_CHECKING:
    from aeron_async.driver.core.system_counters import SystemCounters

__all__ = ["StallLog"]

ASYNCIO_LOGGER: Final = "asyncio"
SLOW_CALLBACK: Final = "Executing "
"""How asyncio, and uvloop, begin the line about a callback that took long, in debug mode."""

log = get_logger(__name__)


@final
class SlowCallbacks:
    """Remembers the slowest callback of the event loop; in its debug mode the loop times them.

    The loop logs each that took longer than its `slow_callback_duration`. What it says is read
    here, and still goes where the application sends it.
    """

    def __init__(self) -> None:
        self._slowest_s = 0.0
        self._text = ""

    def watch(self) -> None:
        """Read what the loop says from now on."""
        logging.getLogger(ASYNCIO_LOGGER).addFilter(self._take)

    def close(self) -> None:
        """Read it no more."""
        logging.getLogger(ASYNCIO_LOGGER).removeFilter(self._take)

    def take(self) -> str:
        """Return what the slowest since the last call was; empty if none was slow."""
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
    """Counts and logs the pauses of the loop that the agents of one driver notice.

    Args:
        system_counters: The driver's.
        threshold_ns: How late a timer may be unnoticed; for the log.
    """

    def __init__(self, system_counters: SystemCounters, *, threshold_ns: int) -> None:
        self._count = system_counters[DriverCounterId.LOOP_LAG_COUNT]
        self._max_ns = system_counters[DriverCounterId.LOOP_LAG_MAX_NS]
        self._threshold_ns = threshold_ns
        self._ended_ns: int | None = None
        self._logged_ns: int | None = None
        # Since the last line.
        self._pauses = 0
        self._longest_ns = 0
        self._slow_callbacks: SlowCallbacks | None = None

    def watch_callbacks(self) -> None:
        """Say from now on what ran: the loop is in debug mode, and times its callbacks."""
        self._slow_callbacks = SlowCallbacks()
        self._slow_callbacks.watch()

    def close(self) -> None:
        """Watch no callbacks any more."""
        if self._slow_callbacks is not None:
            self._slow_callbacks.close()
            self._slow_callbacks = None

    def on_pause(self, late_ns: int, now_ns: int, agent: str) -> None:
        """Take note of a pause that an agent has noticed.

        Args:
            late_ns: How late the agent was woken.
            now_ns: The time now.
            agent: Its name.
        """
        if self._ended_ns is None or now_ns - late_ns >= self._ended_ns:
            self._pauses += 1
            self._count.increment()
        self._ended_ns = now_ns
        self._longest_ns = max(self._longest_ns, late_ns)
        self._max_ns.propose_max(late_ns)
        is_soon = self._logged_ns is not None and now_ns - self._logged_ns < NS_PER_SECOND
        if self._pauses and not is_soon:
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
            "loop's debug mode tells what ran",
        )
