"""From where to where a recording is replayed, and what may still come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from aeron_async.archive.disk.checksums import checksum_named
from aeron_async.archive.disk.frame_places import check_position
from aeron_async.archive.disk.recording_reader import RecordingReader
from aeron_async.errors import ArchiveError, InvalidPositionError

if TYPE_CHECKING:
    import asyncio

    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.archive.disk.recording_reader import RecordedBlock
    from aeron_async.archive.disk.segment_scan import ScanBuffer
    from aeron_async.archive.recordings import Recordings
    from aeron_async.archive.resources import ArchiveResources

__all__ = ["ReplayRange", "check_within"]

FRAME_MASK: Final = 31


@final
class ReplayRange:
    """Where one replay stands, and up to where it may go on.

    Args:
        resources: Of the archive.
        recordings: What is being recorded.
        recording_id: Of the recording.
        from_position: Where to begin; its start when not given.
        to_position: Where to end; where it ends when not given.
        follow: Whether to wait for more.

    Attributes:
        position: Where it begins, in bytes, from `begin` on.
        is_under_way: Whether that is known, and nobody is to take away what is to be replayed.
    """

    _reader: RecordingReader

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
        self.position = -1 if from_position is None else from_position

    @property
    def end_position(self) -> int | None:
        """Return where the replay ends, in bytes; None if it goes on as the recording does."""
        return self._to

    async def begin(self) -> RecordingDescriptor:
        """Look the recording up, and check the positions.

        Raises:
            UnknownRecordingError: No recording has that id.
            InvalidPositionError: A position is outside, or in the middle of a frame.
            ArchiveFileError: A file is damaged.
        """
        resources = self._resources
        descriptor = await resources.desk.get(self.recording_id)
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
        """Ask for the block behind the last one; None if it is not there yet.

        Nothing else is to be asked for before it has been read.
        """
        recorded = self._recorded()
        limit = recorded if self._to is None else min(recorded, self._to)
        if limit <= self._reader.position:
            return None
        return self._resources.disk.begin(self._reader.read, buffer, recorded=recorded, limit=limit)

    async def wait(self) -> bool:
        """Wait until there may be more, and return whether there ever can be.

        Raises:
            UnknownRecordingError: The recording was purged.
            ArchiveError: It was cut off before where this replay has come to.
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
        descriptor = await self._resources.desk.get(self.recording_id)
        if self._is_over or recordings.generation != generation:
            return not self._is_over
        self._stop = recordings.recorded_position(descriptor)
        if self._stop < position:
            message = (
                f"recording {self.recording_id} was cut off at {self._stop}, and had been "
                f"replayed up to {position}"
            )
            raise ArchiveError(message)
        if self._stop == position:
            await self._resources.changed.wait()
        return True

    def end(self) -> None:
        """Wait no more, and wake whoever does."""
        self._is_over = True
        self._resources.changed.ring()
        session = self._recordings.sessions.get(self.recording_id)
        if session is not None:
            session.progress.ring()

    async def aclose(self) -> None:
        """Close what was opened; closing twice is closing once."""
        if self._is_begun:
            self._is_begun = False
            await self._resources.disk.run(self._reader.close)

    def __del__(self) -> None:
        # A loop that was left early, and never closed what it iterated over.
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
    """Refuse a position where a recording has no frame.

    Args:
        position: Asked for.
        descriptor: Of the recording.
        recorded: Up to where there is something, in bytes.
        what: What the replay does there, in a word.

    Raises:
        InvalidPositionError: It is outside, or no multiple of 32.
    """
    start = descriptor.start_position
    if not start <= position <= recorded:
        nearest = start if position < start else recorded
        message = (
            f"a replay of recording {descriptor.recording_id} {what} at {position}, and that "
            f"goes from {start} to {recorded}"
        )
        raise InvalidPositionError(message, nearest=nearest)
    if position & FRAME_MASK:
        message = (
            f"a replay of recording {descriptor.recording_id} {what} at {position}, and frames "
            "begin at multiples of 32"
        )
        raise InvalidPositionError(message, nearest=position & ~FRAME_MASK)
