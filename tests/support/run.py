"""One scenario from beginning to end, audited at every datagram.

`Auditor` checks safety all the time. When the troubles are over, `Run` demands that everything
works within a bound (N6, by the name it has in the documentation); then it closes everything, and
all of it must be gone.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import attrs

from aeron_async.clock import NS_PER_SECOND
from aeron_async.driver.core.context import DriverContext
from aeron_async.testing.recorder import Recorder, ViolationError
from aeron_async.testing.virtual_clock import VirtualLoop
from aeron_async.testing.world import simulate
from tests.drivers import embedded
from tests.support.nemesis import Nemesis
from tests.support.wire_auditor import WireAuditor
from tests.support.workload import Publisher, Subscriber

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.driver.media_driver import MediaDriver
    from aeron_async.testing.host import Host
    from aeron_async.testing.recorder import Received
    from aeron_async.testing.trace import Watcher
    from aeron_async.testing.world import World
    from tests.support.scenario import Scenario

__all__ = [
    "Outcome",
    "run_scenario",
]

RECOVERY_S: Final = 40.0
"""From the last trouble until everything offered has arrived: an image that silence has ended
lingers for its liveness timeout before the next can take its place."""
CLOSING_S: Final = 40.0
STEP_S: Final = 0.1
SPAN_TURNS_MAX: Final = 10_000
"""Turns in a tenth of a second: no world needs a quarter of them, and an agent whose deadline is
always past takes twice as many."""
FORGED_LIMIT_NS: Final = 6 * NS_PER_SECOND
"""From what was forged being read until its image ends, where its publisher is heard."""
SILENT_LIMIT_NS: Final = 12 * NS_PER_SECOND
"""Where it may be gone: until the image liveness timeout ends the image."""
SILENCE_S: Final = 0.45
"""Two status messages of each image."""
LONG_SILENCE_S: Final = 11.0
"""Longer than an image lives without a sign of life of its publisher."""
REJOIN_NS: Final = NS_PER_SECOND // 2
"""How old an image must be to be left at once after an over-run."""
RUN_LIMIT_S: Final = 600.0


@attrs.frozen(kw_only=True)
class Outcome:
    """How a run went.

    Attributes:
        failure: What was violated, or nothing.
        message_count: Messages received, by all readers.
        datagram_count: Datagrams delivered.
        virtual_ns: How long it was.
        digest: Hash of all that happened on the network.
    """

    failure: str
    message_count: int
    datagram_count: int
    virtual_ns: int
    digest: str


def run_scenario(
    scenario: Scenario,
    *,
    watcher: Watcher | None = None,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] = VirtualLoop,
) -> Outcome:
    """Run a scenario, and return how it went; it raises nothing that the drivers do wrong.

    Args:
        scenario: What to run.
        watcher: Told of every datagram.
        loop_factory: Makes the loop in virtual time.
    """
    runs: list[Run] = []

    async def story(world: World) -> None:
        if watcher is not None:
            world.network.trace.watch(watcher)
        run = Run(world, scenario)
        runs.append(run)
        asyncio.get_running_loop().span_turns_max = SPAN_TURNS_MAX  # type: ignore[attr-defined]
        await run.play()

    failure = ""
    try:
        simulate(story, seed=scenario.seed, limit_s=RUN_LIMIT_S, loop_factory=loop_factory)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
        failure = _first_line(error)
    run = runs[0]
    trace = run.world.network.trace
    return Outcome(
        failure=failure,
        message_count=run.recorder.message_count,
        datagram_count=trace.counts[1],
        virtual_ns=run.world.now_ns,
        digest=trace.digest(),
    )


class Run:
    """A scenario under way.

    Args:
        world: Empty.
        scenario: What to do in it.
    """

    def __init__(self, world: World, scenario: Scenario) -> None:
        self.world = world
        self.scenario = scenario
        self.recorder = Recorder(is_exact=scenario.is_exact, has_forger=scenario.has_forger)
        self._noticed: dict[Received, int] = {}
        self._auditor = WireAuditor(world, scenario)
        self._finishing = asyncio.Event()
        self._closing = asyncio.Event()
        self._leaving = asyncio.Event()
        self._baselines: dict[MediaDriver, int] = {}
        self._publishers: dict[Host, list[Publisher]] = {}
        self._subscribers: dict[Host, list[Subscriber]] = {}
        self._errors: list[Exception] = []
        self._life = 0

    async def play(self) -> None:
        """Play the scenario.

        Raises:
            ViolationError: A promise was broken.
        """
        hosts = [self.world.host(f"host{n}") for n in range(self.scenario.host_count)]
        nemesis = Nemesis(self.world, self.scenario)
        nemesis.set_up()
        for host in hosts:
            host.start(self._live)
        await nemesis.make_trouble()
        self._check()
        await nemesis.heal()
        self._finishing.set()
        if self.scenario.is_exact:
            await self._until(self._unfinished, RECOVERY_S, "N6")
            await self._be_silent()
        self._closing.set()
        if self.scenario.is_exact:
            await self._until(self._unended, CLOSING_S, "N4")
        self._leaving.set()
        await self._until(self._unreclaimed, CLOSING_S, "reclaim")
        for host in hosts:
            await self._close(host)
        self._check()

    async def _be_silent(self) -> None:
        """Let nothing happen for a while, and see that all streams live on."""
        self._auditor.begin_silence()
        is_long = "silence" in self.scenario.features
        await self.world.sleep(LONG_SILENCE_S if is_long else SILENCE_S)
        self._auditor.end_silence()
        self._check()
        unfinished = self._unfinished()
        if unfinished:
            message = f"N10: after a silence {unfinished}"
            raise ViolationError(message)

    async def _live(self, host: Host) -> None:
        """Do all that one host does, until it stops or crashes."""
        index = self.world.hosts.index(host)
        scenario = self.scenario
        self._life += 1
        life = self._life
        publishers = [
            Publisher(self.world, stream, self.recorder, self._finishing, f"publisher {n}.{life}")
            for n, stream in enumerate(scenario.streams)
            if stream.host == index
        ]
        subscribers = [
            Subscriber(
                self.world,
                reader,
                self.recorder,
                self._finishing,
                f"reader {n}.{life}",
                may_lose_images=scenario.may_lose_images,
            )
            for n, reader in enumerate(scenario.readers)
            if reader.host == index
        ]
        self._publishers[host], self._subscribers[host] = publishers, subscribers
        try:
            context = DriverContext(
                socket_batching="runs" in scenario.features,
                # So short that it can grow.
                initial_window_length=(16 if "window_auto" in scenario.features else 128) * 1024,
                over_run_rejoin_interval_ns=REJOIN_NS if "rejoin" in scenario.features else 0,
            )
            async with host.aeron(context) as aeron:
                self._baselines[embedded(aeron)] = counters_in_use(embedded(aeron))
                async with asyncio.TaskGroup() as group:
                    reading = [group.create_task(each.run(aeron)) for each in subscribers]
                    offering = [group.create_task(each.run(aeron)) for each in publishers]
                    await self._closing.wait()
                    for task in offering:
                        task.cancel()
                    for publisher in publishers:
                        if publisher.publication is not None:
                            publisher.publication.close()
                    await self._leaving.wait()
                    for task in reading:
                        task.cancel()
                # The driver goes on: what was closed must go by itself.
                await asyncio.get_running_loop().create_future()
        except Exception as error:  # noqa: BLE001 - it is told when the run ends
            # A host without power closes all that its services hold.
            if not host.is_down:
                self._errors.append(error)

    # The reckoning.

    def _unfinished(self) -> str:
        """Return what is still to be waited for, or nothing."""
        # Of two under one session only one is heard, and the other waits.
        publishers = [
            each
            for group in self._publishers.values()
            for each in group
            if not each.stream.is_contested
        ]
        for publisher in publishers:
            if not publisher.has_finished:
                return f"{publisher.name} has not offered everything"
        for group in self._subscribers.values():
            for subscriber in group:
                unfinished = self._unread(subscriber, publishers)
                if unfinished:
                    return unfinished
        return ""

    def _unread(self, subscriber: Subscriber, publishers: list[Publisher]) -> str:
        subscription = subscriber.subscription
        if subscription is None:
            return f"{subscriber.name} has not subscribed"
        for publisher in publishers:
            publication = publisher.publication
            stream, reader = publisher.stream, subscriber.reader
            is_read = (stream.endpoint_host, stream.stream_id) == (
                reader.endpoint_host,
                reader.stream_id,
            )
            if publication is None or not is_read:
                continue
            image = subscription.image_by_session_id(publication.session_id)
            if image is None:
                return f"{subscriber.name} has no image of {publisher.name}"
            if image.position != publication.position:
                return (
                    f"{subscriber.name} is at {image.position} of {publication.position} "
                    f"of {publisher.name}"
                )
            missing = subscriber.received[image.image_id].missing()
            if missing:
                return missing
        return ""

    def _unended(self) -> str:
        """Return who still has an image, though every publication is closed, or nothing."""
        for group in self._subscribers.values():
            for subscriber in group:
                subscription = subscriber.subscription
                if subscription is not None and subscription.images:
                    return f"{subscriber.name} has {len(subscription.images)} images"
        return ""

    def _unreclaimed(self) -> str:
        """Return what a driver still holds of that which was closed, or nothing."""
        for host in self.world.hosts:
            for driver in host.drivers:
                if driver.is_closed or driver not in self._baselines:
                    continue
                conductor = driver.conductor
                publications = conductor.network_publications + conductor.ipc_publications
                held = publications, conductor.publication_images
                counters = counters_in_use(driver) - self._baselines[driver]
                if any(held) or counters or host.machine.socket_count:
                    return (
                        f"{host.name} holds {len(held[0])} publications, {len(held[1])} images, "
                        f"{counters} counters, {host.machine.socket_count} sockets"
                    )
        return ""

    async def _close(self, host: Host) -> None:
        """Stop a host in good order, and see that nothing of it is left."""
        await host.stop()
        if host.machine.socket_count:
            message = f"{host.name} has stopped, and {host.machine.socket_count} sockets are open"
            raise ViolationError(message)

    async def _until(self, reason: Callable[[], str], limit_s: float, name: str) -> None:
        """Wait until there is no reason to wait any more."""
        deadline_ns = self.world.now_ns + round(limit_s * NS_PER_SECOND)
        while why := reason():
            self._check()
            if self.world.now_ns > deadline_ns:
                message = f"{name}: after {limit_s:.0f} s without trouble {why}"
                raise ViolationError(message)
            await self.world.sleep(STEP_S)

    def _check(self) -> None:
        """Raise the first thing that went wrong anywhere."""
        self._auditor.audit()
        self._check_forged()
        for error in (*self._auditor.violations, *self._errors, *self.world.errors):
            raise error

    def _check_forged(self) -> None:
        """See that an image ends soon whose reader was given what nobody offered."""
        if not self._finishing.is_set():
            return
        is_heard = not self.scenario.may_fall_silent
        limit_ns = FORGED_LIMIT_NS if is_heard else SILENT_LIMIT_NS
        for received in self.recorder.received:
            if self.scenario.is_late and received.is_far_on:
                continue
            if received.is_spoiled and not received.image.is_closed:
                since_ns = self._noticed.setdefault(received, self.world.now_ns)
                if self.world.now_ns - since_ns > limit_ns:
                    message = f"N8: {received.reader} has read what was forged, and is not told"
                    raise ViolationError(message)


def counters_in_use(driver: MediaDriver) -> int:
    """Return how many counters a driver has allocated."""
    # By their ids: records of them all would take longer than much of a world.
    return sum(1 for _ in driver.counters._allocated_ids())


def _first_line(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}".splitlines()[0]
