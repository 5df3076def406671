"""Publish five messages and receive them, in one event loop, over UDP loopback."""

from __future__ import annotations

import asyncio
import os

import aeron_async as aa

CHANNEL = os.environ.get("CHANNEL", "aeron:udp?endpoint=127.0.0.1:20121")


async def main() -> None:
    """Do both sides."""
    async with aa.Aeron.connect() as aeron:
        subscription = await aeron.add_subscription(CHANNEL, stream_id=1001)
        publication = await aeron.add_publication(CHANNEL, stream_id=1001)
        for number in range(5):
            await publication.offer(f"hello {number}".encode())
        for _ in range(5):
            message = await anext(subscription)
            print(message.position, message.data.decode())


asyncio.run(main())
