"""An archive that records several streams until it is killed; see `test_killed_archive`."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Final

from aeron_async import Aeron, DriverContext
from aeron_async.archive.context import ArchiveContext
from aeron_async.archive.local_archive import LocalArchive
from tests.archive.lives import payload

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from multiprocessing.connection import Connection

    from aeron_async import ExclusivePublication
    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.archive.recording_session import RecordingSession

__all__ = ["Worker", "main", "opened"]

IPC: Final = "aeron:ipc"
TERM: Final = 65_536
WORKERS: Final = 4
MOST_MESSAGES: Final = 120


@asynccontextmanager
async def opened(
    path: str, sync_level: int, checksum: str | None
) -> AsyncIterator[tuple[Aeron, LocalArchive]]:
    """Open the archive of a directory, beside a client with a driver of its own."""
    context = ArchiveContext(
        directory=path,
        segment_length=2 * TERM,
        file_sync_level=sync_level,
        catalog_file_sync_level=sync_level,
        catalog_capacity=4_096,
        low_storage_threshold=0,
        record_checksum=checksum,
        replay_checksum=checksum,
    )
    async with (
        Aeron.connect(context=DriverContext(ipc_term_buffer_length=TERM)) as aeron,
        await LocalArchive.open(aeron, context) as archive,
    ):
        yield aeron, archive


class Worker:
    """Records one stream after the other, new ones and such as have stopped.

    Args:
        aeron: Publishes.
        archive: Records.
        lives: Numbers that no other worker takes, one for each publication.
        busy: Streams that somebody records.
        out: Told of what must be there from then on.
    """

    def __init__(
        self,
        aeron: Aeron,
        archive: LocalArchive,
        lives: range,
        busy: set[int],
        out: Connection | None = None,
    ) -> None:
        self._aeron = aeron
        self._archive = archive
        self._lives = iter(lives)
        self._random = random.Random(lives.start)
        self._busy = busy
        self._out = out

    def say(self, *words: object) -> None:
        if self._out is not None:
            self._out.send_bytes(" ".join(map(str, words)).encode())

    async def run(self) -> None:
        while True:
            stopped = [each async for each in self._archive.recordings() if not each.is_active]
            free = [each for each in stopped if each.stream_id not in self._busy]
            if free and self._random.random() < 1 / 2:
                await self.extend(self._random.choice(free))
            else:
                await self.record()

    async def record(self) -> None:
        """Record what is published on a stream of its own, once or twice."""
        life = next(self._lives)
        with self._alone(life):
            is_stopped_by_end = self._random.random() < 1 / 3
            await self._archive.start_recording(IPC, life, auto_stop=is_stopped_by_end)
            async with await self._aeron.add_exclusive_publication(IPC, life) as publication:
                number = await self.publish(publication, life, 0)
                if not is_stopped_by_end:
                    await self.stop(publication, life)
                    if self._random.random() < 1 / 2:
                        # What goes on gets a recording that begins in its middle.
                        await self._archive.start_recording(IPC, life)
                        await self.publish(publication, life, number)
                        await self.stop(publication, life)
            while any(
                each.stream_id == life for each in await self._archive.recording_subscriptions()
            ):
                await asyncio.sleep(0)

    async def extend(self, recording: RecordingDescriptor) -> None:
        """Go on with a recording that has stopped."""
        life = next(self._lives)
        recording_id, stream_id = recording.recording_id, recording.stream_id
        archive = self._archive
        with self._alone(stream_id):
            await archive.extend_recording(recording_id, IPC, stream_id)
            async with await archive.extending_publication(
                recording_id, IPC, stream_id
            ) as publication:
                await self.publish(publication, life, 0)
                await self.stop(publication, stream_id)

    @contextmanager
    def _alone(self, stream_id: int) -> Iterator[None]:
        self._busy.add(stream_id)
        try:
            yield
        finally:
            self._busy.discard(stream_id)

    async def publish(self, publication: ExclusivePublication, life: int, number: int) -> int:
        """Publish messages from a number on, and return the number behind the last."""
        session: RecordingSession | None = None
        for _ in range(self._random.randrange(1, MOST_MESSAGES)):
            position = await publication.offer(payload(life, number))
            session = await self.session_of(publication) if session is None else session
            recording_id = session.recording_id
            self.say("sent", recording_id, life, number, position)
            self.say("wrote", recording_id, session.position)
            number += 1
            if self._random.random() < 1 / 4:
                await asyncio.sleep(0)
        return number

    async def session_of(self, publication: ExclusivePublication) -> RecordingSession:
        while True:
            for session in self._archive.recording_sessions.values():
                if session.image.session_id == publication.session_id:
                    return session
            await asyncio.sleep(0)

    async def stop(self, publication: ExclusivePublication, stream_id: int) -> None:
        recording_id = (await self.session_of(publication)).recording_id
        if self._random.random() < 1 / 2:
            await self._archive.stop_recording(IPC, stream_id)
        else:
            await self._archive.stop_recording_by_identity(recording_id)
        # Whatever was offered before is there.
        self.say("wrote", recording_id, publication.position)


async def work(out: Connection, path: str, level: int, checksum: str | None, seed: int) -> None:
    out.send_bytes(b"starts")
    async with opened(path, level, checksum) as (aeron, archive), asyncio.TaskGroup() as group:
        busy: set[int] = set()
        for number in range(WORKERS):
            begin = (seed * WORKERS + number) * 10_000
            worker = Worker(aeron, archive, range(begin, begin + 10_000), busy, out)
            group.create_task(worker.run())


def main(out: Connection, path: str, level: int, checksum: str | None, seed: int) -> None:
    """Record until it is killed, and say what must be there from then on."""
    asyncio.run(work(out, path, level, checksum, seed))
