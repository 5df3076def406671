"""A replay as an iterator over the messages of a recording of this archive.

`LocalReplay` reads blocks from the disk, one ahead of the block whose messages it returns. It reads
an active recording like a stopped one, up to the position where it has been written. There the
replay waits until the recording has grown. So there is no seam between older and newly recorded
data.

Source: Aeron `FragmentAssembler`, `ReplayMerge`, `AeronArchive.replay`. Aeron has no such iterator.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final, final

from aeron_async.archive.api import Replay
from aeron_async.archive.disk.checksums import checksum_named
from aeron_async.archive.disk.recording_reader import RecordingReader, check_position
from aeron_async.archive.disk.segment_scan import ScanBuffer
from aeron_async.archive.disk_access import finished
from aeron_async.client.home_loop import HomeLoop, YieldBudget
from aeron_async.client.reading import NOTHING, Reading, Taking, inheriting
from aeron_async.counters import Cell
from aeron_async.errors import ArchiveError, BusyError, InvalidPositionError
from aeron_async.logbuffer.frame import FLAGS_SHIFT, HEADER, TYPE_SHIFT
from aeron_async.logbuffer.message import Batch, open_batch, read_whole
from aeron_async.logbuffer.message import Message as LogMessage
from aeron_async.logbuffer.position import max_message_length
from aeron_async.logbuffer.wake_flag import WakeFlag
from aeron_async.protocol.header import DataFlags

if TYPE_CHECKING:
    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.archive.disk.recording_reader import RecordedBlock
    from aeron_async.archive.recordings import Recordings
    from aeron_async.archive.resources import ArchiveResources
    from aeron_async.client.image import Message
    from aeron_async.errors import ClosedError
    from aeron_async.logbuffer.message import MessageSource

__all__ = [
    "LocalReplay",
    "ReplayAssembler",
    "ReplayBuffer",
    "ReplayRange",
    "ReplaySource",
    "check_within",
]

FRAME_MASK: Final = 31


# The range of a replay.


@final
class ReplayRange:
    """The current position of one replay, and its end.

    Args:
        resources: Resources of the archive.
        recordings: The active recordings.
        recording_id: Id of the recording.
        from_position: Where to begin; the start of the recording if not given.
        to_position: Where to end; the end of the recording if not given.
        follow: Whether to wait for more.

    Attributes:
        position: Where the replay begins, in bytes; valid after `begin`.
        is_under_way: Whether the position is known, so that truncating or purging the range is
            refused.
    """

    _reader: RecordingReader
    is_under_way: bool

    def __init__(
        self,
        resources: ArchiveResources,
        recordings: Recordings,
        recording_id: int,
        *,
        from_position: int | None,
        to_position: int | None,
        follow: bool,
    ) -> None:
        self._is_over = self._is_begun = self.is_under_way = False
        self.recording_id = recording_id
        self._resources = resources
        self._recordings = recordings
        self._from = from_position
        self._to = to_position
        self._follow = follow
        self._stop = 0
        self.position: int = -1 if from_position is None else from_position

    @property
    def end_position(self) -> int | None:
        """Return where the replay ends, in bytes; None if it follows the recording."""
        return self._to

    async def begin(self) -> RecordingDescriptor:
        """Look up the recording, and check the positions.

        Raises:
            UnknownRecordingError: No recording has that id.
            InvalidPositionError: A position is outside the recording, or inside a frame.
            ArchiveFileError: A file is damaged.
        """
        resources = self._resources
        descriptor = await resources.catalog.get(self.recording_id)
        recorded = self._stop = self._recordings.recorded_position(descriptor)
        position = descriptor.start_position if self._from is None else self._from
        check_within(position, descriptor, recorded, "begins")
        end = self._to
        if end is not None and (not self._follow or end <= recorded):
            check_within(end, descriptor, recorded, "ends")
        if end is not None and end < position:
            message = f"the replay would end at {end}, before it begins at {position}"
            raise InvalidPositionError(message, nearest=position)
        self.position = position
        self._to = recorded if end is None and not self._follow else end
        self.is_under_way = True
        await self._check_frame(descriptor, position, recorded)
        if end is not None and end <= recorded:
            await self._check_frame(descriptor, end, recorded)
        self._reader = RecordingReader(
            resources.directory,
            descriptor,
            position,
            checksum=checksum_named(resources.context.replay_checksum),
        )
        self._is_begun = True
        return descriptor

    def read_ahead(self, buffer: ScanBuffer) -> asyncio.Future[RecordedBlock | None] | None:
        """Begin reading the block after the last one; return None if it is not written yet.

        Only one read may be in progress.
        """
        recorded = self._recorded()
        limit = recorded if self._to is None else min(recorded, self._to)
        if limit <= self._reader.position:
            return None
        return self._resources.disk.begin(self._reader.read, buffer, recorded=recorded, limit=limit)

    async def wait(self) -> bool:
        """Wait until there may be more, and return whether there can ever be more.

        Raises:
            UnknownRecordingError: The recording was purged.
            ArchiveError: The recording was truncated before the position of this replay.
        """
        position = self._reader.position
        if self._is_over or not self._follow or (self._to is not None and position >= self._to):
            return False
        recordings = self._recordings
        session = recordings.sessions.get(self.recording_id)
        if session is not None:
            await session.progress.wait()
            return True
        generation = recordings.generation
        descriptor = await self._resources.catalog.get(self.recording_id)
        if self._is_over or recordings.generation != generation:
            return not self._is_over
        self._stop = recordings.recorded_position(descriptor)
        if self._stop < position:
            message = (
                f"recording {self.recording_id} was truncated to {self._stop} after it was "
                f"replayed up to {position}"
            )
            raise ArchiveError(message)
        if self._stop == position:
            await self._resources.changed.wait()
        return True

    def end(self) -> None:
        """End the replay, and wake the waiting task."""
        self._is_over = True
        self._resources.changed.notify()
        session = self._recordings.sessions.get(self.recording_id)
        if session is not None:
            session.progress.notify()

    async def aclose(self) -> None:
        """Close the reader; a second call does nothing."""
        if self._is_begun:
            self._is_begun = False
            await self._resources.disk.run(self._reader.close)

    def __del__(self) -> None:
        # The caller left its loop early and did not close the iterator.
        if self._is_begun:
            self._reader.close()

    def _recorded(self) -> int:
        session = self._recordings.sessions.get(self.recording_id)
        return self._stop if session is None else session.position

    async def _check_frame(
        self, descriptor: RecordingDescriptor, position: int, recorded: int
    ) -> None:
        resources = self._resources
        await resources.disk.run(
            check_position, resources.directory, descriptor, position, end=recorded
        )


def check_within(position: int, descriptor: RecordingDescriptor, recorded: int, what: str) -> None:
    """Refuse a position where the recording has no frame.

    Args:
        position: The requested position.
        descriptor: Descriptor of the recording.
        recorded: Position up to which the recording is written, in bytes.
        what: Verb for the error text: "begins" or "ends".

    Raises:
        InvalidPositionError: The position is outside the recording, or no multiple of 32.
    """
    start = descriptor.start_position
    if not start <= position <= recorded:
        nearest = start if position < start else recorded
        message = (
            f"a replay of recording {descriptor.recording_id} {what} at {position}, but the "
            f"recording has positions {start} to {recorded}"
        )
        raise InvalidPositionError(message, nearest=nearest)
    if position & FRAME_MASK:
        message = (
            f"a replay of recording {descriptor.recording_id} {what} at {position}, and frames "
            "begin at multiples of 32"
        )
        raise InvalidPositionError(message, nearest=position & ~FRAME_MASK)


# Messages of several fragments.

BEGIN_BIT: Final = DataFlags.BEGIN_FRAGMENT << FLAGS_SHIFT
END_BIT: Final = DataFlags.END_FRAGMENT << FLAGS_SHIFT


@final
class ReplayBuffer(ScanBuffer):
    """Memory for a block, with an additional view of the same bytes as 64-bit words."""

    def __init__(self) -> None:
        super().__init__()
        self.longs: memoryview = self.bytes.cast("q")


@final
class ReplayAssembler:
    """Assembles fragmented messages, one at a time; frames come in order and without a gap.

    Args:
        longest: Longest message, in bytes.

    Attributes:
        is_under_way: Whether a message has begun, and not ended.
    """

    __slots__ = ("_message", "_reserved_value", "is_under_way", "longest")

    def __init__(self, longest: int) -> None:
        self.longest: int = longest
        self._message = bytearray()
        self._reserved_value = 0
        self.is_under_way: bool = False

    def take(
        self, memory: ReplayBuffer, offset: int, end: int, base: int, source: MessageSource
    ) -> tuple[LogMessage | None, int]:
        """Take fragments up to the end of a message or block; return the message and the offset.

        A fragment whose message began before the replay is skipped.

        Args:
            memory: Memory that holds the frames.
            offset: Offset of the first frame.
            end: Offset behind the last frame.
            base: Position of offset 0.
            source: Source of the message.
        """
        words = memory.words
        while offset < end:
            index = offset >> 2
            frame_length, word = words[index], words[index + 1]
            following = (offset + frame_length + 31) & -32
            if word >> TYPE_SHIFT == 0:
                return None, following
            if word & BEGIN_BIT:
                self._message.clear()
                self._reserved_value = memory.longs[(offset >> 3) + 3]
                self.is_under_way = True
            if self.is_under_way:
                self._message += memory.bytes[offset + HEADER : offset + frame_length]
                if len(self._message) > self.longest:
                    self.is_under_way = False
            offset = following
            if word & END_BIT:
                if not self.is_under_way:
                    return None, offset
                self.is_under_way = False
                data = bytes(self._message)
                return LogMessage(data, base + offset, self._reserved_value, source), offset
        return None, offset


# The source of the messages.

NEVER: Final = (1 << 63) - 1


@final
class ReplaySource(Taking):
    """Takes the place of an image as the source of replayed messages.

    Attributes:
        session_id: Session of the publication that was recorded last.
        stream_id: Stream that was recorded.
        source_identity: Address of the publisher.
    """

    def __init__(
        self, *, position: int, session_id: int, stream_id: int, source_identity: str
    ) -> None:
        self.session_id = session_id
        self.stream_id = stream_id
        self.source_identity = source_identity
        self._position = position
        # Nothing waits for the position of a replay.
        self._trigger = NEVER
        self._is_closed = False
        self._attach(Cell(memoryview(bytearray(8)).cast("q")), WakeFlag())

    @property
    def position(self) -> int:
        """Return the end position of the message taken last, in bytes."""
        return self._position

    def _move_trigger(self) -> None:
        """Do nothing: nothing waits for the position of a replay."""

    @classmethod
    def of(cls, descriptor: RecordingDescriptor, position: int) -> MessageSource:
        """Return the source for a replay that begins at a position, in bytes."""
        return cls(
            position=position,
            session_id=descriptor.session_id,
            stream_id=descriptor.stream_id,
            source_identity=descriptor.source_identity,
        )

    def __repr__(self) -> str:
        return f"<ReplaySource of session {self.session_id}, stream {self.stream_id}>"


# The iterator.

MESSAGES_PER_BATCH: Final = 1024


@inheriting
@final
class LocalReplay(Reading, Replay):
    """The messages of a recording of this archive; made by `LocalArchive.replay`.

    Args:
        resources: Resources of the archive.
        extent: Range of the replay.
    """

    if TYPE_CHECKING:

        async def __anext__(self) -> Message:
            """Return the next message, waiting for it while the recording is active."""

    def __init__(self, resources: ArchiveResources, extent: ReplayRange) -> None:
        self.recording_id: int = extent.recording_id
        self._home = HomeLoop(asyncio.get_running_loop())
        self._extent = extent
        self._yield_budget = YieldBudget(self._home.loop, resources.aeron.clock)
        self._calls_until_check = self._yield_budget.stride
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
        """Return the end position of the message returned last, in bytes."""
        taken = self._taken
        return self._extent.position if taken is None else taken.position

    @property
    def has_more(self) -> bool:
        """Return whether the next message is in memory already."""
        return not self._is_closed and bool(self._batch.left)

    @property
    def is_under_way(self) -> bool:
        """Return whether the range is known and the replay has not ended."""
        return self._extent.is_under_way and not self._is_closed

    @property
    def end_position(self) -> int | None:
        """Return where the replay ends, in bytes; None if it follows the recording."""
        return self._extent.end_position

    async def _anext_waiting(self) -> Message:
        """Return the next message, waiting for it if necessary; see `Reading.__anext__`."""
        if self._is_waiting:
            message = (
                "another task reads this replay: only one may, and it may pass messages to others"
            )
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
            if self._calls_until_check <= 0:
                await self._look()
            message: Message | None = self._batch.following()
            if message is not None:
                self._calls_until_check -= 1
                self._taken = message
                return message
            await self._next_batch()

    async def _look(self) -> None:
        """Yield to the event loop if this task has run for long enough."""
        turn = self._yield_budget
        is_due = self._calls_until_check < 0
        is_over = turn.is_over()
        self._calls_until_check = turn.stride
        if is_due or is_over:
            await asyncio.sleep(0)
            turn.begin()

    async def _next_batch(self) -> None:
        """Read until there are messages.

        Raises:
            StopAsyncIteration: The replay has ended.
        """
        while not self._is_closed:
            block = self._block
            if block is None or self._offset >= block.length:
                if not await self._next_block():
                    await self.aclose()
            elif self._read(block):
                return

    def _read(self, block: RecordedBlock) -> bool:
        """Read messages from the rest of the block; return whether there were any."""
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
        """Switch to the next block, waiting for it; return whether there is one."""
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
            # If this task is cancelled here, the read continues and the next call uses its result.
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
        """Begin reading the block after the last one, if it is written."""
        buffer = self._spare.pop() if self._spare else ReplayBuffer()
        self._ahead = self._extent.read_ahead(buffer)
        if self._ahead is None:
            self._spare.append(buffer)
        else:
            self._buffer_ahead = buffer

    async def _begin(self) -> None:
        """Determine where to begin, and where to end."""
        descriptor = await self._extent.begin()
        self._source = ReplaySource.of(descriptor, self._extent.position)
        self._assembler = ReplayAssembler(max_message_length(descriptor.term_length))
        self._is_begun = True

    def end(self, because: ClosedError | None = None) -> None:
        """End the iteration.

        Args:
            because: Raised in place of the end, because the archive closes before the replay is
                complete.
        """
        if not self._is_closed:
            self._closed_because = because
        self._is_closed = True
        self._extent.end()

    async def aclose(self) -> None:
        """Stop reading; a second call does nothing."""
        self.end()
        self._batch = NOTHING
        self._block = None
        ahead, self._ahead = self._ahead, None
        try:
            if ahead is not None:
                # To its end, even if the caller is cancelled: the file must be open until then.
                with suppress(Exception):
                    await finished(ahead)
        finally:
            self._spare.clear()
            await self._extent.aclose()
