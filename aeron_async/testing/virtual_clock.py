"""Virtual time: an event loop that jumps to its next deadline when no callback is ready.

Invariant: the order in which callbacks run depends only on the order and the times in which they
were scheduled. No callback waits for the machine.

Ready callbacks run first come, first served, and each turn of the loop takes `TURN_NS` of virtual
time. When no callback is ready, time jumps to the next timer. When there is no timer either, all
tasks wait for each other without end, and the loop raises `DeadlockError`.

The mechanism is a mix-in of public overrides (`call_soon`, `call_at`, `time`), so that it works
with asyncio's loop and with uvloop, and both run the same callbacks in the same order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextvars import Context, ContextVar
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar, TypeVarTuple

from aeron_async.clock import NS_PER_SECOND
from aeron_async.testing.tasks import NumberedTask, describe_tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

    Mixable = asyncio.BaseEventLoop
else:
    # Type checkers see the base class that the loops have in common.
    Mixable = object

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

__all__ = [
    "OWNER",
    "REFUSED",
    "DeadlockError",
    "LivelockError",
    "TimeLimitError",
    "VirtualLoop",
    "VirtualTime",
    "run_virtual",
]

TURN_NS: Final = 5_000
"""Virtual time of a turn of the loop. Were it 0, a deadline a microsecond away would never come."""
TURNS_WITHOUT_TIMER_MAX: Final = 2_000_000
"""Turns in a row without waiting for a timer: ten virtual seconds of this count as a livelock."""
SPAN_NS: Final = 100_000_000
"""The virtual time in which `span_turns_max` counts."""
TURNS_PER_PUMP: Final = 64
"""Virtual turns for each turn of the real loop beneath, whose own cost is larger."""

OWNER: ContextVar[object] = ContextVar("OWNER", default=None)
"""The owner of a callback, such as a host, for `hold` and `release`."""


class DeadlockError(RuntimeError):
    """Every task waits, and no scheduled callback could wake one."""


class LivelockError(RuntimeError):
    """The loop has been busy for very many turns without waiting for a timer."""


class TimeLimitError(RuntimeError, TimeoutError):
    """`limit_ns` of the loop has passed."""


REFUSED: Final = (
    *("add_reader", "add_writer", "add_signal_handler"),
    *("create_connection", "create_server", "create_datagram_endpoint"),
    *("create_unix_connection", "create_unix_server", "connect_accepted_socket"),
    *("connect_read_pipe", "connect_write_pipe", "subprocess_exec", "subprocess_shell"),
    *("sock_accept", "sock_connect", "sock_recv", "sock_recv_into", "sock_recvfrom"),
    *("sock_recvfrom_into", "sock_sendall", "sock_sendto", "sock_sendfile"),
    *("sendfile", "start_tls", "getaddrinfo", "getnameinfo"),
)
"""Methods of a loop that would wait for the machine, by name.

These are the public methods. The loop beneath uses private ones for itself, such as for the socket
that wakes it.
"""


def refuse_real_world(loop_class: type[T]) -> type[T]:
    """Replace these methods of a loop class by ones that raise a RuntimeError with their name."""
    for name in REFUSED:
        setattr(loop_class, name, refusal(name))
    return loop_class


def refusal(name: str) -> Callable[..., NoReturn]:
    """Return a method that raises when it is called."""

    def refuse(self: object, *args: Any, **options: Any) -> NoReturn:
        del self, args, options
        message = (
            f"{name} belongs to the real world, which stands still in virtual time; "
            "use the network of a World"
        )
        raise RuntimeError(message)

    refuse.__name__ = name
    return refuse


@refuse_real_world
class VirtualTime(Mixable):
    """Mix-in, before a loop class, that makes its time virtual.

    It refuses real sockets, pipes, processes, signals and names.

    Attributes:
        now_ns: Nanoseconds since the loop was made. Only the loop changes it.
        limit_ns: Time that the loop refuses to pass, once; None is no limit. Unlike a timer it does
            not hide that nothing else is scheduled.
        turn_count: Turns so far, a measure of work done.
        span_turns_max: Turns in a tenth of a virtual second beyond which the loop counts as
            spinning, however short its pauses are; None is no limit.
        explain: Called with the failure that ends a run, before it is raised, to add to it.
    """

    now_ns: int
    limit_ns: int | None
    turn_count: int
    span_turns_max: int | None
    explain: Callable[[RuntimeError], None] | None

    def __init__(self) -> None:
        super().__init__()
        self.now_ns = 0
        self.limit_ns = None
        self.turn_count = 0
        self.span_turns_max = None
        self.explain = None
        self._due: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[int, int, asyncio.TimerHandle]] = []
        self._sequence = count()
        self._task_numbers = count()
        self._cancelled_timer_count = 0
        self._held: dict[object, deque[asyncio.Handle]] = {}
        self._busy_turns = 0
        self._span_ends_ns = self._span_turns = 0
        self._is_pumping = False
        self._is_stopped = False
        self._failure: RuntimeError | None = None

    # The interface of asyncio's loops.

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self.now_ns / NS_PER_SECOND

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Run the callback in the next turn."""
        handle = asyncio.Handle(callback, args, self, context)
        self._due.append(handle)
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run the callback after `delay` seconds."""
        when_ns = self.now_ns + round(delay * NS_PER_SECOND)
        return self.call_at_ns(when_ns, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run the callback at `when` seconds of `time()`."""
        return self.call_at_ns(round(when * NS_PER_SECOND), callback, *args, context=context)

    def call_at_ns(
        self,
        when_ns: int,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run the callback at `when_ns` of `now_ns`; at equal times, in order of scheduling."""
        handle = asyncio.TimerHandle(when_ns / NS_PER_SECOND, callback, args, self, context)
        # Only the loop beneath reads it; it is set so that `cancel` counts the handle.
        handle._scheduled = True  # type: ignore[attr-defined]  # noqa: SLF001 - asyncio's own protocol between handle and loop
        heappush(self._timers, (when_ns, next(self._sequence), handle))
        return handle

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: Context | None = None,
        **options: Any,
    ) -> asyncio.Task[T]:
        """Run a coroutine as a `NumberedTask`, unless there is a task factory."""
        options |= {"name": name, "context": context}
        if self.get_task_factory() is not None or self.is_closed():
            return super().create_task(coro, **options)
        return NumberedTask(coro, loop=self, number=next(self._task_numbers), **options)

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Run the callback in the next turn.

        A thread takes real time, so its result comes too late or makes a run unrepeatable.
        """
        return self.call_soon(callback, *args, context=context)

    def run_in_executor(
        self, executor: object, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Run the function at once, in this thread: other threads do not follow virtual time."""
        del executor
        future: asyncio.Future[T] = asyncio.Future(loop=self)
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - the caller gets it
            future.set_exception(error)
        return future

    def run_forever(self) -> None:
        """Run until stopped, or until no callback can ever run again.

        Raises:
            DeadlockError: Every task waits and nothing is scheduled.
            LivelockError: Tasks kept one another busy without a pause.
            TimeLimitError: `limit_ns` has passed.
        """
        self._is_stopped = False
        self._busy_turns = 0
        self._pump_soon()
        super().run_forever()
        self._raise_failure()

    def run_until_complete(self, future: Any) -> Any:
        """Run until the future is done.

        Raises:
            DeadlockError: Every task waits and nothing is scheduled.
            LivelockError: Tasks kept one another busy without a pause.
            TimeLimitError: `limit_ns` has passed.
        """
        try:
            return super().run_until_complete(future)
        except RuntimeError:
            self._raise_failure()
            raise

    def stop(self) -> None:
        """Stop after this turn."""
        self._is_stopped = True
        super().stop()

    def close(self) -> None:
        """Close the loop, and drop all callbacks that have not run."""
        super().close()
        # asyncio's own record of the running loop hides this loop from the garbage collector:
        # objects of a timer, perhaps a whole world, would live as long as the process.
        self._due.clear()
        self._timers.clear()
        self._held.clear()
        self.explain = None

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Remove cancelled timers before they outnumber the others."""
        del handle
        self._cancelled_timer_count += 1
        if self._cancelled_timer_count > 64 and self._cancelled_timer_count * 2 > len(self._timers):  # noqa: PLR2004 - a few are not worth a pass
            # In place: a turn may be using this list.
            self._timers[:] = [each for each in self._timers if not each[2].cancelled()]
            self._timers.sort()
            self._cancelled_timer_count = 0

    # Suspended processes.

    def hold(self, owner: object) -> None:
        """Suspend an owner until `release`; its callbacks that become due wait in order."""
        self._held.setdefault(owner, deque())

    def release(self, owner: object) -> None:
        """Continue an owner, with all callbacks that have become due since `hold`."""
        self._due.extend(self._held.pop(owner, ()))

    # The passage of time.

    def _turns(self) -> None:
        """Run some turns, then let the loop beneath run."""
        self._is_pumping = False
        for _ in range(TURNS_PER_PUMP):
            if not self._due and not self._sleep():
                return
            self._turn()
            if self._is_stopped:
                return
        self._pump_soon()

    def _turn(self) -> None:
        self.turn_count += 1
        self.now_ns += TURN_NS
        self._busy_turns += 1
        if self._busy_turns > TURNS_WITHOUT_TIMER_MAX:
            self._fail_busy(f"{self._busy_turns} turns without a pause")
            return
        self._span_turns += 1
        if self.now_ns >= self._span_ends_ns:
            self._span_ends_ns, self._span_turns = self.now_ns + SPAN_NS, 0
        elif self.span_turns_max is not None and self._span_turns > self.span_turns_max:
            self._fail_busy(f"{self._span_turns} turns within {SPAN_NS // 1_000_000} virtual ms")
            return
        due, timers, now_ns = self._due, self._timers, self.now_ns
        while timers and timers[0][0] <= now_ns:
            due.append(heappop(timers)[2])
        for _ in range(len(due)):
            handle = due.popleft()
            if handle.cancelled():
                continue
            if self._held and self._is_held(handle):
                continue
            handle._run()  # noqa: SLF001 - what a loop does with a handle

    def _sleep(self) -> bool:
        """Jump to the next timer; without one, fail, because no task can be woken."""
        timers = self._timers
        while timers and timers[0][2].cancelled():
            heappop(timers)
            self._cancelled_timer_count -= 1
        if not timers:
            waiting = describe_tasks(asyncio.all_tasks(self))
            self._fail(DeadlockError(f"nothing is scheduled, and these wait: {waiting}"))
            return False
        self._busy_turns = 0
        if self.limit_ns is not None and timers[0][0] > self.limit_ns:
            limit_s, self.limit_ns = self.limit_ns / NS_PER_SECOND, None
            waiting = describe_tasks(asyncio.all_tasks(self))
            self._fail(TimeLimitError(f"{limit_s:g} virtual seconds have passed: {waiting}"))
            return False
        self.now_ns = max(self.now_ns, timers[0][0])
        return True

    def _is_held(self, handle: asyncio.Handle) -> bool:
        context: Context = handle._context  # type: ignore[attr-defined]  # noqa: SLF001 - asyncio shows it only in debug mode
        held = self._held.get(context.get(OWNER))
        if held is None:
            return False
        held.append(handle)
        return True

    def _pump_soon(self) -> None:
        if not self._is_pumping:
            self._is_pumping = True
            super().call_soon(self._turns)

    def _fail_busy(self, what: str) -> None:
        busy = describe_tasks(asyncio.all_tasks(self), has_agents=True)
        self._span_turns = 0
        self._fail(LivelockError(f"{what}: {busy}"))

    def _fail(self, failure: RuntimeError) -> None:
        if self.explain is not None:
            self.explain(failure)
        self._failure = failure
        self.stop()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure from failure.__cause__


class VirtualLoop(VirtualTime, asyncio.SelectorEventLoop):
    """An event loop in virtual time, over asyncio's."""


def run_virtual(main: Coroutine[Any, Any, Any], *, timeout_ns: int | None = None) -> Any:
    """Run a coroutine in virtual time, from 0, and return its result.

    Args:
        main: Coroutine to run.
        timeout_ns: Virtual nanoseconds after which it is cancelled; None is no limit.

    Raises:
        DeadlockError: Every task waits and nothing is scheduled.
        LivelockError: Tasks kept one another busy without a pause.
        TimeoutError: The timeout passed.
    """

    async def bounded() -> Any:
        async with asyncio.timeout(None if timeout_ns is None else timeout_ns / NS_PER_SECOND):
            return await main

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(bounded())
