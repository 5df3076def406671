"""What a stream loses when one of its ends dies: see `docs/explanation/delivery-guarantees.md`."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from aeron_async.testing import Conditions, simulate

if TYPE_CHECKING:
    import aeron_async as aa
    from aeron_async.testing import Host, World

CHANNEL = "aeron:udp?endpoint=bob:20121|term-length=64k"
STREAM_ID = 1001


async def read(aeron: aa.Aeron, got: list[tuple[int, int, int]], channel: str = CHANNEL) -> None:
    """Note session, position and number of every message."""
    async for message in await aeron.add_subscription(channel, STREAM_ID):
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


@pytest.mark.parametrize("stall_s", [3, 8, 20])
def test_a_receiver_that_stands_still_loses_nothing_of_a_unicast_stream(stall_s: int) -> None:
    async def story(world: World) -> None:
        got: list[tuple[int, int, int]] = []
        bob = world.host("bob")

        async def subscribe(host: Host) -> None:
            async with host.aeron() as aeron:
                await read(aeron, got)

        bob.start(subscribe)
        async with world.host("alice").aeron() as aeron:
            publication = await aeron.add_publication(CHANNEL, STREAM_ID)

            async def offer() -> None:
                for number in range(2_000):
                    await publication.offer(b"%d" % number)
                    await asyncio.sleep(0.005)

            offering = asyncio.create_task(offer())
            await world.sleep(2)
            await bob.pause_for(stall_s)
            await offering
            await world.sleep(2)
        assert [number for _, _, number in got] == list(range(2_000))

    simulate(story, seed=6)


def test_a_group_stops_waiting_for_a_receiver_that_stands_still_and_runs_over_it() -> None:
    group = "aeron:udp?endpoint=224.20.30.39:20121|term-length=64k"

    async def story(world: World) -> None:
        got: dict[str, list[tuple[int, int, int]]] = {"bob": [], "carol": []}
        offered_at_s: list[float] = []

        async def subscribe(host: Host) -> None:
            async with host.aeron() as aeron:
                await read(aeron, got[host.name], group)

        for name in got:
            world.host(name).start(subscribe)
        async with world.host("alice").aeron() as aeron:
            publication = await aeron.add_publication(f"{group}|fc=min,g:/1", STREAM_ID)
            await world.sleep(1)

            async def offer() -> None:
                for number in range(2_000):
                    await publication.offer((b"%d" % number).ljust(500))
                    offered_at_s.append(world.now_ns / 1e9)
                    await asyncio.sleep(0.01)

            offering = asyncio.create_task(offer())
            await world.sleep(2)
            started_s = world.now_ns / 1e9
            await world.host("bob").pause_for(20)
            await offering
            await world.sleep(20)
        assert [number for _, _, number in got["carol"]] == list(range(2_000))
        waits_s = [b - a for a, b in pairwise(offered_at_s) if a > started_s]
        assert 3 < max(waits_s) < 6, "it waits for the receiver timeout"
        missed = set(range(2_000)) - {number for _, _, number in got["bob"]}
        assert missed

    simulate(story, seed=7)


def outlives(break_s: float, image_count: int, *, is_cut: bool) -> None:
    """Let a unicast stream be interrupted, and see what is missing afterwards.

    Args:
        break_s: For how long.
        image_count: How many images there are in the end; with one nothing is missing.
        is_cut: Whether the network is cut; otherwise the publisher stands still.
    """

    async def story(world: World) -> None:
        got: list[int] = []
        images: list[aa.Image] = []
        alice, bob = world.host("alice"), world.host("bob")
        world.set_conditions(Conditions(loss=0.1))

        async def publish(host: Host) -> None:
            async with host.aeron() as aeron:
                publication = await aeron.add_publication(CHANNEL, STREAM_ID)
                for number in range(1_500):
                    await publication.offer(b"%d" % number)
                    await asyncio.sleep(0.005)
                await asyncio.sleep(15)

        async def subscribe(host: Host) -> None:
            async with host.aeron() as aeron:
                async for message in await aeron.add_subscription(CHANNEL, STREAM_ID):
                    if message.image not in images:
                        images.append(message.image)
                    got.append(int(message.data))

        bob.start(subscribe)
        alice.start(publish)
        await world.sleep(2)
        if is_cut:
            with world.partitioned(bob):
                await world.sleep(break_s)
        else:
            await alice.pause_for(break_s)
        await world.sleep(40)
        assert got == sorted(set(got))
        assert len(images) == image_count
        # What was under way, a window of 32 KiB, and what is sent before the new image is there.
        assert 1_500 - len(got) <= (600 if image_count > 1 else 0)
        assert len({image.session_id for image in images}) == 1

    simulate(story, seed=8)


BREAKS = [(3, 1), (8, 1), (20, 2)]


@pytest.mark.parametrize(("break_s", "image_count"), BREAKS)
def test_a_publisher_that_stands_still_keeps_its_image_for_ten_seconds(
    break_s: int, image_count: int
) -> None:
    outlives(break_s, image_count, is_cut=False)


@pytest.mark.parametrize(("break_s", "image_count"), BREAKS)
def test_a_network_that_is_cut_for_less_than_ten_seconds_loses_nothing(
    break_s: int, image_count: int
) -> None:
    outlives(break_s, image_count, is_cut=True)
