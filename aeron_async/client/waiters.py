"""Waiting tasks: wake-ups, their order, timeouts, and a log line for each long wait.

Unlike an event, a `Notify` has no state to clear: a task checks its condition, waits, and checks
again. Nothing can happen between check and wait, because there is no `await` between them.

A `FifoWaiters` wakes only the first task in line. A task that leaves, for any reason, wakes the
next one. So a success passes down the line; a task whose attempt fails stays first, and the tasks
behind it sleep on; and no wake-up is lost with a cancelled task. However many tasks wait, a wake-up
that helps none of them costs one attempt.

Invariant: the first task of a `FifoWaiters` either has been woken, or its attempt has failed since
the last notification.

`WaitWatch` sets a timer when a wait begins and no timer is set. It does not set the timer again if
no wait is left to be logged. So a wait that ends in time costs at most a dictionary look-up, and
a client without waits to be logged has no timer.

All tasks in one line, such as offers of one publication, count as one wait: that of the first task.
The log line of that wait covers every task that began to wait before it was written.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol, final

from aeron_async.client.arguments import check_timeout
from aeron_async.clock import NS_PER_SECOND
from aeron_async.errors import AeronError, AeronTimeoutError, OfferTimeoutError
from aeron_async.logs import get_logger
from aeron_async.stats import BLOCKED_BY
from aeron_async.text import printable
from aeron_async.waits import PublicationSeen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aeron_async.clock import Clock
    from aeron_async.driver.commands import MemoryWatch
    from aeron_async.waits import Why

__all__ = [
    "FifoWaiters",
    "Notify",
    "Wait",
    "WaitWatch",
    "Waiter",
    "offer_timeout",
    "wait_timeout",
    "watched_wait",
    "watching",
]


# Wake-ups.


class Wakeable(Protocol):
    """What a `Notify` wakes: a future, or what stands in the place of one."""

    def done(self) -> bool:
        """Return whether it was woken already."""
        ...

    def set_result(self, result: None, /) -> None:
        """Wake it."""
        ...

    def set_exception(self, error: Exception, /) -> None:
        """Wake it with an error."""
        ...


class Notify:
    """Wakes every task that waits."""

    __slots__ = ("_late_errors", "_waiters")

    def __init__(self) -> None:
        self._waiters: set[Wakeable] = set()
        self._late_errors: dict[Wakeable, Exception] = {}

    def notify(self) -> None:
        """Wake every task that waits now."""
        if not self._waiters:
            return
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def fail(self, error: Callable[[], Exception]) -> None:
        """Let the wait of every task raise an error, also if it was woken and has not run since."""
        for waiter in self._waiters:
            if waiter.done():
                self._late_errors[waiter] = error()
            else:
                waiter.set_exception(error())

    def add(self, waiter: Wakeable) -> None:
        """Wake this by each `notify`, until `remove`."""
        self._waiters.add(waiter)

    def remove(self, waiter: Wakeable) -> None:
        """Wake this no more."""
        self._waiters.discard(waiter)
        self._late_errors.pop(waiter, None)

    async def wait(self) -> None:
        """Wait until the next `notify`."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await waiter
            if waiter in self._late_errors:
                raise self._late_errors[waiter]
        finally:
            self.remove(waiter)


@final
class Place:
    """A place in a line.

    Attributes:
        since_ns: The time since which a task has it, in nanoseconds.
        late_error: What the task's wait raises, although it was woken before.
    """

    __slots__ = ("late_error", "since_ns")

    def __init__(self, since_ns: int) -> None:
        self.since_ns: int = since_ns
        self.late_error: Exception | None = None


class FifoWaiters:
    """A line of tasks of one loop; each joins, waits as often as needed, and leaves."""

    __slots__ = ("_waiters",)

    def __init__(self) -> None:
        # Not a dict: finding its first entry takes a step for each entry removed before it.
        self._waiters: OrderedDict[Place, asyncio.Future[None] | None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._waiters)

    def since_ns(self) -> int | None:
        """Return when the first task joined the line, in nanoseconds; None if there is none."""
        for place in self._waiters:
            return place.since_ns
        return None

    def join(self, now_ns: int = 0) -> Place:
        """Join the line at its end; return the place, which the caller must `leave`."""
        place = Place(now_ns)
        self._waiters[place] = None
        return place

    async def wait(self, place: Place) -> None:
        """Wait until this place is woken."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[place] = waiter
        try:
            await waiter
            if place.late_error is not None:
                raise place.late_error
        finally:
            self._waiters[place] = place.late_error = None

    def is_first(self, place: Place) -> bool:
        """Return whether nobody waits before this place."""
        return next(iter(self._waiters)) is place

    def leave(self, place: Place) -> None:
        """Leave the line; if the place was the first, wake the next."""
        is_first = self.is_first(place)
        del self._waiters[place]
        if is_first:
            self.wake_first()

    def wake_first(self) -> None:
        """Wake the first in line."""
        if self._waiters:
            self._wake(next(iter(self._waiters.values())))

    def wake_all(self) -> None:
        """Wake all tasks, because there is nothing left to wait for."""
        for waiter in self._waiters.values():
            self._wake(waiter)

    def fail(self, error: Callable[[], Exception]) -> None:
        """Let the wait of every task raise an error, also if it was woken and has not run since."""
        for place, waiter in self._waiters.items():
            if waiter is None:
                continue
            if waiter.done():
                place.late_error = error()
            else:
                waiter.set_exception(error())

    def _wake(self, waiter: asyncio.Future[None] | None) -> None:
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


@final
class OfferWaiters(FifoWaiters):
    """The offers that wait for room, and for how long they have been held back by what.

    Attributes:
        blocked_by: What holds the first offer back now: its place in `BLOCKED_BY`; -1 for nothing.
        since_blocked_ns: Since when, in nanoseconds.
        blocked_ns: How long offers were held back before, by each of `BLOCKED_BY`.
    """

    __slots__ = ("blocked_by", "blocked_ns", "since_blocked_ns")

    def __init__(self) -> None:
        super().__init__()
        self.blocked_by: int = -1
        self.since_blocked_ns: int = 0
        # Never changed, but replaced: a snapshot keeps it.
        self.blocked_ns: tuple[int, ...] = (0,) * len(BLOCKED_BY)

    def block(self, by: int, now_ns: int) -> None:
        """Record what holds the first offer back from now on: its place in `BLOCKED_BY`."""
        if by != self.blocked_by:
            self.unblock(now_ns)
            self.blocked_by, self.since_blocked_ns = by, now_ns

    def unblock(self, now_ns: int) -> None:
        """Record that no offer waits any more."""
        if self.blocked_by >= 0:
            blocked_ns = list(self.blocked_ns)
            blocked_ns[self.blocked_by] += now_ns - self.since_blocked_ns
            self.blocked_ns = tuple(blocked_ns)
            self.blocked_by = -1


BY_RECEIVERS, BY_SENDER, UNCONNECTED = range(len(BLOCKED_BY))
"""What holds an offer back, by its place in `BLOCKED_BY`."""

# Log lines for long waits.

SHORTEST_S: Final = 0.001
"""Shortest delay of a timer, in seconds, for timers that fire a little early."""
MAX_LINES: Final = 8
"""Most log lines of one client per second: many publications may wait for one receiver."""

log: Final = get_logger(__name__)


class Waiter(Protocol):
    """A publication or subscription in which a caller waits."""

    channel: str
    stream_id: int

    def _explain(self) -> Why:
        """Return why it waits."""
        ...


class Wait:
    """One waiting operation of a publication or subscription.

    Args:
        waiter: The publication or subscription.
        operation: The method the caller called; `offer` for all that wait for window space.
        since: Returns when the wait began, in nanoseconds; None if there is no wait.

    Attributes:
        is_watched: Whether a `WaitWatch` watches it.
        told_ns: When it was last logged, in nanoseconds; -1 before.
    """

    __slots__ = ("is_watched", "operation", "since", "told_ns", "waiter")

    def __init__(self, waiter: Waiter, operation: str, since: Callable[[], int | None]) -> None:
        self.waiter: Waiter = waiter
        self.operation: str = operation
        self.since: Callable[[], int | None] = since
        self.is_watched: bool = False
        self.told_ns: int = -1


@final
class WaitWatch:
    """The waits of one client, and the timer that logs the long ones.

    Args:
        loop: The event loop.
        clock: Measures the waits.
        hint_ns: How long a wait lasts before it is logged; 0 logs none.

    Attributes:
        now_ns: Reads the clock.
        hint_ns: How long a wait lasts before it is logged; 0 logs none.
        line_count: How many waits were logged.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock, hint_ns: int) -> None:
        self._loop = loop
        self.now_ns: Callable[[], int] = clock.now_ns
        self.hint_ns = hint_ns
        self._waits: dict[Wait, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        self.line_count: int = 0
        self._has_told_of_failure = False
        self._second = self._lines_in_second = self._left_out_count = 0

    @property
    def has_timer(self) -> bool:
        """Return whether a timer is set."""
        return self._timer is not None

    def begin(self, wait: Wait) -> None:
        """Watch a wait until it is logged, or its `since` returns None; it may begin again."""
        if not self.hint_ns or self._is_closed:
            return
        wait.is_watched = True
        self._waits[wait] = None
        if self._timer is None:
            self._set_timer(self.hint_ns)

    def end(self, wait: Wait) -> None:
        """Stop watching a wait."""
        if wait.is_watched:
            wait.is_watched = False
            self._waits.pop(wait, None)

    def close(self) -> None:
        """Stop watching, for good."""
        self._is_closed = True
        self._waits.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self, delay_ns: int) -> None:
        delay_s = max(SHORTEST_S, delay_ns / NS_PER_SECOND)
        self._timer = self._loop.call_later(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now_ns = self.now_ns()
        next_ns: int | None = None
        failure: Exception | None = None
        try:
            self._begin_second(now_ns // NS_PER_SECOND)
            for wait in list(self._waits):
                try:
                    due_ns = self._look(wait, now_ns)
                except Exception as error:  # noqa: BLE001 - it is logged; other waits remain
                    self.end(wait)
                    failure = failure or error
                    continue
                if due_ns is not None and (next_ns is None or due_ns < next_ns):
                    next_ns = due_ns
            if self._left_out_count:
                second_ns = (self._second + 1) * NS_PER_SECOND
                next_ns = second_ns if next_ns is None else min(next_ns, second_ns)
            if failure is not None:
                self._tell_of_failure(failure)
        finally:
            if next_ns is not None and not self._is_closed:
                self._set_timer(next_ns - now_ns)

    def _look(self, wait: Wait, now_ns: int) -> int | None:
        """Log a wait that is due, or only count it; return when to look again, None for never."""
        since_ns = wait.since()
        if since_ns is None:
            self.end(wait)
            return None
        if since_ns <= wait.told_ns:
            self.end(wait)
            return None
        due_ns = since_ns + self.hint_ns
        if now_ns < due_ns:
            return due_ns
        wait.told_ns = now_ns
        if self._lines_in_second < MAX_LINES:
            self._lines_in_second += 1
            self._tell(wait, now_ns - since_ns)
        else:
            self._left_out_count += 1
        # A wait that was logged costs nothing more, even if it lasts for days.
        self.end(wait)
        return None

    def _begin_second(self, second: int) -> None:
        """If a new second has begun, log how many waits were left out in the last one."""
        if second == self._second:
            return
        self._second, self._lines_in_second = second, 0
        if self._left_out_count:
            log.warning("more_waits_lasted_long", count=self._left_out_count)
            self._left_out_count = 0

    def _tell_of_failure(self, error: Exception) -> None:
        """Log that a wait could not be explained; only once, because others may fail too."""
        if not self._has_told_of_failure:
            self._has_told_of_failure = True
            log.error("wait_not_explained", exc_info=error)

    def _tell(self, wait: Wait, waited_ns: int) -> None:
        self.line_count += 1
        cause, text = "unknown", "why could not be found out"
        try:
            why = wait.waiter._explain()
            cause, text = why.reason.name.lower(), str(why)
        except Exception as error:  # noqa: BLE001 - it is logged; so is the wait itself
            self._tell_of_failure(error)
        log.warning(
            "wait_lasted_long",
            operation=wait.operation,
            channel=printable(wait.waiter.channel),
            stream_id=wait.waiter.stream_id,
            seconds=round(waited_ns / NS_PER_SECOND, 3),
            cause=cause,
            why=text,
        )


@contextmanager
def watching(watch: MemoryWatch | None) -> Iterator[None]:
    """Look at the memory of a driver in another process for as long as a task waits."""
    if watch is None:
        yield
        return
    watch.begin()
    try:
        yield
    finally:
        watch.end()


# Timeouts.


def offer_timeout(why: Why, operation: str, waited_ns: int) -> OfferTimeoutError:
    """Return the error of an offer, or of a claim, whose timeout has passed."""
    seen = why.seen
    assert isinstance(seen, PublicationSeen), "a publication was asked"
    return OfferTimeoutError(
        f"{operation} waited {waited_ns / NS_PER_SECOND:.3f} s: {why}",
        position=seen.position,
        position_limit=seen.position_limit,
        waited_ns=waited_ns,
        is_connected=seen.is_connected,
        slowest_receiver=seen.slowest_receiver,
        why=why,
    )


def wait_timeout(why: Why, operation: str, waited_ns: int) -> AeronTimeoutError:
    """Return the error of another operation whose timeout has passed."""
    message = f"{operation} waited {waited_ns / NS_PER_SECOND:.3f} s: {why}"
    return AeronTimeoutError(message, why=why)


class OpenWaiter(Waiter, Protocol):
    """A publication or subscription that can be closed while its callers wait."""

    logs_waits: bool

    @property
    def _waits(self) -> WaitWatch: ...

    def _check_open(self) -> None:
        """Raise `ClosedError` if it is closed."""
        ...


async def watched_wait(
    waiter: OpenWaiter,
    changed: Notify,
    condition: Callable[[], bool],
    operation: str,
    timeout: float | None,
    watch: MemoryWatch | None = None,
) -> None:
    """Wait until a condition holds.

    Args:
        waiter: The publication or subscription.
        changed: Rings when the condition may have become true, and when the waiter is closed.
        condition: Checked before the wait, and after each notification.
        operation: The method the caller called.
        timeout: Most seconds to wait; None sets no limit.
        watch: Looks at what the condition depends on; None if the driver itself wakes the client.

    Raises:
        AeronTimeoutError: The timeout passed; the text says what the call waited for.
        ClosedError: The waiter was closed, before or during the call.
    """
    timeout = check_timeout(timeout)
    waiter._check_open()
    if condition():
        return
    started_ns = waiter._waits.now_ns()
    wait = Wait(waiter, operation, lambda: started_ns)
    if waiter.logs_waits:
        waiter._waits.begin(wait)
    try:
        # The watch begins before the condition is checked again: no store is missed in between.
        with watching(watch):
            async with asyncio.timeout(timeout):
                while not condition():
                    await changed.wait()
                    waiter._check_open()
    except AeronError:
        # An error of the driver, such as `DriverTimeoutError`, is no timeout of this call.
        raise
    except TimeoutError:
        # It may have become true without a word to this process.
        waiter._check_open()
        if condition():
            return
        waited_ns = waiter._waits.now_ns() - started_ns
        raise wait_timeout(waiter._explain(), operation, waited_ns) from None
    finally:
        waiter._waits.end(wait)
