"""Publish numbered messages, and close when all were sent; run subscriber.py beside it."""

from __future__ import annotations

import asyncio
import os
import sys

import aeron_async as aa

CHANNEL = os.environ.get("CHANNEL", "aeron:udp?endpoint=127.0.0.1:20121")
COUNT = int(sys.argv[1]) if len(sys.argv) > 1 else 10


async def main() -> None:
    """Wait for the subscriber, offer, drain, close."""
    async with aa.Aeron.connect() as aeron:
        publication = await aeron.add_publication(CHANNEL, stream_id=1001)
        await publication.wait_connected(timeout=30)
        for number in range(COUNT):
            await publication.offer(f"message {number}".encode(), timeout=10)
        await publication.drain(timeout=10)
        print(f"sent {COUNT} messages, {publication.position} bytes of stream")


asyncio.run(main())
