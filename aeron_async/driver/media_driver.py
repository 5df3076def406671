"""The media driver: sender, receiver and conductor in one event loop, owned by one object.

Invariant: nothing here keeps a cancel scope open between entering and leaving, so a driver may be
entered in one task and left in another, as a pytest fixture does.

Source: Aeron `MediaDriver`.
"""

from __future__ import annotations

import asyncio
import os
import random
import warnings
from functools import partial
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self, cast, overload
from weakref import WeakSet

import anyio

from aeron_async.clock import NS_PER_SECOND, SystemClock
from aeron_async.counters import CountersManager
from aeron_async.door import StatsDoor
from aeron_async.doorbell import DriverBells
from aeron_async.driver.client_command_adapter import RING_WORDS, ClientCommandAdapter
from aeron_async.driver.conductor import Conductor
from aeron_async.driver.core.context import DOOR_OFF, DriverContext
from aeron_async.driver.core.suppliers import name_resolver
from aeron_async.driver.core.system_counters import SystemCounterId, SystemCounters
from aeron_async.driver.media.lossy_network import LossyNetwork
from aeron_async.driver.media.network import SystemNetwork
from aeron_async.driver.name_resolution import ResolvingNetwork
from aeron_async.driver.name_resolver_agent import NameResolverAgent
from aeron_async.driver.own_loop import InvokedMediaDriver, ThreadedMediaDriver, with_directory
from aeron_async.driver.resources import DriverResources
from aeron_async.driver.stall_clock import StallClock, StallLog
from aeron_async.driver.storage import DirectoryStorage, DriverStorage, MemoryStorage
from aeron_async.errors import (
    ClosedError,
    ConfigurationError,
    DoorInUseError,
    DriverError,
    WrongLoopError,
)
from aeron_async.health import not_ready
from aeron_async.idle_strategy import idle_strategy_of
from aeron_async.logs import LogBudget, get_logger
from aeron_async.tasks import TaskOwner, make_in_thread, running_loop
from aeron_async.text import printable
from aeron_async.watcher import Watcher, check_watcher

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from types import TracebackType

    from aeron_async.clock import Clock
    from aeron_async.driver.core.suppliers import NameResolver
    from aeron_async.driver.media.network import Network, TransportKind
    from aeron_async.driver.own_loop import LoopFactory
    from aeron_async.stats import Stats

__all__ = ["DOOR_NAME", "MediaDriver"]

DOOR_NAME: Final = "stats.sock"
"""The door of a driver in its Aeron directory."""
NAMED_MAX: Final = 8
"""Most publications that one line of the log names."""

log: Final = get_logger(__name__)


class MediaDriver:
    """An embedded media driver: `async with MediaDriver.launch() as driver`.

    Or `driver = await MediaDriver.launch()`, which runs until `aclose`.

    Attributes:
        context: Its settings.
    """

    def __init__(
        self,
        context: DriverContext,
        *,
        network: Network,
        clock: Clock,
        random_source: random.Random,
    ) -> None:
        self.context = context
        self._network = network
        self._clock = StallClock(clock, threshold_ns=context.loop_lag_threshold_ns)
        self._random = random_source
        self._conductor: Conductor | None = None
        self._counters: CountersManager | None = None
        self._storage: DriverStorage | None = None
        self._watcher: Watcher | None = None
        self._door: StatsDoor | None = None
        self._resolver_agent: NameResolverAgent | None = None
        self._tasks = TaskOwner()
        self._closing = TaskOwner()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = os.getpid()
        self._is_closing = False
        self._is_aborted = False
        self._closed = asyncio.Event()
        self._error: Exception | None = None

    @overload
    @classmethod
    def launch(
        cls,
        context: DriverContext | None = None,
        *,
        network: Network | None = None,
        clock: Clock | None = None,
        seed: int | None = None,
        thread: Literal[False] = False,
    ) -> Self: ...

    @overload
    @classmethod
    def launch(
        cls,
        context: DriverContext | None = None,
        *,
        network: Network | None = None,
        clock: Clock | None = None,
        seed: int | None = None,
        thread: Literal[True],
        loop_factory: LoopFactory | None = None,
    ) -> ThreadedMediaDriver: ...

    @overload
    @classmethod
    def launch(
        cls,
        context: DriverContext | None = None,
        *,
        network: Network | None = None,
        clock: Clock | None = None,
        seed: int | None = None,
        invoker: Literal[True],
        loop_factory: LoopFactory | None = None,
    ) -> InvokedMediaDriver: ...

    @classmethod
    def launch(
        cls,
        context: DriverContext | None = None,
        *,
        network: Network | None = None,
        clock: Clock | None = None,
        seed: int | None = None,
        thread: bool = False,
        invoker: bool = False,
        loop_factory: LoopFactory | None = None,
    ) -> Self | ThreadedMediaDriver | InvokedMediaDriver:
        """Return a driver that starts when it is entered with `async with`, or awaited.

        Args:
            context: Its settings; by default read from the environment.
            network: Opens its sockets; by default the machine's own network.
            clock: Its clock; by default the machine's own.
            seed: Makes its session, term and receiver ids repeatable; for tests.
            thread: Whether it runs in a thread of its own, where a blocked event loop of the
                application does not stall it. It serves its clients through an Aeron directory:
                that of the context, or else a temporary one.
            invoker: Whether the application steps it, by `do_work`, where no event loop runs.
            loop_factory: With a thread or an invoker, makes its event loop; by default uvloop's if
                that is installed, and otherwise asyncio's.

        Raises:
            ConfigurationError: A variable in the environment has an invalid value; both a thread
                and an invoker are asked for; or there is a `loop_factory` without either.
        """
        context = DriverContext.from_environment() if context is None else context
        if thread and invoker:
            message = "a driver runs in a thread or is stepped: leave out thread= or invoker="
            raise ConfigurationError(message)
        if loop_factory is not None and not (thread or invoker):
            message = (
                "loop_factory is for a driver with an event loop of its own: write thread=True or "
                "invoker=True, or leave it out"
            )
            raise ConfigurationError(message)
        driver = cls(
            with_directory(context) if thread else context,
            network=system_network(context) if network is None else network,
            clock=SystemClock() if clock is None else clock,
            random_source=random.SystemRandom() if seed is None else random.Random(seed),  # noqa: S311 - a seed is for tests
        )
        if thread:
            return ThreadedMediaDriver(driver, loop_factory)
        return InvokedMediaDriver(driver, loop_factory) if invoker else driver

    @property
    def conductor(self) -> Conductor:
        """Return the conductor, for clients.

        Raises:
            ClosedError: The driver has not been started, or is closed.
            WrongLoopError: Called from another event loop or process.
        """
        if self._conductor is None or self._is_closing:
            if self._error is not None:
                message = f"the media driver failed: {self._error}"
                raise ClosedError(message) from self._error
            message = (
                "the media driver is closed, and starts once: call MediaDriver.launch()"
                if self._is_closing
                else "the media driver has not been started: write `async with "
                "MediaDriver.launch() as driver`, or `driver = await MediaDriver.launch()`"
            )
            raise ClosedError(message)
        self._check_loop()
        return self._conductor

    @property
    def clock(self) -> Clock:
        """Return the clock of its agents; its monotonic time leaves out stalls of the loop."""
        return self._clock

    @property
    def counters(self) -> CountersManager:
        """Return the driver's counters.

        Raises:
            ClosedError: The driver has not been started.
            WrongLoopError: Called in a child process that is forked, which has not their memory.
        """
        if self._counters is None:
            message = "the media driver has no counters before it is started"
            raise ClosedError(message)
        if os.getpid() != self._pid and self.context.aeron_directory is not None:
            message = "the media driver belongs to the parent of this process: attach a client"
            raise WrongLoopError(message)
        return self._counters

    def stats(self) -> Stats:
        """Return the statistics of this moment: streams, receivers, losses, and the driver itself.

        It takes a microsecond a stream, or two: with thousands of streams, prefer `gather_stats`.

        Raises:
            ClosedError: The driver has not been started, or is closed.
            WrongLoopError: Called from another event loop or process.
        """
        return self.conductor.stats.take()

    async def gather_stats(self) -> Stats:
        """Return the statistics of about now; the loop runs other tasks between a few streams.

        What is said of one stream is of one moment.

        Raises:
            ClosedError: The driver has not been started, or is closed.
            WrongLoopError: Called from another event loop or process.
        """
        return await self.conductor.stats.take_in_slices()

    async def dump(self, directory: str | os.PathLike[str]) -> None:
        """Write the counters, the error log and the loss report as files that Aeron's tools read.

        They show this moment, and are no driver that a client could use. The file of the counters
        is as long as a driver's, but most of it is a hole.

        Args:
            directory: Where to write `cnc.dat` and `loss-report.dat`; new, or empty.

        Raises:
            DriverError: The directory is not empty, or cannot be written.
            ClosedError: The driver has not been started, or is closed.
            WrongLoopError: Called from another event loop or process.
        """
        dump = self.conductor.dump()
        await anyio.to_thread.run_sync(dump.write, Path(directory))

    def _on_forked(self) -> None:
        """Let no reader touch the counters in a child process, which has not their memory."""
        if self._counters is not None:
            self._counters.release()

    @property
    def is_closed(self) -> bool:
        """Return whether the driver is closed, or about to be."""
        return self._is_closing

    @property
    def _work_count(self) -> int:
        """Return a number that grows with the work of the agents."""
        conductor, counters = self._conductor, self._counters
        if conductor is None or counters is None:
            return 0
        agents = (conductor.sender, conductor.receiver, conductor)
        moved = (SystemCounterId.BYTES_SENT, SystemCounterId.BYTES_RECEIVED)
        return sum(each.cycle_count for each in agents) + sum(map(counters.value, moved))

    async def start(self) -> None:
        """Start the agents in the running event loop; if that fails, nothing is left.

        Raises:
            ClosedError: The driver has been started or closed before, or is closed during the call.
            ConfigurationError: An Aeron directory needs Linux and compiled code, or the settings
                allow no such driver.
            DriverError: Another driver uses the Aeron directory, or it cannot be made; or the
                socket of the name resolver cannot be bound.
            OSError: The system gives no thread, no descriptor, or no memory for the counters.
            WrongLoopError: No event loop of asyncio runs here.
        """
        if self._loop is not None or self._is_closing:
            message = "this media driver was started, and starts once: call MediaDriver.launch()"
            raise ClosedError(message)
        self._loop = running_loop()
        try:
            self._storage = await self._open_storage()
            await self._begin(self._loop, self._storage)
        except BaseException:
            self._abort()
            raise

    async def _begin(self, loop: asyncio.AbstractEventLoop, storage: DriverStorage) -> None:
        """Make the parts of the driver, and start its agents.

        Raises:
            ClosedError: The driver was closed while its files were made, or its resolver's socket.
            ConfigurationError: The door cannot be opened where the settings say.
        """
        self._check_not_closing()
        context = self.context
        self._counters = CountersManager(
            storage.counter_values,
            storage.counter_metadata,
            free_to_reuse_timeout_ms=context.counters_free_to_reuse_timeout_ns // 1_000_000,
            epoch_ms=self._clock.epoch_ms,
        )
        system_counters = SystemCounters(
            self._counters, context, log_budget=LogBudget(self._clock.now_ns)
        )
        resources = DriverResources(
            context=context,
            clock=self._clock,
            random=self._random,
            storage=storage,
            network=ResolvingNetwork(
                LossyNetwork.of(self._network, context),
                await self._name_resolver(self._counters, system_counters),
                clock=self._clock,
                system_counters=system_counters,
                threshold_ns=context.name_resolver_threshold_ns,
            ),
            counters_manager=self._counters,
            system_counters=system_counters,
        )
        stall_log = self._clock.stall_log = StallLog(
            system_counters, threshold_ns=context.loop_lag_threshold_ns
        )
        if loop.get_debug():
            stall_log.watch_callbacks()
        conductor = self._conductor = Conductor(resources)
        if self._resolver_agent is not None:
            conductor.resolver_agent = self._resolver_agent
            self._resolver_agent.wake = conductor.wake
        # Clients find no driver that cannot open its door.
        await self._open_door(conductor)
        if isinstance(storage, DirectoryStorage):
            conductor.adapter = self._make_adapter(loop, resources, storage, conductor)
            storage.publish(self._clock.epoch_ms())
        for agent in (conductor.sender, conductor.receiver, conductor):
            task = self._tasks.start(agent.run(), f"aeron-{agent.role_name}")
            task.add_done_callback(self._on_agent_done)

    def _make_adapter(
        self,
        loop: asyncio.AbstractEventLoop,
        resources: DriverResources,
        storage: DirectoryStorage,
        conductor: Conductor,
    ) -> ClientCommandAdapter:
        """Return what serves the clients of an Aeron directory."""
        context, counters = self.context, resources.counters_manager
        # Each watched log or position has a counter of its own.
        watcher = self._watcher = Watcher(
            loop,
            idle_strategy_of(context.idle_strategy, context.idle_strategy_init_args),
            word_limit=counters.limit + RING_WORDS,
        )
        return ClientCommandAdapter(
            resources,
            storage,
            conductor,
            watcher,
            self._terminate,
            DriverBells(counters, storage.counter_values, watcher),
        )

    async def _open_door(self, conductor: Conductor) -> None:
        """Open the door for tools: where the settings say, or in the Aeron directory.

        The driver runs without if another process has opened it, or if nobody has asked for it.

        Raises:
            ConfigurationError: It cannot be opened where the settings say.
        """
        path, directory = self.context.stats_socket, self.context.aeron_directory
        if path == DOOR_OFF or (path is None and directory is None):
            return
        name = str(Path(directory or "") / DOOR_NAME) if path is None else path
        try:
            self._door = StatsDoor(
                name,
                conductor.stats.take_in_slices,
                version=installed_version("aeron-async"),
                pid=os.getpid(),
                recent=lambda: conductor.stats.latest,
                extra={"live": lambda: True, "ready": partial(why_not_ready, conductor)},
            )
            await self._door.start()
        except ConfigurationError as error:
            self._door = None
            # A process inherits the setting with its environment: another one may have opened it.
            if path is not None and not isinstance(error, DoorInUseError):
                raise
            reason = f"{error}; set `stats_socket` to another path, or to `{DOOR_OFF}`"
            log.warning("door_not_opened", path=printable(name), reason=reason)

    async def _name_resolver(
        self, counters_manager: CountersManager, system_counters: SystemCounters
    ) -> NameResolver:
        """Return the resolver of names, which knows those of drivers if this one has a name."""
        context = self.context
        resolver = name_resolver(context, self._network, counters_manager)
        if context.resolver_interface is None:
            return resolver
        self._resolver_agent = await NameResolverAgent.open(
            context,
            self._network,
            resolver,
            clock=self._clock,
            counters_manager=counters_manager,
            system_counters=system_counters,
        )
        self._check_not_closing()
        return self._resolver_agent.resolver

    def _check_not_closing(self) -> None:
        if self._is_closing:
            message = "the media driver was closed before it had started"
            raise ClosedError(message)

    async def _open_storage(self) -> DriverStorage:
        """Return the memory of the driver's state, or the files."""
        if self.context.aeron_directory is None:
            return MemoryStorage(self.context)
        SHARING.add(self)
        # Before the directory of a dead driver is removed.
        check_watcher()
        # Memory is allocated to the files, which takes long on a slow disk.
        return await make_in_thread(
            lambda: DirectoryStorage(self.context, self._clock.epoch_ms()), DirectoryStorage.close
        )

    def _terminate(self) -> None:
        """Close because a client asks for it."""
        if not self._is_closing:
            self._closing.start(self.aclose(), "aeron-terminate")

    async def wait_closed(self) -> None:
        """Wait until the driver has closed: by its owner, by a client that may, or by an error.

        Raises:
            DriverError: The driver failed.
        """
        await self._closed.wait()
        if self._conductor is not None:
            await self._conductor.wait_closed()
        if self._error is not None:
            raise self._error

    async def aclose(self) -> None:
        """Close in order: first the clients, then send what is left, then close the sockets.

        Publications get up to `close_linger_timeout_ns` to deliver their data. Later calls wait for
        the first one. Cancelling the call closes the driver at once.

        Raises:
            WrongLoopError: Called from another event loop or process.
        """
        if self._end_unstarted():
            return
        self._check_loop()
        if not self._is_closing:
            self._is_closing = True
            if self._conductor is not None:
                try:
                    await self._drain(self._conductor)
                finally:
                    self._abort()
        await self._wait_until_closed()

    async def abort(self) -> None:
        """Close at once without sending what is left; the same as cancelling `aclose`.

        Raises:
            WrongLoopError: Called from another event loop or process.
        """
        if self._end_unstarted():
            return
        self._check_loop()
        self._is_closing = True
        if self._conductor is not None:
            self._abort()
        await self._wait_until_closed()

    def _end_unstarted(self) -> bool:
        """Close a driver that was not started; return whether there is nothing to wait for."""
        if self._loop is None:
            self._is_closing = True
            self._closed.set()
        return self._conductor is None and self._closed.is_set()

    async def _wait_until_closed(self) -> None:
        """Wait for the end of the agents, or of a start that finds the driver closed."""
        with anyio.CancelScope(shield=True):
            await self._closed.wait()
            if self._door is not None:
                await self._door.aclose()
            if self._conductor is not None:
                await self._conductor.wait_closed()

    async def _drain(self, conductor: Conductor) -> None:
        """Remove the clients, and wait until their data was delivered, or for the timeout."""
        conductor.release_clients(None)
        timeout_s = self.context.close_linger_timeout_ns / NS_PER_SECOND
        with anyio.move_on_after(timeout_s) as scope:
            await conductor.drain()
        if scope.cancelled_caught:
            left = (*conductor.network_publications, *conductor.ipc_publications)
            named = [f"{each.channel} stream {each.stream_id}" for each in left[:NAMED_MAX]]
            log.warning(
                "driver_closed_before_drained",
                timeout_s=timeout_s,
                publication_count=len(left),
                publications=printable(", ".join(named)),
                remedy="await publication.drain() first, or raise close_linger_timeout_ns",
            )

    def _abort(self) -> None:
        """Stop the agents and free everything now; if one step fails, do the others."""
        if self._is_aborted:
            return
        self._is_aborted = self._is_closing = True
        self._tasks.cancel()
        steps: list[Callable[[], object]] = []
        if self._door is not None:
            steps.append(self._door.close)
        if self._conductor is not None:
            steps += [partial(self._conductor.release_clients, self._error), self._conductor.close]
        if self._resolver_agent is not None:
            steps.append(self._resolver_agent.close)
        if self._watcher is not None:
            # It holds memory of the storage.
            steps.append(self._watcher.close)
        if self._storage is not None:
            steps.append(self._storage.close)
        for step in steps:
            try:
                step()
            except Exception as error:
                log.error("closing_failed", exc_info=error)  # noqa: TRY400 - it is given the error
        if not len(self._tasks):
            self._closed.set()

    def _on_agent_done(self, task: asyncio.Task[None]) -> None:
        """End the driver with its agent: an agent ends only with the driver, or by an error."""
        error = None if task.cancelled() else task.exception()
        if error is not None and self._error is None:
            log.error("agent_failed", agent=task.get_name(), exc_info=error)
            self._error = DriverError(f"{task.get_name()} failed: {error!r}")
            self._error.__cause__ = error
        is_unclosed = task.cancelled() and not self._is_closing
        self._abort()
        if not len(self._tasks):
            self._closed.set()
        if is_unclosed:
            # asyncio warns of transports in the same way: all is freed, but unsent data is lost.
            message = f"unclosed {self!r}: its event loop ended before `await aclose()`"
            warnings.warn(message, ResourceWarning, source=self, stacklevel=1)

    def _check_loop(self) -> None:
        if asyncio.get_running_loop() is not self._loop or os.getpid() != self._pid:
            message = "the media driver was started in another event loop or process"
            raise WrongLoopError(message)

    def __await__(self) -> Generator[Any, None, Self]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Self:
        """Start the driver, unless it was awaited before."""
        if self._loop is None or self._is_closing:
            await self.start()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()
        if self._error is not None and exc is None:
            raise self._error


SHARING: Final[WeakSet[MediaDriver]] = WeakSet()
"""The drivers whose memory other processes share, and no child process that is forked has."""


def release_in_child() -> None:
    """Let nothing read the parent's counters; called in a child process, before anything else."""
    for driver in list(SHARING):
        driver._on_forked()


os.register_at_fork(after_in_child=release_in_child)


async def why_not_ready(conductor: Conductor) -> list[str]:
    """Return which streams of a driver do not work, and which budget is full."""
    return not_ready(await conductor.stats.take_in_slices())


def system_network(context: DriverContext) -> Network:
    """Return the machine's own network, with the settings of the context."""
    return SystemNetwork(
        transport=cast("TransportKind", context.transport),
        burst_limit=context.datagram_burst_limit,
    )
