"""A client whose driver is started again: its publication and its subscription go on."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import aeron_async as aa

CHANNEL = "aeron:ipc?term-length=64k"


async def serve(directory: Path, restart: asyncio.Event) -> None:
    """Publish and read, through two drivers in a row, with the same objects."""
    is_back = asyncio.Event()

    def on_reconnected(event: aa.Reconnected) -> None:
        print("reconnected,", event.reason)
        for each in event.not_added:
            print("not added again:", each.subject, each.error)
        is_back.set()

    client = aa.Aeron.connect(directory=directory, reconnect=True, on_reconnected=on_reconnected)
    async with (
        client as aeron,
        aeron.add_subscription(CHANNEL, stream_id=1001) as subscription,
        aeron.add_publication(CHANNEL, stream_id=1001) as publication,
    ):
        await publication.offer(b"before", timeout=10)
        message = await anext(subscription)
        print(message.position, message.data.decode())
        restart.set()
        await is_back.wait()
        await publication.offer(b"after", timeout=10)
        message = await anext(subscription)
        print(message.position, message.data.decode())


async def main() -> None:
    """Run two drivers in one folder, one after the other."""
    with tempfile.TemporaryDirectory() as parent:
        context = aa.DriverContext(aeron_directory=str(Path(parent, "aeron")))
        restart = asyncio.Event()
        async with aa.MediaDriver.launch(context):
            serving = asyncio.create_task(serve(Path(parent, "aeron"), restart))
            await restart.wait()
        async with aa.MediaDriver.launch(context):
            await serving


asyncio.run(main())
