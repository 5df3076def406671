"""The newest snapshot for other threads: exporters have threads of their own, drivers do not.

Invariant: statistics are taken in the event loop of their driver, and a thread waits for them no
longer than its timeout. However many threads ask, one request at most waits in the loop; once it
has waited for the timeout, no other call waits for it. A loop that does not answer is no error: the
thread gets the snapshot before, whose age tells of it.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from concurrent.futures import TimeoutError as WaitTimeoutError
from typing import TYPE_CHECKING, Final, final

from aeron_async.errors import ConfigurationError
from aeron_async.logs import get_logger
from aeron_async.protocol.arguments import check_function
from aeron_async.stats import check_stats

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.stats import Stats

__all__ = ["TAKEN", "LatestStats", "loop_name"]

TAKEN: Final = "what `take` returns"
_log: Final = get_logger(__name__)


@final
class LatestStats:
    """Takes snapshots in the event loop in which it was made, for callers in any thread.

    Args:
        take: Takes a snapshot, such as `aeron.stats`; called in that loop only.
        timeout_s: How long a call waits for the loop, in seconds.

    Attributes:
        late_count: Calls that got an older snapshot because the loop did not answer in time.
        failed_count: Snapshots that could not be taken.

    Raises:
        ConfigurationError: `timeout_s` is not above 0, or `take` has to be awaited.
    """

    def __init__(self, take: Callable[[], Stats], *, timeout_s: float = 1.0) -> None:
        if not timeout_s > 0:
            message = f"timeout_s={timeout_s} must be above 0 seconds"
            raise ConfigurationError(message)
        self._loop = asyncio.get_running_loop()
        self.loop_name: Final = loop_name()
        self._take = check_function(take, "take")
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._pending: Future[Stats | None] | None = None
        self._is_given_up = False  # nobody waits for the pending one any more
        self._latest: Stats | None = None
        self._thread_id = threading.get_ident()
        self._is_failing = False
        self.late_count = 0
        self.failed_count = 0

    def __call__(self) -> Stats | None:
        """Return a new snapshot, or the one before; None if there never was one."""
        if threading.get_ident() == self._thread_id:
            return self._hand_over()
        with self._lock:
            pending = self._ask()
            if pending is None:
                self.late_count += 1
                return self._latest
        try:
            return pending.result(self._timeout_s)
        except WaitTimeoutError:
            with self._lock:
                if self._pending is pending:
                    self._is_given_up = True
                self.late_count += 1
                return self._latest

    def _ask(self) -> Future[Stats | None] | None:
        """Return the request to wait for, under the lock; None if no answer can be expected."""
        if self._pending is not None:
            # A loop that closes forgets what waits in it.
            return None if self._is_given_up or self._loop.is_closed() else self._pending
        pending: Future[Stats | None] = Future()
        try:
            self._loop.call_soon_threadsafe(self._answer, pending)
        except RuntimeError:  # the loop has been closed
            return None
        self._pending = pending
        self._is_given_up = False
        return pending

    def _answer(self, pending: Future[Stats | None]) -> None:
        """Take a snapshot for the threads that wait; runs in the loop."""
        stats = self._latest
        try:
            stats = self._hand_over()
        finally:
            with self._lock:
                self._pending = None
            pending.set_result(stats)

    def _hand_over(self) -> Stats | None:
        """Take a snapshot with all its columns, so that no two threads make them."""
        try:
            stats = check_stats(self._take(), TAKEN)
            for table in (stats.publications, stats.images, stats.subscriptions):
                table.complete()
            if stats.archive is not None:
                stats.archive.recordings.complete()
        except Exception as error:  # noqa: BLE001 - `take` is the caller's, and may be closed
            self.failed_count += 1
            if not self._is_failing:
                _log.warning("stats_not_taken", error=repr(error))
            self._is_failing = True
            return self._latest
        self._is_failing = False
        self._latest = stats
        return stats


def loop_name() -> str:
    """Return the name of the running event loop's package: `asyncio` or `uvloop`."""
    return type(asyncio.get_running_loop()).__module__.partition(".")[0]
