"""Read the driver's counters: what it sent, and how far each stream has come."""

from __future__ import annotations

import asyncio
import os

import aeron_async as aa

CHANNEL = os.environ.get("CHANNEL", "aeron:udp?endpoint=127.0.0.1:20121")
COUNT = 10
SHOWN = ("Bytes sent", "Bytes received", "NAKs sent", "snd-pos", "sub-pos")


def ignore(payload: memoryview, header: aa.FragmentHeader) -> None:
    """Take a fragment and do nothing with it."""


async def main() -> None:
    """Send messages, take them, and print some of the counters."""
    async with aa.Aeron.connect() as aeron:
        subscription = await aeron.add_subscription(CHANNEL, stream_id=1001)
        publication = await aeron.add_publication(CHANNEL, stream_id=1001)
        await publication.offer_many([bytes(100)] * COUNT)
        taken = 0
        while taken < COUNT:
            taken += subscription.poll(ignore)
            await asyncio.sleep(0)
        for record in aeron.counters:
            if record.label.startswith(SHOWN):
                print(f"{record.value:>8}  {record.label}")


asyncio.run(main())
