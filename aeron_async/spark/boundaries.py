"""Where frames, messages and sessions end in the files of a recording.

It is being recorded, or was when its archive died. Files have their full length from the start, so
the frames of the last one tell, as `archive.disk.tail_scan` decides for the archive's recovery:
here as there, what is no frame is the end, unless frames lie behind it that belong there; and the
last frame is believed when each page of it holds something, or its checksum is right.

What is damaged, or not there, is passed by: the next term begins with a frame, whatever was before.
Whoever reads that finds the damage, and says so.

A recording that was read, cut below that, and extended beyond it, looks as if it had only grown;
but what lies between the cut and where it was read to is new, and nobody has read it.

Its publisher died in the middle of it. Whoever extends the recording may cut off what there is of
it first, as the sink of this package does, so it is not to be passed by as if it had been read.

Mostly the last frame tells that all is whole, and it is not longer than one packet.

Source: Aeron `Catalog.recoverStopOffset`, `RecordingPos`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from aeron_async.archive.disk.checksums import checksum_named
from aeron_async.archive.disk.files import read_exactly
from aeron_async.archive.disk.mark_file import are_ends_whole, read_mark_file
from aeron_async.archive.disk.segment_scan import HEADER_LENGTH, ScanBuffer
from aeron_async.archive.disk.segments import segment_base, segment_bases, segment_name, term_base
from aeron_async.archive.disk.tail_scan import find_following, find_torn
from aeron_async.errors import ArchiveError, DataLossError
from aeron_async.spark.frame_finder import (
    DATA,
    END,
    KIND,
    SESSION,
    FrameFinder,
    first_bad,
    has_checksums,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from aeron_async.archive.disk.checksums import Checksum
    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.archive.disk.files import Directory, File
    from aeron_async.spark.frame_finder import Frames
    from aeron_async.spark.options import ArchiveOptions

__all__ = [
    "DiskBoundaries",
    "is_alive",
    "last_message_end",
    "scanned_end",
    "session_start",
    "whole_end",
]

PIECE_LENGTH: Final = 4 << 20
FIRST_LENGTH: Final = 128 << 10
"""Mostly the end is not far; longer than any frame."""
LIVE_LAG: Final = 64 << 10
"""Kept from the end of files that somebody is writing to, in bytes."""
LIVENESS_MS: Final = 10_000
"""An archive tells every second that it is alive."""


def is_alive(directory: Directory, now_ms: int) -> bool:
    """Return whether an archive is at work in a directory, as far as its mark file tells."""
    try:
        header = read_mark_file(directory)
    except (ArchiveError, FileNotFoundError):
        return False
    return header is not None and now_ms - header.activity_timestamp_ms < LIVENESS_MS


def scanned_end(
    directory: Directory,
    descriptor: RecordingDescriptor,
    options: ArchiveOptions,
    *,
    names: list[str],
    alive: bool,
    known: int | None = None,
) -> int:
    """Return where the files of a recording end; at the end of a message if that is held back.

    Args:
        directory: Of the archive.
        descriptor: Of the recording.
        options: For `safetyLagBytes`, `verifyChecksum` and `failOnDataLoss`.
        names: Of the files in the directory.
        alive: Whether somebody is writing to it.
        known: An end that was found before, to go on from.

    Raises:
        DataLossError: Frames of the last file are damaged, and that is not to be skipped.
    """
    first = term_base(descriptor.start_position, descriptor.term_length)
    bases = [base for base in segment_bases(names, descriptor.recording_id) if base >= first]
    if not bases:
        return descriptor.start_position
    base = bases[-1]
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
    directory: Directory,
    file: File,
    descriptor: RecordingDescriptor,
    options: ArchiveOptions,
    *,
    base: int,
    start: int,
) -> int:
    """Return the position behind the last frame of a segment that can be believed."""
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
    """Let frames end before the first whose checksum is wrong; return whether one is."""
    bad = first_bad(piece, frames, checksum, session_id=session_id)
    if bad is not None:
        frames.cut(bad)
    return bad is not None


def check_end(
    file: File,
    frames: Frames,
    descriptor: RecordingDescriptor,
    base: int,
    position: int,
    *,
    header: bytes,
) -> None:
    """Refuse an end behind which there are frames.

    Args:
        file: The segment.
        frames: Of the last piece of it.
        descriptor: Of the recording.
        base: Where the segment begins.
        position: Of the end.
        header: What stood there when the frames were found.

    Raises:
        DataLossError: It is not how recordings end.
    """
    if int.from_bytes(header[:4], "little", signed=True) <= 0:
        return
    again = bytearray(len(header))
    read_exactly(file, memoryview(again), position - base)
    if again != header:
        # Somebody writes there just now: half a header was seen, and what lies behind it is new.
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
    file: File, descriptor: RecordingDescriptor, *, base: int, start: int, limit: int
) -> Iterator[tuple[int, memoryview, Frames]]:
    """Yield position, memory and frames of a segment, up to the first that is none."""
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


def last_message_end(directory: Directory, descriptor: RecordingDescriptor, limit: int) -> int:
    """Return where the last message ends that does so at or before a limit, or its term begins.

    Args:
        directory: Of the archive.
        descriptor: Of the recording.
        limit: From its start to its end, in bytes; need not be where a frame begins.

    Raises:
        FileNotFoundError: The file that holds it is not there.
    """
    start = max(term_base(limit, descriptor.term_length), descriptor.start_position)
    found = start
    if limit == start:
        return start
    base = segment_base(
        start,
        start_position=descriptor.start_position,
        term_length=descriptor.term_length,
        segment_length=descriptor.segment_length,
    )
    limit &= -HEADER_LENGTH
    file = directory.open_to_read(segment_name(descriptor.recording_id, base))
    try:
        for at, _, frames in pieces(file, descriptor, base=base, start=start, limit=limit):
            kinds = frames.heads[:, KIND]
            is_end = ((kinds & END != 0) | (kinds & DATA == 0)) & (at + frames.ends <= limit)
            ends = np.flatnonzero(is_end)
            if len(ends):
                found = at + int(frames.ends[ends[-1]])
    finally:
        file.close()
    return found


if TYPE_CHECKING:
    Longs = NDArray[np.int64]


@final
class DiskBoundaries:
    """Finds the ends of messages, or of frames, on the disk.

    Args:
        directory: Of the archive.
        recordings: By their ids.
        by_message: Whether messages are looked for; frames otherwise.
        with_padding: Whether padding is a row.
    """

    def __init__(
        self,
        directory: Directory,
        recordings: Mapping[int, RecordingDescriptor],
        *,
        by_message: bool = True,
        with_padding: bool = False,
    ) -> None:
        self._directory = directory
        self._recordings = recordings
        self._by_message = by_message
        self._with_padding = with_padding

    def last_end(self, recording_id: int, start: int, limit: int) -> int:
        """Return where the last message ends from a start to a limit; the start if none does."""
        descriptor = self._recordings[recording_id]
        found = max(start, term_base(limit, descriptor.term_length))
        for ends, _ in self._walk(descriptor, found, limit):
            if len(ends):
                found = int(ends[-1])
        return found

    def first_end(self, recording_id: int, start: int, end: int) -> int:
        """Return where the first message behind a start ends; the end if none does before it."""
        for ends, _ in self._walk(self._recordings[recording_id], start, end):
            if len(ends):
                return int(ends[0])
        return end

    def end_of_rows(self, recording_id: int, start: int, end: int, rows: int) -> int:
        """Return where so many rows behind a start end; the end if there are fewer."""
        for ends, is_row in self._walk(self._recordings[recording_id], start, end):
            count = int(is_row.sum())
            if count >= rows:
                return int(ends[np.flatnonzero(is_row)[rows - 1]])
            rows -= count
        return end

    def _walk(
        self, descriptor: RecordingDescriptor, start: int, limit: int
    ) -> Iterator[tuple[Longs, Any]]:
        """Yield where messages end, piece by piece, and which of those are rows."""
        limit &= -HEADER_LENGTH
        position = start
        while position < limit:
            base = segment_base(
                position,
                start_position=descriptor.start_position,
                term_length=descriptor.term_length,
                segment_length=descriptor.segment_length,
            )
            behind = min(limit, base + descriptor.segment_length)
            for at, frames in self._pieces(descriptor, base, position, behind):
                position = at + frames.end
                yield self._ends(frames, at, limit)
            if position < behind:
                position = term_base(position, descriptor.term_length) + descriptor.term_length
                is_within = position <= limit
                yield np.array([position] * is_within, np.int64), np.array([True] * is_within)

    def _pieces(
        self, descriptor: RecordingDescriptor, base: int, start: int, limit: int
    ) -> Iterator[tuple[int, Frames]]:
        """Yield positions and frames of a file; nothing if it is not there."""
        try:
            file = self._directory.open_to_read(segment_name(descriptor.recording_id, base))
        except FileNotFoundError:
            return
        try:
            for at, _, frames in pieces(file, descriptor, base=base, start=start, limit=limit):
                yield at, frames
        finally:
            file.close()

    def _ends(self, frames: Frames, at: int, limit: int) -> tuple[Longs, Any]:
        kinds = frames.heads[:, KIND]
        is_data = kinds & DATA != 0
        ends = at + frames.ends
        is_end = ends <= limit
        if self._by_message:
            is_end &= (kinds & END != 0) | ~is_data
        is_row = is_data | self._with_padding
        return ends[is_end], is_row[is_end]


def session_start(directory: Directory, descriptor: RecordingDescriptor, position: int) -> int:
    """Return from where on all frames before a position are of the last session.

    The position itself, where the frame before it is of another session; or where nobody can tell,
    for frames have checksums in place of sessions, or are not there.

    Args:
        directory: Of the archive.
        descriptor: Of the recording.
        position: Behind a frame, as it was read, in bytes.
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
    directory: Directory, descriptor: RecordingDescriptor, begin: int, end: int
) -> int:
    """Return from where on all frames of a part of a term are of the last session."""
    base = segment_base(
        begin,
        start_position=descriptor.start_position,
        term_length=descriptor.term_length,
        segment_length=descriptor.segment_length,
    )
    try:
        file = directory.open_to_read(segment_name(descriptor.recording_id, base))
    except FileNotFoundError:
        return end
    found = position = begin
    # To the end of the term: what is new need not have a frame that ends just there.
    limit = term_base(begin, descriptor.term_length) + descriptor.term_length
    try:
        for at, _, frames in pieces(file, descriptor, base=base, start=begin, limit=limit):
            is_other = frames.heads[:, SESSION] != descriptor.session_id
            others = np.flatnonzero(is_other & (at + frames.starts < end))
            if len(others):
                found = at + int(frames.ends[others[-1]])
            position = at + frames.end
            if position >= end:
                return found
    finally:
        file.close()
    return end


def whole_end(directory: Directory, descriptor: RecordingDescriptor) -> int:
    """Return where the last whole message of a recording ends that has stopped.

    Where its last term is not there, or damaged, it is the stop position: whoever reads it says so.
    """
    stop = descriptor.stop_position
    start = max(term_base(stop, descriptor.term_length), descriptor.start_position)
    if start >= stop:
        # No message goes on behind a term.
        return stop
    base = segment_base(
        start,
        start_position=descriptor.start_position,
        term_length=descriptor.term_length,
        segment_length=descriptor.segment_length,
    )
    try:
        file = directory.open_to_read(segment_name(descriptor.recording_id, base))
    except FileNotFoundError:
        return stop
    try:
        if is_end_whole(file, descriptor, base=base, start=start):
            return stop
        return walked(file, descriptor, base=base, start=start)
    finally:
        file.close()


def is_end_whole(file: File, descriptor: RecordingDescriptor, *, base: int, start: int) -> bool:
    """Return whether whatever may be the last frame is the end of a message.

    A payload may hold what looks like a frame; if all that may be one say the same, it is so.
    """
    stop = descriptor.stop_position
    finder = FrameFinder(descriptor)
    begin = max(start, stop - ((descriptor.mtu_length + HEADER_LENGTH - 1) & -HEADER_LENGTH))
    memory = memoryview(bytearray(stop - begin))
    read_exactly(file, memory, begin - base)
    found = []
    for at in range(0, len(memory), HEADER_LENGTH):
        length = int.from_bytes(memory[at : at + 4], "little", signed=True)
        if at + ((length + HEADER_LENGTH - 1) & -HEADER_LENGTH) != len(memory):
            continue
        frames = finder.walk(memory[at:], begin + at)
        found += frames.heads[:, KIND].tolist()
    return bool(found) and all(kind & END and kind & DATA for kind in found)


def walked(file: File, descriptor: RecordingDescriptor, *, base: int, start: int) -> int:
    """Return where the last message of a term ends, if it is sound up to its end."""
    stop = descriptor.stop_position
    found = position = start
    for at, _, frames in pieces(file, descriptor, base=base, start=start, limit=stop):
        position = at + frames.end
        kinds = frames.heads[:, KIND]
        ends = np.flatnonzero((kinds & END != 0) | (kinds & DATA == 0))
        if len(ends):
            found = at + int(frames.ends[ends[-1]])
    return found if position == stop else stop
