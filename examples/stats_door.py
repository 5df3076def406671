"""Show the statistics of a process at a door, and read them as a tool does."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path

import aeron_async as aa
from aeron_async.door import DoorClient

CHANNEL = os.environ.get("CHANNEL", "aeron:udp?endpoint=127.0.0.1:20121")


async def main() -> None:
    """Publish a little, and look at it through the door."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "door")
        context = aa.DriverContext(stats_socket=str(path))
        async with aa.Aeron.connect(context=context) as aeron:
            subscription = await aeron.add_subscription(CHANNEL, stream_id=1001)
            publication = await aeron.add_publication(CHANNEL, stream_id=1001)
            await publication.offer(bytes(100))
            await anext(subscription)
            await look(path)


async def look(path: Path) -> None:
    """Print what a tool sees, which is a process of its own elsewhere."""
    async with DoorClient(path) as door:
        print(*door.hello.serves)
        async for stats in door.watch(1.0):
            for image in stats.images:
                print(image.stream_id, image.position, image.missing_bytes)
            break


asyncio.run(main())
