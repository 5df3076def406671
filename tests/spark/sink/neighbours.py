"""Who is there beside a sink: subscribers and an archive, each with a loop of its own."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import anyio
import pyarrow as pa

from aeron_async.archive import ArchiveContext, ControlServer, ControlSettings, LocalArchive
from aeron_async.spark.sink.rows import RowLayout, Rows
from aeron_async.spark.worker import WorkerConnection

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from aeron_async.client.image import Message
    from aeron_async.client.subscription import Subscription

PAYLOADS_ONLY = RowLayout(has_channel=False, has_stream_id=False, has_reserved_value=False)


def rows_of(payloads: Iterable[bytes]) -> Rows:
    return PAYLOADS_ONLY.read(pa.record_batch({"payload": pa.array(list(payloads), pa.binary())}))


def batches_of(payloads: list[bytes], size: int) -> Iterator[Rows]:
    for start in range(0, len(payloads), size):
        yield rows_of(payloads[start : start + size])


@contextmanager
def neighbour() -> Iterator[WorkerConnection]:
    connection = WorkerConnection()
    connection.enter()
    try:
        yield connection
    finally:
        connection.close()


class Listener:
    """A subscriber that takes all it is sent, or stops after some messages.

    Attributes:
        heard: Session, reserved value and payload of each message.
    """

    def __init__(self, channel: str, stream_id: int, *, patience: int | None = None) -> None:
        self.heard: list[tuple[int, int, bytes]] = []
        self._where = channel, stream_id
        self._patience = patience
        self._more = threading.Condition()

    async def subscribe(self, connection: WorkerConnection) -> Subscription:
        return await connection.aeron.add_subscription(*self._where)

    async def listen(self, subscription: Subscription) -> None:
        async for message in subscription:
            self._take(message)
            if len(self.heard) == self._patience:
                await anyio.sleep_forever()

    def _take(self, message: Message) -> None:
        with self._more:
            self.heard.append((message.session_id, message.reserved_value, bytes(message.data)))
            self._more.notify_all()

    def wait(self, count: int, timeout_s: float = 20) -> list[bytes]:
        with self._more:
            assert self._more.wait_for(lambda: len(self.heard) >= count, timeout_s), len(self.heard)
            return self.payloads

    @property
    def payloads(self) -> list[bytes]:
        return [payload for _, _, payload in self.heard]


@contextmanager
def listening(channel: str, stream_id: int, *, patience: int | None = None) -> Iterator[Listener]:
    listener = Listener(channel, stream_id, patience=patience)
    with neighbour() as connection:
        subscription = connection.call(listener.subscribe, connection)
        connection._portal.start_task_soon(listener.listen, subscription)
        yield listener


@contextmanager
def served_archive(directory: Path, control_channel: str) -> Iterator[WorkerConnection]:
    """Serve an archive, as `aeron-async archive serve` does; `kept` has it under `archive`."""
    with neighbour() as connection:
        connection.call(open_archive, connection, directory, control_channel)
        try:
            yield connection
        finally:
            connection.call(close_archive, connection)


async def open_archive(connection: WorkerConnection, directory: Path, channel: str) -> None:
    context = ArchiveContext(
        directory=str(directory),
        control_channel=channel,
        low_storage_threshold=0,
        segment_length=1 << 20,
    )
    archive = await LocalArchive.open(connection.aeron, context)
    server = ControlServer(archive, connection.aeron, ControlSettings.of(context))
    await server.__aenter__()
    connection.kept |= {"archive": archive, "server": server}


async def close_archive(connection: WorkerConnection) -> None:
    await connection.kept["server"].aclose()
    await connection.kept["archive"].aclose()


async def recorded(archive: Any) -> list[tuple[int, bytes]]:
    """Return reserved value and payload of all that an archive has."""
    found = []
    async for descriptor in archive.recordings():
        async with archive.replay(descriptor.recording_id) as messages:
            found += [(each.reserved_value, bytes(each.data)) async for each in messages]
    return found


async def recorded_on(connection: WorkerConnection, directory: Path) -> list[tuple[int, bytes]]:
    """Return what the archive of a directory has that nobody else has open."""
    context = ArchiveContext(directory=str(directory), low_storage_threshold=0)
    async with await LocalArchive.open(connection.aeron, context) as archive:
        return await recorded(archive)
