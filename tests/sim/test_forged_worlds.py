"""Whole drivers, and a forger on the path between them."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import pytest

import aeron_async as aa
from aeron_async.protocol.header import DataFlags
from aeron_async.testing.world import World, simulate
from tests.support.forgeries import Genuine
from tests.support.swarm import run_seed
from tests.support.victim import Victim

if TYPE_CHECKING:
    from aeron_async.testing.host import Host

CHANNEL = "aeron:udp?endpoint=receiver:20121"
FORGER = frozenset({"forger"})
# `make long` takes more of them.
SEEDS = range(int(os.environ.get("AERON_ASYNC_FORGER_SEEDS", "8")))


@pytest.mark.parametrize("seed", SEEDS)
def test_worlds_with_a_forger_keep_their_promises(seed: int) -> None:
    """The stream goes on in order, or its end is told and it is joined again."""
    assert run_seed(seed, always=FORGER).failure == ""


@pytest.mark.untraced
@pytest.mark.parametrize("seed", [74, 231, 269, 1985, 3368])
def test_worlds_that_found_something_keep_their_promises(seed: int) -> None:
    """Answers that were lost, padding over much of a term, and a stream that went on unseen."""
    assert run_seed(seed, always=FORGER).failure == ""


def test_who_subscribes_while_a_stream_seems_to_be_over_joins_when_it_goes_on() -> None:
    """An end that was forged keeps nobody out."""

    async def story(world: World) -> None:
        receiver, sender = world.host("receiver"), world.host("sender")
        async with (
            receiver.aeron() as reading,
            sender.aeron() as sending,
            reading.add_subscription(CHANNEL, 1) as first,
            sending.add_publication(CHANNEL, 1) as publication,
        ):
            await publication.wait_connected()
            await publication.offer(b"before")
            await anext(first)
            after = world.loop.create_task(anext(first))
            await world.sleep(0.1)
            forge(publication, first, receiver, DataFlags.END_OF_STREAM)
            await world.sleep(0.001)
            async with reading.add_subscription(CHANNEL, 1) as second:
                assert not second.images
                await publication.offer(b"after")
                assert bytes(await after) == b"after"
                await publication.offer(b"later")
                assert bytes(await anext(second)) in {b"after", b"later"}

    simulate(story, limit_s=30)


def test_a_reader_is_told_why_and_where_its_image_ended() -> None:
    """A short frame is read, and the publisher's own contradicts it."""
    events: list[aa.ImageEvent] = []

    async def story(world: World) -> None:
        receiver, sender = world.host("receiver"), world.host("sender")
        async with (
            receiver.aeron() as reading,
            sender.aeron() as sending,
            reading.add_subscription(CHANNEL, 1) as subscription,
            sending.add_publication(CHANNEL, 1) as publication,
            asyncio.TaskGroup() as group,
        ):
            tasks = [
                group.create_task(read(subscription)),
                group.create_task(publish(world, publication, subscription, receiver)),
            ]
            async for event in subscription.image_events():
                events.append(event)
                if len(events) == 3:
                    break
            for task in tasks:
                task.cancel()

    simulate(story, limit_s=30)
    gone = events[1]
    assert [event.kind.name for event in events] == ["AVAILABLE", "UNAVAILABLE", "AVAILABLE"]
    assert gone.reason is aa.ImageEndReason.CONTRADICTED
    assert gone.end is not None
    assert gone.end.start_position == 256
    assert events[0].image is gone.image
    assert events[2].reason is None


async def read(subscription: aa.Subscription) -> None:
    async for _ in subscription:
        pass


async def publish(
    world: World, publication: aa.Publication, subscription: aa.Subscription, receiver: Host
) -> None:
    """Publish, and forge one frame before the second message."""
    await publication.wait_connected()
    await publication.offer(bytes(200))
    await world.sleep(0.2)
    forge(publication, subscription, receiver)
    while True:
        await world.sleep(0.1)
        await publication.offer(bytes(200))


def forge(
    publication: aa.Publication, subscription: aa.Subscription, receiver: Host, flags: int = 0
) -> None:
    """Send a short frame in the publisher's name, or a heartbeat with flags."""
    victim = Victim(
        session_id=publication.session_id,
        stream_id=1,
        initial_term_id=publication.initial_term_id,
        term_length=publication.term_length,
        mtu_length=1_408,
        position=0,
    )
    position = publication.position
    genuine = Genuine(victim, b"", position)
    forged = genuine.heartbeat(position, flags) if flags else genuine.frame(position, 64)
    host, _, port = subscription.images[0].source_identity.rpartition(":")
    destination = receiver.machine.addresses[0], 20_121
    receiver.machine.arrive(None, (host, int(port)), destination, forged)
