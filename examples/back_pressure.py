"""A slow subscriber slows its publisher: nothing is lost, and nothing piles up."""

from __future__ import annotations

import asyncio
import os
import time

import aeron_async as aa

# Short terms keep the windows small, so that back pressure comes early.
CHANNEL = os.environ.get("CHANNEL", "aeron:udp?endpoint=127.0.0.1:20121") + "|term-length=64k"


async def read_slowly(subscription: aa.Subscription) -> int:
    """Take two milliseconds over each message, and return how many there were."""
    count = 0
    async for _ in subscription.images[0]:
        count += 1
        await asyncio.sleep(0.002)
    return count


async def main() -> None:
    """Fill the window, time out once, then let the subscriber set the pace."""
    async with aa.Aeron.connect() as aeron:
        subscription = await aeron.add_subscription(CHANNEL, stream_id=1001)
        publication = await aeron.add_publication(CHANNEL, stream_id=1001)
        await publication.wait_connected()
        try:
            while True:
                await publication.offer(bytes(1000), timeout=0.1)
        except aa.OfferTimeoutError as error:
            print(f"without a reader: stopped at position {error.position}")
        print(f"try_offer says {publication.try_offer(bytes(1000))}")

        reading = asyncio.create_task(read_slowly(subscription))
        image, ahead, started = subscription.images[0], 0, time.monotonic()
        for _ in range(200):
            await publication.offer(bytes(1000))
            ahead = max(ahead, publication.position - image.position)
        print(f"with a reader: 200 offers took {time.monotonic() - started:.1f} s")
        print(f"the publisher was never more than {ahead} bytes ahead")
        publication.close()
        print(f"{await reading} messages arrived")


asyncio.run(main())
