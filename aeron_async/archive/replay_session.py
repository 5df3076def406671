"""Replays into publications: the sessions of one archive, and the limit of each.

A `ReplaySession` publishes frames as they were recorded, at the same positions; only session id and
stream id differ. It does not copy recorded padding but appends padding of the same length. Flow
control of the subscribers sets the pace.

Source: Aeron `ReplaySession`, `ArchiveConductor.startReplay`, `CreateReplayPublicationSession`.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final, final

from aeron_async.archive.api import ALL_AND_FOLLOW, ALL_AND_STOP
from aeron_async.archive.disk.checksums import checksum_named
from aeron_async.archive.disk.recording_reader import RecordingReader, check_position
from aeron_async.archive.disk.segment_scan import ScanBuffer
from aeron_async.archive.recording_channels import stripped_channel
from aeron_async.client.arguments import check_stream_id, publication_uri
from aeron_async.clock import NS_PER_SECOND
from aeron_async.errors import (
    AeronError,
    AeronTimeoutError,
    ArchiveError,
    ArchiveErrorCode,
    ClosedError,
    InvalidPositionError,
    NotConnectedError,
)
from aeron_async.logs import get_logger, within
from aeron_async.protocol.channel_uri import ChannelUri
from aeron_async.protocol.header import wrap_int32

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.archive.disk.recording_reader import RecordedBlock
    from aeron_async.archive.disk_access import Disk
    from aeron_async.archive.recording_session import RecordingSession
    from aeron_async.archive.recordings import Recordings
    from aeron_async.archive.resources import ArchiveResources
    from aeron_async.client.exclusive_publication import ExclusivePublication
    from aeron_async.counters import CountersReader
    from aeron_async.logs import LogBudget

__all__ = [
    "CounterLimit",
    "ReplayLimit",
    "ReplaySession",
    "Replays",
    "address_frames",
]

# Limits.

ALLOCATED: Final = 1
LOOK_SECONDS: Final = 0.005
"""How often a limit counter is polled: a counter does not notify its readers."""


@final
class CounterLimit:
    """A counter that limits a replay; when the counter is freed, its last value stays the limit."""

    def __init__(self, counters: CountersReader, counter_id: int) -> None:
        self._counters = counters
        self._counter_id = counter_id
        self._registration_id = counters.record(counter_id).registration_id
        self._value = counters.value(counter_id)

    @property
    def is_over(self) -> bool:
        """Return whether the counter was freed, or its id reused."""
        counters, counter_id = self._counters, self._counter_id
        return (
            counters.state(counter_id) != ALLOCATED
            or counters.record(counter_id).registration_id != self._registration_id
        )

    def value(self) -> int:
        """Return the counter's value, or its last value once it was freed."""
        if not self.is_over:
            self._value = self._counters.value(self._counter_id)
        return self._value


@final
class ReplayLimit:
    """The positions that limit one replay.

    Args:
        recorded: Position up to which the recording was written at the start, in bytes.
        end: Position where the replay ends, in bytes; None follows the recording.
        session: Active recording session; None if the recording has stopped.
        counter: Counter whose value is not to be passed; None for none.
    """

    def __init__(
        self,
        *,
        recorded: int,
        end: int | None,
        session: RecordingSession | None,
        counter: CounterLimit | None,
    ) -> None:
        self.end = end
        self._recorded = recorded
        self._session = session
        self._counter = counter

    async def following(self, position: int) -> tuple[int, int] | None:
        """Wait until there is something to replay after a position.

        Returns:
            The recorded position and the position up to which the replay may go; None at the end.
        """
        while self.end is None or position < self.end:
            session, counter = self._session, self._counter
            is_over = session is None or session.is_over
            is_counter_over = counter is None or counter.is_over
            recorded = self._recorded if session is None else session.position
            limit = recorded if counter is None else min(recorded, counter.value())
            if limit > position:
                return recorded, limit if self.end is None else min(limit, self.end)
            if counter is not None and recorded > position:
                if is_counter_over:
                    return None
                await asyncio.sleep(LOOK_SECONDS)
            elif session is None or is_over:
                return None
            else:
                await session.progress.wait()
        return None


def counter_limit(counters: CountersReader, counter_id: int) -> CounterLimit:
    """Return a counter as a limit.

    Raises:
        ClosedError: No counter has that id.
    """
    if not 0 <= counter_id < counters.limit or counters.state(counter_id) != ALLOCATED:
        message = f"no counter has the id {counter_id}"
        raise ClosedError(message)
    return CounterLimit(counters, counter_id)


# One replay.

HEADER_LENGTH: Final = 32
FRAME_MASK: Final = 31
TYPE_WORD: Final = 1
SESSION_WORD: Final = 3
STREAM_WORD: Final = 4
TYPE_SHIFT: Final = 16
SECOND_NS: Final = 1_000_000_000
SUBSCRIBE_FIRST: Final = (
    ", and sends a host other than the client's at most three bytes for each byte of the request: "
    "subscribe there first, then request the replay"
)

log: Final = get_logger(__name__)


def address_frames(words: memoryview, length: int, *, session_id: int, stream_id: int) -> int:
    """Set the session id and stream id of recorded frames to those of a publication.

    Args:
        words: The frames as 32-bit words.
        length: Length of the frames, in bytes; of a padding frame at the end, only its header.
        session_id: Session of the publication.
        stream_id: Stream of the publication.

    Returns:
        The length of the data frames, in bytes, without a padding frame at the end.
    """
    last = at = 0
    end = length >> 2
    while at < end:
        words[at + SESSION_WORD] = session_id
        words[at + STREAM_WORD] = stream_id
        last = at
        at += ((words[at] + FRAME_MASK) & ~FRAME_MASK) >> 2
    # Only the header of the last frame is reliable: the end of a payload may look like a padding
    # header.
    is_padded = words[last + TYPE_WORD] >> TYPE_SHIFT == 0
    return last << 2 if is_padded else length


@final
class ReplaySession:
    """Publishes one recording, or a part of it.

    Args:
        replay_id: Id of the replay; its low half is the session id of the publication.
        recording_id: Id of the recording.
        publication: Publication of this replay; the session closes it.
        reader: Reader at the position where the replay begins; the session closes it.
        limit: Position up to which the replay may go now, and its end.
        disk: Runs the reads.
        block_length: Longest block, in bytes.
        connect_timeout_ns: How long to wait for a subscriber.
        is_bounded: Whether the publication sends little until a subscriber has answered.
        log_budget: Budget of its log lines, which remote clients can cause.
        on_failed: Called with the error if the replay fails; not if it was stopped, or its
            subscriber has left.
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
        """Return the position up to which the recording was read, in bytes."""
        return self._reader.position

    @property
    def end_position(self) -> int | None:
        """Return where the replay ends, in bytes; None if it follows the recording."""
        return self._limit.end

    @property
    def has_read_all(self) -> bool:
        """Return whether the replay needs no more of the recording's files."""
        end = self.end_position
        return end is not None and self.position >= end

    async def run(self) -> None:
        """Publish until the end, then close; raise nothing but cancellation."""
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
                    # Revoke a replay that was cut short, so that its subscriber does not take it
                    # for complete.
                    await self.publication.aclose(revoke=not is_whole)
            finally:
                await self._disk.run(self._reader.close)

    def _told(self) -> dict[str, int]:
        """Return the fields of every log line."""
        return {
            "replay_id": self.replay_id,
            "recording_id": self.recording_id,
            "position": self.position,
        }

    async def _connect(self) -> None:
        publication = self.publication
        # A client chose the channel, and that client gets the error: the log stays silent.
        publication.logs_waits = False
        try:
            await publication.wait_connected(self._connect_timeout_ns / SECOND_NS)
        except AeronTimeoutError as error:
            message = (
                f"no connection established for replayChannel={publication.channel}, "
                f"replayStreamId={publication.stream_id} within "
                f"{self._connect_timeout_ns / NS_PER_SECOND} s: is its subscriber there? The "
                f"archive waits for AERON_ARCHIVE_CONNECT_TIMEOUT{self._advice}"
            )
            raise ArchiveError(message) from error

    async def _replay(self) -> None:
        while (limit := await self._limit.following(self.position)) is not None:
            recorded, up_to = limit
            block = await self._disk.run(self._read, recorded, up_to)
            if block is not None:
                await self._publish(block)

    def _read(self, recorded: int, limit: int) -> RecordedBlock | None:
        """Read a block, address its frames to the publication, and note where the data ends."""
        reader, buffer = self._reader, self._buffer
        begin = reader.position
        block = reader.read(buffer, recorded=recorded, limit=limit)
        if block is None and limit < recorded:
            # As in the official archive: a frame that straddles the limit is replayed whole.
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
        """Append padding of the recorded length, in one frame if possible."""
        publication = self.publication
        longest = publication.max_message_length & ~FRAME_MASK
        while length > longest:
            await publication.append_padding(longest - HEADER_LENGTH)
            length -= longest
        await publication.append_padding(length)


def first_frame(block: RecordedBlock) -> RecordedBlock:
    """Return a block that holds only the first frame."""
    words = block.buffer.words
    length = (words[0] + FRAME_MASK) & ~FRAME_MASK
    if length >= block.length:
        return block
    return type(block)(block.buffer, block.position, length, 0)


# All replays of one archive.

NULL_POSITION: Final = -1
UINT32_MASK: Final = 0xFFFF_FFFF


@final
class Replays:
    """All replays of one archive."""

    def __init__(self, resources: ArchiveResources, recordings: Recordings) -> None:
        self._resources = resources
        self._recordings = recordings
        self._sessions: dict[int, ReplaySession] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._count = 0
        self._opening: dict[object, tuple[int, int, int | None] | None] = {}
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._sessions)

    async def start(
        self,
        recording_id: int,
        channel: str,
        stream_id: int,
        *,
        position: int,
        length: int,
        limit_counter_id: int | None,
        file_io_max_length: int = NULL_POSITION,
        on_failed: Callable[[AeronError], object] | None = None,
        handshake_length: int | None = None,
    ) -> int:
        """Publish a recording, and return the id of the replay; see `Archive.start_replay`.

        A positive `file_io_max_length` limits the bytes of one read, `handshake_length` those that
        are sent before a receiver has answered. `on_failed` is called if the replay fails.
        """
        resources = self._resources
        most = resources.context.max_concurrent_replays
        if len(self._sessions) + len(self._opening) >= most:
            message = f"max concurrent replays reached {most}"
            raise ArchiveError(message, code=ArchiveErrorCode.MAX_REPLAYS)
        uri = publication_uri(channel, check_stream_id(stream_id))
        opening = object()
        self._opening[opening] = None
        try:
            descriptor = await self._begun(recording_id)
            if 0 < file_io_max_length < descriptor.mtu_length:
                message = (
                    f"fileIoMaxLength={file_io_max_length} < mtuLength={descriptor.mtu_length}"
                )
                raise ArchiveError(message)
            limit = self._limit(descriptor, position, length, limit_counter_id)
            begin = descriptor.start_position if position == NULL_POSITION else position
            # From here on `of` lists this replay, so that truncating or purging its range is
            # refused.
            self._opening[opening] = (recording_id, begin, limit.end)
            recorded = self._recordings.recorded_position(descriptor)
            await resources.disk.run(
                check_position, resources.directory, descriptor, begin, end=recorded
            )
            publication = await self._publication(
                uri, stream_id, descriptor, begin, handshake_length
            )
        finally:
            del self._opening[opening]
        self._count += 1
        replay_id = self._count << 32 | publication.session_id & UINT32_MASK
        self._run(
            replay_id,
            descriptor,
            publication,
            begin,
            limit,
            file_io_max_length,
            on_failed,
            is_bounded=handshake_length is not None,
        )
        return replay_id

    async def stop(self, replay_id: int) -> None:
        """Stop a replay, if it has not ended."""
        task = self._tasks.get(replay_id)
        if task is not None:
            # Give the task its first step: a task cancelled before that never runs, not even its
            # clean-up.
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait((task,))

    async def stop_all(self, recording_id: int | None = None) -> None:
        """Stop all replays, or all of one recording."""
        for session in list(self._sessions.values()):
            if recording_id in (None, session.recording_id):
                await self.stop(session.replay_id)

    async def aclose(self) -> None:
        """Stop all replays, and refuse new ones."""
        self._is_closed = True
        await self.stop_all()

    def of(self, recording_id: int) -> Iterator[tuple[int, int | None]]:
        """Yield position and end position, in bytes, of each replay that still reads a recording.

        Differs: in Aeron a replay counts until it has closed, and so a client that has received all
        of it may be refused a truncation or a purge.
        """
        for session in self._sessions.values():
            if session.recording_id == recording_id and not session.has_read_all:
                yield session.position, session.end_position
        for opening in self._opening.values():
            if opening is not None and opening[0] == recording_id:
                yield opening[1:]

    async def _begun(self, recording_id: int) -> RecordingDescriptor:
        """Return the descriptor of a recording; if its session is about to open, wait for that.

        Without a session the recording would look as if it had stopped at its start position.
        """
        resources, recordings = self._resources, self._recordings
        with suppress(TimeoutError):
            async with asyncio.timeout(resources.context.connect_timeout_ns / NS_PER_SECOND):
                while True:
                    generation = recordings.generation
                    descriptor = await resources.catalog.get(recording_id)
                    if self._is_closed or not recordings.is_beginning(descriptor):
                        return descriptor
                    if recordings.generation == generation:
                        await resources.changed.wait()
        return await resources.catalog.get(recording_id)

    def _limit(
        self,
        descriptor: RecordingDescriptor,
        position: int,
        length: int,
        limit_counter_id: int | None,
    ) -> ReplayLimit:
        """Return the limit of a replay.

        Raises:
            InvalidPositionError: The replay would begin outside the recording, or beyond the limit.
            ArchiveError: There is nothing to replay, or no such counter.
        """
        recording_id = descriptor.recording_id
        session = self._recordings.sessions.get(recording_id)
        recorded = stop = self._recordings.recorded_position(descriptor)
        counter = None
        if limit_counter_id is not None and (
            session is None or session.counter_id != limit_counter_id
        ):
            try:
                counter = counter_limit(self._resources.aeron.counters, limit_counter_id)
            except ClosedError as error:
                message = f"unable to start replay: {error}"
                raise ArchiveError(message) from error
            stop = counter.value()
        begin = descriptor.start_position if position == NULL_POSITION else position
        if not descriptor.start_position <= begin <= recorded or begin & 31:
            message = (
                f"invalid position {begin}: start={descriptor.start_position} recorded={recorded} "
                "alignment=32"
            )
            nearest = min(max(begin & -32, descriptor.start_position), recorded)
            raise InvalidPositionError(message, nearest=nearest)
        if position != NULL_POSITION and session is None and begin == recorded:
            message = f"position {begin} is where recording {recording_id} has stopped"
            raise InvalidPositionError(message, nearest=descriptor.start_position)
        if counter is not None and begin > stop:
            message = (
                f"requested replay start position={begin} must be less than the limit "
                f"position={stop} for recording {recording_id}"
            )
            raise InvalidPositionError(message, nearest=stop)
        is_fixed = session is None and counter is None
        end = end_of(recording_id, begin, length, stop=stop, is_fixed=is_fixed)
        return ReplayLimit(recorded=recorded, end=end, session=session, counter=counter)

    async def _publication(
        self,
        uri: ChannelUri,
        stream_id: int,
        descriptor: RecordingDescriptor,
        position: int,
        handshake_length: int | None,
    ) -> ExclusivePublication:
        """Return a publication that begins where the replay begins."""
        term_length = descriptor.term_length
        linger_ns = uri.linger_timeout_ns
        if linger_ns is None:
            linger_ns = self._resources.context.replay_linger_timeout_ns
        wanted = ChannelUri.parse(stripped_channel(uri)).replace(
            initial_term_id=descriptor.initial_term_id,
            term_id=wrap_int32(descriptor.initial_term_id + position // term_length),
            term_offset=position % term_length,
            term_length=term_length,
            mtu_length=descriptor.mtu_length,
            linger_timeout_ns=linger_ns,
            signal_eos=uri.signal_eos,
            is_sparse=uri.is_sparse,
        )
        publication = await self._resources.aeron.add_exclusive_publication(
            wanted, stream_id, on_disconnected="raise", handshake_length=handshake_length
        )
        if self._is_closed:
            publication.revoke()
            message = (
                f"the archive of {self._resources.directory.path} was closed before the replay "
                "began"
            )
            raise ClosedError(message)
        return publication

    def _run(
        self,
        replay_id: int,
        descriptor: RecordingDescriptor,
        publication: ExclusivePublication,
        position: int,
        limit: ReplayLimit,
        file_io_max_length: int,
        on_failed: Callable[[AeronError], object] | None,
        *,
        is_bounded: bool,
    ) -> None:
        resources = self._resources
        context = resources.context
        block_length = context.file_io_max_length
        if file_io_max_length > 0:
            block_length = min(block_length, file_io_max_length)
        session = self._sessions[replay_id] = ReplaySession(
            replay_id=replay_id,
            recording_id=descriptor.recording_id,
            publication=publication,
            reader=RecordingReader(
                resources.directory,
                descriptor,
                position,
                checksum=checksum_named(context.replay_checksum),
            ),
            limit=limit,
            disk=resources.disk,
            # A block may overshoot the window by its length, and never crosses the end of a term.
            block_length=max(min(block_length, descriptor.term_length // 4), publication.mtu_length)
            & -32,
            connect_timeout_ns=context.connect_timeout_ns,
            is_bounded=is_bounded,
            log_budget=resources.aeron.driver.conductor.log_budget,
            on_failed=on_failed,
        )
        name = f"aeron-archive-replay-{replay_id}"
        task = self._tasks[replay_id] = resources.tasks.start(session.run(), name)
        task.add_done_callback(lambda _: self._forget(replay_id))

    def _forget(self, replay_id: int) -> None:
        self._sessions.pop(replay_id, None)
        self._tasks.pop(replay_id, None)


def end_of(recording_id: int, begin: int, length: int, *, stop: int, is_fixed: bool) -> int | None:
    """Return where a replay ends, in bytes; None if it follows the recording.

    Args:
        recording_id: Id of the recording.
        begin: Where the replay begins, in bytes.
        length: Requested length, in bytes, or one of the two special lengths.
        stop: Position up to which could be replayed now, in bytes.
        is_fixed: Whether that position cannot grow.

    Raises:
        ArchiveError: There is nothing to replay.
    """
    if length == ALL_AND_FOLLOW:
        return stop if is_fixed else None
    if length == ALL_AND_STOP:
        if stop == begin:
            message = f"recording {recording_id} has nothing behind {begin} to be replayed"
            raise ArchiveError(message, code=ArchiveErrorCode.EMPTY_RECORDING)
        return stop
    if length < 0:
        message = (
            f"replay length must be positive: length={length}, stopPosition={stop}, "
            f"replayPosition={begin} for recording {recording_id}"
        )
        raise ArchiveError(message)
    return min(begin + length, stop) if is_fixed else begin + length
