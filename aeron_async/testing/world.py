"""A world in a bottle: hosts on a simulated network, with a leak check at its end.

Everything in a world is the real thing but for the sockets, the clocks and the dice. A world and
its seed always give the same run, as far as its order is the loop's and asyncio's; a story that
iterates over sets of its own, or has a task factory of its own, must make that order repeatable
itself.
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
"""The generations of objects that the collector looks at when a world ends: they are its own."""


class World:
    """Hosts, the network between them, and time.

    To be made inside a running `VirtualLoop`; `simulate` makes both.

    Args:
        seed: Of all dice; the same seed tells the same story.
        conditions: Of every link that is not given its own.

    Attributes:
        seed: As given.
        random: Dice for whoever builds on the world; the network has its own.
        network: What joins the hosts.
        failures: What services and callbacks raised, by whom, and whether it has been told.
        errors: What they raised, as soon as they did.

    Raises:
        ConfigurationError: The running loop is none in virtual time.
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
        """Return the host of this name, which resolves to it; made when there is none yet.

        Args:
            name: Such as `alice`.
            addresses: Numeric; when none is given, the next free one of 10.0.0.0/16.

        Raises:
            ConfigurationError: Too many hosts, or addresses that are taken or no addresses.
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
        """Make every link between these hosts, or between all, better or worse from now on."""
        for source, destination in permutations(hosts or self.hosts, 2):
            self.link(source, destination).set_conditions(conditions)

    def partition(self, *hosts: Host, is_one_way: bool = False) -> None:
        """Cut these hosts off from all others, until `heal`.

        Args:
            hosts: Who is cut off; they still reach one another, unless something else cuts them.
            is_one_way: Whether they still hear what they are sent.
        """
        for link in self._links_around(hosts, is_one_way=is_one_way):
            link.cut(self)

    def heal(self) -> None:
        """Let everybody reach everybody again, whoever has cut them off."""
        for source, destination in permutations(self.hosts, 2):
            self.link(source, destination).is_up = True

    @contextmanager
    def partitioned(self, *hosts: Host, is_one_way: bool = False) -> Iterator[None]:
        """Cut hosts off for as long as the block lasts; what else is cut stays so."""
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
        """Return the links that lead from these hosts to all others, and back."""
        ways = [(host, other) for other in self.hosts if other not in hosts for host in hosts]
        links = [self.link(*way) for way in ways]
        if not is_one_way:
            links += [self.link(other, host) for host, other in ways]
        return links

    # The end.

    async def aclose(self) -> None:
        """Stop every host, services first; what was offered is still delivered.

        Whatever fails, the other hosts are stopped. Each error is raised once, however often a
        world is closed.

        Raises:
            ExceptionGroup: What services and callbacks raised, and hosts that could not be stopped.
        """
        async with AsyncExitStack() as stack:
            for host in reversed(self.hosts):
                stack.push_async_callback(self._stop, host)
        # A task that was forgotten tells of its failure when it is freed, which may take the
        # collector: it is this world's failure, not that of the world that runs then.
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
    """Run a story in a world of its own, and return what it returns.

    Args:
        story: Given the world.
        seed: Of all dice.
        conditions: Of every link that is not given its own.
        limit_s: Virtual seconds after which the story is taken to be stuck.
        loop_factory: Makes a loop in virtual time.

    Raises:
        TimeLimitError: The limit passed.
        DeadlockError: Every task waits and nothing is scheduled.
        LivelockError: Tasks kept one another busy without a pause.
        ExceptionGroup: What services and callbacks raised. Where the story raises, or comes to no
            end, that is raised, and tells of these.
    """

    async def main() -> Any:
        async with World(seed=seed, conditions=conditions) as world:
            world.loop.limit_ns = world.now_ns + round(limit_s * NS_PER_SECOND)
            return await story(world)

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(main())


SETTLING_S: Final = 0.01
"""Virtual seconds in which what was cancelled last comes to its end."""


class LeakError(AssertionError):
    """Something is still open after the world was closed."""


async def aclose_all(world: World, *, others: AbstractSet[asyncio.Task[Any]] = frozenset()) -> None:
    """Close a world, and see that nothing is left.

    Args:
        world: To be closed.
        others: Tasks that are none of the world's business.

    Raises:
        ExceptionGroup: Callbacks raised something that nobody handled.
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
    """Let a story happen, then close its world, and see that nothing is left.

    Raises:
        LeakError: Sockets or tasks are left.
    """
    others = asyncio.all_tasks()
    result = await story(world)
    await aclose_all(world, others=others)
    return result
