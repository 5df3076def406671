"""Whether the last frame of a segment may be torn: written, and lost in part.

Source: Aeron `Catalog.recoverStopOffset`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aeron_async.archive.disk.files import read_exactly

if TYPE_CHECKING:
    from aeron_async.archive.disk.files import File
    from aeron_async.archive.disk.segment_scan import ScanBuffer

__all__ = ["find_last", "find_torn"]

PAGE_LENGTH: Final = 4_096
HEADER_LENGTH: Final = 32
TYPE: Final = slice(6, 8)
NO_TYPE: Final = b"\0\0"


def find_torn(file: File, start: int, end: int, buffer: ScanBuffer) -> int | None:
    """Return the offset of the last frame if it may be torn; None if it is whole.

    A frame that lies in several pages is taken for whole when each page but its first holds
    something of it that is not zero. So is padding, of which there is a header and nothing else.

    Args:
        file: A segment.
        start: Where a frame begins.
        end: Behind the last frame.
        buffer: To read into.
    """
    last = find_last(file, start, end, buffer)
    header = buffer.bytes[:HEADER_LENGTH]
    if read_exactly(file, header, last) == HEADER_LENGTH and bytes(header[TYPE]) == NO_TYPE:
        return None
    page = (last // PAGE_LENGTH + 1) * PAGE_LENGTH
    while page < end:
        count = min(PAGE_LENGTH, end - page)
        if read_exactly(file, buffer.bytes[:count], page) < count:
            return last
        if not any(buffer.bytes[:count]):
            return last
        page += PAGE_LENGTH
    return None


def find_last(file: File, start: int, end: int, buffer: ScanBuffer) -> int:
    """Return the offset of the last frame before an end, or the start if there is none.

    Args:
        file: A segment, whose frames follow one another up to the end.
        start: Where a frame begins, best in the last term.
        end: Behind the last frame.
        buffer: To read into.
    """
    last = offset = start
    while offset < end:
        count = buffer.fill(file, offset, end) & -HEADER_LENGTH
        at = 0
        while at < count:
            last = offset + at
            # Never less than a header: whatever is read, it goes on.
            at += max((buffer.words[at >> 2] + 31) & -32, HEADER_LENGTH)
        if not count:
            break
        offset += at
    return last
