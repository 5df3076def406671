"""Whether files begin with frames of another stream than the one that the catalog tells of.

A crash leaves no such frame: it leaves zeros, or a frame whose header agrees with its place. So one
that is whole but for its stream and its first term tells of a damaged entry, or of a file that came
from elsewhere; where the recording ends, it does not tell.

Differs: Aeron goes by lengths alone, and takes whatever has one for a frame.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import attrs

from aeron_async.archive.disk.segment_scan import DATA, HEADER, HEADER_LENGTH, PADDING
from aeron_async.archive.disk.segments import segment_name
from aeron_async.archive.disk.unmended import Unmended
from aeron_async.protocol.header import wrap_int32

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.archive.disk.files import Directory, File
    from aeron_async.archive.disk.segment_scan import ScanBuffer

__all__ = ["contradicted", "contradiction_of", "find_contradiction"]


@attrs.frozen
class Stream:
    """What each frame of a recording says of its stream.

    Attributes:
        initial_term_id: Of the stream; follows from a frame's term and from its place.
        stream_id: Of the stream.
    """

    initial_term_id: int
    stream_id: int

    def __str__(self) -> str:
        return f"stream {self.stream_id} and initial term {self.initial_term_id}"


def find_contradiction(
    directory: Directory, descriptor: RecordingDescriptor, bases: list[int], buffer: ScanBuffer
) -> Unmended | None:
    """Return that all files of a recording agree with one another, and not with the catalog.

    Args:
        directory: Of the archive.
        descriptor: Of the recording.
        bases: Where its files begin.
        buffer: To read into.
    """
    told: list[tuple[int, Stream]] = []
    for base in bases:
        file = directory.open_to_read(segment_name(descriptor.recording_id, base))
        try:
            said = stream_told(file, descriptor, base, buffer)
        finally:
            file.close()
        if said is not None:
            told.append((base, said))
    if not told or len({said for _, said in told}) > 1 or told[0][1] == stream_of(descriptor):
        return None
    base, said = told[0]
    recording_id = descriptor.recording_id
    command = f"aeron-async archive purge {shlex.quote(directory.path)} {recording_id}"
    return Unmended(
        file=segment_name(recording_id, base),
        offset=max(0, descriptor.start_position - base),
        what=contradiction_of(descriptor, said, files=told),
        recording_id=recording_id,
        advice=f"a copy of the catalog might tell which is right; `{command}` removes all of it",
        commands=(command,),
    )


def contradicted(
    file: File, descriptor: RecordingDescriptor, base: int, buffer: ScanBuffer
) -> Stream | None:
    """Return the stream that a file begins with, if the catalog tells of another.

    Args:
        file: A segment.
        descriptor: Of the recording.
        base: Position of the file's beginning, in bytes.
        buffer: To read into.
    """
    said = stream_told(file, descriptor, base, buffer)
    return None if said == stream_of(descriptor) else said


def contradiction_of(
    descriptor: RecordingDescriptor, said: Stream, *, files: Sequence[object]
) -> str:
    """Return in words that files begin with frames of another stream."""
    who = "its file begins" if len(files) == 1 else f"all {len(files)} of its files begin"
    return (
        f"recording {descriptor.recording_id} is of {stream_of(descriptor)} in the catalog, "
        f"and {who} with frames of {said}"
    )


def stream_of(descriptor: RecordingDescriptor) -> Stream:
    """Return the stream that the catalog tells of."""
    return Stream(descriptor.initial_term_id, descriptor.stream_id)


def stream_told(
    file: File, descriptor: RecordingDescriptor, base: int, buffer: ScanBuffer
) -> Stream | None:
    """Return what the first frame of a file says; None if there is none that could lie there."""
    position = max(base, descriptor.start_position)
    if buffer.fill(file, position - base, position - base + HEADER_LENGTH) < HEADER_LENGTH:
        return None
    length, version, _, kind, term_offset, _, stream_id, term_id, _ = HEADER.unpack_from(
        buffer.bytes
    )
    term_length = descriptor.term_length
    wanted_offset = position & (term_length - 1)
    is_frame = HEADER_LENGTH <= length <= term_length - wanted_offset
    if not is_frame or version or kind not in (DATA, PADDING) or term_offset != wanted_offset:
        return None
    return Stream(wrap_int32(term_id - position // term_length), stream_id)
