"""A subscriber stops reading, and the statistics of its publisher name it."""

from __future__ import annotations

import asyncio
import os

import aeron_async as aa

CHANNEL = os.environ.get("CHANNEL", "aeron:udp?endpoint=127.0.0.1:20121")


def show(aeron: aa.Aeron) -> None:
    """Print which publication waits for which receiver."""
    stats = aeron.stats()
    for publication in stats.publications:
        slowest = publication.slowest_receiver
        if publication.blocked_by == "sender_limit" and slowest is not None:
            print(f"{publication.channel} waits for {slowest.address}")


async def main() -> None:
    """Publish until the window is full, look, and then let the subscriber read."""
    async with aa.Aeron.connect() as aeron:
        subscription = await aeron.add_subscription(CHANNEL, stream_id=1001)
        publication = await aeron.add_publication(f"{CHANNEL}|term-length=64k", stream_id=1001)
        async with asyncio.TaskGroup() as group:
            publishing = group.create_task(publication.offer_many([bytes(1_000)] * 200))
            # Long enough for the window to fill.
            await asyncio.sleep(0.5)
            show(aeron)
            earlier = aeron.stats()
            for _ in range(200):
                await anext(subscription)
            await publishing
        rates = aeron.stats().diff(earlier)
        for rate in rates.publications.values():
            print("it publishes again:", rate.bytes_per_second > 0)


asyncio.run(main())
