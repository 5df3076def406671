"""Streams with many receivers, in worlds: who sets the pace, who is left behind, who comes back."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

import aeron_async as aa
from aeron_async.testing.fates import Conditions
from aeron_async.testing.world import simulate

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aeron_async.testing.host import Host
    from aeron_async.testing.world import World

GROUP = "aeron:udp?endpoint=224.20.30.39:20121|interface=10.0.0.0/8|term-length=64k"
STREAM_ID = 7
COUNT = 900
MESSAGES = [number.to_bytes(4, "big") * 50 for number in range(COUNT)]
"""More than three terms: whoever stands still is lapped, unless the publisher waits."""
LOSSY = Conditions(loss=0.1, reordering=0.05, duplication=0.05)
CHANNELS = {
    "multicast": (GROUP, GROUP),
    "dynamic": (
        "aeron:udp?control=alice:20121|control-mode=dynamic|term-length=64k",
        "aeron:udp?endpoint={name}:0|control=alice:20121|control-mode=dynamic",
    ),
}


class Reader:
    """A subscription on a host of its own, and the numbers of the messages it has read."""

    def __init__(self, host: Host, subscription: aa.Subscription) -> None:
        self.host = host
        self.subscription = subscription
        self.numbers: list[int] = []
        self.images: list[int] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def run(self) -> None:
        async for message in self.subscription:
            data = bytes(message.data)
            number = int.from_bytes(data[:4], "big")
            assert data == MESSAGES[number]
            if message.image.image_id not in self.images:
                self.images.append(message.image.image_id)
            self.numbers.append(number)
            await self.gate.wait()

    @property
    def is_gapless(self) -> bool:
        """Whether what it has read is every message from its first to its last, in order."""
        return self.numbers == list(range(self.numbers[0], self.numbers[-1] + 1))


class Group:
    """A publisher on alice, and readers each on a host of its own."""

    def __init__(self, world: World, stack: AsyncExitStack) -> None:
        self.world = world
        self._stack = stack
        self.publication: aa.Publication

    async def publish(self, channel: str) -> aa.Publication:
        alice = await self._stack.enter_async_context(self.world.host("alice").aeron())
        self.publication = await alice.add_publication(channel, STREAM_ID)
        return self.publication

    async def read(self, name: str, channel: str) -> Reader:
        host = self.world.host(name)
        aeron = await self._stack.enter_async_context(host.aeron())
        reader = Reader(host, await aeron.add_subscription(channel.format(name=name), STREAM_ID))
        host.spawn(reader.run())
        return reader

    async def offer(self, first: int = 0, last: int = COUNT) -> None:
        for message in MESSAGES[first:last]:
            await self.publication.offer(message, timeout=60)

    async def until(self, condition: Callable[[], Any], limit_s: float = 60) -> None:
        deadline_ns = self.world.now_ns + round(limit_s * 1e9)
        while not condition():
            assert self.world.now_ns < deadline_ns, "not within its time"
            await self.world.sleep(0.01)


def play(story: Callable[[Group], Awaitable[None]], **world: Any) -> None:
    async def whole(world: World) -> None:
        for name in ("alice", "bob", "carol"):
            world.host(name)
        async with AsyncExitStack() as stack:
            await story(Group(world, stack))

    simulate(whole, **world)


@pytest.mark.parametrize("mode", CHANNELS)
@pytest.mark.parametrize("seed", range(3))
def test_every_receiver_of_a_group_gets_every_message_however_bad_its_link(
    mode: str, seed: int
) -> None:
    publish, subscribe = CHANNELS[mode]

    async def story(group: Group) -> None:
        readers = [await group.read(name, subscribe) for name in ("bob", "carol", "dave")]
        await group.publish(f"{publish}|fc=min,g:/3")
        await group.offer()
        await group.until(lambda: all(len(each.numbers) == COUNT for each in readers))
        assert all(each.is_gapless and len(each.images) == 1 for each in readers)

    play(story, seed=seed, conditions=LOSSY)


@pytest.mark.parametrize("mode", CHANNELS)
def test_min_waits_for_the_slowest_and_forgets_the_dead_after_their_timeout(mode: str) -> None:
    publish, subscribe = CHANNELS[mode]

    async def story(group: Group) -> None:
        quick, slow = [await group.read(name, subscribe) for name in ("bob", "carol")]
        await group.publish(f"{publish}|fc=min,t:2s,g:/1")
        await group.until(lambda: quick.subscription.images and slow.subscription.images)
        await group.offer(0, 10)
        slow.gate.clear()
        offering = asyncio.create_task(group.offer(10))
        await group.world.sleep(5)
        # Alive, it holds everybody: nothing it has not taken is overwritten.
        assert not offering.done()
        assert len(quick.numbers) < COUNT
        stood_still_ns = group.world.now_ns
        await slow.host.crash()
        await offering
        # Dead, it holds them for its timeout, and no longer than the next heartbeat beyond.
        assert 1.8e9 <= group.world.now_ns - stood_still_ns <= 2.8e9
        await group.until(lambda: len(quick.numbers) == COUNT)
        assert quick.is_gapless

    play(story)


@pytest.mark.parametrize("mode", CHANNELS)
def test_max_leaves_the_slow_one_behind_and_it_comes_back_with_a_new_image(mode: str) -> None:
    publish, subscribe = CHANNELS[mode]

    async def story(group: Group) -> None:
        quick, slow = [await group.read(name, subscribe) for name in ("bob", "carol")]
        await group.publish(f"{publish}|fc=max")
        await group.until(lambda: quick.subscription.images and slow.subscription.images)
        await group.offer(0, 10)
        await group.until(lambda: len(slow.numbers) > 1)
        slow.gate.clear()
        await group.offer(10, COUNT - 10)
        await group.until(lambda: len(quick.numbers) == COUNT - 10)
        assert len(slow.numbers) < COUNT // 2
        slow.gate.set()
        # Its image ends in silence, lingers, and its stream is joined anew where it is now.
        await group.until(lambda: not slow.subscription.images)
        await group.until(lambda: slow.subscription.images)
        await group.offer(COUNT - 10)
        await group.until(lambda: slow.numbers[-1] == COUNT - 1)
        assert len(slow.images) == 2
        assert slow.numbers == sorted(set(slow.numbers))
        assert quick.is_gapless
        assert len(quick.images) == 1

    play(story)


@pytest.mark.parametrize("mode", CHANNELS)
def test_tagged_waits_for_the_tagged_and_for_nobody_else(mode: str) -> None:
    publish, subscribe = CHANNELS[mode]

    async def story(group: Group) -> None:
        archiver = await group.read("bob", f"{subscribe}|gtag=101")
        gateway = await group.read("carol", subscribe)
        publication = await group.publish(f"{publish}|fc=tagged,g:101/1")
        await group.until(lambda: archiver.subscription.images and gateway.subscription.images)
        await group.offer(0, 10)
        await group.until(lambda: len(archiver.numbers) == len(gateway.numbers) == 10)
        archiver.gate.clear()
        offering = asyncio.create_task(group.offer(10, 600))
        await group.world.sleep(5)
        assert not offering.done()
        archiver.gate.set()
        await offering
        await group.until(lambda: len(archiver.numbers) == 600)
        gateway.gate.clear()
        await group.offer(600)
        await group.until(lambda: len(archiver.numbers) == COUNT)
        assert archiver.is_gapless
        assert len(archiver.images) == 1
        assert len(gateway.numbers) < COUNT
        assert publication.is_connected

    play(story)


@pytest.mark.parametrize("mode", CHANNELS)
def test_a_publication_is_connected_when_the_required_number_of_tagged_is_there(
    mode: str,
) -> None:
    publish, subscribe = CHANNELS[mode]

    async def story(group: Group) -> None:
        publication = await group.publish(f"{publish}|fc=tagged,t:2s,g:101/2")
        for name in ("bob", "carol"):
            await group.read(name, subscribe)
        first = await group.read("dave", f"{subscribe}|gtag=101")
        await group.until(lambda: first.subscription.images)
        await group.world.sleep(1)
        assert not publication.is_connected
        assert publication.try_offer(b"x") is aa.OfferOutcome.NOT_CONNECTED
        second = await group.read("erin", f"{subscribe}|gtag=101")
        await publication.wait_connected(5)
        await group.offer(0, 100)
        await second.host.crash()
        await group.until(lambda: not publication.is_connected, 10)

    play(story)


@pytest.mark.parametrize("mode", CHANNELS)
def test_who_comes_late_joins_where_the_stream_is_and_misses_nothing_from_there(
    mode: str,
) -> None:
    publish, subscribe = CHANNELS[mode]

    async def story(group: Group) -> None:
        early = await group.read("bob", subscribe)
        await group.publish(f"{publish}|fc=min,g:/1")
        await group.offer(0, 300)
        late = await group.read("carol", subscribe)
        await group.until(lambda: late.subscription.images)
        await group.offer(300)
        await group.until(lambda: late.numbers and late.numbers[-1] == COUNT - 1)
        assert 0 < late.numbers[0] <= 300
        assert late.is_gapless
        await group.until(lambda: len(early.numbers) == COUNT)

    play(story, conditions=Conditions(loss=0.05), seed=4)


def test_redundant_sources_make_one_image_and_one_may_die() -> None:
    start = "session-id=5|init-term-id=3|term-id=3|term-offset=0|term-length=64k"

    async def story(group: Group) -> None:
        world = group.world
        reader = await group.read("bob", "aeron:udp?control-mode=manual")
        for port in (20121, 20122):
            await reader.subscription.add_destination(f"aeron:udp?endpoint=bob:{port}")
        async with world.host("alice").aeron() as alice, world.host("carol").aeron() as carol:
            both = [
                await aeron.add_exclusive_publication(
                    f"aeron:udp?endpoint=bob:{port}|{start}", STREAM_ID
                )
                for aeron, port in ((alice, 20121), (carol, 20122))
            ]

            async def send(publication: aa.ExclusivePublication) -> None:
                for message in MESSAGES[:500]:
                    await publication.offer(message, timeout=60)

            await asyncio.gather(*map(send, both))
            await group.until(lambda: len(reader.numbers) == 500)
            await world.host("carol").crash()
            # The dead one never says that the stream has ended, and the other one goes on.
            for message in MESSAGES[500:]:
                await both[0].offer(message, timeout=60)
                await world.sleep(0.05)
            await group.until(lambda: len(reader.numbers) == COUNT)
            assert reader.is_gapless
            assert len(reader.images) == 1

    play(story, conditions=Conditions(loss=0.1))


def test_the_end_of_one_of_two_sources_does_not_end_their_image() -> None:
    start = "session-id=5|init-term-id=3|term-id=3|term-offset=0|term-length=64k"

    async def story(group: Group) -> None:
        world = group.world
        reader = await group.read("bob", "aeron:udp?control-mode=manual")
        for port in (20121, 20122):
            await reader.subscription.add_destination(f"aeron:udp?endpoint=bob:{port}")
        async with world.host("alice").aeron() as alice, world.host("carol").aeron() as carol:
            first = await alice.add_exclusive_publication(
                f"aeron:udp?endpoint=bob:20121|{start}", STREAM_ID
            )
            second = await carol.add_exclusive_publication(
                f"aeron:udp?endpoint=bob:20122|{start}", STREAM_ID
            )
            await first.offer(MESSAGES[0])
            await second.offer(MESSAGES[0])
            await first.aclose()
            await world.sleep(8)
            (image,) = reader.subscription.images
            ended = [image.is_end_of_stream]
            await second.offer(MESSAGES[1])
            await second.aclose()
            await group.until(lambda: not reader.subscription.images)
            ended.append(image.is_end_of_stream)
            assert ended == [False, True]
            assert reader.numbers == [0, 1]

    play(story)


def test_answers_go_to_who_asked_and_to_nobody_else() -> None:
    async def story(group: Group) -> None:
        world = group.world
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(world.host("server").aeron())
            requests = await server.add_subscription("aeron:udp?endpoint=server:20121", 10)

            async def serve() -> None:
                answers: dict[int, aa.ExclusivePublication] = {}
                async for message in requests:
                    image = message.image
                    if image.image_id not in answers:
                        answers[image.image_id] = await server.add_exclusive_publication(
                            "aeron:udp?control=server:20122|control-mode=response"
                            f"|response-correlation-id={image.correlation_id}",
                            11,
                        )
                    await answers[image.image_id].offer(b"re: " + bytes(message.data))

            world.host("server").spawn(serve())
            heard: dict[str, list[bytes]] = {}
            for name in ("bob", "carol", "dave"):
                aeron = await stack.enter_async_context(world.host(name).aeron())
                answers = await aeron.add_subscription(
                    f"aeron:udp?endpoint={name}:0|control=server:20122|control-mode=response", 11
                )
                asking = await aeron.add_publication(
                    "aeron:udp?endpoint=server:20121"
                    f"|response-correlation-id={answers.registration_id}",
                    10,
                )
                for number in range(20):
                    await asking.offer(f"{name} {number}".encode())
                heard[name] = [bytes((await anext(answers)).data) for _ in range(20)]
                assert len(answers.images) == 1
            assert heard == {
                name: [f"re: {name} {number}".encode() for number in range(20)]
                for name in ("bob", "carol", "dave")
            }

    play(story, conditions=LOSSY, seed=3)
