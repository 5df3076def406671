"""The placing of received datagrams in a term, a segment batch at a time.

Source: Aeron `TermRebuilder`; segment batches have no counterpart.
"""

from __future__ import annotations

from array import array
from struct import Struct
from typing import TYPE_CHECKING, Final, TypeAlias

from aeron_async._speedups import WHY_PURE
from aeron_async.logbuffer.frame import DATA_WORD, HEADER, TYPE_SHIFT

__all__ = [
    "SegmentTable",
    "is_same_term",
    "place_batch",
    "place_batches",
    "skip_whole",
]

SegmentTable: TypeAlias = "memoryview[int] | array[int]"
"""For each segment batch, its end and the length of its datagrams, as 32-bit words.

A segment batch (short: batch) is datagrams of one length one after the other, of which only the
last may be shorter.
"""

SLOT_MASK: Final = 31
IDS: Final = Struct("<3i")
IDS_OFFSET: Final = 12
VERSION_MASK: Final = 0xFF
WORD: Final = 4


def place_batches(
    data: memoryview,
    segments: SegmentTable,
    index: int,
    start: int,
    term: memoryview,
    words: memoryview,
    offset: int,
    *,
    limit: int,
) -> int:
    """Place consecutive segment batches in a hole; return how many bytes were placed.

    Stops where `place_batch` would, and at a datagram that is empty or of another stream.

    The twin in C also places frames of mixed lengths; here the caller must place all those one by
    one.

    Args:
        data: The batches, one after the other.
        segments: For each batch, its end in `data` and the length of its datagrams, in bytes; the
            last datagram of a batch may be shorter.
        index: Index in `segments` of the first batch; even.
        start: Offset in `data` of the first datagram.
        term: The term as bytes.
        words: The term as 32-bit words.
        offset: Term offset in the first header.
        limit: Most bytes that may be placed.
    """
    placed = 0
    ids = bytes(data[start + IDS_OFFSET : start + IDS_OFFSET + IDS.size])
    for each in range(index, len(segments), 2):
        batch = data[start + placed : segments[each]]
        placed_length = 0
        # The last datagram of a batch may be shorter, and is then placed separately.
        while len(batch) and batch[IDS_OFFSET : IDS_OFFSET + IDS.size] == ids:
            segment_length = min(segments[each + 1], len(batch))
            where = term, words, offset + placed
            placed_length = place_batch(batch, segment_length, *where, limit=limit - placed)
            if not placed_length:
                break
            placed += placed_length
            batch = batch[placed_length:]
        if len(batch) or not placed_length:
            break
    return placed


def is_same_term(data: memoryview, first: int, second: int) -> bool:
    """Return whether a datagram at the second offset is of the stream and term of the first one."""
    one = data[first + IDS_OFFSET : first + IDS_OFFSET + IDS.size]
    return bytes(data[second + IDS_OFFSET : second + IDS_OFFSET + IDS.size]) == bytes(one)


def place_batch(
    data: memoryview,
    segment_length: int,
    term: memoryview,
    words: memoryview,
    offset: int,
    *,
    limit: int,
) -> int:
    """Place consecutive datagrams of data frames in a hole; return how many bytes were placed.

    Stops before the first datagram that is anything else: padding, a heartbeat, out of order, of
    another stream, a duplicate, beyond the limit, or damaged. Zero means that not even the first
    was placed, which does not mean that it is invalid: the caller must examine it.

    Args:
        data: Datagrams of `segment_length` bytes each; the last may be shorter.
        segment_length: In bytes.
        term: The term as bytes.
        words: The term as 32-bit words.
        offset: Term offset in the first header.
        limit: Most bytes that may be placed.
    """
    length = min(len(data), limit, len(term) - offset)
    length -= length % segment_length if segment_length >= HEADER else length
    if offset < 0 or offset & SLOT_MASK or length < HEADER or length & SLOT_MASK:
        return 0
    headers = data[:length].cast("i")
    step = (headers[0] + SLOT_MASK) & ~SLOT_MASK
    second = headers[1]
    if (
        headers[0] < HEADER
        or segment_length % step
        or second & VERSION_MASK
        or second >> TYPE_SHIFT != DATA_WORD >> TYPE_SHIFT
    ):
        return 0
    while length >= segment_length:
        if _is_uniform(headers, length, step, offset) and not any(
            words[offset >> 2 : (offset + length) >> 2 : segment_length >> 2].tobytes()
        ):
            term[offset + WORD : offset + length] = data[WORD:length]
            words[offset >> 2] = headers[0]
            return length
        length = length // 2 // segment_length * segment_length
    return 0


def _is_uniform(headers: memoryview, length: int, step: int, offset: int) -> bool:
    """Return whether a batch consists of consecutive frames of one length and stream.

    The caller has checked the rest of the first header.
    """
    if length == step:
        return headers[2] == offset
    end, stride, count = length >> 2, step >> 2, length // step
    return all(
        headers[column:end:stride].tobytes() == headers[column : column + 1].tobytes() * count
        for column in (0, 3, 4, 5)
    ) and (
        headers[2:end:stride].tobytes()
        == array("i", range(offset, offset + length, step)).tobytes()
        and _are_data(headers[1:end:stride].tobytes(), count)
    )


def _are_data(second_words: bytes, count: int) -> bool:
    """Return whether the second words of headers mean data of our version, with any flags."""
    return (
        second_words[0::4] == b"\0" * count
        and second_words[2::4] == b"\1" * count
        and second_words[3::4] == b"\0" * count
    )


def skip_whole(words: memoryview, offset: int, limit: int) -> int:
    """Return the offset up to which frames are complete, none of them beyond the limit.

    An offset where no frame can begin is returned as it is.

    Args:
        words: The term as 32-bit words.
        offset: Where to begin; start of a frame or of a gap.
        limit: Offset that no frame may pass.
    """
    if offset < 0 or offset & SLOT_MASK:
        return offset
    limit = min(limit, words.nbytes)
    while offset < limit:
        frame_length = words[offset >> 2]
        if frame_length <= 0:
            break
        following = (offset + frame_length + 31) & -32
        if following > limit:
            break
        offset = following
    return offset


if not TYPE_CHECKING and WHY_PURE is None:
    from aeron_async._speedups.frames import place_batches, skip_whole
