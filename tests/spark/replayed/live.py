"""An archive at work in a thread of its own, which records numbered messages."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from aeron_async.spark.worker import close_connection
from tests.spark.growing import NUMBER
from tests.spark.sink.neighbours import close_archive, neighbour, open_archive

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from aeron_async.archive import LocalArchive
    from aeron_async.client.exclusive_publication import ExclusivePublication
    from aeron_async.spark.worker import WorkerConnection

__all__ = ["STREAM_ID", "LiveArchive", "live_archive"]

STREAM_ID: Final = 7
PATIENCE_S: Final = 120
CHANNEL: Final = "aeron:ipc?term-length=64k"


class LiveArchive:
    """Records, on the thread of a neighbour; every call blocks.

    Attributes:
        count: Messages so far.
    """

    def __init__(self, connection: WorkerConnection, directory: Path, control: str) -> None:
        self.control = control
        self.count = 0
        self._connection = connection
        self._directory = directory
        self._publication: ExclusivePublication

    @property
    def options(self) -> dict[str, str]:
        return {
            "access": "replay",
            "archive.control.channel": self.control,
            "archive.timeoutMs": str(1_000 * PATIENCE_S),
            "archive.retries": "1",
        }

    def call(self, name: str, *given: Any) -> Any:
        """Call the archive."""
        return self._connection.call(getattr(self._archive, name), *given)

    def record(self, stream_id: int = STREAM_ID) -> None:
        self._connection.call(self._record, stream_id)

    def write(self, count: int, length: int = 100) -> None:
        """Publish so many more messages, and wait until they are recorded."""
        self._connection.call(self._write, count, length)

    def stop(self) -> None:
        self._connection.call(self._stop)

    def extend(self, recording_id: int = 0) -> None:
        """Go on with a recording, with a publication of another session."""
        self._connection.call(self._extend, recording_id)

    def close(self) -> None:
        """End the archive; its files stay."""
        self._connection.call(close_archive, self._connection)

    def open(self) -> None:
        """Start it again."""
        self._connection.call(open_archive, self._connection, self._directory, self.control)

    @property
    def _archive(self) -> LocalArchive:
        archive: LocalArchive = self._connection.kept["archive"]
        return archive

    async def _record(self, stream_id: int) -> None:
        await self._archive.start_recording(CHANNEL, stream_id)
        self._publication = await self._connection.aeron.add_exclusive_publication(
            CHANNEL, stream_id
        )

    async def _write(self, count: int, length: int) -> None:
        for number in range(self.count, self.count + count):
            await self._publication.offer(NUMBER.pack(number) + bytes(length), timeout=PATIENCE_S)
        self.count += count
        async with asyncio.timeout(PATIENCE_S):
            while self._publication.position not in [
                await self._archive.max_recorded_position(each.recording_id)
                async for each in self._archive.recordings()
            ]:
                await asyncio.sleep(0)

    async def _stop(self) -> None:
        await self._archive.stop_recording(CHANNEL, self._publication.stream_id)
        await self._publication.aclose()

    async def _extend(self, recording_id: int) -> None:
        await self._archive.extend_recording(recording_id, CHANNEL, STREAM_ID)
        self._publication = await self._archive.extending_publication(
            recording_id, CHANNEL, STREAM_ID
        )


@contextmanager
def live_archive(directory: Path, control: str) -> Iterator[LiveArchive]:
    """Let an archive be at work."""
    with neighbour() as connection:
        connection.call(open_archive, connection, directory, control)
        live = LiveArchive(connection, directory, control)
        try:
            yield live
        finally:
            close_connection()
            live.close()
