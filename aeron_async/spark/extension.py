"""Where the session begins that a recording was extended by last: it may have been cut before.

A recording that was read, cut below that, and extended beyond it, looks as if it had only grown;
but what lies between the cut and where it was read to is new, and nobody has read it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from aeron_async.archive.disk.segments import segment_base, segment_name, term_base
from aeron_async.spark.frame_checksums import has_checksums
from aeron_async.spark.frame_finder import SESSION
from aeron_async.spark.recorded_end import pieces

if TYPE_CHECKING:
    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.archive.disk.files import Directory

__all__ = ["session_start"]


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
