"""Share a stream with tasks of the same process, and watch what leaves it: IPC and a spy."""

from __future__ import annotations

import asyncio
import os

import aeron_async as aa

CHANNEL = os.environ.get("CHANNEL", "aeron:udp?endpoint=127.0.0.1:20121")
PRICES = [b"101.5", b"101.75", b"99"]


async def main() -> None:
    """Hand prices to a task by way of shared memory, and see what it sends to the network."""
    async with aa.Aeron.connect() as aeron:
        prices = await aeron.add_subscription("aeron:ipc", stream_id=1001)
        source = await aeron.add_publication("aeron:ipc", stream_id=1001)
        # No receiver gets what is sent here: the spy alone counts as a subscriber.
        orders = await aeron.add_publication(f"{CHANNEL}|ssc=true", stream_id=1002)
        spy = await aeron.add_subscription(f"aeron-spy:{CHANNEL}", stream_id=1002)

        async def trade() -> None:
            async for price in prices:
                await orders.offer(b"buy at " + price.data)

        async with asyncio.TaskGroup() as group:
            trading = group.create_task(trade())
            await source.offer_many(PRICES)
            for _ in PRICES:
                print((await anext(spy)).data.decode())
            trading.cancel()


asyncio.run(main())
