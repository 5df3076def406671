"""A publication that comes back with the session of the one before it, which has just closed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import aeron_async as aa
from aeron_async.testing.world import simulate
from tests.sim.wire import until

if TYPE_CHECKING:
    from aeron_async.testing.world import World

STREAM_ID = 7
CHANNEL = "aeron:udp?endpoint=127.0.0.1:20121|session-id=1|term-length=64k"


async def add_when_free(aeron: aa.Aeron, channel: str) -> aa.ExclusivePublication:
    """Add a publication as soon as the one before it has gone."""
    for _ in range(200):
        try:
            return await aeron.add_exclusive_publication(channel, STREAM_ID)
        except aa.RegistrationError:
            await asyncio.sleep(0.01)
    pytest.fail("the session is still in use")


@pytest.mark.parametrize("linger", ["", "|linger=0"])
def test_the_subscription_reads_each_stream_of_the_session(linger: str) -> None:
    async def story(world: World) -> None:
        async with world.host("alice").aeron() as aeron:
            subscription = await aeron.add_subscription(CHANNEL, STREAM_ID)
            read: list[bytes] = []

            async def reader() -> None:
                async for message in subscription:
                    read.append(message.data)  # noqa: PERF401 - it is looked at meanwhile

            reading = asyncio.create_task(reader())
            for number in range(3):
                publication = await add_when_free(aeron, CHANNEL + linger)
                # The image before says its goodbyes for a second.
                await publication.wait_connected(2)
                await publication.offer(b"%d" % number)
                await until(world, lambda count=number + 1: len(read) == count, 1)
                await publication.aclose()
            await subscription.aclose()
            await reading
            assert read == [b"0", b"1", b"2"]

    simulate(story)
