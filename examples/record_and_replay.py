"""Record a stream, and let a late subscriber read it from the beginning."""

from __future__ import annotations

import asyncio
import tempfile

import aeron_async as aa
from aeron_async.archive import ArchiveContext, LocalArchive, RecordingSignal, subscribe

CHANNEL = "aeron:ipc"
STREAM = 1001


async def main() -> None:
    """Record, and hear it later."""
    with tempfile.TemporaryDirectory() as directory:
        async with (
            aa.Aeron.connect() as aeron,
            LocalArchive.open(aeron, ArchiveContext(directory=directory)) as archive,
        ):
            await run(aeron, archive)


async def run(aeron: aa.Aeron, archive: LocalArchive) -> None:
    """Do all of it with an archive that is open."""
    signals = archive.signals()
    await archive.start_recording(CHANNEL, STREAM)
    publication = await aeron.add_exclusive_publication(CHANNEL, STREAM)
    event = await anext(signals)
    assert event.signal is RecordingSignal.START
    for number in range(3):
        await publication.offer(f"early {number}".encode())

    # Everything from the beginning, and then what is live, without a gap.
    async with subscribe(archive, aeron, event.recording_id, CHANNEL, STREAM) as messages:
        await publication.offer(b"late")
        async for message in messages:
            print("heard", message.position, message.data.decode())
            if message.data == b"late":
                break
    await publication.aclose()


if __name__ == "__main__":
    asyncio.run(main())
