"""Where a recording that has stopped ends for who reads messages: before one that is not whole.

Its publisher died in the middle of it. Whoever extends the recording may cut off what there is of
it first, as the sink of this package does, so it is not to be passed by as if it had been read.

Mostly the last frame tells that all is whole, and it is not longer than one packet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from aeron_async.archive.disk.files import read_exactly
from aeron_async.archive.disk.segment_scan import HEADER_LENGTH
from aeron_async.archive.disk.segments import segment_base, segment_name, term_base
from aeron_async.spark.frame_finder import DATA, KIND, FrameFinder
from aeron_async.spark.messages import END
from aeron_async.spark.recorded_end import pieces

if TYPE_CHECKING:
    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.archive.disk.files import Directory, File

__all__ = ["whole_end"]


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
