"""A host of a world: its clock, its drivers, and the services that run on it.

Invariant: whatever runs on a host runs in its context, so that the host can stand still, lose
power, and start again, without anybody inside knowing how.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from contextvars import Context, copy_context
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from aeron_async.client.aeron import Aeron
from aeron_async.driver.core.context import DriverContext
from aeron_async.driver.media_driver import MediaDriver
from aeron_async.testing.host_clock import HostClock
from aeron_async.testing.virtual_clock import OWNER

if TYPE_CHECKING:
    from aeron_async.testing.failures import Failures
    from aeron_async.testing.sim_host import SimHost
    from aeron_async.testing.virtual_clock import VirtualTime

__all__ = ["Host", "Service"]

T = TypeVar("T")


class HostDriver(MediaDriver):
    """A media driver whose agents run on a host, whoever starts it."""

    host_context: Context

    async def start(self) -> None:
        """Start the agents on the host."""
        loop = asyncio.get_running_loop()
        await loop.create_task(super().start(), context=self.host_context.copy())


class Host:
    """One machine with its processes.

    Args:
        name: As the network resolves it.
        machine: Its addresses and sockets.
        loop: The loop in virtual time.
        seed: Of its drivers' ids.
        failures: Takes what services raise.

    Attributes:
        name: As given.
        machine: As given.
        clock: Its own; it may drift and jump.
        drivers: Those that were made here and not closed, oldest first.
        is_down: Whether it has crashed and not been restarted.
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
        self.clock = HostClock(loop)
        self.drivers: list[MediaDriver] = []
        self.is_down = False
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

    # What runs here.

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

        What it raises is raised again when the world is closed, whoever awaits it.
        """
        task = self._run(work, name)
        task.add_done_callback(partial(self._on_done, f"task {task.get_name()!r}"))
        return task

    def start(self, service: Service) -> asyncio.Task[None]:
        """Run a service on this host, now and again after each restart."""
        self._services.append(service)
        return self._start(service)

    async def stop(self) -> None:
        """Stop in good order: services are cancelled, then drivers deliver and say goodbye.

        Raises:
            ExceptionGroup: Drivers could not be closed in good order; the others are.
        """
        async with self._changing:
            await self._stop()

    async def crash(self) -> None:
        """Lose power: nothing more leaves, nothing is said, and whatever ran is gone.

        Awaiting it waits until all that ran here has been unwound, which the network does not see.
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
        """Stop, unless it has crashed, and start every service again."""
        async with self._changing:
            was_down = self.is_down
            if not was_down:
                await self._stop()
            if self.is_down and not was_down:
                # It has crashed meanwhile, and whoever crashed it says when it is back.
                return
            self.is_down = self.machine.is_cut = False
            for service in self._services:
                self._start(service)

    def pause(self) -> None:
        """Let everything here stand still until `resume`, as SIGSTOP or a machine that hangs."""
        self._pause(self)

    def resume(self) -> None:
        """Let everything go on: sockets are read first, then come the timers that were missed.

        It ends every pause.
        """
        self._pauses.clear()
        self.machine.resume()
        self._loop.release(self)

    async def pause_for(self, seconds: float) -> None:
        """Stand still for a while; of several pauses the last to end lets everything go on."""
        pause = object()
        self._pause(pause)
        try:
            await asyncio.sleep(seconds)
        finally:
            # Empty where somebody has resumed meanwhile, and another pause is none of ours.
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
        # Asked even where nobody wants it: a task that keeps its exception tells the loop when it
        # is collected, which is any time.
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception) and not self.is_down:
            self._failures.add(error, f"{who} on host {self.name!r}")

    def __repr__(self) -> str:
        return f"<Host {self.name} {self.address}>"


Service = Callable[[Host], Coroutine[Any, Any, None]]
"""What a host runs: a coroutine function that is given the host."""


async def _close(driver: MediaDriver, errors: list[Exception]) -> None:
    try:
        await driver.aclose()
    except Exception as error:  # noqa: BLE001 - raised when the other drivers have been closed
        errors.append(error)


def _name_of(service: object) -> str:
    return getattr(service, "__name__", type(service).__name__)
