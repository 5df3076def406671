"""However long a recording is, recording and replaying it takes no more memory than a short one.

`AERON_ASYNC_RECORDING_GIB=10` records that much, onto the disk of the temporary directory.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING, Final

import psutil
import pytest

import aeron_async as aa
from aeron_async.archive import ArchiveContext, LocalArchive

if TYPE_CHECKING:
    from pathlib import Path

GIB: Final = 1 << 30
LENGTH: Final = int(float(os.environ.get("AERON_ASYNC_RECORDING_GIB", "0.5")) * GIB)
MESSAGE_LENGTH: Final = 60_000
WARM_UP: Final = 128 << 20
"""Bytes after which everything that is made once has been made: a whole log, and every buffer."""
GROWTH: Final = 24 << 20
CHANNEL: Final = "aeron:ipc?term-length=16m"
STREAM: Final = 1001


class Memory:
    """How much of it this process has resident, beyond what it had when warm."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._warm = 0
        self.growth = 0

    def look(self, position: int) -> None:
        """Look at it; up to the end of the warm-up there is no growth."""
        resident = self._process.memory_info().rss
        if position <= WARM_UP:
            self._warm = max(self._warm, resident)
        self.growth = max(self.growth, resident - self._warm)


async def publish(publication: aa.ExclusivePublication) -> int:
    """Publish the same message again and again, and return how often."""
    message = bytes(range(256)) * 256
    count = 0
    while publication.position < LENGTH:
        await publication.offer(message[:MESSAGE_LENGTH])
        count += 1
    return count


@pytest.mark.slow
async def test_a_long_recording_takes_no_more_memory_than_a_short_one(tmp_path: Path) -> None:
    context = ArchiveContext(directory=str(tmp_path), low_storage_threshold=0)
    memory = Memory()
    async with aa.Aeron.connect() as aeron, await LocalArchive.open(aeron, context) as archive:
        await archive.start_recording(CHANNEL, STREAM)
        async with await aeron.add_exclusive_publication(CHANNEL, STREAM) as publication:
            await publication.wait_connected()
            publishing = asyncio.ensure_future(publish(publication))
            while not publishing.done():
                await asyncio.wait((publishing,), timeout=0.02)
                session = archive.recording_sessions.get(0)
                memory.look(0 if session is None else session.position)
            sent = await publishing
        await archive.stop_recording(CHANNEL, STREAM)
        recording = memory.growth
        memory = Memory()
        received = 0
        async for message in archive.replay(0):
            received += len(message.data) == MESSAGE_LENGTH
            if received % 512 == 0:
                memory.look(message.position)
    grown = f"{LENGTH / GIB:g} GiB: {recording >> 20} and {memory.growth >> 20} MiB more\n"
    sys.stdout.write(grown)
    assert received == sent
    assert max(recording, memory.growth) < GROWTH, grown
