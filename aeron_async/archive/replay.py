"""A recording as messages: `async for message in archive.replay(recording_id)`.

Blocks come off the disk one ahead of the one that is being read. What is still being recorded is
read like what was recorded long ago, up to where it has been written; there the replay waits until
that has moved. So there is no seam where one would end and the other begin.

Source: Aeron `ReplayMerge`, `AeronArchive.replay`; as an iterator it is ours.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, final

from aeron_async.archive.api import Replay
from aeron_async.archive.replay_assembler import ReplayAssembler, ReplayBuffer
from aeron_async.archive.replay_source import ReplaySource
from aeron_async.client.turn import Turn
from aeron_async.errors import ArchiveError, BusyError
from aeron_async.kernel import NOTHING, Batch, Reading, inheriting, open_batch, read_whole
from aeron_async.logbuffer.position import max_message_length

if TYPE_CHECKING:
    from aeron_async.archive.disk.recording_reader import RecordedBlock
    from aeron_async.archive.replay_range import ReplayRange
    from aeron_async.archive.resources import ArchiveResources
    from aeron_async.errors import ClosedError
    from aeron_async.kernel import Message
    from aeron_async.kernel.message import MessageSource

__all__ = ["LocalReplay"]

MESSAGES_PER_BATCH: Final = 1024


@inheriting
@final
class LocalReplay(Reading, Replay):
    """The messages of a recording of this archive; made by `LocalArchive.replay`.

    Args:
        resources: Of the archive.
        extent: From where to where, and what may still come.
    """

    def __init__(self, resources: ArchiveResources, extent: ReplayRange) -> None:
        self.recording_id = extent.recording_id
        self._home = resources.aeron.home
        self._extent = extent
        self._loop_turn = Turn(resources.aeron.home.loop, resources.aeron.clock)
        self._turn_budget = self._loop_turn.stride
        self._is_closed = self._is_waiting = self._is_begun = False
        self._closed_because: ClosedError | None = None
        self._source: MessageSource
        self._assembler: ReplayAssembler
        self._spare: list[ReplayBuffer] = []
        self._buffer: ReplayBuffer
        self._buffer_ahead: ReplayBuffer
        self._block: RecordedBlock | None = None
        self._offset = 0
        self._ahead: asyncio.Future[RecordedBlock | None] | None = None

    @property
    def position(self) -> int:
        """Return where the message ends that was handed out last, in bytes."""
        taken = self._taken
        return self._extent.position if taken is None else taken.position

    @property
    def is_under_way(self) -> bool:
        """Return whether it has begun, or is about to, and has not ended."""
        return self._extent.is_under_way and not self._is_closed

    @property
    def end_position(self) -> int | None:
        """Return where the replay ends, in bytes; None if it follows the recording."""
        return self._extent.end_position

    async def _anext_waiting(self) -> Message:
        """Return the next message, whatever it takes; see `Reading.__anext__`."""
        if self._is_waiting:
            message = "another task reads this replay: one task does, and may hand messages on"
            raise BusyError(message)
        self._is_waiting = True
        try:
            return await self._following()
        except ArchiveError:
            await self.aclose()
            raise
        finally:
            self._is_waiting = False

    async def _following(self) -> Message:
        while True:
            if self._is_closed:
                if self._closed_because is not None:
                    raise self._closed_because
                raise StopAsyncIteration
            if self._turn_budget <= 0:
                await self._look()
            message = self._batch.following()
            if message is not None:
                self._turn_budget -= 1
                self._taken = message
                return message
            await self._next_batch()

    async def _look(self) -> None:
        """Give the loop a turn if it is time."""
        turn = self._loop_turn
        is_due = self._turn_budget < 0
        is_over = turn.is_over()
        self._turn_budget = turn.stride
        if is_due or is_over:
            await asyncio.sleep(0)
            turn.begin()

    async def _next_batch(self) -> None:
        """Read on until there are messages.

        Raises:
            StopAsyncIteration: There are no more to come.
        """
        while not self._is_closed:
            block = self._block
            if block is None or self._offset >= block.length:
                if not await self._next_block():
                    await self.aclose()
            elif self._read(block):
                return

    def _read(self, block: RecordedBlock) -> bool:
        """Read what the block still has; return whether that gave any message."""
        memory, offset, end, base = self._buffer, self._offset, block.length, block.position
        source, assembler = self._source, self._assembler
        if not assembler.is_under_way:
            batch, offset = open_batch(
                memory.bytes,
                memory.words,
                memory.longs,
                offset,
                end,
                base,
                MESSAGES_PER_BATCH,
                source,
            )
            if not batch.left:
                found: list[Message] = []
                offset = read_whole(
                    memory.bytes,
                    memory.words,
                    memory.longs,
                    offset,
                    end,
                    base,
                    MESSAGES_PER_BATCH,
                    found,
                    source,
                    assembler.longest,
                )
                batch = Batch(found, source) if found else batch
            self._offset = offset
            if batch.left:
                self._batch = batch
                return True
        message, self._offset = assembler.take(memory, offset, end, base, source)
        if message is None:
            return False
        self._batch = Batch([message], source)
        return True

    async def _next_block(self) -> bool:
        """Go on with the next block, waiting for it; return whether there is one."""
        self._batch = NOTHING
        if not self._is_begun:
            await self._begin()
        if self._block is not None:
            self._spare.append(self._buffer)
            self._block = None
        while self._ahead is None:
            if self._is_closed:
                return False
            self._read_ahead()
            if self._ahead is None and not await self._extent.wait():
                return False
        ahead = self._ahead
        while not ahead.done():
            # Cancelled or not, the block stays asked for, and the next call goes on with it.
            await asyncio.wait((ahead,))
        self._ahead = None
        if self._is_closed:
            return False
        block = ahead.result()
        if block is None:
            return False
        self._block, self._buffer, self._offset = block, self._buffer_ahead, 0
        self._read_ahead()
        return True

    def _read_ahead(self) -> None:
        """Ask for the block behind the last one, if it is there."""
        buffer = self._spare.pop() if self._spare else ReplayBuffer()
        self._ahead = self._extent.read_ahead(buffer)
        if self._ahead is None:
            self._spare.append(buffer)
        else:
            self._buffer_ahead = buffer

    async def _begin(self) -> None:
        """Find out where to begin, and where to end."""
        descriptor = await self._extent.begin()
        self._source = ReplaySource.of(descriptor, self._extent.position)
        self._assembler = ReplayAssembler(max_message_length(descriptor.term_length))
        self._is_begun = True

    def end(self, because: ClosedError | None = None) -> None:
        """Let the iteration end.

        Args:
            because: Raised in its place: the archive closes, and this is not the end of it.
        """
        if not self._is_closed:
            self._closed_because = because
        self._is_closed = True
        self._extent.end()

    async def aclose(self) -> None:
        """Read no more; closing twice is closing once."""
        self.end()
        self._batch = NOTHING
        self._block = None
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            await asyncio.wait((ahead,))
            ahead.exception()
        self._spare.clear()
        await self._extent.aclose()
