"""Where frames begin around a position that somebody gave.

Every term begins with a frame, so no more than one term is ever walked.

Differs: Aeron looks for a header at the position itself, and takes what a payload holds for one if
it looks like one.

Source: Aeron `ReplaySession.notHeaderAligned`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from aeron_async.archive.disk.recording_reader import RecordingReader
from aeron_async.archive.disk.segment_scan import CHUNK_LENGTH, HEADER_LENGTH, ScanBuffer
from aeron_async.archive.disk.segments import term_base
from aeron_async.errors import InvalidPositionError

if TYPE_CHECKING:
    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.archive.disk.files import Directory

__all__ = ["FramePlace", "check_position", "find_place"]

FLAGS_AT: Final = 5
TYPE_AT: Final = 6
BEGIN_FRAGMENT: Final = 0x80


@attrs.frozen
class FramePlace:
    """What begins around a position; all in bytes.

    Attributes:
        before: Where the last frame begins that does so at or before it.
        after: Where the first frame begins that does so at or behind it, or the recording ends.
        message: Where the first message begins at or behind it, or the recording ends.
    """

    before: int
    after: int
    message: int


def find_place(
    directory: Directory, descriptor: RecordingDescriptor, position: int, *, end: int
) -> FramePlace:
    """Return what begins around a position.

    Args:
        directory: Of the archive.
        descriptor: Of the recording.
        position: From its start to its end, in bytes.
        end: Up to where it has been written, in bytes.

    Raises:
        ArchiveFileError: A frame on the way is missing, or not what it must be.
        StorageError: The disk failed.
    """
    before, after = surrounding(directory, descriptor, position, end)
    buffer = ScanBuffer(min(CHUNK_LENGTH, descriptor.term_length))
    return FramePlace(before, after, next_message(directory, descriptor, buffer, after, end))


def surrounding(
    directory: Directory, descriptor: RecordingDescriptor, position: int, end: int
) -> tuple[int, int]:
    """Return where frames begin before and behind a position; twice itself where one does there.

    What lies behind the position is not looked at then: it may be damaged, and be cut off for that.
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
    directory: Directory, descriptor: RecordingDescriptor, position: int, *, end: int
) -> None:
    """Refuse a position at which no frame begins, and name the nearest at which one does.

    Args:
        directory: Of the archive.
        descriptor: Of the recording.
        position: In bytes.
        end: Up to where it has been written, in bytes.

    Raises:
        InvalidPositionError: It is outside of the recording, or in the middle of a frame.
        ArchiveFileError: A frame on the way is missing, or not what it must be.
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
    """Return the length of the frame that a reader stands before, with all that fills it up."""
    reader.read(buffer, recorded=end)
    return (buffer.words[0] + 31) & -32


def next_message(
    directory: Directory,
    descriptor: RecordingDescriptor,
    buffer: ScanBuffer,
    position: int,
    end: int,
) -> int:
    """Return where the first message begins, from a frame on."""
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
