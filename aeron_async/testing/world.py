"""A simulated world: hosts on a simulated network, with a leak check at its end.

In a world only the sockets, the clocks and the random numbers are simulated. The same world and
seed always give the same run, as far as its order is that of the loop and of asyncio. A story that
iterates over its own sets, or has its own task factory, must make that order repeatable itself.
"""

from __future__ import annotations

import asyncio
import gc
from contextlib import AsyncExitStack, contextmanager
from itertools import permutations
from random import Random
from typing import TYPE_CHECKING, Any, Final, Self

from aeron_async.clock import NS_PER_SECOND
from aeron_async.errors import ConfigurationError
from aeron_async.testing.host import Failures, Host, add_notes
from aeron_async.testing.sim_network import SimNetwork
from aeron_async.testing.tasks import describe_task, task_order
from aeron_async.testing.virtual_clock import VirtualLoop, VirtualTime

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from collections.abc import Set as AbstractSet
    from types import TracebackType

    from aeron_async.testing.fates import Conditions, Link

__all__ = [
    "LeakError",
    "World",
    "aclose_all",
    "simulate",
    "tell_and_close",
]

HOSTS_MAX: Final = 4096
YOUNG: Final = 1
"""The garbage collector's generations to collect when a world ends: its objects are young."""


class World:
    """Hosts, the network between them, and time.

    Make it inside a running `VirtualLoop`; `simulate` makes both.

    Args:
        seed: Seed of all random numbers; the same seed gives the same run.
        conditions: Conditions of every link that has none of its own.

    Attributes:
        seed: As given.
        random: Random numbers for users of the world; the network has its own.
        network: Network of the hosts.
        failures: What services and callbacks raised, with what raised it, and whether it was
            reported.
        errors: All errors of services and callbacks so far.

    Raises:
        ConfigurationError: The running loop is not in virtual time.
    """

    def __init__(self, *, seed: int = 0, conditions: Conditions | None = None) -> None:
        loop = asyncio.get_running_loop()
        if not isinstance(loop, VirtualTime):
            message = f"a World needs a VirtualLoop, and this is a {type(loop).__name__}"
            raise ConfigurationError(message)
        self.seed = seed
        self.random: Random = Random(seed)  # noqa: S311 - seeded on purpose
        self.loop = loop
        self.network: SimNetwork = SimNetwork(loop, seed=seed, conditions=conditions)
        self.failures: Failures = Failures(loop)
        self.errors: list[Exception] = self.failures.errors
        self._hosts: dict[str, Host] = {}
        loop.set_exception_handler(self.failures.on_exception)

    @property
    def now_ns(self) -> int:
        """Return true time: virtual nanoseconds since the loop was made."""
        return self.loop.now_ns

    @property
    def hosts(self) -> tuple[Host, ...]:
        """Return every host, oldest first."""
        return tuple(self._hosts.values())

    def host(self, name: str, *addresses: str) -> Host:
        """Return the host with a name, which resolves to it; make it if there is none yet.

        Args:
            name: Such as `alice`.
            addresses: Numeric; if none is given, the next free one of 10.0.0.0/16.

        Raises:
            ConfigurationError: Too many hosts, or an address that is taken or not valid.
        """
        host = self._hosts.get(name)
        if host is None:
            number = len(self._hosts) + 1
            if number > HOSTS_MAX:
                message = f"a world has {HOSTS_MAX} hosts at most"
                raise ConfigurationError(message)
            own = addresses or (f"10.0.{number >> 8}.{number & 0xFF}",)
            machine, seed = self.network.add_host(*own), f"{self.seed}/{name}"
            host = Host(name, machine, self.loop, seed=seed, failures=self.failures)
            self.network.names[name] = own[0]
            self._hosts[name] = host
        return host

    async def sleep(self, seconds: float) -> None:
        """Let virtual time pass."""
        await asyncio.sleep(seconds)

    # The network.

    def link(self, source: Host, destination: Host) -> Link:
        """Return the link from one host to another; the way back is another link."""
        return self.network.link(source.machine, destination.machine)

    def set_conditions(self, conditions: Conditions, *hosts: Host) -> None:
        """Change the conditions of every link between these hosts, or between all hosts."""
        for source, destination in permutations(hosts or self.hosts, 2):
            self.link(source, destination).set_conditions(conditions)

    def partition(self, *hosts: Host, is_one_way: bool = False) -> None:
        """Cut these hosts off from all others, until `heal`.

        Args:
            hosts: Hosts to cut off; they still reach one another, unless another fault cuts them.
            is_one_way: Whether they still receive what others send.
        """
        for link in self._links_around(hosts, is_one_way=is_one_way):
            link.cut(self)

    def heal(self) -> None:
        """Restore every link between hosts, whatever has cut it."""
        for source, destination in permutations(self.hosts, 2):
            self.link(source, destination).is_up = True

    @contextmanager
    def partitioned(self, *hosts: Host, is_one_way: bool = False) -> Iterator[None]:
        """Cut hosts off for the duration of the block; other cuts stay."""
        links = self._links_around(hosts, is_one_way=is_one_way)
        cutter = object()
        for link in links:
            link.cut(cutter)
        try:
            yield
        finally:
            for link in links:
                link.mend(cutter)

    def _links_around(self, hosts: tuple[Host, ...], *, is_one_way: bool) -> list[Link]:
        """Return the links from these hosts to all others, and back unless one way."""
        ways = [(host, other) for other in self.hosts if other not in hosts for host in hosts]
        links = [self.link(*way) for way in ways]
        if not is_one_way:
            links += [self.link(other, host) for host, other in ways]
        return links

    # The end.

    async def aclose(self) -> None:
        """Stop every host, services first; what was offered is still delivered.

        If a host fails to stop, the others are still stopped. Each error is raised once, even if
        the world is closed several times.

        Raises:
            ExceptionGroup: What services and callbacks raised, and hosts that could not be stopped.
        """
        async with AsyncExitStack() as stack:
            for host in reversed(self.hosts):
                stack.push_async_callback(self._stop, host)
        # A forgotten task reports its failure when it is freed, perhaps only by the collector:
        # collect now, so that it counts for this world and not for a later one.
        gc.collect(YOUNG)
        if errors := self.failures.take():
            raise self.failures.group(errors)

    async def _stop(self, host: Host) -> None:
        try:
            await host.stop()
        except Exception as error:  # noqa: BLE001 - raised when every host has been stopped
            self.failures.add(error, f"the end of host {host.name!r}")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self.aclose()
        except ExceptionGroup as group:
            if exc is None:
                raise
            add_notes(exc, group.exceptions)


def simulate(
    story: Callable[[World], Awaitable[Any]],
    *,
    seed: int = 0,
    conditions: Conditions | None = None,
    limit_s: float = 3_600.0,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] = VirtualLoop,
) -> Any:
    """Run a story in a new world, and return its result.

    Args:
        story: Coroutine function that takes the world.
        seed: Seed of all random numbers.
        conditions: Conditions of every link that has none of its own.
        limit_s: Virtual seconds after which the story counts as stuck.
        loop_factory: Makes a loop in virtual time.

    Raises:
        TimeLimitError: The limit passed.
        DeadlockError: Every task waits and nothing is scheduled.
        LivelockError: Tasks kept one another busy without a pause.
        ExceptionGroup: What services and callbacks raised. If the story itself raises or gets
            stuck, that is raised, with these errors as notes.
    """

    async def main() -> Any:
        async with World(seed=seed, conditions=conditions) as world:
            world.loop.limit_ns = world.now_ns + round(limit_s * NS_PER_SECOND)
            return await story(world)

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(main())


SETTLING_S: Final = 0.01
"""Virtual seconds for cancelled tasks to end."""


class LeakError(AssertionError):
    """A socket or a task is still open after the world was closed."""


async def aclose_all(world: World, *, others: AbstractSet[asyncio.Task[Any]] = frozenset()) -> None:
    """Close a world, and check that nothing is left open.

    Args:
        world: World to be closed.
        others: Tasks that do not belong to the world.

    Raises:
        ExceptionGroup: Callbacks raised exceptions that no code handled.
        LeakError: Sockets or tasks are left.
    """
    await world.aclose()
    await world.sleep(SETTLING_S)
    left = [
        f"{host.machine.socket_count} sockets of {host.name}"
        for host in world.hosts
        if host.machine.socket_count
    ]
    tasks = asyncio.all_tasks() - others - {asyncio.current_task()}
    left += [f"task {describe_task(task)}" for task in sorted(tasks, key=task_order)]
    if left:
        message = f"left open when the test was over: {'; '.join(left)}"
        raise LeakError(message)


async def tell_and_close(story: Callable[[World], Awaitable[Any]], world: World) -> Any:
    """Run a story, then close its world, and check that nothing is left open.

    Raises:
        LeakError: Sockets or tasks are left.
    """
    others = asyncio.all_tasks()
    result = await story(world)
    await aclose_all(world, others=others)
    return result
