"""Where a recording ends that nobody gave an end: the one decision for all who must make it.

A frame is believed if its header agrees with its place: version, type, term offset, term id, stream
and a length from 32 bytes up to the end of its term. The first that does not is the end, unless one
that agrees lies behind it in the file: that is no end that a crash leaves, but damage.

The session is never looked at: a recording may have been extended by another publication, and where
there are checksums they lie in its place.

Differs: Aeron goes by lengths alone, and takes whatever has one for a frame.

Source: Aeron `Catalog.recoverStopOffset`.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

import attrs

from aeron_async.archive.disk.segment_scan import (
    HEADER_LENGTH,
    SESSION_WORD,
    check_each,
    check_frame,
    scan,
)
from aeron_async.archive.disk.segments import term_base
from aeron_async.archive.disk.torn_frames import find_last, find_torn

if TYPE_CHECKING:
    from aeron_async.archive.disk.checksums import Checksum
    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.archive.disk.files import File
    from aeron_async.archive.disk.segment_scan import ScanBuffer

__all__ = ["FramesEnd", "find_following", "find_frames_end"]

STREAM_AND_TERM: Final = Struct("<ii")
STREAM_AT: Final = 16


@attrs.frozen(kw_only=True)
class FramesEnd:
    """Where the frames of a file end; offsets are in bytes.

    Attributes:
        offset: Behind the last frame that is believed.
        problem: What is wrong with what lies there; None if nothing does.
        following: Of a frame behind that which belongs where it lies; None if there is none.
        is_checksum_wrong: Whether only the checksum is wrong with what lies there.
        torn: Of the last frame, if it may be torn; None if it is whole.
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
    """Return where the frames of the last file of a recording end.

    Args:
        file: A segment.
        descriptor: Of the recording.
        base: Position of the file's beginning, in bytes.
        start: Offset of the first frame, in bytes.
        buffer: To read into.
        checksum: What data frames have in place of their session; None for none.
        ends_are_whole: No frame can be torn, and none is held against its checksum; see
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
        # Whoever writes to the file may have come by meanwhile: that is no damage.
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
    """Return the offset up to which frames follow one another that can be believed."""
    offset = start
    while offset < end:
        # A chain ends with its term.
        term_left = descriptor.term_length - ((base + offset) & (descriptor.term_length - 1))
        count = buffer.fill(file, offset, min(end, offset + term_left))
        position = base + offset
        length, padding = scan(buffer, count, descriptor, position)
        if offset + length + padding > end:
            # Of a file that was cut off, in the middle of padding.
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
    """Return the offset of the last frame if it may be torn, and no checksum says that it is whole.

    The disk takes pages of 4096 bytes in any order: of a frame that lies in several, the first may
    be there and others not. One is believed when there is something in each of them.
    """
    # A term begins with a frame.
    last_term = term_base(base + end - 1, descriptor.term_length) - base
    start = max(start, last_term)
    if has_checksums:
        buffer.fill(file, find_last(file, start, end, buffer), end)
        if buffer.words[SESSION_WORD] != descriptor.session_id:
            return None
    return find_torn(file, start, end, buffer)


def find_following(
    file: File, descriptor: RecordingDescriptor, *, base: int, offset: int, buffer: ScanBuffer
) -> int | None:
    """Return the offset of the first frame behind another offset that belongs where it lies.

    Args:
        file: A segment.
        descriptor: Of the recording.
        base: Position of the file's beginning, in bytes.
        offset: Of what is no frame, in bytes.
        buffer: To read into.
    """
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
    """Return where the first frame lies in a piece of one term that belongs there; None if none."""
    term_id = descriptor.initial_term_id + position // descriptor.term_length
    term_id = (term_id + (1 << 31)) % (1 << 32) - (1 << 31)
    # Each header of the term has these, and hardly anything else does.
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
