"""A slow subscriber with `tether=false`, as the application sees it; and the time of sending."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from aeron_async.client.image import ImageEventKind
from tests.drivers import contradiction

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import aeron_async as aa

STREAM_ID = 1001
# A frame of it divides the window: were less than a frame left of that, a reader might lag by just
# so much that the stream stands still and it is not yet left behind, in Aeron likewise.
MESSAGE = bytes(992)
# The oldest subscription decides for the image, as in Aeron.
SHORT = "untethered-window-limit-timeout=1ms|untethered-resting-timeout=1ms"


@pytest.fixture
async def flood(aeron: aa.Aeron, channel: str) -> AsyncIterator[aa.Publication]:
    """Yield a publication that is offered to without end, and a subscriber that keeps up."""
    reader = await aeron.add_subscription(f"{channel}|{SHORT}", STREAM_ID)
    publication = await aeron.add_publication(channel, STREAM_ID)
    await publication.wait_connected(timeout=5)

    async def offer() -> None:
        while True:
            await publication.offer(MESSAGE)

    async def read() -> None:
        async for _ in reader:
            pass

    tasks = [asyncio.create_task(offer()), asyncio.create_task(read())]
    yield publication
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_slow_subscriber_loses_its_image_and_has_it_back(
    aeron: aa.Aeron, channel: str, flood: aa.Publication
) -> None:
    slow = await aeron.add_subscription(f"{channel}|tether=false", STREAM_ID)
    kinds, joined = [], []
    async with asyncio.timeout(10):
        async for event in slow.image_events():
            kinds.append(event.kind)
            joined.append(event.image.join_position)
            if len(kinds) == 3:
                break
        gone, back = ImageEventKind.UNAVAILABLE, ImageEventKind.AVAILABLE
        assert kinds == [back, gone, back]
        assert joined[2] > joined[0]
        message = await anext(slow)
    assert message.data == MESSAGE
    assert message.position > joined[2]
    assert flood.is_connected


async def test_the_time_of_sending_is_in_the_message(aeron: aa.Aeron, channel: str) -> None:
    subscription = await aeron.add_subscription(channel, STREAM_ID)
    publication = await aeron.add_publication(f"{channel}|channel-snd-ts-offset=0", STREAM_ID)
    before_ns = time.time_ns()
    await publication.offer(bytes(8) + b"payload", timeout=5)
    async with asyncio.timeout(5):
        data = (await anext(subscription)).data
    assert before_ns <= int.from_bytes(data[:8], "little") <= time.time_ns()
    assert data[8:] == b"payload"


async def test_two_publications_of_one_socket_agree_on_where_the_time_goes(
    aeron: aa.Aeron, channel: str
) -> None:
    await aeron.add_publication(f"{channel}|channel-snd-ts-offset=8", STREAM_ID)
    with pytest.raises(contradiction(aeron), match="channel-snd-ts-offset=0"):
        await aeron.add_publication(f"{channel}|channel-snd-ts-offset=0", STREAM_ID + 1)
