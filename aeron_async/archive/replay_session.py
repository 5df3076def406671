"""A recording published anew, for whoever subscribes: one task for each replay.

Frames go out as they were recorded, but for session and stream, and at the same positions; padding
is made anew. The pace is that of the subscribers.

Source: Aeron `ReplaySession`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from aeron_async.archive.disk.segment_scan import ScanBuffer
from aeron_async.errors import (
    AeronError,
    AeronTimeoutError,
    ArchiveError,
    ClosedError,
    NotConnectedError,
)
from aeron_async.logs import get_logger, within

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.archive.disk.recording_reader import RecordedBlock, RecordingReader
    from aeron_async.archive.disk_threads import Disk
    from aeron_async.archive.replay_limit import ReplayLimit
    from aeron_async.client.exclusive_publication import ExclusivePublication
    from aeron_async.logs import LogBudget

__all__ = ["ReplaySession", "address_frames"]

HEADER_LENGTH: Final = 32
FRAME_MASK: Final = 31
TYPE_WORD: Final = 1
SESSION_WORD: Final = 3
STREAM_WORD: Final = 4
TYPE_SHIFT: Final = 16
NS_PER_SECOND: Final = 1_000_000_000
SUBSCRIBE_FIRST: Final = (
    ", and sends a host that is not the asker's three bytes for each byte of the request: "
    "subscribe there first, then ask for the replay"
)

log = get_logger(__name__)


def address_frames(words: memoryview, length: int, *, session_id: int, stream_id: int) -> int:
    """Give frames the session and stream of the publication that they go to.

    Args:
        words: The frames as 32-bit words.
        length: Of all of them, in bytes; of padding, which is the last, the header only.
        session_id: Of the publication.
        stream_id: Of the publication.

    Returns:
        The length of those that hold data, in bytes.
    """
    last = at = 0
    end = length >> 2
    while at < end:
        words[at + SESSION_WORD] = session_id
        words[at + STREAM_WORD] = stream_id
        last = at
        at += ((words[at] + FRAME_MASK) & ~FRAME_MASK) >> 2
    # Only a header tells: the end of a payload may look like one.
    is_padded = words[last + TYPE_WORD] >> TYPE_SHIFT == 0
    return last << 2 if is_padded else length


@final
class ReplaySession:
    """Publishes one recording, or a part of it.

    Args:
        replay_id: Of the replay; its low half is the session of the publication.
        recording_id: Of the recording.
        publication: Its own; closed in the end.
        reader: Stands where the replay begins; closed in the end.
        limit: Up to where it may go now, and in the end.
        disk: Where is read.
        block_length: Longest block, in bytes.
        connect_timeout_ns: How long to wait for somebody who subscribes.
        is_bounded: Whether little may be sent before somebody has.
        log_budget: For its log lines: whoever asks for replays causes them.
        on_failed: Called when it ends as it should not have, and not because it was stopped, or
            because whoever subscribed has gone.
    """

    def __init__(
        self,
        *,
        replay_id: int,
        recording_id: int,
        publication: ExclusivePublication,
        reader: RecordingReader,
        limit: ReplayLimit,
        disk: Disk,
        block_length: int,
        connect_timeout_ns: int,
        is_bounded: bool,
        log_budget: LogBudget,
        on_failed: Callable[[AeronError], object] | None = None,
    ) -> None:
        self.replay_id = replay_id
        self.recording_id = recording_id
        self.publication = publication
        self._on_failed = on_failed
        self._reader = reader
        self._limit = limit
        self._disk = disk
        self._buffer = ScanBuffer(block_length)
        self._data_length = 0
        self._connect_timeout_ns = connect_timeout_ns
        self._advice = SUBSCRIBE_FIRST if is_bounded else ""
        self._peer_log = within(log_budget, log)

    @property
    def position(self) -> int:
        """Return up to where the recording has been read, in bytes."""
        return self._reader.position

    @property
    def end_position(self) -> int | None:
        """Return where the replay ends, in bytes; None if it goes on as the recording does."""
        return self._limit.end

    async def run(self) -> None:
        """Publish until the end, and close; never raises but for cancellation."""
        is_whole = False
        try:
            await self._connect()
            await self._replay()
            is_whole = True
        except (NotConnectedError, ClosedError) as error:
            self._peer_log.info("replay_left", error=str(error), **self._told())
        except AeronError as error:
            self._peer_log.warning("replay_failed", error=str(error), **self._told())
            if self._on_failed is not None:
                self._on_failed(error)
        finally:
            try:
                if not self.publication.is_closed:
                    # What is cut short must not look as if it had ended.
                    await self.publication.aclose(revoke=not is_whole)
            finally:
                await self._disk.run(self._reader.close)

    def _told(self) -> dict[str, int]:
        """Return what log lines say of it."""
        return {
            "replay_id": self.replay_id,
            "recording_id": self.recording_id,
            "position": self.position,
        }

    async def _connect(self) -> None:
        publication = self.publication
        # The channel is a client's, who is told itself.
        publication.logs_waits = False
        try:
            await publication.wait_connected(self._connect_timeout_ns / NS_PER_SECOND)
        except AeronTimeoutError as error:
            message = (
                f"no connection established for replayChannel={publication.channel}, "
                f"replayStreamId={publication.stream_id} within "
                f"{self._connect_timeout_ns / NS_PER_SECOND} s: is its subscriber there? Its "
                f"archive waits for as long as AERON_ARCHIVE_CONNECT_TIMEOUT says{self._advice}"
            )
            raise ArchiveError(message) from error

    async def _replay(self) -> None:
        while (limit := await self._limit.following(self.position)) is not None:
            recorded, up_to = limit
            block = await self._disk.run(self._read, recorded, up_to)
            if block is not None:
                await self._publish(block)

    def _read(self, recorded: int, limit: int) -> RecordedBlock | None:
        """Read a block, and make its frames those of the publication; note where data ends."""
        reader, buffer = self._reader, self._buffer
        begin = reader.position
        block = reader.read(buffer, recorded=recorded, limit=limit)
        if block is None and limit < recorded:
            # As the official archive: a frame that straddles the end goes out whole.
            block = reader.read(buffer, recorded=recorded)
            if block is not None:
                block = first_frame(block)
                reader.position = block.end_position
        if block is not None:
            assert block.position == begin, "blocks follow one another"
            self._data_length = address_frames(
                buffer.words,
                block.length,
                session_id=self.publication.session_id,
                stream_id=self.publication.stream_id,
            )
        return block

    async def _publish(self, block: RecordedBlock) -> None:
        data_length = self._data_length
        if data_length:
            await self.publication.offer_block(block.frames[:data_length])
        if data_length < block.length:
            left = block.buffer.words[data_length >> 2] - HEADER_LENGTH
            await self._pad((left + FRAME_MASK) & ~FRAME_MASK)

    async def _pad(self, length: int) -> None:
        """Append as much padding as there was, in one frame where that can be."""
        publication = self.publication
        longest = publication.max_message_length & ~FRAME_MASK
        while length > longest:
            await publication.append_padding(longest - HEADER_LENGTH)
            length -= longest
        await publication.append_padding(length)


def first_frame(block: RecordedBlock) -> RecordedBlock:
    """Return a block of the first frame only."""
    words = block.buffer.words
    length = (words[0] + FRAME_MASK) & ~FRAME_MASK
    if length >= block.length:
        return block
    return type(block)(block.buffer, block.position, length, 0)
