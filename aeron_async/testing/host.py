"""A simulated host: its clock, its drivers and services, and their failures.

Invariant: `Failures` reports every exception once: as the failure itself, or as a note of the first
failure that follows.

Invariant: everything that runs on a `Host` runs in its context, so that the host can stand still,
lose power, and start again without code in its processes for that.

Source: the faults of `HostClock` are those of Jepsen's clock nemesis.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from contextvars import Context, copy_context
from fractions import Fraction
from functools import partial
from random import Random
from traceback import format_exception
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

from aeron_async.client.aeron import Aeron
from aeron_async.clock import NS_PER_MS, NS_PER_SECOND
from aeron_async.driver.core.context import DriverContext
from aeron_async.driver.media_driver import MediaDriver
from aeron_async.testing.virtual_clock import OWNER

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aeron_async.driver.conductor import Conductor
    from aeron_async.testing.sim_network import SimHost
    from aeron_async.testing.virtual_clock import VirtualTime

__all__ = [
    "Failures",
    "Host",
    "HostClock",
    "Service",
    "add_notes",
]

# The clock.

BOOT_NS: Final = 1_000 * NS_PER_SECOND
"""Uptime at the start; not 0, so that code which wrongly expects 0 fails."""
EPOCH_MS: Final = 1_800_000_000_000
"""Wall-clock time at the start, in January 2027."""


class HostClock:
    """A `Clock` over virtual time.

    Args:
        loop: Loop whose time counts as true time.
    """

    def __init__(self, loop: VirtualTime) -> None:
        self._loop = loop
        self._since_ns = loop.now_ns
        self._base_ns = BOOT_NS
        self._epoch_base_ms = EPOCH_MS
        self._rate = Fraction(1)
        self._is_right = True

    def now_ns(self) -> int:
        """Return this host's monotonic time in nanoseconds."""
        passed_ns = self._loop.now_ns - self._since_ns
        if not self._is_right:
            passed_ns = passed_ns * self._rate.numerator // self._rate.denominator
        return self._base_ns + passed_ns

    def epoch_ms(self) -> int:
        """Return this host's wall-clock time in milliseconds since 1970."""
        return self._epoch_base_ms + (self.now_ns() - BOOT_NS) // NS_PER_MS

    def epoch_ns(self) -> int:
        """Return this host's wall-clock time in nanoseconds since 1970."""
        return self._epoch_base_ms * NS_PER_MS + self.now_ns() - BOOT_NS

    def jump(self, by_ns: int) -> None:
        """Step monotonic time, as a hypervisor does when it moves a machine."""
        self._base_ns += by_ns
        self._epoch_base_ms -= by_ns // NS_PER_MS

    def jump_epoch(self, by_ms: int) -> None:
        """Step wall-clock time only, as an operator does who sets the date."""
        self._epoch_base_ms += by_ms

    def set_rate(self, rate: Fraction | float) -> None:
        """Let this clock run faster or slower than true time from now on.

        Args:
            rate: Seconds of this clock in a true second; 1 is right.
        """
        self._base_ns = self.now_ns()
        self._since_ns = self._loop.now_ns
        self._rate = Fraction(rate).limit_denominator(1_000_000)
        self._is_right = self._rate == 1


# Failures.

ERRORS_SHOWN: Final = 8
LINE_LENGTH_MAX: Final = 300
"""Longest part of an error's own text, in characters, if it is quoted in another error."""
CALLBACK: Final = "a callback"


@final
class Failures:
    """Collects what services and callbacks raised, until it is reported.

    Args:
        loop: Loop in virtual time, which asks for an explanation when no task can continue.

    Attributes:
        errors: All errors, reported or not, oldest first.
    """

    def __init__(self, loop: VirtualTime) -> None:
        self.errors: list[Exception] = []
        self._loop = loop
        self._told_count = 0
        self._raisers: list[tuple[Exception, str]] = []
        loop.explain = self.explain

    def add(self, error: Exception, raiser: str) -> None:
        """Add an error, with a note that names what raised it.

        Args:
            error: The error.
            raiser: Such as "service 'book' on host 'shop'".
        """
        self.errors.append(error)
        if not any(each is error for each, _ in self._raisers):
            self._raisers.append((error, raiser))
            error.add_note(f"Raised by {raiser}, at {self._loop.time():.6g} virtual seconds.")

    def on_exception(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Add an exception that no other code has handled: an exception handler for loops."""
        error, task = context.get("exception"), context.get("future")
        if not isinstance(error, Exception):
            self.errors.append(RuntimeError(str(context)))
        elif isinstance(task, asyncio.Task):
            self.add(error, f"task {task.get_name()!r}")
        else:
            self.errors.append(error)

    def take(self) -> list[Exception]:
        """Return the errors that are not reported yet, and count them as reported.

        Errors of callbacks come last, because they say least.
        """
        errors = self.errors[self._told_count :]
        self._told_count = len(self.errors)
        return sorted(errors, key=lambda error: self._raiser_of(error) == CALLBACK)

    def describe(self, error: Exception) -> str:
        """Return one line with what failed, and how."""
        first_line = str(error).partition("\n")[0][:LINE_LENGTH_MAX]
        return f"{self._raiser_of(error)} failed: {type(error).__name__}: {first_line}"

    def group(self, errors: Sequence[Exception]) -> ExceptionGroup[Exception]:
        """Return a group of errors whose text begins with the first of them."""
        message = f"unhandled exceptions: {self.describe(errors[0])}"
        return ExceptionGroup(message, errors[:ERRORS_SHOWN])

    def explain(self, failure: RuntimeError) -> None:
        """Add the earlier errors to a failure of the loop, as its text and its cause.

        A task that waits without end mostly waits for another task that has failed.
        """
        # A forgotten task reports its exception when it is freed. Python 3.13 keeps it in a cycle
        # until the collector runs.
        gc.collect()
        errors = self.take()
        if errors:
            before = "; ".join(map(self.describe, errors[:ERRORS_SHOWN]))
            failure.args = (f"{before}; since then, {failure}",)
            failure.__cause__ = errors[0]
            add_notes(failure, errors[1:])

    def add_to(self, failure: BaseException) -> None:
        """Add the errors that are not reported yet to another failure, as notes."""
        add_notes(failure, self.take())

    def raise_untold(self) -> None:
        """Raise the errors that are not reported yet.

        Raises:
            Exception: There is one error.
            ExceptionGroup: There are several.
        """
        errors = self.take()
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise self.group(errors)

    def _raiser_of(self, error: Exception) -> str:
        raisers = [raiser for each, raiser in self._raisers if each is error]
        return raisers[0] if raisers else CALLBACK


def add_notes(failure: BaseException, errors: Iterable[Exception]) -> None:
    """Add other exceptions to a failure as notes with tracebacks: nothing else reports them."""
    known = set(map(id, all_within(failure)))
    others = [error for error in errors if id(error) not in known]
    for error in others[:ERRORS_SHOWN]:
        failure.add_note(f"Beside that:\n{''.join(format_exception(error))}")


def all_within(failure: BaseException) -> list[BaseException]:
    """Return an exception, its causes and contexts, and the members of their groups."""
    found: list[BaseException] = []
    waiting: list[BaseException | None] = [failure]
    while waiting:
        error = waiting.pop()
        if error is None or any(each is error for each in found):
            continue
        found.append(error)
        waiting += [error.__cause__, error.__context__]
        if isinstance(error, BaseExceptionGroup):
            waiting += error.exceptions
    return found


# The host.

T = TypeVar("T")


class HostDriver(MediaDriver):
    """A media driver whose agents run in the context of a host, whichever task starts it."""

    host_context: Context

    async def start(self) -> None:
        """Start the agents on the host."""
        loop = asyncio.get_running_loop()
        await loop.create_task(super().start(), context=self.host_context.copy())

    async def _open_door(self, conductor: Conductor) -> None:
        """Open none: a simulated machine has no tools that could come in."""


class Host:
    """A machine with its processes.

    Args:
        name: Name that the network resolves to its address.
        machine: Its addresses and sockets.
        loop: The loop in virtual time.
        seed: Seed of its drivers' ids.
        failures: Collects what services raise.

    Attributes:
        name: As given.
        machine: As given.
        clock: Its own clock, which may drift and jump.
        drivers: Its drivers that are not closed, oldest first.
        is_down: Whether it has crashed and was not restarted.
    """

    def __init__(
        self,
        name: str,
        machine: SimHost,
        loop: VirtualTime,
        *,
        seed: str,
        failures: Failures,
    ) -> None:
        self.name = name
        self.machine = machine
        self.clock: HostClock = HostClock(loop)
        self.drivers: list[MediaDriver] = []
        self.is_down: bool = False
        self._loop = loop
        self._failures = failures
        self._pauses: set[object] = set()
        self._seeds = Random(seed)  # noqa: S311 - seeded on purpose
        self._services: list[Service] = []
        self._tasks: list[asyncio.Task[Any]] = []
        self._changing = asyncio.Lock()
        self._context = copy_context()
        self._context.run(OWNER.set, self)

    @property
    def address(self) -> str:
        """Return the address that its name resolves to."""
        return self.machine.addresses[0]

    # Drivers, clients and services.

    def driver(self, context: DriverContext | None = None) -> MediaDriver:
        """Return a media driver of this host, to be entered with `async with`.

        Its ids follow from the world's seed. It is closed with the host at the latest.
        """
        driver = HostDriver.launch(
            DriverContext() if context is None else context,
            network=self.machine,
            clock=self.clock,
            seed=self._seeds.getrandbits(64),
        )
        driver.host_context = self._context
        self.drivers = [each for each in self.drivers if not each.is_closed]
        self.drivers.append(driver)
        return driver

    def aeron(self, context: DriverContext | None = None) -> Aeron:
        """Return a client with its own driver on this host, to be entered with `async with`."""
        return Aeron(self.driver(context), is_driver_owned=True)

    def spawn(self, work: Coroutine[Any, Any, T], *, name: str | None = None) -> asyncio.Task[T]:
        """Run a coroutine on this host; it is cancelled when the host stops or crashes.

        An exception of it is raised again when the world is closed, even if another task awaits it.
        """
        task = self._run(work, name)
        task.add_done_callback(partial(self._on_done, f"task {task.get_name()!r}"))
        return task

    def start(self, service: Service) -> asyncio.Task[None]:
        """Run a service on this host, now and again after each restart."""
        self._services.append(service)
        return self._start(service)

    async def stop(self) -> None:
        """Shut down in order: cancel services, then close drivers, which deliver what was offered.

        Raises:
            ExceptionGroup: Some drivers failed to close; the others are closed.
        """
        async with self._changing:
            await self._stop()

    async def crash(self) -> None:
        """Lose power: no datagram leaves any more, and all tasks and drivers end.

        Awaiting it waits until the tasks have been unwound, which the network does not see.
        """
        self.is_down = self.machine.is_cut = True
        if self.machine.is_paused:
            self.resume()
        for driver in list(self.drivers):
            await driver.abort()
        async with self._changing:
            await self._cancel_tasks()
            for driver in self.drivers:
                await driver.abort()
            self.drivers.clear()

    async def restart(self) -> None:
        """Stop, unless the host has crashed, and start every service again."""
        async with self._changing:
            was_down = self.is_down
            if not was_down:
                await self._stop()
            if self.is_down and not was_down:
                # The host crashed during the await; the task that crashed it decides when it
                # restarts.
                return
            self.is_down = self.machine.is_cut = False
            for service in self._services:
                self._start(service)

    def pause(self) -> None:
        """Suspend all processes of the host until `resume`, as SIGSTOP does."""
        self._pause(self)

    def resume(self) -> None:
        """Continue all processes: sockets are read first, then missed timers run.

        This ends every pause.
        """
        self._pauses.clear()
        self.machine.resume()
        self._loop.release(self)

    async def pause_for(self, seconds: float) -> None:
        """Suspend the host for a while; of several pauses, the last to end resumes it."""
        pause = object()
        self._pause(pause)
        try:
            await asyncio.sleep(seconds)
        finally:
            # If `resume` was called during the sleep, this pause is not in the set any more.
            if pause in self._pauses:
                self._pauses.remove(pause)
                if not self._pauses:
                    self.resume()

    def _pause(self, pause: object) -> None:
        self._pauses.add(pause)
        self.machine.pause()
        self._loop.hold(self)

    async def _stop(self) -> None:
        if self.machine.is_paused:
            self.resume()
        errors: list[Exception] = []
        try:
            await self._cancel_tasks()
        finally:
            async with AsyncExitStack() as stack:
                for driver in reversed(self.drivers):
                    stack.push_async_callback(_close, driver, errors)
            self.drivers.clear()
        if errors:
            message = f"drivers of {self.name} could not be closed"
            raise ExceptionGroup(message, errors)

    async def _cancel_tasks(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _start(self, service: Service) -> asyncio.Task[None]:
        name = _name_of(service)
        task = self._run(service(self), f"{self.name}-{name}")
        task.add_done_callback(partial(self._on_done, f"service {name!r}"))
        return task

    def _run(self, work: Coroutine[Any, Any, T], name: str | None) -> asyncio.Task[T]:
        loop = asyncio.get_running_loop()
        task = loop.create_task(work, name=name, context=self._context.copy())
        self._tasks = [each for each in self._tasks if not each.done()]
        self._tasks.append(task)
        return task

    def _on_done(self, who: str, task: asyncio.Task[Any]) -> None:
        # Retrieve the exception always: otherwise the task reports it to the loop when it is
        # collected, at any time.
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception) and not self.is_down:
            self._failures.add(error, f"{who} on host {self.name!r}")

    def __repr__(self) -> str:
        return f"<Host {self.name} {self.address}>"


Service = Callable[[Host], Coroutine[Any, Any, None]]
"""What a host runs: a coroutine function that takes the host."""


async def _close(driver: MediaDriver, errors: list[Exception]) -> None:
    try:
        await driver.aclose()
    except Exception as error:  # noqa: BLE001 - raised when the other drivers have been closed
        errors.append(error)


def _name_of(service: object) -> str:
    return getattr(service, "__name__", type(service).__name__)
