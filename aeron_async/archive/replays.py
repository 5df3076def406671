"""What is being replayed into publications.

Source: Aeron `ArchiveConductor`, its part of replays; `CreateReplayPublicationSession`.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final, final

from aeron_async.archive.api import ALL_AND_FOLLOW, ALL_AND_STOP
from aeron_async.archive.channel_stripping import stripped_channel
from aeron_async.archive.disk.checksums import checksum_named
from aeron_async.archive.disk.frame_places import check_position
from aeron_async.archive.disk.recording_reader import RecordingReader
from aeron_async.archive.replay_limit import ReplayLimit, counter_limit
from aeron_async.archive.replay_session import ReplaySession
from aeron_async.client.arguments import check_stream_id, publication_uri
from aeron_async.clock import NS_PER_SECOND
from aeron_async.errors import ArchiveError, ArchiveErrorCode, ClosedError, InvalidPositionError
from aeron_async.protocol.channel_uri import ChannelUri
from aeron_async.protocol.header import wrap_int32

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.archive.recordings import Recordings
    from aeron_async.archive.resources import ArchiveResources
    from aeron_async.client.exclusive_publication import ExclusivePublication
    from aeron_async.errors import AeronError

__all__ = ["Replays"]

NULL_POSITION: Final = -1
UINT32_MASK: Final = 0xFFFF_FFFF


@final
class Replays:
    """All that is being replayed by one archive."""

    def __init__(self, resources: ArchiveResources, recordings: Recordings) -> None:
        self._resources = resources
        self._recordings = recordings
        self._sessions: dict[int, ReplaySession] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._count = 0
        self._opening: dict[object, tuple[int, int, int | None] | None] = {}
        self._is_closed = False

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

        At most `file_io_max_length` bytes are read in one go, unless that is not positive; and
        `on_failed` is called when it ends as it should not have, and was not stopped. No more than
        `handshake_length` bytes leave before a receiver has answered, where that is given.
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
            # From here on nobody takes away what it is to replay.
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
            # A task that is cancelled before its first step never takes one, not even to close.
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait((task,))

    async def stop_all(self, recording_id: int | None = None) -> None:
        """Stop all replays, or all of one recording."""
        for session in list(self._sessions.values()):
            if recording_id in (None, session.recording_id):
                await self.stop(session.replay_id)

    async def aclose(self) -> None:
        """Stop all replays, and let none begin any more."""
        self._is_closed = True
        await self.stop_all()

    def of(self, recording_id: int) -> Iterator[tuple[int, int | None]]:
        """Return for each replay of a recording where it is, and where it ends, in bytes."""
        for session in self._sessions.values():
            if session.recording_id == recording_id:
                yield session.position, session.end_position
        for opening in self._opening.values():
            if opening is not None and opening[0] == recording_id:
                yield opening[1:]

    async def _begun(self, recording_id: int) -> RecordingDescriptor:
        """Return what is known of a recording, once it goes on if it is just about to.

        Without its session it would pass for one that has stopped where it begins.
        """
        resources, recordings = self._resources, self._recordings
        with suppress(TimeoutError):
            async with asyncio.timeout(resources.context.connect_timeout_ns / NS_PER_SECOND):
                while True:
                    generation = recordings.generation
                    descriptor = await resources.desk.get(recording_id)
                    if self._is_closed or not recordings.is_beginning(descriptor):
                        return descriptor
                    if recordings.generation == generation:
                        await resources.changed.wait()
        return await resources.desk.get(recording_id)

    def _limit(
        self,
        descriptor: RecordingDescriptor,
        position: int,
        length: int,
        limit_counter_id: int | None,
    ) -> ReplayLimit:
        """Return up to where a replay may go.

        Raises:
            InvalidPositionError: It would begin outside of the recording, or beyond the limit.
            ArchiveError: There is nothing to be replayed, or no such counter.
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
        """Return a publication that begins where the replay does."""
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
            message = f"the archive of {self._resources.directory.path} was closed meanwhile"
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
            # A block may overshoot the window by its length, and never reaches the next term.
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
    """Return where a replay ends, in bytes; None if it goes on as the recording does.

    Args:
        recording_id: Of the recording.
        begin: Where the replay begins.
        length: As it was asked for.
        stop: Up to where it could go now.
        is_fixed: Whether it never can go further.

    Raises:
        ArchiveError: There is nothing to be replayed.
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
