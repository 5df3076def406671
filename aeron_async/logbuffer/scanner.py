"""How far whole, committed frames reach: for the sender's datagrams and for reading by blocks.

Source: Aeron `TermScanner`, `TermBlockScanner`.
"""

from __future__ import annotations

from aeron_async.logbuffer.frame import HEADER, TYPE_SHIFT

__all__ = ["scan_block", "scan_for_send"]


def scan_for_send(
    term: memoryview, words: memoryview, offset: int, *, limit: int
) -> tuple[int, int]:
    """Return how many bytes of whole frames may go into one datagram, and the padding behind them.

    A padding frame travels as its bare header: it counts 32 bytes, ends the scan, and the rest of
    its length is returned apart, to be added to the position once the datagram is sent. A first
    frame longer than the limit gives nothing. Padding that claims to go on beyond the term ends
    with it: the log may be a file that another process writes.

    Args:
        term: The term as bytes.
        words: The term as 32-bit words.
        offset: Where to begin; start of a frame.
        limit: Most bytes wanted, such as the MTU or what is left of the window.
    """
    limit = min(limit, len(term) - offset)
    available = 0
    while available < limit:
        index = (offset + available) >> 2
        frame_length = words[index]
        if frame_length <= 0:
            break
        if words[index + 1] >> TYPE_SHIFT == 0:
            if available + HEADER > limit:
                break
            padding = ((frame_length + 31) & -32) - HEADER
            available += HEADER
            padding = min(padding, len(term) - offset - available)
            if padding:
                return available, padding
            continue
        following = available + ((frame_length + 31) & -32)
        if following > limit:
            break
        available = following
    return available, 0


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
