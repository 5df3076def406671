"""An archive in a simulated world: its disk fails, its machine dies, and publishers come and go.

What is replayed, whenever and however, is held against what was published: every message, its
number and its position, no gap and none twice.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Final

from aeron_async import DriverContext
from aeron_async.archive import (
    ArchiveContext,
    ControlServer,
    ControlSettings,
    LocalArchive,
    SourceLocation,
)
from aeron_async.archive.disk_access import InlineDisk
from aeron_async.errors import ArchiveBusyError, ArchiveError, ConfigurationError, StorageError
from aeron_async.testing.fates import Conditions
from tests.archive.archive_ledger import Ledger
from tests.archive.archive_readers import CONTROL, Readers
from tests.support.faulty_files import Faults, FaultyDirectory

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from aeron_async import Aeron, ExclusivePublication
    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.archive.recording_session import RecordingSession
    from aeron_async.testing.host import Host
    from aeron_async.testing.world import World

__all__ = ["ArchiveWorld"]

TERM: Final = 65_536
DRIVER: Final = DriverContext(ipc_term_buffer_length=TERM, term_buffer_length=TERM)
SHOP: Final = "aeron:udp?endpoint=archive:20121"
SHOP_STREAM: Final = 1
IPC: Final = "aeron:ipc"
SMOOTH: Final = Faults(short_read=0.1, short_write=0.1)
ROUGH: Final = Faults(
    short_read=0.1,
    short_write=0.1,
    read_error=0.01,
    write_error=0.02,
    sync_error=0.02,
    open_error=0.02,
)
SETTLED_S: Final = 60.0


class ArchiveWorld:
    """One world, from its beginning to its reckoning.

    Args:
        world: Empty.
        monkeypatch: Gives the archive's machine a number for each time that it was started.
    """

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world = world
        self.random = Random(world.seed)
        self.level = self.random.randrange(3)
        self.checksum = self.random.choice((None, "crc32"))
        self.disk = FaultyDirectory(world.seed, SMOOTH)
        self.boot = 1
        monkeypatch.setattr("aeron_async.archive.disk.mark_file.current_boot", lambda: self.boot)
        self.archive: LocalArchive | None = None
        self.is_open = asyncio.Event()
        self.troubles = 0
        self.ledger = Ledger()
        self.readers = Readers(self, DRIVER)
        self.failure_count = 0
        self.is_ending = self.is_over = False
        self.shop_publication: ExclusivePublication | None = None

    # The machines.

    async def play(self) -> None:
        """Play it; what it raises is the finding."""
        world, draw = self.world, self.random
        conditions = Conditions(
            loss=draw.choice((0, 0, 0.02, 0.2)),
            duplication=draw.choice((0, 0.05)),
            reordering=draw.choice((0, 0.05)),
        )
        archive_host = world.host("archive")
        shop, reader = world.host("shop"), world.host("reader")
        world.set_conditions(conditions)
        archive_host.start(self.serve)
        shop.start(self.sell)
        reader.start(self.readers.listen)
        for _ in range(draw.randrange(1, 5)):
            await world.sleep(draw.random() * 1.5)
            await draw.choice((self.die, self.spoil, self.fill, self.change_shop))(archive_host)
        world.set_conditions(Conditions())
        self.disk.faults = SMOOTH
        await self.reckon()

    def context(self) -> ArchiveContext:
        return ArchiveContext(
            segment_length=2 * TERM,
            file_sync_level=self.level,
            catalog_file_sync_level=self.level,
            catalog_capacity=1_024,
            record_checksum=self.checksum,
            replay_checksum=self.checksum,
            low_storage_threshold=0,
        )

    async def serve(self, host: Host) -> None:
        """Live as an archive, again and again, until the machine dies."""
        async with host.aeron(DRIVER) as aeron:
            while True:
                try:
                    archive = await LocalArchive.open(
                        aeron, self.context(), directory=self.disk, disk=InlineDisk()
                    )
                except (OSError, ArchiveBusyError):
                    # The disk, or the sign of life of the one before.
                    await self.world.sleep(1)
                    continue
                break
            try:
                self.archive = archive
                await self.ledger.check(archive, may_fail=True)
                self.is_open.set()
                async with (
                    ControlServer(archive, aeron, ControlSettings(control_channel=CONTROL)),
                    asyncio.TaskGroup() as group,
                ):
                    group.create_task(self.record_shop(archive))
                    group.create_task(self.keep(aeron, archive))
                    group.create_task(self.readers.follow(archive))
                    group.create_task(self.watch(archive))
            finally:
                self.archive = None
                self.is_open.clear()
                try:
                    await archive.aclose()
                except OSError:
                    # Its files are no longer its own.
                    assert host.is_down

    async def die(self, host: Host) -> None:
        """Let the archive's process be killed; above level 0, its machine may lose power."""
        self.troubles += 1
        if self.level and self.random.random() < 1 / 2:
            self.disk.crash()
            self.boot += 1
        else:
            self.disk.kill()
        await host.crash()
        await self.world.sleep(self.random.random())
        await host.restart()

    async def spoil(self, host: Host) -> None:
        """Let the disk fail now and then, for a while."""
        del host
        self.troubles += 1
        self.disk.faults = ROUGH
        await self.world.sleep(self.random.random() * 2)
        self.disk.faults = SMOOTH
        self.troubles += 1

    async def fill(self, host: Host) -> None:
        """Let the disk be full, for a while."""
        del host
        self.troubles += 1
        self.disk.faults = Faults(capacity=0)
        await self.world.sleep(self.random.random())
        self.disk.faults = SMOOTH
        self.troubles += 1

    async def change_shop(self, host: Host) -> None:
        """Let who publishes from elsewhere go, with or without a word, and come back."""
        del host
        shop = self.world.host("shop")
        self.shop_publication = None
        if self.random.random() < 1 / 2:
            await shop.crash()
            await self.world.sleep(self.random.random())
        await shop.restart()

    def tolerate(self, error: Exception, since: int = -1) -> None:
        """Count what may happen in this world, and raise anything else."""
        self.failure_count += 1
        if isinstance(error, ConfigurationError) or not self.is_troubled(since):
            raise error

    def is_troubled(self, since: int) -> bool:
        """Return whether anything was done to the archive since there were so many troubles."""
        return self.troubles != since or self.disk.faults is not SMOOTH

    # Publishing.

    async def sell(self, host: Host) -> None:
        """Publish from elsewhere, until told that it is enough."""
        life = self.ledger.next_life()
        async with (
            host.aeron(DRIVER) as aeron,
            await aeron.add_exclusive_publication(SHOP, SHOP_STREAM) as publication,
        ):
            self.shop_publication = publication
            while not self.is_ending:
                await self.ledger.offer(publication, life)
                await self.world.sleep(self.random.random() / 10)
            await asyncio.get_running_loop().create_future()

    # Recording.

    async def record_shop(self, archive: LocalArchive) -> None:
        """Record what comes from elsewhere, again whenever that ends."""
        while not self.is_over:
            if not any(
                each.stream_id == SHOP_STREAM for each in await archive.recording_subscriptions()
            ):
                try:
                    await archive.start_recording(
                        SHOP, SHOP_STREAM, source_location=SourceLocation.REMOTE
                    )
                except OSError:
                    self.failure_count += 1
            await self.world.sleep(0.2)

    async def watch(self, archive: LocalArchive) -> None:
        """Note up to where recordings have been written: that must stay."""
        while True:
            for recording_id, session in archive.recording_sessions.items():
                known = self.ledger.written.get(recording_id, 0)
                self.ledger.written[recording_id] = max(known, session.position)
            await self.world.sleep(0.05)

    async def keep(self, aeron: Aeron, archive: LocalArchive) -> None:
        """Record streams of this machine, one after the other: new ones, and longer ones."""
        while not self.is_ending:
            since = self.troubles
            try:
                await self.keep_one(aeron, archive)
            except (ArchiveError, OSError) as error:
                self.tolerate(error, since)
                await self.stop_kept(archive)
            await self.world.sleep(self.random.random() / 5)

    async def stop_kept(self, archive: LocalArchive) -> None:
        """Record no more of what was left when the disk failed."""
        for each in await archive.recording_subscriptions():
            if each.stream_id != SHOP_STREAM:
                with suppress(ArchiveError):
                    await archive.stop_recording_subscription(each.subscription_id)

    async def keep_one(self, aeron: Aeron, archive: LocalArchive) -> None:
        stopped = [
            each
            async for each in archive.recordings(channel=IPC)
            if not each.is_active and each.recording_id not in archive.recording_sessions
        ]
        if stopped and self.random.random() < 1 / 2:
            old = self.random.choice(stopped)
            if self.random.random() < 1 / 4:
                await self.shorten(archive, old)
                return
            stream_id = old.stream_id
            await archive.extend_recording(old.recording_id, IPC, stream_id)
            opening = archive.extending_publication(old.recording_id, IPC, stream_id)
        else:
            stream_id = 1_000 + self.ledger.next_life()
            await archive.start_recording(IPC, stream_id)
            opening = aeron.add_exclusive_publication(IPC, stream_id)
        since = self.troubles
        try:
            async with await opening as publication:
                life = self.ledger.next_life()
                async with asyncio.timeout(2):
                    for _ in range(self.random.randrange(40)):
                        await self.ledger.offer(publication, life)
                        if self.random.random() < 1 / 4:
                            await self.world.sleep(self.random.random() / 100)
                await archive.stop_recording(IPC, stream_id)
                session_id, position = publication.session_id, publication.position
        except TimeoutError:
            assert self.is_troubled(since)
            await archive.stop_recording(IPC, stream_id)
            return
        if not self.is_troubled(since):
            await self.check_kept(archive, session_id, position, life)

    async def check_kept(
        self, archive: LocalArchive, session_id: int, position: int, life: int
    ) -> None:
        """Hold what was published, and nothing went wrong meanwhile, against its recording."""
        if not self.ledger.offered.get(life):
            return
        last = [each async for each in archive.recordings() if each.session_id == session_id][-1]
        assert last.stop_position == position
        replay = archive.replay(last.recording_id)
        runs = await self.ledger.replayed(replay, last.recording_id)
        assert (runs[-1].life, runs[-1].next) == (life, self.ledger.offered[life])

    async def shorten(self, archive: LocalArchive, old: RecordingDescriptor) -> None:
        """Cut a recording off, or forget it."""
        recording_id = old.recording_id
        known = self.ledger.seen.get(recording_id, [])
        position = self.random.choice([old.start_position, *(end for _, _, end in known)])
        is_purged = self.random.random() < 1 / 2
        is_refused = False
        try:
            if is_purged:
                await archive.purge_recording(recording_id)
            else:
                await archive.truncate(recording_id, position)
        except ArchiveError as error:
            is_refused = "with active replay" in str(error)
            if not is_refused:
                raise
        finally:
            if not is_refused:
                # Whatever has become of it, no more than this is certain any more.
                self.ledger.shorten(recording_id, 0 if is_purged else position)

    # The reckoning.

    async def reckon(self) -> None:
        """Without troubles, everything arrives, and all that ever did is still there."""
        await self.until(self.is_shop_recording)
        await self.world.sleep(0.3)
        self.is_ending = True
        await self.until(self.is_shop_recorded)
        archive = self.archive
        assert archive is not None
        self.is_over = True
        with suppress(StorageError):
            # Of a source that the disk failed earlier, while the request recorded others.
            await archive.stop_recording(SHOP, SHOP_STREAM)
        await self.until(lambda: not archive.recording_sessions)
        # An end that the disk has refused is written again after a second.
        await self.world.sleep(1.5)
        await self.ledger.check(archive)
        publication = self.shop_publication
        assert publication is not None
        last = [
            each async for each in archive.recordings() if each.session_id == publication.session_id
        ][-1]
        assert last.stop_position == publication.position
        life = max(each for each, _, _ in self.ledger.seen[last.recording_id])
        assert self.ledger.seen[last.recording_id][-1][1] + 1 == self.ledger.offered[life]

    def shop_recording(self) -> RecordingSession | None:
        """Return what records now what is published from elsewhere."""
        archive, publication = self.archive, self.shop_publication
        if archive is None or publication is None:
            return None
        session_id = publication.session_id
        sessions = archive.recording_sessions.values()
        return next((each for each in sessions if each.image.session_id == session_id), None)

    def is_shop_recording(self) -> bool:
        return self.shop_recording() is not None

    def is_shop_recorded(self) -> bool:
        """Return whether all is written that was published from elsewhere."""
        session, publication = self.shop_recording(), self.shop_publication
        if session is None or publication is None:
            return False
        return session.position == publication.position

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until something is so, as long as that may take."""
        async with asyncio.timeout(SETTLED_S):
            while not is_so():
                self.world.failures.raise_untold()
                await self.world.sleep(0.05)
