"""Two clients that reach one driver through its Aeron directory, as processes of one host do."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import aeron_async as aa

CHANNEL = "aeron:ipc?term-length=64k"


async def read(directory: Path) -> None:
    """Read one stream to its end, with a client that knows only the directory."""
    async with (
        aa.Aeron.connect(directory=directory) as aeron,
        aeron.add_subscription(CHANNEL, stream_id=1001) as subscription,
    ):
        await subscription.wait_connected(timeout=30)
        async for message in subscription.images[0]:
            print(message.position, message.data.decode())


async def publish(directory: Path) -> None:
    """Publish a few messages, with another client."""
    async with (
        aa.Aeron.connect(directory=directory) as aeron,
        aeron.add_publication(CHANNEL, stream_id=1001) as publication,
    ):
        for number in range(3):
            await publication.offer(f"shared {number}".encode(), timeout=10)
        await publication.drain(timeout=10)


async def main() -> None:
    """Start a driver in a folder of its own; `aeron-async driver` or `aeronmd` would do as well."""
    with tempfile.TemporaryDirectory() as parent:
        directory = Path(parent, "aeron")
        context = aa.DriverContext(aeron_directory=str(directory))
        async with aa.MediaDriver.launch(context), asyncio.TaskGroup() as group:
            group.create_task(read(directory))
            group.create_task(publish(directory))


asyncio.run(main())
