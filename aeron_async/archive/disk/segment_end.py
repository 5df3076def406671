"""What lies behind the end of a recording in its last segment: zeros that take no room."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aeron_async.archive.disk.segment_scan import ScanBuffer

if TYPE_CHECKING:
    from aeron_async.archive.disk.files import File

__all__ = ["behind_length", "clear_behind"]


def behind_length(file: File, end: int, buffer: ScanBuffer) -> int:
    """Return how many bytes behind the frames of a file lie before the last that is not zero."""
    length = file.length()
    offset, last = end, end
    while offset < length:
        count = buffer.fill(file, offset, length)
        if count == 0:
            break
        text = bytes(buffer.bytes[:count]).rstrip(b"\0")
        if text:
            last = offset + len(text)
        offset += count
    return last - end


def clear_behind(file: File, offset: int, *, segment_length: int, sync_level: int) -> None:
    """Let zeros follow an offset of a segment, and give it its whole length.

    One that is like that is left alone: whoever dies between cutting it off and making it whole
    leaves it too short.

    Args:
        file: The segment.
        offset: Where the recording ends in it.
        segment_length: In bytes.
        sync_level: Above 0, it is on the disk afterwards, whoever made it so.
    """
    length = file.length()
    if length > segment_length or behind_length(file, offset, ScanBuffer()):
        file.set_length(min(length, offset))
        length = -1
    if length != segment_length:
        file.set_length(segment_length)
    if sync_level:
        file.sync(metadata=True)
