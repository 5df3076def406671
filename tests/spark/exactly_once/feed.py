"""Records numbered messages, some in fragments, until a file tells it to stop; prints how many."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from struct import Struct
from typing import Final

from aeron_async import Aeron, DriverContext
from aeron_async.archive.context import ArchiveContext
from aeron_async.archive.local_archive import LocalArchive

IPC: Final = "aeron:ipc"
STREAM_ID: Final = 10
TERM: Final = 1 << 20
NUMBER: Final = Struct("<q")
SIZES: Final = (16, 40, 100, 100, 100, 700, 1_376, 1_377, 5_000)
AT_ONCE: Final = 60
PAUSE: Final = 0.02
"""Unless it is told otherwise, about 3,000 messages, and 3 MB, a second."""


def payload(number: int) -> bytes:
    """Return a message: its number, again and again."""
    size = SIZES[number % len(SIZES)]
    return (NUMBER.pack(number) * (size // NUMBER.size + 1))[:size]


def has_stopped(stop: Path) -> bool:
    return stop.exists()


async def main(directory: str, stop: Path, at_once: int) -> None:
    context = ArchiveContext(directory=directory, segment_length=4 * TERM, low_storage_threshold=0)
    async with (
        Aeron.connect(context=DriverContext(ipc_term_buffer_length=TERM)) as aeron,
        await LocalArchive.open(aeron, context) as archive,
    ):
        await archive.start_recording(IPC, STREAM_ID)
        publication = await aeron.add_exclusive_publication(IPC, STREAM_ID)
        number = 0
        while not has_stopped(stop):
            for _ in range(at_once):
                await publication.offer(payload(number))
                number += 1
            await asyncio.sleep(PAUSE)
        await publication.drain(timeout=10)
        end = publication.position
        recording_id = 0
        while await archive.max_recorded_position(recording_id) != end:
            await asyncio.sleep(PAUSE)
    sys.stdout.write(f"{number}\n")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
