"""Receive one stream from its beginning to its end; run publisher.py beside it."""

from __future__ import annotations

import asyncio
import os

import aeron_async as aa

CHANNEL = os.environ.get("CHANNEL", "aeron:udp?endpoint=127.0.0.1:20121")


async def main() -> None:
    """Wait for a publisher, then read until it has closed."""
    async with aa.Aeron.connect() as aeron:
        subscription = await aeron.add_subscription(CHANNEL, stream_id=1001)
        await subscription.wait_connected(timeout=30)
        image = subscription.images[0]
        count = 0
        async for message in image:
            print(message.data.decode())
            count += 1
        print(f"received {count} messages up to position {image.position}")


asyncio.run(main())
