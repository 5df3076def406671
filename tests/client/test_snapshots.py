"""Snapshot and updates: the reader's state is the publisher's, without gap and without double."""

from __future__ import annotations

import asyncio
import json
import struct
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aeron_async as aa
from aeron_async.client.snapshots import KeptMessages
from aeron_async.logbuffer.message import Message
from aeron_async.testing.fates import Conditions
from aeron_async.testing.world import simulate
from tests.drivers import CLOCK, embedded_only

if TYPE_CHECKING:
    from aeron_async.testing.host import Host
    from aeron_async.testing.world import World

pytestmark = embedded_only(CLOCK)

GROUP = "aeron:udp?endpoint=224.20.30.39:20121|interface=10.0.0.0/8|term-length=64k"
LOOP = "aeron:udp?endpoint=224.20.30.39:20123|interface=10.0.0.0/8|term-length=64k"
STREAM_ID = 10
CHANGES = 150
State = list[int]


class Exchange:
    """A publisher whose state is the list of all changes: a double or a gap would show."""

    def __init__(self, world: World, host: Host) -> None:
        self.world = world
        self.host = host
        self.state: State = []
        self.server: aa.SnapshotServer[State] | None = None

    def apply(self, change: bytes) -> None:
        self.state.append(int(change[:6]))

    async def run(self, first: int, last: int, *, stays: bool = True) -> None:
        """Publish numbers, then stay until cancelled."""
        self.state.clear()
        async with self.host.aeron() as aeron:
            publication = await aeron.add_exclusive_publication(f"{GROUP}|fc=max", STREAM_ID)
            self.server = aa.SnapshotServer(
                publication, apply=self.apply, dump=lambda: list(self.state)
            )
            for number in range(first, last):
                await self.server.publish(b"%06d" % number + bytes(number % 7 * 200))
                await self.world.sleep(0.002)
            if stays:
                await self.world.sleep(3_000)
        self.server = None

    async def fetch(self) -> aa.Snapshot[State]:
        """Answer as a call over a network would: some time later."""
        while self.server is None:
            await self.world.sleep(0.05)
        await self.world.sleep(self.world.random.choice([0.0, 0.003, 0.03]))
        shot = await self.fetch() if self.server is None else self.server.snapshot()
        await self.world.sleep(self.world.random.choice([0.0, 0.003, 0.03]))
        return shot


async def follow(reader: aa.SnapshotReader[State], last: int, state: State) -> int:
    """Apply what the reader gets, until the last change; return how many snapshots came."""
    count = 0
    async with reader:
        async for item in reader:
            if isinstance(item, aa.Snapshot):
                state[:] = item.data
                count += 1
            else:
                number = int(item.data[:6])
                assert not state or number == state[-1] + 1
                state.append(number)
            if state and state[-1] == last:
                break
    return count


@given(
    seed=st.integers(0, 2**16),
    loss=st.sampled_from([0.0, 0.05, 0.2]),
    late_s=st.sampled_from([0.0, 0.05, 0.2]),
    partition_s=st.sampled_from([0.0, 0.0, 14.0]),
    restarts=st.booleans(),
    max_kept_bytes=st.sampled_from([300, 5_000, 8 << 20]),
)
@settings(max_examples=25, deadline=None)
def test_the_state_is_the_publishers_whatever_is_lost(
    *,
    seed: int,
    loss: float,
    late_s: float,
    partition_s: float,
    restarts: bool,
    max_kept_bytes: int,
) -> None:
    async def story(world: World) -> None:
        hosts = [world.host(name) for name in ("exchange", "reader")]
        exchange = Exchange(world, hosts[0])
        running = hosts[0].spawn(exchange.run(0, CHANGES))
        await world.sleep(late_s)
        world.set_conditions(Conditions(loss=loss, delay_ns=1_000_000), *hosts)
        async with hosts[1].aeron() as aeron:
            subscription = await aeron.add_subscription(GROUP, STREAM_ID)
            state: State = []
            reader = aa.join_with_snapshot(
                subscription, exchange.fetch, max_kept_bytes=max_kept_bytes, max_attempts=1_000
            )
            last = 2 * CHANGES - 1 if restarts else CHANGES - 1
            following = hosts[1].spawn(follow(reader, last, state))
            await world.sleep(0.1)
            if partition_s:
                with world.partitioned(hosts[1]):
                    await world.sleep(partition_s)
            if restarts:
                running.cancel()
                await world.sleep(0.5)
                hosts[0].spawn(exchange.run(0, 2 * CHANGES))
            world.set_conditions(Conditions(), *hosts)
            await following
            assert state == list(range(last + 1)) == exchange.state

    simulate(story, seed=seed)


def test_any_number_of_late_readers_join_by_a_loop_and_ask_nobody() -> None:
    async def repeat(exchange: Exchange, aeron: aa.Aeron) -> None:
        while exchange.server is None:
            await exchange.world.sleep(0.01)
        publication = await aeron.add_exclusive_publication(f"{LOOP}|fc=max", STREAM_ID)
        await exchange.server.loop(
            publication, interval=0.02, encode=lambda state: json.dumps(state).encode()
        )

    async def story(world: World) -> None:
        exchange = Exchange(world, world.host("exchange"))
        exchange.host.spawn(exchange.run(0, CHANGES))
        async with exchange.host.aeron() as sending:
            repeating = exchange.host.spawn(repeat(exchange, sending))
            for name in ("early", "late", "later"):
                await world.sleep(0.05)
                async with world.host(name).aeron() as aeron:
                    changes = await aeron.add_subscription(GROUP, STREAM_ID)
                    shots = await aeron.add_subscription(LOOP, STREAM_ID)
                    looped = aa.looped_snapshots(shots)

                    async def fetch() -> aa.Snapshot[State]:
                        shot = await looped()  # noqa: B023 - awaited in this turn of the loop
                        return aa.Snapshot(shot.session_id, shot.position, json.loads(shot.data))

                    state: State = []
                    await follow(aa.join_with_snapshot(changes, fetch), CHANGES - 1, state)
                    assert state == exchange.state == list(range(CHANGES))
            repeating.cancel()

    simulate(story)


@pytest.mark.parametrize("ends", ["before", "after", "never"])
def test_a_new_publisher_that_says_nothing_is_noticed_by_its_image(ends: str) -> None:
    async def story(world: World) -> None:
        old, new = (Exchange(world, world.host(name)) for name in ("old", "new"))
        serving = [old]
        running = old.host.spawn(old.run(0, 3))
        async with world.host("reader").aeron() as aeron:
            subscription = await aeron.add_subscription(GROUP, STREAM_ID)

            async def fetch() -> aa.Snapshot[State]:
                return await serving[0].fetch()

            async with aa.join_with_snapshot(subscription, fetch) as reader:
                await follow_until(reader, 2)
                waiting = asyncio.ensure_future(anext(reader))
                if ends == "before":
                    running.cancel()
                    await world.sleep(15)
                    assert not subscription.images
                serving[0] = new
                new.host.spawn(new.run(0, 0))
                if ends == "after":
                    await world.sleep(0.2)
                    running.cancel()
                async with asyncio.timeout(15):
                    shot = await waiting
                assert isinstance(shot, aa.Snapshot)
                assert new.server is not None
                assert (shot.data, shot.session_id) == ([], new.server.snapshot().session_id)
                assert reader.fetched_count < 10
                await new.server.publish(b"%06d" % 7)
                item = await anext(reader)
                assert isinstance(item, aa.Message)
                assert item.data == b"%06d" % 7
        running.cancel()

    simulate(story)


async def follow_until(reader: aa.SnapshotReader[State], last: int) -> None:
    """Read up to the last change, and stay."""
    async for item in reader:
        seen = item.data if isinstance(item, aa.Snapshot) else [int(item.data[:6])]
        if seen and seen[-1] == last:
            return


def test_a_publisher_that_comes_while_a_snapshot_is_fetched_is_noticed() -> None:
    async def story(world: World) -> None:
        first, idle = (Exchange(world, world.host(name)) for name in ("first", "idle"))
        first.host.spawn(first.run(0, 3))
        async with world.host("reader").aeron() as aeron:
            subscription = await aeron.add_subscription(GROUP, STREAM_ID)

            async def fetch() -> aa.Snapshot[State]:
                shot = await first.fetch()
                if reader.fetched_count == 1:
                    idle.host.spawn(idle.run(0, 0))
                    await world.sleep(5)
                    assert len(subscription.images) == 2
                return shot

            async with aa.join_with_snapshot(subscription, fetch) as reader:
                await follow_until(reader, 2)
                assert reader.fetched_count == 1
                async with asyncio.timeout(60):
                    again = await anext(reader)
                assert isinstance(again, aa.Snapshot)
                assert again.data == [0, 1, 2]
                waiting = asyncio.ensure_future(anext(reader))
                await world.sleep(60)
                assert not waiting.done()
                assert reader.fetched_count == 2
                waiting.cancel()

    simulate(story)


def test_a_second_publisher_that_says_nothing_does_not_take_over_by_itself() -> None:
    async def story(world: World) -> None:
        first, idle = (Exchange(world, world.host(name)) for name in ("first", "idle"))
        first.host.spawn(first.run(0, 3))
        async with world.host("reader").aeron() as aeron:
            subscription = await aeron.add_subscription(GROUP, STREAM_ID)
            async with aa.join_with_snapshot(subscription, first.fetch) as reader:
                await follow_until(reader, 2)
                waiting = asyncio.ensure_future(anext(reader))
                idle.host.spawn(idle.run(0, 0))
                again = await waiting
                assert isinstance(again, aa.Snapshot)
                assert again.data == [0, 1, 2]
                waiting = asyncio.ensure_future(anext(reader))
                await world.sleep(60)
                assert not waiting.done()
                assert first.server is not None
                await first.server.publish(b"%06d" % 3)
                item = await waiting
                assert isinstance(item, aa.Message)
                # Who joins now sees the idle one last, and is told of the other by the snapshot.
                late = await aeron.add_subscription(GROUP, STREAM_ID)
                await late.wait_connected()
                await world.sleep(1)
                async with aa.join_with_snapshot(late, first.fetch) as other:
                    shot = await anext(other)
                    assert isinstance(shot, aa.Snapshot)
                    assert shot.data == [0, 1, 2, 3]

    simulate(story)


def test_snapshots_that_never_join_are_an_error() -> None:
    async def story(world: World) -> None:
        exchange = Exchange(world, world.host("exchange"))
        exchange.host.spawn(exchange.run(0, 3))
        async with world.host("reader").aeron() as aeron:
            subscription = await aeron.add_subscription(GROUP, STREAM_ID)

            async def fetch() -> aa.Snapshot[State]:
                return aa.Snapshot(1, 0, [])

            async with aa.join_with_snapshot(subscription, fetch, max_attempts=3) as reader:
                with pytest.raises(aa.SnapshotError, match="max_attempts"):
                    await anext(reader)
                assert reader.fetched_count == 3

    simulate(story)


def test_an_error_of_fetch_and_the_end_of_the_subscription_reach_the_reader() -> None:
    async def story(world: World) -> None:
        exchange = Exchange(world, world.host("exchange"))
        exchange.host.spawn(exchange.run(0, 3))
        async with world.host("reader").aeron() as aeron:
            subscription = await aeron.add_subscription(GROUP, STREAM_ID)

            async def fail() -> aa.Snapshot[State]:
                raise LookupError

            with pytest.raises(LookupError):
                await anext(aa.join_with_snapshot(subscription, fail))
            reader = aa.join_with_snapshot(subscription, exchange.fetch)
            assert isinstance(await anext(reader), aa.Snapshot)
            subscription.close()
            assert not any([isinstance(item, aa.Snapshot) async for item in reader])

    simulate(story)


def test_a_snapshot_that_has_joined_outlives_a_cancelled_call() -> None:
    async def story(world: World) -> None:
        exchange = Exchange(world, world.host("exchange"))
        exchange.host.spawn(exchange.run(0, 3))
        async with world.host("reader").aeron() as aeron:
            subscription = await aeron.add_subscription(GROUP, STREAM_ID)
            calls: list[asyncio.Task[Any]] = []

            async def fetch() -> aa.Snapshot[State]:
                shot = await exchange.fetch()
                # It comes when the call has the snapshot, and ends the task that has kept.
                asyncio.get_running_loop().call_soon(calls[0].cancel)
                return shot

            async with aa.join_with_snapshot(subscription, fetch) as reader:
                calls.append(asyncio.ensure_future(anext(reader)))
                await asyncio.wait(calls)
                assert calls[0].cancelled()
                state: State = []
                await follow(reader, 2, state)
                assert state == [0, 1, 2]
                assert reader.fetched_count == 1

    simulate(story)


class OneImage:
    session_id, stream_id, mtu_length, source_identity = 7, STREAM_ID, 1408, ""


def message(position: int) -> Any:
    return Message(bytes(32), position, 0, OneImage())


def test_what_is_kept_is_bounded_and_then_a_newer_snapshot_is_needed() -> None:
    kept = KeptMessages(2 * (256 + 32))
    for position in (64, 128, 192):
        kept.put(message(position))
    assert (kept.session_id, kept.join_position, kept.dropped_count) == (7, 64, 1)
    assert kept.behind(aa.Snapshot(7, 32, None)) is None
    assert kept.behind(aa.Snapshot(8, 64, None)) is None
    behind = kept.behind(aa.Snapshot(7, 128, None))
    assert behind is not None
    assert [each.position for each in behind] == [192]


def test_a_gap_begins_again() -> None:
    kept = KeptMessages(1024)
    kept.put(message(64))
    kept.put(aa.Gap(7, 64, 640, aa.GapCause.OVER_RUN))
    assert kept.behind(aa.Snapshot(7, 128, None)) is None
    assert not kept.behind(aa.Snapshot(7, 640, None))
    kept.put(aa.Gap(7, 640, None, aa.GapCause.REVOKED))
    assert kept.session_id is None


def test_what_is_no_snapshot_is_skipped_and_the_end_of_the_loop_is_an_error() -> None:
    async def story(world: World) -> None:
        async with world.host("reader").aeron() as aeron:
            publication = await aeron.add_publication("aeron:ipc", STREAM_ID)
            shots = await aeron.add_subscription("aeron:ipc", STREAM_ID)
            looped = aa.looped_snapshots(shots)
            fetching = asyncio.ensure_future(looped())
            # It skips what has arrived before it waits.
            await asyncio.sleep(0)
            await publication.offer(b"short")
            await publication.offer(struct.pack("<iiq", 2, 7, 64) + b"of another version")
            await publication.offer(struct.pack("<iiq", 1, 7, 64) + b"state")
            assert await fetching == aa.Snapshot(7, 64, b"state")
            assert looped.undecodable_count == 2
            last = asyncio.ensure_future(looped())
            await asyncio.sleep(0)
            await shots.aclose()
            with pytest.raises(aa.ClosedError, match="snapshots of aeron:ipc is closed"):
                await last
            with pytest.raises(aa.ClosedError):
                await looped()

    simulate(story)
