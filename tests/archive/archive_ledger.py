"""What was published, and what has been seen of recordings: it must stay like that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aeron_async.errors import StorageError
from tests.archive.lives import add, number_of, payload

if TYPE_CHECKING:
    from collections.abc import AsyncIterable

    from aeron_async import ExclusivePublication
    from aeron_async.archive import LocalArchive
    from aeron_async.client.image import Message
    from tests.archive.lives import Run

__all__ = ["Ledger"]


class Ledger:
    """Holds whatever is replayed, whenever and however, against all that was before.

    Attributes:
        offered: How many messages of each life have been published.
        written: Up to where each recording has been written, in bytes.
        seen: The messages of each recording, from its start on: life, number and where it ends.
        message_count: Messages replayed.
    """

    def __init__(self) -> None:
        self.offered: dict[int, int] = {}
        self.written: dict[int, int] = {}
        self.seen: dict[int, list[tuple[int, int, int]]] = {}
        self.message_count = 0
        self._life = 0

    def next_life(self) -> int:
        """Return a number that no publication had before."""
        self._life += 1
        return self._life

    async def offer(self, publication: ExclusivePublication, life: int) -> None:
        """Publish the next message of a life."""
        number = self.offered.setdefault(life, 0)
        # It may leave, and whoever waits for that be gone.
        self.offered[life] = number + 1
        await publication.offer(payload(life, number))

    def shorten(self, recording_id: int, position: int) -> None:
        """Forget what was behind a position, for nobody need keep that any more."""
        seen = self.seen.get(recording_id, [])
        self.seen[recording_id] = [each for each in seen if each[2] <= position]
        self.written[recording_id] = position

    async def replayed(
        self, messages: AsyncIterable[Message], recording_id: int, begin: int = 0
    ) -> list[Run]:
        """Hold messages against those that others have had of a recording, from one on."""
        runs: list[Run] = []
        place = begin
        # Another list takes its place when it is shortened; what is on its way stays what it was.
        seen = self.seen.setdefault(recording_id, [])
        async for message in messages:
            life, number = number_of(message.data)
            add(runs, life, number, message.position)
            assert number < self.offered[life], "nobody has published that"
            found = (life, number, message.position)
            if place < len(seen):
                assert seen[place] == found
            else:
                assert place == len(seen)
                seen.append(found)
            place += 1
            self.message_count += 1
        return runs

    async def check(self, archive: LocalArchive, *, may_fail: bool = False) -> None:
        """Hold all that an archive has found on its disk against what is known of it."""
        found = {each.recording_id: each async for each in archive.recordings()}
        for recording_id, position in self.written.items():
            assert recording_id in found or position == 0, f"recording {recording_id} is lost"
        for recording_id, each in found.items():
            assert not each.is_active
            assert each.stop_position >= self.written.get(recording_id, 0)
            known = list(self.seen.get(recording_id, ()))
            try:
                await self.replayed(archive.replay(recording_id), recording_id)
            except StorageError:
                if may_fail:
                    continue
                raise
            assert self.seen.get(recording_id, [])[: len(known)] == known
            self.written[recording_id] = each.stop_position
