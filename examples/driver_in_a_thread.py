"""A driver in a thread of its own: streams go on while the event loop of the application stands."""

from __future__ import annotations

import asyncio
import os
import threading

import aeron_async as aa

CHANNEL = os.environ.get("CHANNEL", "aeron:udp?endpoint=127.0.0.1:20121")


async def stream(driver: aa.ThreadedMediaDriver) -> None:
    """Pass messages through the driver, in an event loop of another thread."""
    async with (
        aa.Aeron.connect(driver) as aeron,
        aeron.add_subscription(CHANNEL, stream_id=1001) as subscription,
        aeron.add_publication(CHANNEL, stream_id=1001) as publication,
    ):
        for number in range(3):
            await publication.offer(f"message {number}".encode(), timeout=10)
            print((await anext(subscription)).data.decode())


async def main() -> None:
    """Block the event loop until a stream has ended."""
    async with aa.MediaDriver.launch(thread=True) as driver:
        worker = threading.Thread(target=asyncio.run, args=(stream(driver),))
        worker.start()
        # A call that blocks: with a driver in this event loop, the stream would never begin.
        worker.join()
        print("the event loop stood still until now")


asyncio.run(main())
