"""Up to where a recording may be read that has no stop position.

It is being recorded, or was when its archive died. Files have their full length from the start, so
the frames of the last one tell, as `archive.disk.tail_scan` decides for the archive's recovery:
here as there, what is no frame is the end, unless frames lie behind it that belong there; and the
last frame is believed when each page of it holds something, or its checksum is right.

Source: Aeron `Catalog.recoverStopOffset`, `RecordingPos`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from aeron_async.archive.disk.checksums import checksum_named
from aeron_async.archive.disk.files import read_exactly
from aeron_async.archive.disk.mark_file import are_ends_whole, read_mark_file
from aeron_async.archive.disk.segment_scan import HEADER_LENGTH, ScanBuffer
from aeron_async.archive.disk.segments import segment_base, segment_bases, segment_name, term_base
from aeron_async.archive.disk.tail_scan import find_following, find_torn
from aeron_async.errors import ArchiveError, DataLossError
from aeron_async.spark.frame_checksums import first_bad
from aeron_async.spark.frame_finder import DATA, KIND, FrameFinder
from aeron_async.spark.messages import END

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aeron_async.archive.disk.checksums import Checksum
    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.archive.disk.files import Directory, File
    from aeron_async.spark.frame_finder import Frames
    from aeron_async.spark.options import ArchiveOptions

__all__ = ["is_alive", "last_message_end", "scanned_end"]

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
