"""Who replays an archive of a simulated world: in its own loop, and from elsewhere."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from aeron_async.archive import RemoteArchive
from aeron_async.errors import AeronError, ArchiveError, ClosedError, StorageError

if TYPE_CHECKING:
    from aeron_async import DriverContext
    from aeron_async.archive import LocalArchive
    from aeron_async.testing.host import Host
    from tests.archive.archive_world import ArchiveWorld

__all__ = ["CONTROL", "Readers"]

CONTROL: Final = "aeron:udp?endpoint=archive:20122"
RESPONSES: Final = "aeron:udp?endpoint=reader:20123"
REPLAYS: Final = "aeron:udp?endpoint=reader:20124"


class Readers:
    """Those who read, and hold what they get against the ledger of their world."""

    def __init__(self, world: ArchiveWorld, driver: DriverContext) -> None:
        self._world = world
        self._driver = driver

    async def follow(self, archive: LocalArchive) -> None:
        """Replay one recording after the other here, from anywhere, and go on as it does."""
        draw = self._world.random
        while True:
            since = self._world.troubles
            try:
                async with asyncio.timeout(draw.random() * 3):
                    await self.follow_one(archive)
            except TimeoutError:
                pass
            except (StorageError, ArchiveError, ClosedError) as error:
                self._world.tolerate(error, since)
            await asyncio.sleep(draw.random() / 10)

    async def follow_one(self, archive: LocalArchive) -> None:
        """Replay a recording, until that is cancelled."""
        draw, ledger = self._world.random, self._world.ledger
        ids = [each.recording_id async for each in archive.recordings()]
        if ids:
            recording_id = draw.choice(ids)
            known = ledger.seen.setdefault(recording_id, [])
            begin = draw.randrange(len(known) + 1)
            position = known[begin - 1][2] if begin else None
            try:
                async with archive.replay(recording_id, position, follow=True) as replay:
                    await ledger.replayed(replay, recording_id, begin)
            except ArchiveError:
                if ledger.seen[recording_id] is known:
                    raise
                # It was shortened, or forgotten, before this had begun.

    async def listen(self, host: Host) -> None:
        """Ask for replays from elsewhere, one after the other."""
        draw = self._world.random
        async with host.aeron(self._driver) as aeron:
            while True:
                try:
                    async with RemoteArchive.connect(
                        aeron,
                        control_channel=CONTROL,
                        response_channel=RESPONSES,
                        replay_channel=REPLAYS,
                        timeout=3,
                    ) as remote:
                        while draw.random() < 9 / 10:
                            await self.listen_to_one(remote)
                            await asyncio.sleep(draw.random() / 10)
                except (AeronError, TimeoutError) as error:
                    # The network may have lost what was needed, and the archive have died.
                    self._world.tolerate(error)
                    await asyncio.sleep(draw.random())

    async def listen_to_one(self, remote: RemoteArchive) -> None:
        recordings = [each async for each in remote.recordings()]
        if not recordings:
            return
        chosen = self._world.random.choice(recordings)
        recording_id, stop = chosen.recording_id, chosen.stop_position
        known = self._world.ledger.seen.setdefault(recording_id, [])
        before = [each for each in known if each[2] <= stop]
        async with asyncio.timeout(5), remote.replay(recording_id) as replay:
            runs = await self._world.ledger.replayed(replay, recording_id)
        if self._world.ledger.seen.get(recording_id) is known:
            # It has not been shortened meanwhile: what was there has come.
            assert sum(len(each.ends) for each in runs) >= len(before)
