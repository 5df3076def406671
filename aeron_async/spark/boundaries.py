"""Boundaries in the files of a recording: the ends of frames, messages and sessions.

The end of a recording that is active, or whose archive died, follows from the frames of its last
file, because files have their full length from the start. The rules are those of the archive's
recovery in `archive.disk.tail_scan`: the first bytes that are no frame are the end, unless frames
of the recording lie behind them; and the last frame counts only if each of its pages holds data or
its checksum is right.

Damaged or missing data is passed over: the next term begins with a frame in any case. The reader of
that data finds the damage and reports it.

A recording that was cut below the position read so far and then extended beyond it looks as if it
had only grown. `session_start` finds the frames that are new.

A message without its last fragment may end a recording, because its publisher died. The publisher
that extends the recording may cut it off first, as the sink of this package does, so the message
must not be skipped as if it had been read. Usually the last frame shows that all messages are
whole, and it is not longer than one packet.

Source: Aeron `Catalog.recoverStopOffset`, `RecordingPos`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from aeron_async.archive.disk.checksums import checksum_named
from aeron_async.archive.disk.files import read_exactly
from aeron_async.archive.disk.mark_file import are_ends_whole, read_mark_file
from aeron_async.archive.disk.segment_scan import HEADER_LENGTH, ScanBuffer
from aeron_async.archive.disk.segments import segment_name, term_base
from aeron_async.archive.disk.tail_scan import find_following, find_torn
from aeron_async.errors import ArchiveError, DataLossError
from aeron_async.spark.frame_finder import (
    DATA,
    END,
    FRAME_LENGTH,
    KIND,
    SESSION,
    TERM_OFFSET,
    WORDS,
    FrameFinder,
    first_bad,
    has_checksums,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from aeron_async.archive.disk.checksums import Checksum
    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.archive.disk.files import ReadableDirectory, ReadableFile
    from aeron_async.spark.frame_finder import Frames
    from aeron_async.spark.options import ArchiveOptions

__all__ = [
    "DiskBoundaries",
    "ends_message",
    "is_alive",
    "last_message_end",
    "scanned_end",
    "session_start",
    "whole_end",
]

PIECE_LENGTH: Final = 4 << 20
FIRST_LENGTH: Final = 128 << 10
"""Length of the first read; the end is usually near. Longer than any frame."""
LIVE_LAG: Final = 64 << 10
"""Distance kept from the end of files that an archive is writing, in bytes."""
LIVENESS_MS: Final = 10_000
"""Age of the mark file at which an archive counts as dead; it updates the file every second."""


def is_alive(directory: ReadableDirectory, now_ms: int) -> bool:
    """Return whether an archive is running in a directory, according to its mark file."""
    try:
        header = read_mark_file(directory)
    except (ArchiveError, FileNotFoundError):
        return False
    return header is not None and now_ms - header.activity_timestamp_ms < LIVENESS_MS


def scanned_end(
    directory: ReadableDirectory,
    descriptor: RecordingDescriptor,
    options: ArchiveOptions,
    *,
    base: int,
    alive: bool,
    known: int | None = None,
) -> int:
    """Return where the files of a recording end; the end of a message if a lag is kept.

    Args:
        directory: Directory of the archive.
        descriptor: The recording.
        options: For `safetyLagBytes`, `verifyChecksum` and `failOnDataLoss`.
        base: Where its last file begins.
        alive: Whether an archive is writing to it.
        known: End found before, from which the search continues.

    Raises:
        DataLossError: Frames of the last file are damaged, and `failOnDataLoss` is set.
    """
    start = max(base, descriptor.start_position, known or 0)
    file = directory.open_to_read(segment_name(descriptor.recording_id, base))
    try:
        end = end_of_file(directory, file, descriptor, options, base=base, start=start)
    finally:
        file.close()
    lag = options.safety_lag_bytes
    if lag is None:
        lag = LIVE_LAG if alive else 0
    if not lag:
        return end
    limit = max(end - lag, descriptor.start_position, known or 0)
    return last_message_end(directory, descriptor, limit)


def end_of_file(
    directory: ReadableDirectory,
    file: ReadableFile,
    descriptor: RecordingDescriptor,
    options: ArchiveOptions,
    *,
    base: int,
    start: int,
) -> int:
    """Return the end of the last credible frame of a segment."""
    checksum = checksum_named(options.verify_checksum)
    limit = base + descriptor.segment_length
    position, last = start, start
    for at, piece, frames in pieces(file, descriptor, base=base, start=start, limit=limit):
        if checksum is not None and cut_bad(piece, frames, checksum, descriptor.session_id):
            return at + frames.end
        if len(frames):
            last = at + int(frames.starts[-1])
        position = at + frames.end
        if frames.problem is not None and options.fail_on_data_loss:
            header = bytes(piece[frames.end : frames.end + HEADER_LENGTH])
            check_end(file, frames, descriptor, base, position, header=header)
    if checksum is None and position > start:
        torn = find_torn(file, last - base, min(position, limit) - base, ScanBuffer())
        if torn is not None and not are_ends_whole(directory):
            return base + torn
    return position


def cut_bad(piece: memoryview, frames: Frames, checksum: Checksum, session_id: int) -> bool:
    """Drop the frames from the first wrong checksum on; return whether there is one."""
    bad = first_bad(piece, frames, checksum, session_id=session_id)
    if bad is not None:
        frames.cut(bad)
    return bad is not None


def check_end(
    file: ReadableFile,
    frames: Frames,
    descriptor: RecordingDescriptor,
    base: int,
    position: int,
    *,
    header: bytes,
) -> None:
    """Refuse an end that has frames behind it.

    Args:
        file: The segment.
        frames: Frames of its last piece.
        descriptor: The recording.
        base: Where the segment begins.
        position: The end.
        header: Bytes at the end when the frames were found.

    Raises:
        DataLossError: A whole frame lies behind the end, so the data at the end is damaged.
    """
    if int.from_bytes(header[:4], "little", signed=True) <= 0:
        return
    again = bytearray(len(header))
    read_exactly(file, memoryview(again), position - base)
    if again != header:
        # The archive is writing here: half a header was read, and what lies behind it is new.
        return
    following = find_following(
        file, descriptor, base=base, offset=position - base, buffer=ScanBuffer()
    )
    if following is not None:
        message = (
            f"{frames.problem}, and a whole frame lies behind it, at {base + following}; "
            "failOnDataLoss=false takes this for the end"
        )
        raise DataLossError(message, recording_id=descriptor.recording_id, position=position)


def pieces(
    file: ReadableFile, descriptor: RecordingDescriptor, *, base: int, start: int, limit: int
) -> Iterator[tuple[int, memoryview, Frames]]:
    """Yield position, memory and frames of a segment, up to the first invalid frame."""
    finder = FrameFinder(descriptor)
    length = FIRST_LENGTH
    memory = memoryview(bytearray(length))
    position = start
    while position < limit:
        if len(memory) < length:
            memory = memoryview(bytearray(length))
        piece = memory[: min(length, limit - position)]
        count = read_exactly(file, piece, position - base) & -HEADER_LENGTH
        frames = finder.find(piece[:count], position)
        yield position, piece[:count], frames
        if frames.problem is not None or not frames.end:
            return
        position += frames.end
        length = min(2 * length, PIECE_LENGTH)


def frames_from(
    directory: ReadableDirectory, descriptor: RecordingDescriptor, start: int, limit: int
) -> Iterator[tuple[int, Frames]]:
    """Yield positions and frames of the file that holds a start, up to the first invalid frame.

    Raises:
        FileNotFoundError: The file is missing.
    """
    base = descriptor.segment_base(start)
    file = directory.open_to_read(segment_name(descriptor.recording_id, base))
    try:
        for at, _, frames in pieces(file, descriptor, base=base, start=start, limit=limit):
            yield at, frames
    finally:
        file.close()


def are_ends(frames: Frames) -> Any:
    """Return which frames are the last of a message; padding is one by itself."""
    kinds = frames.heads[:, KIND]
    return (kinds & END != 0) | (kinds & DATA == 0)


def last_message_end(
    directory: ReadableDirectory, descriptor: RecordingDescriptor, limit: int
) -> int:
    """Return the last message end at or before a limit; the beginning of the limit's term if none.

    Args:
        directory: Directory of the archive.
        descriptor: The recording.
        limit: Position in the recording, in bytes; need not be the beginning of a frame.

    Raises:
        FileNotFoundError: The file that holds the limit is missing.
    """
    found = start = max(term_base(limit, descriptor.term_length), descriptor.start_position)
    limit &= -HEADER_LENGTH
    for at, frames in frames_from(directory, descriptor, start, limit) if start < limit else ():
        ends = at + frames.ends[are_ends(frames)]
        found = int(ends[ends <= limit].max(initial=found))
    return found


if TYPE_CHECKING:
    Longs = NDArray[np.int64]


@final
class DiskBoundaries:
    """Finds the ends of messages, or of frames, in the files.

    Args:
        directory: Directory of the archive.
        recordings: Recordings by id; an attribute, too.
        by_message: Whether to find the ends of messages; of frames otherwise.
        with_padding: Whether padding counts as a row.
    """

    def __init__(
        self,
        directory: ReadableDirectory,
        recordings: Mapping[int, RecordingDescriptor],
        *,
        by_message: bool = True,
        with_padding: bool = False,
    ) -> None:
        self._directory = directory
        self.recordings = recordings
        self._by_message = by_message
        self._with_padding = with_padding

    def last_end(self, recording_id: int, start: int, limit: int) -> int:
        """Return the end of the last message between a start and a limit; the start if none."""
        descriptor = self.recordings[recording_id]
        found = max(start, term_base(limit, descriptor.term_length))
        for ends, _ in self._walk(descriptor, found, limit):
            if len(ends):
                found = int(ends[-1])
        return found

    def first_end(self, recording_id: int, start: int, end: int) -> int:
        """Return the end of the first message behind a start; `end` if none ends before it."""
        for ends, _ in self._walk(self.recordings[recording_id], start, end):
            if len(ends):
                return int(ends[0])
        return end

    def end_of_rows(self, recording_id: int, start: int, end: int, rows: int) -> tuple[int, int]:
        """Return the end of that many rows behind a start, and how many rows there are up to it.

        If there are fewer rows, that is `end`.
        """
        found = 0
        for ends, is_row in self._walk(self.recordings[recording_id], start, end):
            count = int(is_row.sum())
            if found + count >= rows:
                return int(ends[np.flatnonzero(is_row)[rows - found - 1]]), rows
            found += count
        return end, found

    def _walk(
        self, descriptor: RecordingDescriptor, start: int, limit: int
    ) -> Iterator[tuple[Longs, Any]]:
        """Yield the ends of messages, piece by piece, and which of them are rows."""
        limit &= -HEADER_LENGTH
        position = start
        while position < limit:
            base = descriptor.segment_base(position)
            behind = min(limit, base + descriptor.segment_length)
            with suppress(FileNotFoundError):
                for at, frames in frames_from(self._directory, descriptor, position, behind):
                    position = at + frames.end
                    yield self._ends(frames, at, limit)
            if position < behind:
                position = term_base(position, descriptor.term_length) + descriptor.term_length
                is_within = position <= limit
                yield np.array([position] * is_within, np.int64), np.array([True] * is_within)

    def _ends(self, frames: Frames, at: int, limit: int) -> tuple[Longs, Any]:
        is_data = frames.heads[:, KIND] & DATA != 0
        ends = at + frames.ends
        is_end = ends <= limit
        if self._by_message:
            is_end &= are_ends(frames)
        is_row = is_data | self._with_padding
        return ends[is_end], is_row[is_end]


def session_start(
    directory: ReadableDirectory, descriptor: RecordingDescriptor, position: int
) -> int:
    """Return the position from which all frames before `position` are of the last session.

    Return `position` itself if the frame before it is of another session, or if that cannot be
    known: the frames have checksums in place of sessions, or are missing.

    Args:
        directory: Directory of the archive.
        descriptor: The recording.
        position: End of a frame when it was read, in bytes.
    """
    found = position
    while found > descriptor.start_position:
        begin = max(term_base(found - 1, descriptor.term_length), descriptor.start_position)
        if found == position and has_checksums(directory, descriptor, begin, position):
            break
        first = first_in_term(directory, descriptor, begin, found)
        if first > begin:
            return first
        found = first
    return found


def first_in_term(
    directory: ReadableDirectory, descriptor: RecordingDescriptor, begin: int, end: int
) -> int:
    """Return the position from which all frames in part of a term are of the last session."""
    found = begin
    # Walk to the end of the term: the new data need not have a frame that ends exactly at `end`.
    limit = term_base(begin, descriptor.term_length) + descriptor.term_length
    with suppress(FileNotFoundError):
        for at, frames in frames_from(directory, descriptor, begin, limit):
            is_other = frames.heads[:, SESSION] != descriptor.session_id
            others = np.flatnonzero(is_other & (at + frames.starts < end))
            if len(others):
                found = at + int(frames.ends[others[-1]])
            if at + frames.end >= end:
                return found
    return end


def whole_end(directory: ReadableDirectory, descriptor: RecordingDescriptor) -> int:
    """Return where the last whole message of a stopped recording ends.

    Return the stop position if the last term is missing or damaged: its reader reports that.
    """
    stop = descriptor.stop_position
    found = position = max(term_base(stop, descriptor.term_length), descriptor.start_position)
    try:
        if ends_message(directory, descriptor, stop):
            return stop
        for at, frames in frames_from(directory, descriptor, position, stop):
            found = at + int(frames.ends[are_ends(frames)].max(initial=found - at))
            position = at + frames.end
    except FileNotFoundError:
        return stop
    return found if position == stop else stop


def ends_message(directory: ReadableDirectory, descriptor: RecordingDescriptor, end: int) -> bool:
    """Return whether the end of a frame is that of a message; False if that takes a longer look.

    A payload may hold bytes that look like a frame. If every candidate for the last frame ends a
    message, the last frame does. A candidate has the right length and the right place.

    Raises:
        FileNotFoundError: The file that holds the end is missing.
    """
    start = max(term_base(end, descriptor.term_length), descriptor.start_position)
    if start >= end:
        # No message continues behind the end of a term.
        return True
    base = descriptor.segment_base(start)
    begin = max(start, end - ((descriptor.mtu_length + HEADER_LENGTH - 1) & -HEADER_LENGTH))
    memory = memoryview(bytearray(end - begin))
    file = directory.open_to_read(segment_name(descriptor.recording_id, base))
    try:
        read_exactly(file, memory, begin - base)
    finally:
        file.close()
    words = np.frombuffer(memory, "<i4").reshape(-1, WORDS)
    begins = np.arange(0, len(memory), HEADER_LENGTH)
    ends = begins + (words[:, FRAME_LENGTH] + (HEADER_LENGTH - 1) & -HEADER_LENGTH)
    places = begin + begins & descriptor.term_length - 1
    kinds = words[(ends == len(memory)) & (words[:, TERM_OFFSET] == places), KIND]
    return bool(len(kinds)) and bool(np.all(kinds & (END | DATA) == END | DATA))
