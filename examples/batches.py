"""Hand over and take many messages in one step, and offer later what a cancel has left."""

from __future__ import annotations

import asyncio
import os

import aeron_async as aa

CHANNEL = os.environ.get("CHANNEL", "aeron:udp?endpoint=127.0.0.1:20121")
PRICES = [f"{price}".encode() for price in range(10_000)]


async def publish(publication: aa.Publication) -> None:
    """Offer a list within a time, and then what is left of it."""
    left = PRICES
    while left:
        batch = aa.BatchOffer(publication, left)
        try:
            async with asyncio.timeout(1):
                await batch
        except TimeoutError:
            print(f"{batch.accepted} of {len(left)} prices in time")
        left = left[batch.accepted :]


async def consume(subscription: aa.Subscription) -> int:
    """Add up the prices; return the sum."""
    total = count = 0
    async with subscription.batches(1_000, linger_ns=1_000_000) as batches:
        async for batch in batches:
            total += sum(map(int, batch.payloads()))
            count += len(batch)
            if count == len(PRICES):
                # The last one: nobody asks for the next, which would take it.
                batches.take()
                break
    return total


async def main() -> None:
    """Publish and consume in one process, so that nothing else is needed."""
    async with (
        aa.Aeron.connect() as aeron,
        aeron.add_subscription(CHANNEL, stream_id=1001) as subscription,
        aeron.add_publication(CHANNEL, stream_id=1001) as publication,
    ):
        await publication.wait_connected(timeout=10)
        _, total = await asyncio.gather(publish(publication), consume(subscription))
        print(f"{len(PRICES)} prices, which sum up to {total}")


asyncio.run(main())
