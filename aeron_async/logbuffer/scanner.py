"""How far whole, committed frames reach, for reading by blocks.

Source: Aeron `TermBlockScanner`.
"""

from __future__ import annotations

from aeron_async.logbuffer.frame import TYPE_SHIFT

__all__ = ["scan_block"]


def scan_block(words: memoryview, offset: int, *, limit: int) -> int:
    """Return the offset behind a run of whole frames that one block may hold.

    A padding frame ends the run and is left out, unless it comes first: then it is the whole block,
    and may be longer than the limit, but never goes on beyond the term.

    Args:
        words: The term as 32-bit words.
        offset: Where to begin; start of a frame.
        limit: Offset that the run may not pass; never beyond the term.
    """
    start = offset
    while offset < limit:
        frame_length = words[offset >> 2]
        if frame_length <= 0:
            break
        following = (offset + frame_length + 31) & -32
        if words[(offset >> 2) + 1] >> TYPE_SHIFT == 0:
            return min(following, len(words) << 2) if offset == start else offset
        if following > limit:
            break
        offset = following
    return offset
