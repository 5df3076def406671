"""Hand messages to another task of the same process, over `aeron:ipc`."""

from __future__ import annotations

import asyncio

import aeron_async as aa

CHANNEL = "aeron:ipc"


async def read(driver: aa.MediaDriver) -> None:
    """Read the stream of one publisher to its end, with a client of our own."""
    async with (
        aa.Aeron.connect(driver) as aeron,
        aeron.add_subscription(CHANNEL, stream_id=1001) as subscription,
    ):
        await subscription.wait_connected(timeout=30)
        async for message in subscription.images[0]:
            print(message.position, message.data.decode())


async def main() -> None:
    """Start the driver that both sides share, a reader, and publish."""
    async with aa.MediaDriver.launch() as driver, asyncio.TaskGroup() as group:
        group.create_task(read(driver))
        async with (
            aa.Aeron.connect(driver) as aeron,
            aeron.add_publication(CHANNEL, stream_id=1001) as publication,
        ):
            for number in range(3):
                await publication.offer(f"within {number}".encode(), timeout=10)


asyncio.run(main())
