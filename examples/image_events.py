"""See publishers come and go: each is an image of the subscription."""

from __future__ import annotations

import asyncio
import os

import aeron_async as aa

CHANNEL = os.environ.get("CHANNEL", "aeron:udp?endpoint=127.0.0.1:20121")


async def publish(aeron: aa.Aeron, text: bytes) -> None:
    """Publish one message with a session of one's own, and close."""
    async with await aeron.add_exclusive_publication(CHANNEL, stream_id=1001) as publication:
        await publication.offer(text)


async def main() -> None:
    """Let two publishers come, read each to its end, and wait until both are gone."""
    async with aa.Aeron.connect() as aeron, asyncio.TaskGroup() as group:
        subscription = await aeron.add_subscription(CHANNEL, stream_id=1001)
        texts = [b"from one", b"from another"]
        for text in texts:
            group.create_task(publish(aeron, text))
        gone = 0
        async for kind, image in subscription.image_events():
            print(kind.name.lower(), "at position", image.position)
            if kind is aa.ImageEventKind.AVAILABLE:
                async for message in image:
                    print(message.data.decode())
            else:
                gone += 1
                if gone == len(texts):
                    break


asyncio.run(main())
