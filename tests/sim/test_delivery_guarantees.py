"""What a stream loses when one of its ends dies: see `docs/explanation/delivery-guarantees.md`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aeron_async.testing import Conditions, simulate

if TYPE_CHECKING:
    import aeron_async as aa
    from aeron_async.testing import Host, World

CHANNEL = "aeron:udp?endpoint=bob:20121|term-length=64k"
STREAM_ID = 1001


async def read(aeron: aa.Aeron, got: list[tuple[int, int, int]]) -> None:
    """Note session, position and number of every message."""
    async for message in await aeron.add_subscription(CHANNEL, STREAM_ID):
        got.append((message.session_id, message.position, int(message.data)))  # noqa: PERF401


def numbers_of(got: list[tuple[int, int, int]], session_id: int) -> list[int]:
    return [number for session, _, number in got if session == session_id]


def test_a_publisher_that_dies_comes_back_as_another_session_at_position_0() -> None:
    async def story(world: World) -> None:
        got: list[tuple[int, int, int]] = []
        starts: list[int] = []

        async def publish(host: Host) -> None:
            async with host.aeron() as aeron:
                publication = await aeron.add_publication(CHANNEL, STREAM_ID)
                starts.append(publication.session_id)
                for number in range(1_000):
                    await publication.offer(b"%d" % number)
                    await asyncio.sleep(0.01)

        world.host("alice").start(publish)
        async with world.host("bob").aeron() as aeron, asyncio.TaskGroup() as group:
            world.set_conditions(Conditions(loss=0.1))
            reading = group.create_task(read(aeron, got))
            await world.sleep(3)
            await world.host("alice").crash()
            await world.host("alice").restart()
            await world.sleep(12)
            reading.cancel()
        first, second = (numbers_of(got, session_id) for session_id in starts)
        # Of both the beginning, in order and each once; the end of the first is lost with its host.
        assert first == list(range(len(first)))
        assert 250 < len(first) < 310
        assert second == list(range(1_000))
        assert min(position for session, position, _ in got if session == starts[1]) == 64

    simulate(story, seed=3)


def test_a_subscriber_that_dies_misses_what_was_sent_until_it_is_back() -> None:
    async def story(world: World) -> None:
        lives: list[list[tuple[int, int, int]]] = []

        async def subscribe(host: Host) -> None:
            lives.append([])
            async with host.aeron() as aeron:
                await read(aeron, lives[-1])

        world.host("bob").start(subscribe)
        async with world.host("alice").aeron() as aeron:
            publication = await aeron.add_publication(CHANNEL, STREAM_ID)
            await publication.wait_connected()

            async def offer(numbers: range) -> None:
                for number in numbers:
                    await publication.offer(b"%d" % number)
                    await asyncio.sleep(0.01)

            await offer(range(100))
            await world.host("bob").crash()
            # For five seconds nobody tells the publisher: it sends as far as its windows go.
            await offer(range(100, 200))
            assert publication.is_connected
            await world.host("bob").restart()
            await world.sleep(1)
            await offer(range(200, 300))
            await world.sleep(1)
        before, after = ([number for _, _, number in life] for life in lives)
        assert before == list(range(len(before)))
        assert 95 < len(before) <= 100
        # It joins where the stream is, and gets each message from there on once.
        assert after == list(range(after[0], 300))
        assert after[0] > 101
        assert {session for life in lives for session, _, _ in life} == {publication.session_id}

    simulate(story, seed=4)


def test_what_is_offered_to_a_subscriber_that_was_killed_is_accepted_and_lost() -> None:
    async def story(world: World) -> None:
        got: list[tuple[int, int, int]] = []

        async def subscribe(host: Host) -> None:
            async with host.aeron() as aeron:
                await read(aeron, got)

        world.host("bob").start(subscribe)
        async with world.host("alice").aeron() as aeron:
            publication = await aeron.add_publication(CHANNEL, STREAM_ID)
            await publication.offer(b"0")
            await world.sleep(0.1)
            await world.host("bob").crash()
            assert isinstance(publication.try_offer(b"1"), int)
            await world.sleep(6)
            assert not publication.is_connected
        assert [number for _, _, number in got] == [0]

    simulate(story, seed=5)
