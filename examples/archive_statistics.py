"""Record a stream, and look at the statistics and metrics of its archive."""

from __future__ import annotations

import asyncio
import tempfile
from typing import TYPE_CHECKING

import aeron_async as aa
from aeron_async.archive import ArchiveContext, LocalArchive, RecordingSignal
from aeron_async.metrics import MetricsText

if TYPE_CHECKING:
    from aeron_async.stats import Stats

CHANNEL = "aeron:ipc"
STREAM = 1001


async def main() -> None:
    """Record three messages, and print what the archive says of them."""
    with tempfile.TemporaryDirectory() as directory:
        async with (
            aa.Aeron.connect() as aeron,
            LocalArchive.open(aeron, ArchiveContext(directory=directory)) as archive,
        ):
            signals = archive.signals()
            await archive.start_recording(CHANNEL, STREAM)
            async with await aeron.add_exclusive_publication(CHANNEL, STREAM) as publication:
                event = await anext(signals)
                assert event.signal is RecordingSignal.START
                for _ in range(3):
                    await publication.offer(bytes(100))
                # What can be replayed is recorded.
                async with archive.replay(event.recording_id, follow=True) as messages:
                    for _ in range(3):
                        await anext(messages)
                await look(aeron, archive)


async def look(aeron: aa.Aeron, archive: LocalArchive) -> None:
    """Print the recordings, and the metrics of the archive."""
    for each in archive.stats().recordings:
        print(each.recording_id, each.state, each.recorded_bytes, each.lag_bytes)

    async def take() -> Stats:
        stats = await aeron.gather_stats()
        return stats.with_archive(archive.stats(stats))

    page = MetricsText(label_recordings=True).render(await take())
    print(*(line for line in page.splitlines() if line.startswith("aeron_archive_recorded")))


if __name__ == "__main__":
    asyncio.run(main())
