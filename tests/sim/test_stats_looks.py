"""A look that keeps what changes rarely shows what a first look shows, and makes no row for it."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections import Counter
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from weakref import ref

import pytest

from aeron_async.driver.conductor import Conductor
from aeron_async.driver.core.rare_changes import RareChanges
from aeron_async.errors import OfferTimeoutError
from aeron_async.metrics.series import MetricSeries
from aeron_async.metrics.text import write_metrics
from aeron_async.protocol.channel_uri import ChannelUri
from aeron_async.stats import (
    ImageStats,
    LossStats,
    PublicationStats,
    ReaderStats,
    ReceiverStats,
    Stats,
    SubscriptionStats,
)
from aeron_async.stats_json import json_pieces
from aeron_async.testing.fates import Conditions
from aeron_async.testing.world import simulate

if TYPE_CHECKING:
    from collections.abc import Iterator

    import aeron_async as aa
    from aeron_async.driver.driver_stats import StatsTaker
    from aeron_async.testing.world import World

CHANNEL = "aeron:udp?endpoint=bob:20121|term-length=64k"
IPC = "aeron:ipc?term-length=64k"
MESSAGE = bytes(100)
ROW_TYPES = (PublicationStats, ReceiverStats, ImageStats, LossStats, ReaderStats, SubscriptionStats)


def first_look(aeron: aa.Aeron) -> Stats:
    """Return the statistics as one takes them who knows nothing of before."""
    conductor: Any = aeron.driver.conductor
    usual = conductor.stats
    hooks: list[Any] = [conductor._table, conductor._subscriptions.images, conductor._subscriptions]
    kept = [each.on_removed for each in hooks]
    fresh: StatsTaker = Conductor.stats.func(conductor)  # type: ignore[attr-defined] # a cached one
    found = fresh.take()
    for each, on_removed in zip(hooks, kept, strict=True):
        each.on_removed = on_removed
    assert conductor.stats is usual
    return found


def look(aeron: aa.Aeron) -> Stats:
    """Return the statistics, which are the same as at the first look."""
    found, expected = aeron.stats(), first_look(aeron)
    for name in ("publications", "images", "subscriptions"):
        assert list(getattr(found, name)) == list(getattr(expected, name)), name
    return found


async def look_in_slices(aeron: aa.Aeron) -> None:
    """Take the statistics in slices; in virtual time all slices are of one moment."""
    found, expected = await aeron.gather_stats(), first_look(aeron)
    for name in ("publications", "images", "subscriptions"):
        assert list(getattr(found, name)) == list(getattr(expected, name)), name


class Streams:
    """Two drivers, and streams between them of which every look is compared with a first one."""

    def __init__(self, alice: aa.Aeron, bob: aa.Aeron) -> None:
        self.alice = alice
        self.bob = bob
        self.publications: list[aa.Publication] = []
        self.subscriptions: list[aa.Subscription] = []

    async def look(self) -> None:
        """Look at both drivers, at once and in slices."""
        for each in (self.alice, self.bob):
            look(each)
            await look_in_slices(each)

    async def connect(self) -> None:
        """Add streams of all kinds: some have two clients or readers, or are of one driver."""
        alice, bob = self.alice, self.bob
        await self.look()
        for stream_id in (0, 1, 2, 3, 4, 1):
            self.publications.append(await alice.add_publication(CHANNEL, stream_id))
            await self.look()
        for stream_id in range(5):
            # A window that changes, and windows that do not.
            channel = CHANNEL if stream_id else f"{CHANNEL}|cc=cubic"
            self.subscriptions.append(await bob.add_subscription(channel, stream_id))
            await self.look()
        for each in self.publications:
            await each.wait_connected()
        self.subscriptions.append(await alice.add_subscription(f"aeron-spy:{CHANNEL}", 2))
        self.publications.append(await bob.add_publication(IPC, 7))
        self.subscriptions.append(await bob.add_subscription(IPC, 7))
        await self.look()
        self.subscriptions.append(await bob.add_subscription(f"{CHANNEL}|tether=false", 3))
        await self.look()

    async def exchange(self, pause_s: float) -> None:
        """Publish on all streams, and read some."""
        for publication in self.publications:
            with suppress(OfferTimeoutError):
                await publication.offer(MESSAGE, timeout=0.01)
        for place in (0, 1, 2, 5, 6):
            with suppress(TimeoutError):
                async with asyncio.timeout(0.01):
                    await anext(self.subscriptions[place])
        await self.look()
        await asyncio.sleep(pause_s)
        await self.look()

    async def leave_behind(self) -> None:
        """Publish where one of two readers does not read, and need not be waited for."""
        for _ in range(600):
            with suppress(OfferTimeoutError):
                await self.publications[3].offer(MESSAGE, timeout=1)
            with suppress(TimeoutError):
                async with asyncio.timeout(0.1):
                    await anext(self.subscriptions[3])

    async def close(self) -> None:
        """Close some of each kind."""
        closed: list[Any] = [
            *self.publications[-3:],
            *self.subscriptions[-3:],
            self.publications[0],
        ]
        for each in closed:
            each.close()
            await self.look()
            await asyncio.sleep(0.3)
            await self.look()


NOTES = {
    "ImageLife._set_state",
    "IpcPublication._set_connected",
    "Losses.note",
    "NetworkPublication._set_connected",
    "PublicationImage._check_end_of_stream",
    "PublicationTable.hold",
    "PublicationTable.release",
    "ReceiverLiveness._drop",
    "ReceiverLiveness.on_status_message",
    "StatusMessageSender.schedule",
    "SubscribablePublication._set_state",
    "SubscriberPositions._sort",
    "SubscriberPositions.add",
    "SubscriberPositions.remove",
}


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return what has noted a rare change so far."""
    found: set[str] = set()
    note = RareChanges.note

    def noting(changes: RareChanges) -> None:
        found.add(sys._getframe(1).f_code.co_qualname)
        note(changes)

    monkeypatch.setattr(RareChanges, "note", noting)
    return found


def test_every_look_shows_what_a_first_look_shows(noted: set[str]) -> None:
    async def story(world: World) -> None:
        hosts = world.host("alice"), world.host("bob")
        async with hosts[0].aeron() as alice, hosts[1].aeron() as bob:
            streams = Streams(alice, bob)
            await streams.connect()
            world.set_conditions(Conditions(loss=0.2), *hosts)
            for turn in range(30):
                await streams.exchange(0.01 * turn)
            assert any(image.losses for image in bob.stats().images)
            assert any(row.retransmit_count for row in alice.stats().publications)
            world.set_conditions(Conditions(), *hosts)
            await streams.leave_behind()
            await world.sleep(6)
            await streams.look()
            causes = {each.cause for image in bob.stats().images for each in image.losses}
            assert "left_behind" in causes
            await streams.subscriptions[4].images[0].reject("enough")
            await streams.close()
            for _ in range(40):
                await world.sleep(1)
                await streams.look()
            assert len(bob.stats().subscriptions) == 5
            assert len(alice.stats().publications) == 3

    simulate(story)
    # Of two changes at once, a look would see both if only one were noted.
    assert noted == NOTES


def test_streams_that_come_and_go_between_two_slices_do_no_harm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(world: World) -> None:
        async with world.host("alice").aeron() as alice:
            publications = [await alice.add_publication(IPC, each) for each in range(80)]
            subscriptions = [await alice.add_subscription(IPC, each) for each in range(80)]
            await publications[-1].wait_connected()
            steps: list[int] = []

            async def step(_: object) -> None:
                steps.append(len(steps))
                if len(steps) == 2:
                    for publication, subscription in zip(
                        publications[60:70], subscriptions[60:70], strict=True
                    ):
                        publication.close()
                        subscription.close()
                    publications.append(await alice.add_publication(IPC, 99))
                await asyncio.sleep(0.2)

            monkeypatch.setattr("aeron_async.tasks.Turns.step", step)
            found = await alice.gather_stats()

            assert len(steps) > 3
            seen = found.publications.column("stream_id")
            assert set(range(60)) <= set(seen) <= set(range(80))
            assert len(set(seen)) == len(seen)
            assert len(found.subscriptions) == 70
            for table in (found.publications, found.images, found.subscriptions):
                assert {len(each) for each in table.columns.values()} == {len(table)}
            look(alice)

    simulate(story)


def test_a_look_between_two_slices_does_not_bring_back_what_goes_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may make other blocks of the streams that are still to be taken."""

    async def story(world: World) -> None:
        async with world.host("alice").aeron() as alice:
            subscriptions = [await alice.add_subscription(IPC, each) for each in range(240)]
            steps: list[int] = []

            async def step(_: object) -> None:
                steps.append(len(steps))
                if len(steps) == 2:
                    alice.stats()
                    before = alice.stats()
                    assert len(before.subscriptions) == 240
                    for subscription in subscriptions[160:170]:
                        subscription.close()
                await asyncio.sleep(0.2)

            monkeypatch.setattr("aeron_async.tasks.Turns.step", step)
            found = await alice.gather_stats()

            assert len(steps) > 3
            stays = [*range(160), *range(170, 240)]
            assert list(found.subscriptions.column("stream_id")) == stays

    simulate(story)


def test_a_stream_is_not_taken_for_an_earlier_one_with_the_same_registration_id() -> None:
    """Clients of other processes choose these ids, and nobody makes them choose new ones."""

    async def story(world: World) -> None:
        async with world.host("alice").aeron() as alice:
            conductor: Any = alice.driver.conductor
            listener: Any = SimpleNamespace()
            for method in ("on_window_change", "on_available_image", "on_unavailable_image"):
                setattr(listener, method, lambda *_: None)
            ready = await conductor.add_publication(
                1,
                ChannelUri.parse(IPC),
                1,
                registration_id=7_777,
                listener=listener,
                is_exclusive=True,
            )
            assert [each.stream_id for each in alice.stats().publications] == [1]
            conductor.remove_publication(ready.registration_id)
            await conductor.add_subscription(
                1, ChannelUri.parse(IPC), 2, registration_id=7_777, listener=listener
            )
            found = alice.stats()
            assert [each.stream_id for each in found.subscriptions] == [2]
            await world.sleep(60)
            conductor.remove_subscription(7_777)
            await conductor.add_publication(
                1,
                ChannelUri.parse(IPC),
                3,
                registration_id=7_777,
                listener=listener,
                is_exclusive=True,
            )
            found = alice.stats()
            assert [each.stream_id for each in found.publications] == [3]

    simulate(story)


def test_a_stream_that_is_gone_is_kept_by_no_look_and_no_snapshot() -> None:
    async def story(world: World) -> None:
        async with world.host("alice").aeron() as alice, world.host("bob").aeron() as bob:
            publication = await alice.add_publication(CHANNEL, 1)
            subscription = await bob.add_subscription(CHANNEL, 1)
            await publication.wait_connected()
            kept = alice.stats(), bob.stats(), await alice.gather_stats(), await bob.gather_stats()
            drivers: list[Any] = [alice.driver.conductor, bob.driver.conductor]
            there = [
                *map(ref, drivers[0]._table.entries),
                *map(ref, drivers[1]._subscriptions.images.endpoints),
            ]
            assert len(there) == 2
            publication.close()
            subscription.close()
            await world.sleep(60)
            del publication, subscription
            gc.collect()
            assert [each() for each in there] == [None, None]
            assert [len(each.publications) + len(each.images) for each in kept] == [1] * 4

    simulate(story)


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Count the rows that are made."""
    made: Counter[str] = Counter()

    def counting(kind: Any) -> Any:
        make = kind.__init__

        def init(self: object, *fields: object, **named: object) -> None:
            made[kind.__name__] += 1
            make(self, *fields, **named)

        return init

    with monkeypatch.context() as patches:
        for kind in ROW_TYPES:
            patches.setattr(kind, "__init__", counting(kind))
        yield made


def test_no_row_is_made_for_columns_metrics_and_json(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        async with world.host("alice").aeron() as alice, world.host("bob").aeron() as bob:
            await add_streams(alice, bob, 20)
            for aeron in (alice, bob):
                with counted(monkeypatch) as made:
                    found = [aeron.stats(), await aeron.gather_stats()]
                    for stats in found:
                        for table in (stats.publications, stats.images, stats.subscriptions):
                            table.complete()
                        assert b"".join(json_pieces(stats))
                        assert "".join(write_metrics(stats, MetricSeries()))
                assert not made
                with counted(monkeypatch) as made:
                    rows = [*found[0].publications, *found[0].images]
                assert made.total() == 20 + 20 == 2 * len(rows)

    simulate(story)


@pytest.mark.parametrize("is_publisher", [True, False])
def test_a_look_makes_as_many_objects_for_many_streams_as_for_few(is_publisher: bool) -> None:  # noqa: FBT001 - pytest gives it by name
    """Those that the garbage collector looks at: a list holds what was there before."""
    made: list[int] = []

    def story_of(count: int) -> Any:
        async def story(world: World) -> None:
            async with world.host("alice").aeron() as alice, world.host("bob").aeron() as bob:
                await add_streams(alice, bob, count)
                await world.sleep(1)
                aeron = alice if is_publisher else bob
                aeron.stats()
                gc.collect()
                gc.disable()
                try:
                    before = len(gc.get_objects())
                    kept = aeron.stats()
                    made.append(len(gc.get_objects()) - before)
                finally:
                    gc.enable()
                assert len(kept.publications) + len(kept.images) == count

        return story

    for count in (5, 15):
        simulate(story_of(count))
    assert made[0] == made[1]


async def add_streams(alice: aa.Aeron, bob: aa.Aeron, count: int) -> None:
    """Connect streams from one to the other, on which something has been published."""
    for stream_id in range(count):
        await bob.add_subscription(CHANNEL, stream_id)
        publication = await alice.add_publication(CHANNEL, stream_id)
        await publication.offer(MESSAGE)
