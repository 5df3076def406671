"""Zeroing what everyone has consumed, so that a term can be written again.

Source: Aeron `IpcPublication.cleanBufferTo`, `NetworkPublication.cleanBufferTo`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aeron_async.logbuffer.position import partition_index, term_offset_at

if TYPE_CHECKING:
    from aeron_async.logbuffer.term_log import LogBuffers

__all__ = ["clean_to", "zero"]

ZEROS: Final = memoryview(bytes(64 * 1024))


def zero(term: memoryview, start: int, end: int) -> None:
    """Fill a range of a term with zeros."""
    step = len(ZEROS)
    while start < end:
        stop = min(start + step, end)
        term[start:stop] = ZEROS[: stop - start]
        start = stop


def clean_to(log: LogBuffers, *, clean_position: int, position: int) -> int:
    """Zero from `clean_position` towards `position`, within one term; return how far it came.

    Call again, on a later turn, when that is short of `position`. The first eight bytes go last, so
    that a reader never meets a frame length in front of a body that is gone.

    Args:
        log: To be cleaned.
        clean_position: Up to where it is clean.
        position: Up to where all readers have consumed, and more.
    """
    offset = term_offset_at(clean_position, term_length=log.term_length)
    length = min(position - clean_position, log.term_length - offset)
    if length <= 0:
        return clean_position
    index = partition_index(clean_position, bits=log.position_bits)
    zero(log.terms[index], offset + 8, offset + length)
    log.term_longs[index][offset >> 3] = 0
    return clean_position + length
