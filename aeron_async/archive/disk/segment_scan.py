"""Scan of a segment file: where its frames end, and whether they are valid.

There are two ways to scan: `find_end` reads lengths only, and returns the most there may be;
`check_frames` checks every field of every header, and checksums.

Source: Aeron `Catalog.recoverStopOffset`, `ArchiveTool.verify`.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

import attrs

from aeron_async.archive.disk.checksums import kind_of
from aeron_async.archive.disk.files import read_exactly
from aeron_async.logbuffer.placing import skip_whole
from aeron_async.logbuffer.scanner import scan_chain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aeron_async.archive.disk.checksums import Checksum, ChecksumTally
    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.archive.disk.files import File, ReadableFile

__all__ = [
    "HEADER_LENGTH",
    "SESSION_WORD",
    "Problem",
    "ScanBuffer",
    "check_each",
    "check_frame",
    "check_frames",
    "find_end",
    "scan",
]

CHUNK_LENGTH: Final = 1 << 20
HEADER_LENGTH: Final = 32
HEADER: Final = Struct("<iBBHiiiiq")
SESSION_WORD: Final = 3
PADDING: Final = 0
DATA: Final = 1


@attrs.frozen
class Problem:
    """A problem in a file.

    Attributes:
        file: Name of the file.
        offset: Offset in it, in bytes.
        what: The problem, in words.
    """

    file: str
    offset: int
    what: str

    def __str__(self) -> str:
        return f"{self.file}, offset {self.offset}: {self.what}"


class ScanBuffer:
    """Reusable memory to read files into, 1 MiB by default."""

    def __init__(self, length: int = CHUNK_LENGTH) -> None:
        # The length must be a multiple of the word lengths of the casts.
        self.bytes: memoryview = memoryview(bytearray(length))
        self.words: memoryview = self.bytes.cast("i")

    def fill(self, file: ReadableFile, offset: int, end: int) -> int:
        """Read from an offset, at most up to an end; return how much."""
        count = min(len(self.bytes), end - offset)
        return read_exactly(file, self.bytes[:count], offset)


def find_end(file: ReadableFile, start: int, buffer: ScanBuffer) -> int:
    """Return the offset of the first place without a frame, beginning at the offset of a frame.

    A frame that exceeds the file does not count. Padding counts with its whole length.
    """
    end = file.length() & -HEADER_LENGTH
    offset = start
    while offset < end:
        count = buffer.fill(file, offset, end)
        behind = skip_whole(buffer.words, 0, count & -HEADER_LENGTH)
        if behind == 0:
            # A frame longer than the buffer, or none.
            length = buffer.words[0] if count >= HEADER_LENGTH else 0
            following = offset + ((length + 31) & -32)
            if length <= 0 or following > end:
                break
            offset = following
        else:
            offset += behind
    return offset


def check_frames(
    file: File,
    descriptor: RecordingDescriptor,
    *,
    base: int,
    start: int,
    end: int,
    checksum: Checksum | None,
    buffer: ScanBuffer,
    tally: ChecksumTally | None = None,
) -> Iterator[Problem | int]:
    """Check every frame between two positions of a segment.

    Yield the offset reached after each piece, and a `Problem` at the end, if there is one: frames
    behind it cannot be found.

    Args:
        file: The segment.
        descriptor: Descriptor of the recording.
        base: Base position of the file.
        start: Position of the first frame.
        end: Position behind the last frame.
        checksum: Checksum that data frames carry in place of their session id; None if they have
            their session id.
        buffer: Buffer to read into.
        tally: Recognises frames without a checksum; if not given, those with the recording's
            session id.
    """
    offset, stop = start - base, end - base
    while offset < stop:
        # The scan of a chain of frames ends with the term.
        term_left = descriptor.term_length - ((base + offset) & (descriptor.term_length - 1))
        count = buffer.fill(file, offset, min(stop, offset + term_left))
        position = base + offset
        if checksum is None:
            at = sum(scan(buffer, count, descriptor, position))
        else:
            at = check_each(buffer, count, descriptor, position, checksum, tally)
        if offset + at > stop:
            at = within(buffer, stop - offset)
        if at == 0:
            yield Problem(
                file.name,
                offset,
                problem_at(buffer, count, descriptor, base, offset, stop, checksum),
            )
            return
        offset += at
        yield offset


def within(buffer: ScanBuffer, limit: int) -> int:
    """Return the end of the last frame in a buffer that ends at or before a limit."""
    at = 0
    while (following := at + ((buffer.words[at >> 2] + 31) & -32)) <= limit:
        at = following
    return at


def scan(
    buffer: ScanBuffer, count: int, descriptor: RecordingDescriptor, position: int
) -> tuple[int, int]:
    """Return the length of the valid frames in a buffer, and of the padding behind them."""
    term_length = descriptor.term_length
    term_id = descriptor.initial_term_id + position // term_length
    return scan_chain(
        buffer.words,
        count,
        term_offset=position & (term_length - 1),
        # Term ids wrap at 32 bits.
        term_id=(term_id + (1 << 31)) % (1 << 32) - (1 << 31),
        stream_id=descriptor.stream_id,
        term_length=term_length,
    )


def check_each(
    buffer: ScanBuffer,
    count: int,
    descriptor: RecordingDescriptor,
    position: int,
    checksum: Checksum,
    tally: ChecksumTally | None = None,
) -> int:
    """Return the length of the frames with right checksums, padding included.

    A frame that has its session id in place of a checksum was recorded without one: settings
    change, and a recording may be extended with other settings.
    """
    length, padding = scan(buffer, count, descriptor, position)
    at = 0
    while at < length:
        problem, aligned = check_frame(
            buffer.bytes[at:count], descriptor, position=position + at, checksum=checksum
        )
        if problem is not None:
            stored = session_at(buffer, at)
            if tally is None:
                has_none = stored == descriptor.session_id
            else:
                payload = buffer.bytes[at + HEADER_LENGTH : at + aligned]
                following = at + aligned
                has_none = tally.has_none(
                    stored,
                    payload,
                    following=session_at(buffer, following) if following < length else None,
                    is_data_next=following < length and kind_at(buffer, following) == DATA,
                )
            if not has_none:
                return at
        at += aligned
    return length + padding


def kind_at(buffer: ScanBuffer, at: int) -> int:
    """Return the type of the frame at an offset of a buffer."""
    return int(HEADER.unpack_from(buffer.bytes, at)[3])


def session_at(buffer: ScanBuffer, at: int) -> int:
    """Return the value in place of the session id of a frame."""
    return buffer.words[(at >> 2) + SESSION_WORD]


def problem_at(
    buffer: ScanBuffer,
    count: int,
    descriptor: RecordingDescriptor,
    base: int,
    offset: int,
    stop: int,
    checksum: Checksum | None,
) -> str:
    """Return what is wrong with the first frame of a buffer."""
    problem, aligned = None, 0
    if count >= HEADER_LENGTH:
        problem, aligned = check_frame(
            buffer.bytes[:count], descriptor, position=base + offset, checksum=checksum
        )
    if problem is not None:
        return problem + hint_at(buffer, count, aligned)
    if offset + aligned > stop:
        return f"a frame of {aligned} bytes extends beyond the end of the recording"
    if aligned > len(buffer.bytes):
        return f"a frame of {aligned} bytes, longer than any that is sent"
    return f"the file ends {stop - offset - count} bytes too early"


def hint_at(buffer: ScanBuffer, count: int, aligned: int) -> str:
    """Return a hint about the kind of checksum of a buffer's first frame, if it has one."""
    if count < aligned or aligned <= HEADER_LENGTH:
        return ""
    kind = kind_of(buffer.bytes[HEADER_LENGTH:aligned], session_at(buffer, 0))
    return "" if kind is None else f", which matches {kind}: is that the kind?"


def check_frame(
    data: memoryview,
    descriptor: RecordingDescriptor,
    *,
    position: int,
    checksum: Checksum | None,
) -> tuple[str | None, int]:
    """Return what is wrong with a frame, or None, and its aligned length."""
    length, version, flags, kind, term_offset, session_id, stream_id, term_id, _ = (
        HEADER.unpack_from(data)
    )
    aligned = (length + 31) & -32
    term_length = descriptor.term_length
    wanted_offset = position & (term_length - 1)
    wanted_term = descriptor.initial_term_id + position // term_length
    problem = None
    if length < HEADER_LENGTH or wanted_offset + aligned > term_length:
        problem = f"a frame of {length} bytes, {term_length - wanted_offset} before its term ends"
    elif version != 0 or kind not in (DATA, PADDING):
        problem = f"a frame of version {version} and type {kind}: data is 1, padding 0"
    elif term_offset != wanted_offset:
        problem = f"a frame at term offset {wanted_offset} that says it is at {term_offset}"
    elif (term_id - wanted_term) & 0xFFFF_FFFF:
        problem = f"a frame of term {term_id}, and it lies in term {wanted_term}"
    elif stream_id != descriptor.stream_id:
        problem = f"a frame of stream {stream_id} in a recording of {descriptor.stream_id}"
    elif kind == DATA and checksum is not None and aligned <= len(data):
        found = checksum(data[HEADER_LENGTH:aligned])
        if found != session_id:
            problem = f"a frame of {length} bytes with checksum {session_id}, and it is {found}"
    del flags
    return problem, aligned
