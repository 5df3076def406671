"""The end of a segment: its last whole frame, and what lies behind that.

`find_frames_end` accepts a frame if its header agrees with its place: version, type, term offset,
term id, stream and a length from 32 bytes up to the end of its term. The first place without such a
frame is the end, unless a valid frame lies behind it in the file: a crash does not leave that, so
it is damage.

The session id is not checked: a recording may have been extended by another publication, and a
checksum, if there is one, takes its place.

Differs: Aeron checks lengths only, and takes any data with a plausible length for a frame.

Source: Aeron `Catalog.recoverStopOffset`.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

import attrs

from aeron_async.archive.disk.files import read_exactly
from aeron_async.archive.disk.segment_scan import (
    HEADER_LENGTH,
    SESSION_WORD,
    ScanBuffer,
    check_each,
    check_frame,
    scan,
)
from aeron_async.archive.disk.segments import term_base

if TYPE_CHECKING:
    from aeron_async.archive.disk.checksums import Checksum
    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.archive.disk.files import File, ReadableFile

__all__ = [
    "FramesEnd",
    "behind_length",
    "clear_behind",
    "find_following",
    "find_frames_end",
    "find_last",
    "find_torn",
]

# The last frame.

PAGE_LENGTH: Final = 4_096
TORN_HEADER_LENGTH: Final = 32
TYPE: Final = slice(6, 8)
NO_TYPE: Final = b"\0\0"


def find_torn(file: ReadableFile, start: int, end: int, buffer: ScanBuffer) -> int | None:
    """Return the offset of the last frame if it may be torn; None if it is whole.

    Frames lie from the offset `start` up to the offset `end`. A frame that spans several pages
    counts as whole if each page but its first holds a byte of it that is not zero. Padding is
    whole: it has a header and no data.
    """
    last = find_last(file, start, end, buffer)
    header = buffer.bytes[:TORN_HEADER_LENGTH]
    if read_exactly(file, header, last) == TORN_HEADER_LENGTH and bytes(header[TYPE]) == NO_TYPE:
        return None
    page = (last // PAGE_LENGTH + 1) * PAGE_LENGTH
    while page < end:
        count = min(PAGE_LENGTH, end - page)
        if read_exactly(file, buffer.bytes[:count], page) < count:
            return last
        if not any(buffer.bytes[:count]):
            return last
        page += PAGE_LENGTH
    return None


def find_last(file: ReadableFile, start: int, end: int, buffer: ScanBuffer) -> int:
    """Return the offset of the last frame before an end, or the start if there is none.

    Frames must follow one another from the offset `start` up to the offset `end`; a start in the
    last term makes this fast.
    """
    last = offset = start
    while offset < end:
        count = buffer.fill(file, offset, end) & -TORN_HEADER_LENGTH
        at = 0
        while at < count:
            last = offset + at
            # At least a header, so that the loop advances whatever the file holds.
            at += max((buffer.words[at >> 2] + 31) & -32, TORN_HEADER_LENGTH)
        if not count:
            break
        offset += at
    return last


# The end of the frames.

STREAM_AND_TERM: Final = Struct("<ii")
STREAM_AT: Final = 16


@attrs.frozen(kw_only=True)
class FramesEnd:
    """Where the frames of a file end; offsets are in bytes.

    Attributes:
        offset: Offset behind the last accepted frame.
        problem: What is wrong with the data at that offset; None if there is none.
        following: Offset of a valid frame behind the problem; None if there is none.
        is_checksum_wrong: Whether only the checksum of the frame at that offset is wrong.
        torn: Offset of the last frame, if it may be torn; None if it is whole.
    """

    offset: int
    problem: str | None = None
    following: int | None = None
    is_checksum_wrong: bool = False
    torn: int | None = None


def find_frames_end(
    file: File,
    descriptor: RecordingDescriptor,
    *,
    base: int,
    start: int,
    buffer: ScanBuffer,
    checksum: Checksum | None = None,
    ends_are_whole: bool = False,
) -> FramesEnd:
    """Find where the frames of a recording's last file end.

    Args:
        file: A segment.
        descriptor: Descriptor of the recording.
        base: Base position of the file, in bytes.
        start: Offset of the first frame, in bytes.
        buffer: Buffer to read into.
        checksum: Checksum that data frames carry in place of their session id; None for none.
        ends_are_whole: No frame can be torn, and no checksum is checked; see
            `MarkFile.ends_are_whole`.
    """
    if ends_are_whole:
        checksum = None
    end = min(file.length(), descriptor.segment_length) & -HEADER_LENGTH
    offset = believed(file, descriptor, base, start, end, checksum, buffer)
    torn = None
    if offset > start and not ends_are_whole:
        torn = torn_frame(
            file, descriptor, base, start, offset, buffer, has_checksums=checksum is not None
        )
    count = buffer.fill(file, offset, end) if offset < end else 0
    if count < HEADER_LENGTH or buffer.words[0] <= 0:
        return FramesEnd(offset=offset, torn=torn)
    place = {"position": base + offset}
    problem, aligned = check_frame(buffer.bytes[:count], descriptor, checksum=None, **place)
    is_checksum_wrong = False
    if problem is None and checksum is not None:
        problem, _ = check_frame(buffer.bytes[:count], descriptor, checksum=checksum, **place)
        is_checksum_wrong = problem is not None
    if problem is None:
        problem = f"a frame of {aligned} bytes, longer than any that is sent, or than the file"
    following = None
    if not is_checksum_wrong:
        following = find_following(file, descriptor, base=base, offset=offset, buffer=buffer)
        # A running archive may have written on since: then nothing is wrong.
        if believed(file, descriptor, base, offset, end, checksum, buffer) > offset:
            return FramesEnd(offset=offset, torn=torn)
    return FramesEnd(
        offset=offset,
        problem=problem,
        following=following,
        is_checksum_wrong=is_checksum_wrong,
        torn=torn,
    )


def believed(
    file: File,
    descriptor: RecordingDescriptor,
    base: int,
    start: int,
    end: int,
    checksum: Checksum | None,
    buffer: ScanBuffer,
) -> int:
    """Return the offset up to which valid frames follow one another."""
    offset = start
    while offset < end:
        # The scan of a chain of frames ends with the term.
        term_left = descriptor.term_length - ((base + offset) & (descriptor.term_length - 1))
        count = buffer.fill(file, offset, min(end, offset + term_left))
        position = base + offset
        length, padding = scan(buffer, count, descriptor, position)
        if offset + length + padding > end:
            # The file was truncated within a padding frame.
            return offset + length - HEADER_LENGTH
        if checksum is None:
            at = length + padding
        else:
            at = check_each(buffer, count, descriptor, position, checksum)
        if at == 0:
            break
        offset += at
    return offset


def torn_frame(
    file: File,
    descriptor: RecordingDescriptor,
    base: int,
    start: int,
    end: int,
    buffer: ScanBuffer,
    *,
    has_checksums: bool,
) -> int | None:
    """Return the offset of the last frame if it may be torn, and has no checksum to prove it whole.

    The disk writes pages of 4096 bytes in any order: of a frame that spans several pages, the first
    may be written and others not. A frame is accepted if each of its pages holds something.
    """
    # Every term begins with a frame.
    last_term = term_base(base + end - 1, descriptor.term_length) - base
    start = max(start, last_term)
    if has_checksums:
        buffer.fill(file, find_last(file, start, end, buffer), end)
        if buffer.words[SESSION_WORD] != descriptor.session_id:
            return None
    return find_torn(file, start, end, buffer)


def find_following(
    file: ReadableFile,
    descriptor: RecordingDescriptor,
    *,
    base: int,
    offset: int,
    buffer: ScanBuffer,
) -> int | None:
    """Return the offset of the first valid frame behind another offset; None if there is none."""
    end = min(file.length(), descriptor.segment_length) & -HEADER_LENGTH
    at = offset + HEADER_LENGTH
    while at < end:
        term_left = descriptor.term_length - ((base + at) & (descriptor.term_length - 1))
        count = buffer.fill(file, at, min(end, at + term_left)) & -HEADER_LENGTH
        if not count:
            break
        found = first_belonging(buffer.bytes[:count], descriptor, base + at)
        if found is not None:
            return at + found
        at += count
    return None


def first_belonging(data: memoryview, descriptor: RecordingDescriptor, position: int) -> int | None:
    """Return the offset of the first valid frame in a piece of one term; None if there is none."""
    term_id = descriptor.initial_term_id + position // descriptor.term_length
    term_id = (term_id + (1 << 31)) % (1 << 32) - (1 << 31)
    # Search for stream id and term id: each header of the term has both, and little else does.
    wanted = STREAM_AND_TERM.pack(descriptor.stream_id, term_id)
    text = bytes(data).rstrip(b"\0")
    text = text.ljust((len(text) + HEADER_LENGTH - 1) & -HEADER_LENGTH, b"\0")
    place = text.find(wanted)
    while place >= 0:
        slot, misplaced = divmod(place - STREAM_AT, HEADER_LENGTH)
        at = slot * HEADER_LENGTH
        if not misplaced:
            problem, _ = check_frame(data[at:], descriptor, position=position + at, checksum=None)
            if problem is None:
                return at
        place = text.find(wanted, at + HEADER_LENGTH + STREAM_AT)
    return None


# Data behind the end.


def behind_length(file: File, end: int, buffer: ScanBuffer) -> int:
    """Return how many bytes behind the frames of a file reach to the last that is not zero."""
    length = file.length()
    offset, last = end, end
    while offset < length:
        count = buffer.fill(file, offset, length)
        if count == 0:
            break
        text = bytes(buffer.bytes[:count]).rstrip(b"\0")
        if text:
            last = offset + len(text)
        offset += count
    return last - end


def clear_behind(file: File, offset: int, *, segment_length: int, sync_level: int) -> None:
    """Clear a segment from an offset on, and give it its full length.

    A segment in that state is not changed. If the process dies after it has truncated the segment
    and before it has extended it, the segment stays too short; the same call again completes it.

    Args:
        file: The segment.
        offset: Offset of the end of the recording.
        segment_length: In bytes.
        sync_level: Above 0, wait until the file is on the disk, even if it was not changed.
    """
    length = file.length()
    if length > segment_length or behind_length(file, offset, ScanBuffer()):
        file.set_length(min(length, offset))
        length = -1
    if length != segment_length:
        file.set_length(segment_length)
    if sync_level:
        file.sync(metadata=True)
