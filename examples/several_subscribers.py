"""Send the same messages to several subscribers: a publication and a task for each."""

from __future__ import annotations

import asyncio
import os

import aeron_async as aa

AUDIT = os.environ.get("CHANNEL", "aeron:udp?endpoint=127.0.0.1:20121")
BILLING = os.environ.get("REPLY_CHANNEL", "aeron:udp?endpoint=127.0.0.1:20122")
ORDERS = [b"first", b"second", b"third"]
QUEUE_LIMIT = 1000


async def feed(aeron: aa.Aeron, channel: str, queue: asyncio.Queue[bytes | None]) -> None:
    """Offer what is queued for one subscriber, at the pace of that subscriber."""
    async with await aeron.add_publication(channel, stream_id=1001) as publication:
        while (order := await queue.get()) is not None:
            await publication.offer(order)


async def read(subscription: aa.Subscription, name: str) -> str:
    """Take every order; a subscriber would be a process of its own."""
    await subscription.wait_connected(timeout=30)
    count = 0
    async for _ in subscription.images[0]:
        count += 1
    return f"{name} took {count} orders"


async def main() -> None:
    """Queue each order for every subscriber."""
    async with aa.Aeron.connect() as aeron, asyncio.TaskGroup() as group:
        reading, queues = [], []
        for name, channel in (("audit", AUDIT), ("billing", BILLING)):
            subscription = await aeron.add_subscription(channel, stream_id=1001)
            reading.append(group.create_task(read(subscription, name)))
            queues.append(asyncio.Queue[bytes | None](QUEUE_LIMIT))
            group.create_task(feed(aeron, channel, queues[-1]))
        for order in [*ORDERS, None]:
            for queue in queues:
                await queue.put(order)
        for task in reading:
            print(await task)


asyncio.run(main())
