"""How far frames follow one another as the frames of one term must."""

from __future__ import annotations

from typing import Final

__all__ = ["scan_chain"]

HEADER: Final = 32
TYPE_SHIFT: Final = 16
VERSION_BITS: Final = 0xFF
DATA: Final = 1
PADDING: Final = 0


def scan_chain(
    words: memoryview,
    limit: int,
    *,
    term_offset: int,
    term_id: int,
    stream_id: int,
    term_length: int,
) -> tuple[int, int]:
    """Return how many bytes of whole frames there are, and the padding behind them.

    Stops before the first frame that does not belong there, is not whole, or is none: its version,
    type, term offset, term id and stream have to be those of the chain. Padding counts its header,
    ends the chain, and the rest of its length is returned apart; it may not reach beyond the term.

    Args:
        words: Frames as 32-bit words, from the first one on.
        limit: Bytes of them that count.
        term_offset: Where the first one lies in its term, in bytes.
        term_id: Of its term, signed.
        stream_id: Of its stream, signed.
        term_length: In bytes.
    """
    limit = min(limit, len(words) << 2)
    available = 0
    while available + HEADER <= limit:
        index = available >> 2
        frame_length, kind, offset = words[index], words[index + 1], words[index + 2]
        if (
            frame_length < HEADER
            or kind & VERSION_BITS
            or offset != term_offset + available
            or words[index + 4] != stream_id
            or words[index + 5] != term_id
        ):
            break
        aligned = (frame_length + 31) & -32
        if aligned > term_length - offset:
            break
        if kind >> TYPE_SHIFT == PADDING:
            return available + HEADER, aligned - HEADER
        if kind >> TYPE_SHIFT != DATA or aligned > limit - available:
            break
        available += aligned
    return available, 0
