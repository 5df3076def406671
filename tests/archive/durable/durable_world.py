"""A log in a simulated world: its producer, its consumer and its archive are killed at any moment.

The consumer hands each record over to a database that survives, together with its cursor. At the
end the database has each record once and in order, and every record that was said to be recorded.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Final

from aeron_async import DriverContext
from aeron_async.archive import (
    ArchiveContext,
    ControlServer,
    ControlSettings,
    DurableStream,
    LocalArchive,
    RemoteArchive,
    SourceLocation,
)
from aeron_async.archive.disk_access import InlineDisk
from aeron_async.errors import ArchiveBusyError, CursorConflictError, FencedError
from aeron_async.testing.fates import Conditions
from tests.support.faulty_files import Faults, FaultyDirectory

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from aeron_async import Aeron
    from aeron_async.archive import Cursor, RecordBatch
    from aeron_async.testing.host import Host
    from aeron_async.testing.world import World

__all__ = ["DurableWorld", "MemoryStore", "payload"]

TERM: Final = 65_536
DRIVER: Final = DriverContext(ipc_term_buffer_length=TERM, term_buffer_length=TERM)
CHANNEL: Final = "aeron:udp?endpoint=archive:20121"
STREAM: Final = 1
CONTROL: Final = "aeron:udp?endpoint=archive:20122"
SMOOTH: Final = Faults(short_read=0.1, short_write=0.1)
SETTLED_S: Final = 120.0
FEWEST: Final = 50
"""Records that a world has at least, however often its producer is killed."""
SIZES: Final = (1, 20, 100, 1_000, 1_400, 5_000)


def payload(sequence: int) -> bytes:
    """Return the data of a record; the longer ones are several fragments."""
    return b"%d." % sequence * (SIZES[sequence % len(SIZES)] // 4 + 1)


class MemoryStore:
    """A database that survives: what was handed over, and the cursor, in one step."""

    def __init__(self) -> None:
        self.cursor: Cursor | None = None
        self.sequences: list[int] = []
        self._known: Cursor | None = None

    async def load(self) -> Cursor | None:
        self._known = self.cursor
        return self.cursor

    async def save(self, cursor: Cursor) -> None:
        self._move(cursor)

    async def aclose(self) -> None:
        pass

    def hand_over(self, batch: RecordBatch) -> None:
        """Store a batch and the cursor behind it, or neither."""
        for each in batch.records:
            assert each.sequence is not None
            assert each.data == payload(each.sequence), f"record {each.sequence} is another"
        self._move(batch.cursor)
        self.sequences += [each.sequence or 0 for each in batch.records]

    def _move(self, cursor: Cursor) -> None:
        if self._known != self.cursor:
            message = "another consumer has gone on"
            raise CursorConflictError(message)
        self.cursor = self._known = cursor


class DurableWorld:
    """One world, from its beginning to its reckoning.

    Args:
        world: Empty.
        monkeypatch: Gives the archive's machine a number for each time that it was started.
    """

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world = world
        self.random = Random(world.seed)
        self.level = self.random.randrange(3)
        self.disk = FaultyDirectory(world.seed, SMOOTH)
        self.boot = 1
        monkeypatch.setattr("aeron_async.archive.disk.mark_file.current_boot", lambda: self.boot)
        self.store = MemoryStore()
        self.appended = self.acknowledged = 0
        self.kill_count = self.fenced_count = 0
        self.is_ending = False
        self.burst = asyncio.Event()
        self.is_complete = asyncio.Event()

    async def play(self) -> None:
        """Play it; what it raises is the finding."""
        world, draw = self.world, self.random
        world.set_conditions(
            Conditions(loss=draw.choice((0, 0, 0.02, 0.1)), duplication=draw.choice((0, 0.05)))
        )
        hosts = [world.host(name) for name in ("archive", "producer", "consumer")]
        for host, service in zip(hosts, (self.serve, self.produce, self.consume), strict=True):
            host.start(service)
        if draw.random() < 1 / 2:
            # A second producer: the one that opened the log last goes on.
            hosts.append(world.host("rival"))
            hosts[-1].start(self.produce)
        for _ in range(draw.randrange(1, 6)):
            if draw.random() < 1 / 2:
                await world.sleep(draw.random() * draw.choice((0.05, 1.0, 3.0)))
            else:
                # While records are on their way.
                await self.burst.wait()
                await world.sleep(draw.random() * draw.choice((0.001, 0.01)))
            await self.kill(draw.choice(hosts))
        world.set_conditions(Conditions())
        await self.reckon()

    async def kill(self, host: Host) -> None:
        """Kill a process; above level 0, the archive's machine may lose power."""
        self.kill_count += 1
        if host.name == "archive":
            if self.level and self.random.random() < 1 / 2:
                self.disk.crash()
                self.boot += 1
            else:
                self.disk.kill()
        await host.crash()
        await self.world.sleep(self.random.random() * self.random.choice((0.1, 2.0)))
        await host.restart()

    async def reckon(self) -> None:
        """Wait until all is handed over; what is there must be each record once."""
        await self.world.sleep(1)
        self.is_ending = True
        await self.until(self.is_complete.is_set)
        await self.until(lambda: len(self.store.sequences) >= self.appended)
        assert self.store.sequences == list(range(1, len(self.store.sequences) + 1))
        assert self.acknowledged <= len(self.store.sequences)

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(SETTLED_S):
            while not is_so():
                self.world.failures.raise_untold()
                await self.world.sleep(0.05)

    # The three processes.

    async def serve(self, host: Host) -> None:
        context = ArchiveContext(
            segment_length=2 * TERM,
            file_sync_level=self.level,
            catalog_file_sync_level=self.level,
            catalog_capacity=1_024,
            low_storage_threshold=0,
        )
        async with host.aeron(DRIVER) as aeron:
            while True:
                try:
                    archive = await LocalArchive.open(
                        aeron, context, directory=self.disk, disk=InlineDisk()
                    )
                except ArchiveBusyError:
                    await self.world.sleep(1)
                    continue
                break
            try:
                async with ControlServer(archive, aeron, ControlSettings(control_channel=CONTROL)):
                    await asyncio.get_running_loop().create_future()
            finally:
                try:
                    await archive.aclose()
                except OSError:
                    # Its files are no longer its own.
                    assert host.is_down

    def log_of(self, host: Host, aeron: Aeron) -> DurableStream:
        def connect() -> RemoteArchive:
            return RemoteArchive.connect(
                aeron,
                control_channel=CONTROL,
                response_channel=f"aeron:udp?endpoint={host.name}:20123",
                replay_channel=f"aeron:udp?endpoint={host.name}:20124",
                timeout=3,
            )

        return DurableStream(connect, aeron, CHANNEL, STREAM, source_location=SourceLocation.REMOTE)

    async def produce(self, host: Host) -> None:
        async with host.aeron(DRIVER) as aeron, self.log_of(host, aeron) as log:
            while True:
                try:
                    await self.produce_as_one(log, host.name)
                except FencedError:
                    self.fenced_count += 1
                await self.world.sleep(self.random.random() * 3)

    async def produce_as_one(self, log: DurableStream, name: str) -> None:
        """Append until the end, or until another producer takes over."""
        draw = self.random
        async with log.produce(name) as producer:
            # What was acknowledged is there, whatever was killed.
            assert producer.last_sequence >= self.acknowledged
            while not self.is_ending or producer.last_sequence < FEWEST:
                is_durable = draw.random() < 1 / 4
                sequence = await producer.append(
                    payload(producer.last_sequence + 1), durable=is_durable
                )
                if is_durable:
                    self.acknowledged = max(self.acknowledged, sequence)
                if draw.random() < 1 / 8:
                    for _ in range(draw.randrange(60)):
                        await producer.append(payload(producer.last_sequence + 1))
                    self.burst.set()
                    self.burst.clear()
                self.acknowledged = max(self.acknowledged, producer.recorded_sequence)
                if draw.random() < 1 / 4:
                    await self.world.sleep(draw.random() / 5)
            sequence = await producer.flush()
            self.acknowledged = max(self.acknowledged, sequence)
            self.appended = max(self.appended, sequence)
            self.is_complete.set()
            await asyncio.get_running_loop().create_future()

    async def consume(self, host: Host) -> None:
        async with (
            host.aeron(DRIVER) as aeron,
            self.log_of(host, aeron) as log,
            log.consume(cursor=self.store) as consumer,
        ):
            async for batch in consumer.batches(self.random.choice((1, 10, 1_000))):
                self.store.hand_over(batch)
                if self.random.random() < 1 / 8:
                    await self.world.sleep(self.random.random() / 5)
