"""A stretch of a recording as it comes from a replay: bytes, in order, and only those asked for.

What was asked for last is kept, for a reader comes back to a frame, or to a message, that was not
whole. Everything before is forgotten, and nothing is fetched ahead of what is asked for but what
the receiver window lets through: memory is as much as a reader reads at once.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Final, final

from aeron_async.archive.control.remote_replay import RemoteReplay
from aeron_async.errors import AeronError
from aeron_async.spark.replayed.link import LINGER_MS, answer
from aeron_async.spark.worker_connection import worker_connection

if TYPE_CHECKING:
    from aeron_async.archive.control.client import RemoteArchive
    from aeron_async.spark.replayed.access import ArchiveAccess

__all__ = ["Stretch"]

STEP: Final = 2 << 20
"""Fetched before it is looked whether that is to be kept, in bytes."""
PADDING_PIECE: Final = 1 << 20
"""Padding may be as long as a term; so much of it is made at once, in bytes."""


@final
class Stretch:
    """Reads a recording from a position to another; every call blocks.

    Args:
        access: To the archive.
        recording_id: Of the recording.
        begin: Where a frame begins, in bytes.
        limit: Behind a frame, in bytes; there is more only of another one.

    Raises:
        InvalidPositionError: No frame begins there.
        AeronError: The archive does not replay it.
    """

    def __init__(self, access: ArchiveAccess, recording_id: int, begin: int, limit: int) -> None:
        self.begin = begin
        self.limit = limit
        self._bytes = bytearray()
        self._padding = 0
        self._recording_id = recording_id
        self._replay: RemoteReplay | None = None
        self._using = ExitStack()
        self._connection = self._using.enter_context(worker_connection(LINGER_MS))
        try:
            self._connection.call(answer, self._connection, access, self._begin)
        except BaseException:
            self.close()
            raise

    @property
    def end(self) -> int:
        """Return up to where it has come, in bytes."""
        return self.begin + len(self._bytes)

    def read(self, position: int, target: memoryview) -> int:
        """Copy what is there from a position on, and forget what lies before; return how much.

        Args:
            position: Not before that of the call before.
            target: Filled, but for what lies behind the end.

        Raises:
            ArchiveError: The replay broke off.
        """
        end = position + len(target)
        self._forget_before(position)
        while self.end < end and self._connection.call(self._more, min(end - self.end, STEP)):
            self._forget_before(position)
        count = max(min(end, self.end) - position, 0)
        target[:count] = memoryview(self._bytes)[:count]
        return count

    def _forget_before(self, position: int) -> None:
        passed = min(position, self.end) - self.begin
        del self._bytes[:passed]
        self.begin += passed

    async def _begin(self, archive: RemoteArchive) -> None:
        self._replay = RemoteReplay(
            archive,
            self._recording_id,
            self.begin,
            self.limit,
            follow=False,
            is_on_its_stream=True,
        )
        # That it cannot be replayed shows with the first block.
        await self._more(1)

    async def _more(self, wanted: int) -> bool:
        """Let there be so much more; return False if the replay is at its end before."""
        assert self._replay is not None, "it has begun"
        before = len(self._bytes)
        while len(self._bytes) - before < wanted:
            if self._padding:
                made = min(self._padding, PADDING_PIECE)
                self._bytes += bytes(made)
                self._padding -= made
                continue
            found = await self._replay.next_block()
            if found is None:
                break
            block, self._padding = found
            self._bytes += block
            self._replay.take_block(len(block) + self._padding)
        return len(self._bytes) > before

    def close(self) -> None:
        """Read no more; closing twice is closing once."""
        replay, self._replay = self._replay, None
        with self._using, suppress(AeronError):
            if replay is not None and not self._connection.aeron.is_closed:
                self._connection.call(replay.aclose)
