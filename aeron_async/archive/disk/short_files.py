"""Segments that are too short, and lack nothing: zeros may follow.

One that lacks frames stays as short as it is. With zeros in their place the last frame that is
there in part would pass for a whole one, and be replayed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aeron_async.archive.disk.segment_scan import Problem, check_frames
from aeron_async.archive.disk.segments import segment_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.archive.disk.files import Directory, File
    from aeron_async.archive.disk.segment_scan import ScanBuffer

__all__ = ["short_files"]


def short_files(
    directory: Directory,
    descriptor: RecordingDescriptor,
    bases: list[int],
    end: int,
    buffer: ScanBuffer,
) -> Iterator[tuple[str, int]]:
    """Yield the name and the length of each file to which zeros may be added.

    Args:
        directory: Of the archive.
        descriptor: Of the recording.
        bases: Where its files begin.
        end: Of the recording, once it has been repaired, in bytes.
        buffer: To read into.
    """
    for base in bases:
        file = directory.open_to_read(segment_name(descriptor.recording_id, base))
        try:
            length = file.length()
            is_short = length < descriptor.segment_length
            if is_short and lacks_nothing(file, descriptor, base, end, buffer):
                yield file.name, length
        finally:
            file.close()


def lacks_nothing(
    file: File, descriptor: RecordingDescriptor, base: int, end: int, buffer: ScanBuffer
) -> bool:
    """Return whether all frames are there that a file should hold."""
    walk = check_frames(
        file,
        descriptor,
        base=base,
        start=max(base, descriptor.start_position),
        end=min(end, base + descriptor.segment_length),
        checksum=None,
        buffer=buffer,
    )
    return not any(isinstance(each, Problem) for each in walk)
