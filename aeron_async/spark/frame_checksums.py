"""Whether frames have checksums, and whether those are right.

Source: Aeron `RecordingWriter`, which puts them in place of the session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from aeron_async.archive.disk.checksums import CHECKSUMS
from aeron_async.archive.disk.files import read_exactly
from aeron_async.archive.disk.segment_scan import HEADER_LENGTH
from aeron_async.archive.disk.segments import segment_base, segment_name
from aeron_async.spark.frame_finder import DATA, KIND, SESSION, FrameFinder

if TYPE_CHECKING:
    from aeron_async.archive.disk.checksums import Checksum
    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.archive.disk.files import Directory
    from aeron_async.spark.frame_finder import Frames

__all__ = ["first_bad", "has_checksums"]

SAMPLE_LENGTH: Final = 128 << 10
"""Longer than any data frame, in bytes."""


def first_bad(
    piece: memoryview, frames: Frames, checksum: Checksum, *, session_id: int | None = None
) -> int | None:
    """Return the number of the first data frame whose checksum is wrong; None if all are right.

    Args:
        piece: Of a recording.
        frames: Found in it.
        checksum: That they have in place of their session.
        session_id: What has this there has no checksum; None where all have one.
    """
    stored = frames.heads[:, SESSION].tolist()
    is_data = ((frames.heads[:, KIND] & DATA) != 0).tolist()
    starts = (frames.starts + HEADER_LENGTH).tolist()
    for number, end in enumerate(frames.ends.tolist()):
        if not is_data[number] or stored[number] == session_id:
            continue
        if checksum(piece[starts[number] : end]) != stored[number]:
            return number
    return None


def has_checksums(
    directory: Directory, descriptor: RecordingDescriptor, start: int, end: int
) -> bool:
    """Return whether the first data frame of a range has a checksum in place of its session.

    The catalog does not say so. What is neither the session of the catalog nor a checksum is the
    session of a publication that was recorded before the recording was extended.

    Args:
        directory: Of the archive.
        descriptor: Of the recording.
        start: Where a frame begins.
        end: Behind the last frame; in bytes, both.
    """
    sample = first_data(directory, descriptor, start, end)
    if sample is None:
        return False
    session, body = sample
    if session == descriptor.session_id:
        return False
    return any(matches(name, body, session) for name in ("crc32", "crc32c"))


def first_data(
    directory: Directory, descriptor: RecordingDescriptor, start: int, end: int
) -> tuple[int, memoryview] | None:
    """Return what lies in place of the session of the first data frame, and its body, if any.

    A range may begin with padding, longer than what is read at once, and to the end of a file.
    """
    memory = memoryview(bytearray(min(SAMPLE_LENGTH, end - start)))
    position = start
    while position < end:
        base = segment_base(
            position,
            start_position=descriptor.start_position,
            term_length=descriptor.term_length,
            segment_length=descriptor.segment_length,
        )
        try:
            file = directory.open_to_read(segment_name(descriptor.recording_id, base))
        except FileNotFoundError:
            return None
        piece = memory[: min(len(memory), end - position)]
        try:
            count = read_exactly(file, piece, position - base) & -HEADER_LENGTH
        finally:
            file.close()
        frames = FrameFinder(descriptor).find(piece[:count], position)
        found = np.flatnonzero((frames.heads[:, KIND] & DATA) != 0)
        if len(found):
            first = int(found[0])
            body = piece[int(frames.starts[first]) + HEADER_LENGTH : int(frames.ends[first])]
            return int(frames.heads[first, SESSION]), body
        if not frames.end:
            return None
        position += frames.end
    return None


def matches(name: str, body: memoryview, value: int) -> bool:
    """Return whether that is the checksum of a frame; it is not where nobody can compute it."""
    try:
        return CHECKSUMS[name](body) == value
    except ImportError:
        return False
