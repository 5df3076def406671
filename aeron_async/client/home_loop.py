"""The loop and the task that use an object, and how long calls may run without yielding to it.

A task that offers or reads without ever waiting must let the loop run other tasks now and then. A
fixed number of messages would be either too small to be cheap or, if the application works between
two messages, too large to be fair. So a `YieldBudget` also reads the clock, but not for every
message: the number of messages between two readings depends on how long the last ones took.
"""

from __future__ import annotations

import asyncio
import os
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final, NoReturn, final
from weakref import ref

from aeron_async._speedups import WHY_PURE
from aeron_async.errors import WrongLoopError

if TYPE_CHECKING:
    from aeron_async.clock import Clock

__all__ = [
    "FIRST_STRIDE",
    "HomeLoop",
    "YieldBudget",
    "current_consumer",
    "refuse_elsewhere",
]


class Forks:
    """How many forks lie between this process and the one that imported this module.

    A counter, because asking the system for the process id for every message is slow.
    """

    count: int = 0

    @classmethod
    def note(cls) -> None:
        """Count one fork; called in the child."""
        cls.count += 1


os.register_at_fork(after_in_child=Forks.note)


class HomeLoop:
    """The event loop that an object belongs to; checked for every message.

    A thread runs one loop at a time. So the caller is in this loop if the caller's thread is the
    loop's thread, and the loop runs.
    """

    __slots__ = ("_forks", "_is_running", "_thread_id", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop: asyncio.AbstractEventLoop = loop
        self._is_running = loop.is_running
        self._thread_id = get_ident()
        self._forks = Forks.count

    def is_here(self) -> bool:
        """Return whether the loop runs here: in this thread of this process."""
        return get_ident() == self._thread_id and Forks.count == self._forks and self._is_running()


if not TYPE_CHECKING and WHY_PURE is None:
    from aeron_async._speedups.paths import HomeLoop


LONGEST_NS: Final = 500_000
"""A turn of this duration is over."""
SHORT_NS: Final = 50_000
"""If a stride took less, the next stride is twice as long."""
LONG_NS: Final = 200_000
"""If a stride took more, the next stride is half as long."""
FIRST_STRIDE: Final = 64
"""Messages in the first stride."""
LONGEST_STRIDE: Final = 512
MOST_MESSAGES: Final = 1_024
"""After this many messages a turn is over in any case, because a virtual clock may stand still."""


@final
class YieldBudget:
    """Work of one task without yielding to the loop; over after 500 microseconds or 1024 messages.

    In compiled code a message of a list counts less than one alone: see `calls_of`.

    A turn schedules a callback in the loop when it begins. Once the callback has run, the loop has
    also run other tasks, so the next message begins a new turn.

    Attributes:
        stride: Messages until the clock is read again.
    """

    __slots__ = ("_began_ns", "_clock", "_count", "_is_broken_off", "_looked_ns", "_loop", "stride")

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self.stride: int = FIRST_STRIDE
        self._loop = loop
        self._clock = clock
        self._began_ns = self._looked_ns = 0
        self._count = 0
        # The first call of `is_over` begins the first turn.
        self._is_broken_off = True

    def is_over(self) -> bool:
        """Return whether to yield to the loop now; called every `stride` messages."""
        now_ns = self._clock.now_ns()
        if self._is_broken_off:
            self._begin(now_ns)
            return False
        took_ns = now_ns - self._looked_ns
        self._looked_ns = now_ns
        self._count += self.stride
        if took_ns > LONG_NS:
            self.stride = max(1, self.stride // 2)
        elif took_ns < SHORT_NS:
            self.stride = min(LONGEST_STRIDE, self.stride * 2)
        return self._count > MOST_MESSAGES or now_ns - self._began_ns >= LONGEST_NS

    def begin(self) -> None:
        """Begin a new turn, after yielding to the loop."""
        self._begin(self._clock.now_ns())

    def _begin(self, now_ns: int) -> None:
        self._count = 0
        self._began_ns = self._looked_ns = now_ns
        if self._is_broken_off:
            self._is_broken_off = False
            self._loop.call_soon(self._break_off)

    def _break_off(self) -> None:
        self._is_broken_off = True


def current_consumer() -> ref[asyncio.Task[Any]] | None:
    """Return the running task as a weak reference, so that what it consumes does not keep it."""
    task = asyncio.current_task()
    return None if task is None else ref(task)


def refuse_elsewhere(subject: object) -> NoReturn:
    """Refuse a call from another loop or thread than that of the object.

    Raises:
        WrongLoopError: Always.
    """
    message = (
        f"{subject!r} belongs to another event loop, or thread: use and close it there; if its "
        "driver is stepped, in a function given to do_work or run"
    )
    raise WrongLoopError(message)
