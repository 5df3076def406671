"""Reader of recordings: blocks of whole frames, and the frames around a position.

`RecordingReader` checks every header against its place: version, type, term offset, term id and
stream. If a frame is wrong, the reader raises an error with file and offset, after everything
before the frame has been read. So a reader ends or raises, and never stalls.

Every term begins with a frame. So `find_place` and `check_position` read one term at most.

Differs: Aeron expects a header at the position itself, and accepts payload bytes that look like
one.

Source: Aeron `ReplaySession`, `ReplaySession.notHeaderAligned`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import attrs

from aeron_async.archive.disk.files import read_exactly
from aeron_async.archive.disk.segment_scan import (
    CHUNK_LENGTH,
    HEADER_LENGTH,
    ScanBuffer,
    check_frame,
    scan,
)
from aeron_async.archive.disk.segments import segment_name, term_base
from aeron_async.errors import ArchiveFileError, InvalidPositionError, StorageError

if TYPE_CHECKING:
    from aeron_async.archive.disk.checksums import Checksum
    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.archive.disk.files import ReadableDirectory, ReadableFile

__all__ = [
    "FramePlace",
    "RecordedBlock",
    "RecordingReader",
    "check_position",
    "find_place",
]


# Blocks.


@final
@attrs.frozen
class RecordedBlock:
    """Whole frames of one term, in the buffer that they were read into.

    Attributes:
        buffer: Buffer that begins with the frames.
        position: Position of the first frame, in bytes.
        length: Length of all frames, in bytes; of a padding frame only its header.
        padding: Bytes of a padding frame at the end beyond its header.
    """

    buffer: ScanBuffer
    position: int
    length: int
    padding: int

    @property
    def frames(self) -> memoryview:
        """Return the memory of the frames."""
        return self.buffer.bytes[: self.length]

    @property
    def end_position(self) -> int:
        """Return the position behind the frames and their padding."""
        return self.position + self.length + self.padding


@final
class RecordingReader:
    """Reads one recording from a position on; every call blocks.

    Args:
        directory: Directory of the archive.
        descriptor: Descriptor of the recording; its stop position is ignored.
        position: Position of a frame, in bytes; see `check_position`.
        checksum: Checksum that data frames carry in place of their session id, to be checked; None
            for none.

    Attributes:
        position: Position up to which it has read, in bytes.
    """

    def __init__(
        self,
        directory: ReadableDirectory,
        descriptor: RecordingDescriptor,
        position: int,
        *,
        checksum: Checksum | None = None,
    ) -> None:
        self._directory = directory
        self._descriptor = descriptor
        self._checksum = checksum
        self._file: ReadableFile | None = None
        self._base = -1
        self.position: int = position

    def read(
        self, buffer: ScanBuffer, *, recorded: int, limit: int | None = None
    ) -> RecordedBlock | None:
        """Read frames up to the end of the buffer, of their term, or of the recorded data.

        Args:
            buffer: Buffer to read into; it has room for the longest frame.
            recorded: Position up to which the recording is written, in bytes: the stop position, or
                that of the active session.
            limit: Read no frame that extends beyond this position; `recorded` if not given.

        Returns:
            A block in the memory of the buffer; None if no frame ends at or before the limit.

        Raises:
            ArchiveFileError: The next frame is missing, or wrong.
            StorageError: The disk failed.
        """
        limit = recorded if limit is None else min(limit, recorded)
        if limit <= self.position:
            return None
        term_offset = self.position & (self._descriptor.term_length - 1)
        wanted = min(
            max(limit - self.position, HEADER_LENGTH),
            self._descriptor.term_length - term_offset,
            len(buffer.bytes),
        )
        file, offset = self._segment()
        try:
            count = read_exactly(file, buffer.bytes[:wanted], offset)
        except OSError as error:
            message = f"{file.name}, offset {offset}: could not be read: {error}"
            raise StorageError(message) from error
        length, padding = scan(
            buffer, min(count, limit - self.position), self._descriptor, self.position
        )
        if self.position + length + padding > limit:
            # A padding frame of which only the header lies before the limit.
            length, padding = length - HEADER_LENGTH, 0
        if length == 0:
            self._check_next(buffer, count, wanted, recorded=recorded, file=file)
            return None
        if self._checksum is not None:
            length, padding = self._checked(buffer, length, padding, file=file)
        block = RecordedBlock(buffer, self.position, length, padding)
        self.position = block.end_position
        return block

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        file, self._file, self._base = self._file, None, -1
        if file is not None:
            file.close()

    def _segment(self) -> tuple[ReadableFile, int]:
        """Return the file that holds the position, and the position's offset in it."""
        descriptor = self._descriptor
        base = descriptor.segment_base(self.position)
        if base != self._base or self._file is None:
            self.close()
            name = segment_name(descriptor.recording_id, base)
            try:
                self._file = self._directory.open_to_read(name)
            except FileNotFoundError as error:
                message = f"the file is not there, and holds position {self.position}"
                raise ArchiveFileError(message, file=name, offset=self.position - base) from error
            except OSError as error:
                message = f"{name} could not be opened: {error}"
                raise StorageError(message) from error
            self._base = base
        return self._file, self.position - base

    def _check_next(
        self, buffer: ScanBuffer, count: int, wanted: int, *, recorded: int, file: ReadableFile
    ) -> None:
        """Raise what is wrong with the next frame, unless it only extends beyond the limit."""
        problem, aligned = None, 0
        if count >= HEADER_LENGTH:
            problem, aligned = check_frame(
                buffer.bytes[:count], self._descriptor, position=self.position, checksum=None
            )
        left = recorded - self.position
        if problem is None and aligned > left:
            problem = f"a frame of {aligned} bytes, {left} before the end of what is recorded"
        if problem is None and aligned > len(buffer.bytes):
            problem = f"a frame of {aligned} bytes, longer than any that is sent"
        if problem is None and count < wanted:
            problem = f"the file ends {left - count} bytes before the end of what is recorded"
        if problem is not None:
            offset = self.position - self._base
            raise ArchiveFileError(problem, file=file.name, offset=offset)

    def _checked(
        self, buffer: ScanBuffer, length: int, padding: int, *, file: ReadableFile
    ) -> tuple[int, int]:
        """Return the length of frames with right checksums; raise if the first is wrong."""
        at = 0
        while at < length:
            problem, aligned = check_frame(
                buffer.bytes[at:length],
                self._descriptor,
                position=self.position + at,
                checksum=self._checksum,
            )
            if problem is not None:
                if at == 0:
                    offset = self.position - self._base
                    raise ArchiveFileError(problem, file=file.name, offset=offset)
                return at, 0
            at += aligned
        return length, padding


# Frames around a position.

FLAGS_AT: Final = 5
TYPE_AT: Final = 6
BEGIN_FRAGMENT: Final = 0x80


@attrs.frozen
class FramePlace:
    """The frames and the message around a position, in bytes.

    Attributes:
        before: Start of the last frame that begins at or before the position.
        after: Start of the first frame that begins at or behind it, or the end of the recording.
        message: Start of the first message that begins at or behind it, or the end of the
            recording.
    """

    before: int
    after: int
    message: int


def find_place(
    directory: ReadableDirectory, descriptor: RecordingDescriptor, position: int, *, end: int
) -> FramePlace:
    """Find the frames and the message around a position of a recording, written up to `end`.

    Raises:
        ArchiveFileError: A frame before the position is missing, or wrong.
        StorageError: The disk failed.
    """
    before, after = surrounding(directory, descriptor, position, end)
    buffer = ScanBuffer(min(CHUNK_LENGTH, descriptor.term_length))
    return FramePlace(before, after, next_message(directory, descriptor, buffer, after, end))


def surrounding(
    directory: ReadableDirectory, descriptor: RecordingDescriptor, position: int, end: int
) -> tuple[int, int]:
    """Return the frame starts around a position; twice the position if a frame begins there.

    In that case nothing behind the position is read: it may be damaged, and a caller may be about
    to truncate it for that reason.
    """
    buffer = ScanBuffer(min(CHUNK_LENGTH, descriptor.term_length))
    start = max(term_base(position, descriptor.term_length), descriptor.start_position)
    reader = RecordingReader(directory, descriptor, start)
    try:
        while reader.read(buffer, recorded=end, limit=position) is not None:
            pass
        before = reader.position
        return before, before if before == position else before + next_length(reader, buffer, end)
    finally:
        reader.close()


def check_position(
    directory: ReadableDirectory, descriptor: RecordingDescriptor, position: int, *, end: int
) -> None:
    """Refuse a position at which no frame begins, and give the nearest at which one does.

    Args:
        directory: Directory of the archive.
        descriptor: Descriptor of the recording.
        position: In bytes.
        end: Position up to which it is written, in bytes.

    Raises:
        InvalidPositionError: The position is outside the recording, or inside a frame.
        ArchiveFileError: A frame before the position is missing, or wrong.
        StorageError: The disk failed.
    """
    start = descriptor.start_position
    if not start <= position <= end:
        nearest = min(max(position, start), end)
        message = (
            f"position {position} is outside of recording {descriptor.recording_id}, which holds "
            f"{start} to {end}; the nearest is {nearest}"
        )
        raise InvalidPositionError(message, nearest=nearest)
    if position in (start, end) or not position & (descriptor.term_length - 1):
        return
    before, after = surrounding(directory, descriptor, position, end)
    if before != position:
        nearest = min(before, after, key=lambda each: abs(each - position))
        message = (
            f"position {position} is in the middle of a frame of recording "
            f"{descriptor.recording_id}: one begins at {before}, the next at {after}"
        )
        raise InvalidPositionError(message, nearest=nearest)


def next_length(reader: RecordingReader, buffer: ScanBuffer, end: int) -> int:
    """Return the aligned length of the frame at the position of a reader."""
    reader.read(buffer, recorded=end)
    return (buffer.words[0] + 31) & -32


def next_message(
    directory: ReadableDirectory,
    descriptor: RecordingDescriptor,
    buffer: ScanBuffer,
    position: int,
    end: int,
) -> int:
    """Return where the first message begins, from a frame's position on."""
    reader = RecordingReader(directory, descriptor, position)
    try:
        while (block := reader.read(buffer, recorded=end)) is not None:
            at = 0
            while at < block.length:
                header = buffer.bytes[at : at + HEADER_LENGTH]
                if header[FLAGS_AT] & BEGIN_FRAGMENT and header[TYPE_AT]:
                    return block.position + at
                at += (buffer.words[at >> 2] + 31) & -32
    finally:
        reader.close()
    return end
