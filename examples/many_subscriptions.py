"""Two subscriptions of one stream: each gets every message, and the slowest sets the pace."""

from __future__ import annotations

import asyncio
import os

import aeron_async as aa

CHANNEL = os.environ.get("CHANNEL", "aeron:udp?endpoint=127.0.0.1:20121") + "|term-length=64k"


async def read(subscription: aa.Subscription, *, pause: float) -> int:
    """Count the messages of one stream, with a pause after each."""
    count = 0
    async for _ in subscription.images[0]:
        count += 1
        await asyncio.sleep(pause)
    return count


async def main() -> None:
    """Offer as fast as the slower of the two allows."""
    async with aa.Aeron.connect() as aeron:
        fast = await aeron.add_subscription(CHANNEL, stream_id=1001)
        slow = await aeron.add_subscription(CHANNEL, stream_id=1001)
        publication = await aeron.add_publication(CHANNEL, stream_id=1001)
        await fast.wait_connected()
        await slow.wait_connected()
        readers = [
            asyncio.create_task(read(fast, pause=0)),
            asyncio.create_task(read(slow, pause=0.002)),
        ]
        lead = 0
        for _ in range(300):
            await publication.offer(bytes(1000))
            lead = max(lead, fast.images[0].position - slow.images[0].position)
        publication.close()
        print("messages read:", *await asyncio.gather(*readers))
        print("the fast one was ahead by less than the window:", 0 < lead <= 64 * 1024)


asyncio.run(main())
