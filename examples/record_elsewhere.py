"""Serve an archive, and let a client with a driver of its own record into it and replay."""

from __future__ import annotations

import asyncio
import os
import tempfile

import aeron_async as aa
from aeron_async.archive import (
    ArchiveContext,
    ControlServer,
    ControlSettings,
    LocalArchive,
    RecordingSignal,
    RemoteArchive,
    SourceLocation,
)

CONTROL = os.environ.get("CONTROL", "aeron:udp?endpoint=127.0.0.1:8010")
CHANNEL = os.environ.get("CHANNEL", "aeron:udp?endpoint=127.0.0.1:20121")
STREAM = 1001


async def use() -> None:
    """Record what this process publishes, and replay it: it may be any process, on any host."""
    async with (
        aa.Aeron.connect() as aeron,
        RemoteArchive.connect(aeron, control_channel=CONTROL) as archive,
        archive.signals() as signals,
    ):
        # The archive's driver is another than this one.
        await archive.start_recording(CHANNEL, STREAM, source_location=SourceLocation.REMOTE)
        async with await aeron.add_exclusive_publication(CHANNEL, STREAM) as publication:
            for number in range(3):
                await publication.offer(f"message {number}".encode())
        async for event in signals:
            print(event.signal.name, event.position)
            if event.signal is RecordingSignal.STOP:
                break
        async for message in archive.replay(event.recording_id):
            print("heard", message.position, message.data.decode())


async def main() -> None:
    """Serve, as `aeron-async archive serve` does, for as long as the client needs."""
    with tempfile.TemporaryDirectory() as directory:
        context = ArchiveContext(directory=directory, control_channel=CONTROL)
        async with (
            aa.Aeron.connect() as aeron,
            await LocalArchive.open(aeron, context) as archive,
            ControlServer(archive, aeron, ControlSettings.of(context)),
        ):
            await use()


if __name__ == "__main__":
    asyncio.run(main())
