"""The owner of background tasks, for objects that one task opens and another one closes.

A task group must be left by the task that entered it. That fits a function which waits for its
tasks, and no object that `await` opens and `aclose` closes: a `TaskOwner` holds the tasks of those.

Invariant: every task of the package belongs to a task group or to a `TaskOwner`, so it ends with
its owner, and its error has somewhere to go.

`make_in_thread` makes what would hold up the event loop, and nothing is left if it is cancelled.
`Turns` is for what must be made in the loop, step by step.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import suppress
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, final

import anyio

from aeron_async.errors import WrongLoopError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

__all__ = ["EagerStarter", "Interruption", "TaskOwner", "Turns", "make_in_thread", "running_loop"]

T = TypeVar("T")

NO_LOOP: Final = (
    "this needs a running event loop of asyncio, and there is none here: call it from a coroutine "
    "under asyncio.run, uvloop.run or anyio.run with its backend asyncio; under trio it cannot run"
)
# Not private, in spite of their names: "Extending asyncio" of Python's documentation has them.
enter_task = asyncio._enter_task  # noqa: SLF001
leave_task = asyncio._leave_task  # noqa: SLF001

TURN_NS: Final = 250_000
"""How long a task works in one turn of the loop before it lets others run."""


def running_loop() -> asyncio.AbstractEventLoop:
    """Return the event loop that runs in this thread.

    Raises:
        WrongLoopError: None does, or it is that of another library, such as trio.
    """
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise WrongLoopError(NO_LOOP) from None


@final
class TaskOwner:
    """The background tasks of one object.

    `async with` cancels the tasks that have not ended when the block ends. Unlike in a task group,
    the block continues when a task fails. A task must not wait for its own owner, nor close it.

    Args:
        on_failed: Called with a task that has raised. None if the object looks at its tasks itself;
            asyncio logs an error that it has not looked at.
    """

    __slots__ = ("_on_failed", "_tasks")

    def __init__(self, on_failed: Callable[[asyncio.Task[Any]], object] | None = None) -> None:
        # A dictionary instead of a set, for its order: closing must be deterministic. The loop
        # itself holds a task only weakly.
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._on_failed = on_failed

    def __len__(self) -> int:
        return len(self._tasks)

    @property
    def names(self) -> list[str]:
        """Return the names of its tasks, each once, oldest first."""
        return list(dict.fromkeys(each.get_name() for each in self._tasks))

    def start(self, coroutine: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Start a task, which the owner holds until it has ended."""
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._on_done)
        return task

    def adopt(self, task: asyncio.Task[Any], owner: TaskOwner) -> None:
        """Take over a task that has not ended from another owner."""
        del owner._tasks[task]
        task.remove_done_callback(owner._on_done)
        self._tasks[task] = None
        task.add_done_callback(self._on_done)

    def cancel(self) -> None:
        """Cancel all tasks, without waiting for them."""
        for task in tuple(self._tasks):
            task.cancel()

    async def wait(self) -> None:
        """Wait until all tasks have ended, also those that start in the meantime."""
        assert asyncio.current_task() not in self._tasks, "a task cannot wait for itself"
        while self._tasks:
            await asyncio.wait(tuple(self._tasks))

    async def has_ended(self, seconds: float) -> bool:
        """Wait for so many seconds at most; return whether all tasks have ended."""
        try:
            async with asyncio.timeout(seconds):
                await self.wait()
        except TimeoutError:
            return False
        return True

    async def aclose(self) -> None:
        """Cancel all tasks, and wait until they have ended."""
        assert asyncio.current_task() not in self._tasks, "a task cannot wait for itself"
        while self._tasks:
            self.cancel()
            await asyncio.wait(tuple(self._tasks))

    def _on_done(self, task: asyncio.Task[Any]) -> None:
        del self._tasks[task]
        on_failed = self._on_failed
        if on_failed is not None and not task.cancelled() and task.exception() is not None:
            on_failed(task)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()


@final
class Interruption:
    """A block that something else may end with an error, as a deadline ends `asyncio.timeout`.

    The task is cancelled where it waits, and the error takes the place of that, also if something
    in the block has caught it. In a block that another task leaves than has entered it, nothing can
    be cancelled.
    """

    __slots__ = ("_before", "_error", "_is_over", "_task")

    def __init__(self) -> None:
        self._task: asyncio.Task[Any] | None = None
        self._before = 0
        self._error: Exception | None = None
        self._is_over = False

    def interrupt(self, error: Exception) -> None:
        """End the block with an error; a second one, or one behind the block, does nothing."""
        if self._error is None and not self._is_over and self._task is not None:
            self._error = error
            self._task.cancel()

    async def __aenter__(self) -> Self:
        task = self._task = asyncio.current_task()
        assert task is not None, "a coroutine of asyncio runs in a task"
        self._before = task.cancelling()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_over = True
        task = self._task
        if self._error is None or task is None or task is not asyncio.current_task():
            return
        seen = exc if isinstance(exc, asyncio.CancelledError) else None
        if seen is None:
            try:
                # The block may have ended before the task was cancelled.
                await asyncio.sleep(0)
            except asyncio.CancelledError as error:
                seen = error
        is_also_anothers = task.uncancel() > self._before
        if seen is not None and is_also_anothers:
            # With its message, by which some know that it is theirs.
            raise seen
        if exc is None or seen is exc:
            raise self._error


@final
class ParkedCoroutine(Coroutine[Any, Any, Any]):
    """What a task runs that was made before there is something to run.

    It waits at a gate until it is given a coroutine that has begun already, and continues that.

    Args:
        gate: The future that it waits for first.
    """

    __slots__ = ("_context", "_first", "_gate", "coroutine")

    def __init__(self, gate: asyncio.Future[None]) -> None:
        self.coroutine: Coroutine[Any, Any, Any] | None = None
        self._context = Context()
        self._first: Any = None
        self._gate = gate

    def give(self, coroutine: Coroutine[Any, Any, Any], context: Context, first: Any) -> None:
        """Continue this coroutine, which waits for what it has yielded: `first`."""
        assert self.coroutine is None, "a task runs one coroutine"
        self.coroutine = coroutine
        self._context = context
        self._first = first
        if first is None:
            # In the next turn: anyio cancels no task whose future is done already.
            self._gate.get_loop().call_soon(self._open_gate)
        else:
            self._open_gate()

    def _open_gate(self) -> None:
        if not self._gate.done():
            self._gate.set_result(None)

    @property
    def __name__(self) -> str:
        """Return the name of what it runs, for the representation of its task."""
        return getattr(self.coroutine, "__name__", "nothing yet")

    def send(self, value: Any) -> Any:
        """Run to where it waits next."""
        if self.coroutine is None or not self._gate.done():
            return next(self._gate.__await__())
        first, self._first = self._first, None
        if first is not None:
            # The task itself begins to wait for it now.
            return first
        return self._context.run(self.coroutine.send, value)

    def throw(self, *error: Any) -> Any:
        """Raise an error where it waits."""
        if self.coroutine is None:
            raise error[0]
        self._open_gate()
        first, self._first = self._first, None
        if (
            asyncio.isfuture(first)
            and isinstance(error[0], asyncio.CancelledError)
            and first.cancel(*error[0].args)
        ):
            # As in a task that has begun to wait for it: a task that it awaits is cancelled, too.
            return first
        return self._context.run(self.coroutine.throw, *error)

    def close(self) -> None:
        """End what has begun."""
        if self.coroutine is not None:
            self._context.run(self.coroutine.close)

    def __await__(self) -> Any:
        """Refuse: a task runs it."""
        raise NotImplementedError


@final
class EagerStarter:
    """Runs coroutines at once, and in a task from where they first wait.

    A task costs more than most functions that end without waiting: those get none. All that a
    coroutine sees is as in a task: `asyncio.current_task()` is the task in which it would continue,
    also before it waits, and its context is a copy of its own.

    `eager_start` of Python 3.12 makes a task for each coroutine.

    Args:
        owner: Owns the tasks of coroutines that wait.
        keeper: Owns the one task that has nothing to run yet.
    """

    __slots__ = (
        "_is_spent",
        "_is_within_task",
        "_keeper",
        "_loop",
        "_owner",
        "_parked",
        "_spare",
    )

    def __init__(self, owner: TaskOwner, keeper: TaskOwner) -> None:
        self._owner = owner
        self._keeper = keeper
        self._loop = asyncio.get_running_loop()
        self._is_within_task = False
        self._park()

    def _park(self) -> None:
        gate = self._loop.create_future()
        self._is_spent = gate.done
        self._parked = ParkedCoroutine(gate)
        self._spare = self._keeper.start(self._parked, "spare")

    def start(
        self, coroutine: Coroutine[Any, Any, T], name: str
    ) -> tuple[asyncio.Task[T] | None, T | None]:
        """Run a coroutine to its end or to where it waits; return its task, or else its result.

        Args:
            coroutine: What to run.
            name: Of the task, if it waits.

        Raises:
            BaseException: What the coroutine has raised before it waited.
        """
        loop, caller = self._loop, None
        if self._is_spent() or self._spare.cancelling():
            # Another coroutine must not find that it was cancelled.
            self._park()
        if self._is_within_task:
            caller = self._leave_caller()
        try:
            enter_task(loop, self._spare)
        except RuntimeError:
            # Asking for the current task each time takes longer where there is none.
            caller = self._leave_caller()
            enter_task(loop, self._spare)
        spare, parked = self._spare, self._parked
        context = copy_context()
        try:
            first = context.run(coroutine.send, None)
        except StopIteration as stop:
            self._put_back(spare)
            result: T = stop.value
            return None, result
        except BaseException:
            self._put_back(spare)
            raise
        finally:
            leave_task(loop, spare)
            if caller is not None:
                enter_task(loop, caller)
        if spare is self._spare:
            self._park()
        parked.give(coroutine, context, first)
        spare.set_name(name)
        self._owner.adopt(spare, self._keeper)
        return spare, None

    def _leave_caller(self) -> asyncio.Task[Any] | None:
        caller = asyncio.current_task(self._loop)
        self._is_within_task = caller is not None
        if caller is not None:
            leave_task(self._loop, caller)
        if caller is self._spare:
            # What it runs has called.
            self._park()
        return caller

    def _put_back(self, spare: asyncio.Task[Any]) -> None:
        if spare is not self._spare:
            spare.cancel()


async def make_in_thread(
    make: Callable[[], T],
    discard: Callable[[T], object],
    *,
    limiter: anyio.CapacityLimiter | None = None,
) -> T:
    """Make something in a worker thread, and discard it if the caller no longer waits for it.

    A call that is cancelled ends at once, and the thread later.

    Args:
        make: Makes it.
        discard: Frees it; called in the thread, or here.
        limiter: Limits how many threads work at once; by default anyio does.
    """
    made: list[T] = []
    is_abandoned = threading.Event()

    def discard_made() -> None:
        with suppress(IndexError):
            discard(made.pop())

    def work() -> T:
        thing = make()
        made.append(thing)
        if is_abandoned.is_set():
            discard_made()
        return thing

    try:
        return await anyio.to_thread.run_sync(work, limiter=limiter)
    except BaseException:
        # The thread does not end with the call: the last of the two discards what was made.
        is_abandoned.set()
        discard_made()
        raise


@final
class Turns:
    """Shares the event loop with other tasks by time, where work is done step by step.

    To let the loop turn after each step would take as many turns as there are steps: seconds, where
    other tasks need milliseconds in each turn.

    Args:
        now_ns: A monotonic clock, in nanoseconds; of a virtual one, all steps may be of one moment.
    """

    __slots__ = ("_began_ns", "_now_ns")

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self._began_ns = now_ns()

    async def step(self) -> None:
        """Let the loop turn if this task has worked for 250 microseconds since it last did."""
        if self._now_ns() - self._began_ns >= TURN_NS:
            await asyncio.sleep(0)
            self._began_ns = self._now_ns()
