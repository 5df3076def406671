"""Datagrams put where they belong in a term, a run of them at a time.

Source: Aeron `TermRebuilder`; runs are ours.
"""

from __future__ import annotations

from array import array
from struct import Struct
from typing import TYPE_CHECKING, Final, TypeAlias

from aeron_async._speedups import WHY_PURE
from aeron_async.logbuffer.frame import DATA_WORD, HEADER, TYPE_SHIFT

__all__ = [
    "Cuts",
    "place_run",
    "place_runs",
    "skip_whole",
]

Cuts: TypeAlias = "memoryview[int] | array[int]"
"""Of each of several runs where it ends, and the length of its datagrams: 32-bit words."""

SLOT_MASK: Final = 31
IDS: Final = Struct("<3i")
IDS_OFFSET: Final = 12
VERSION_MASK: Final = 0xFF
WORD: Final = 4


def place_runs(
    data: memoryview,
    cuts: Cuts,
    index: int,
    start: int,
    term: memoryview,
    words: memoryview,
    offset: int,
    *,
    limit: int,
) -> int:
    """Place runs of datagrams that follow one another in a hole; return how many bytes of them.

    Stops where `place_run` would, at one of another stream, and at one without a byte.

    The twin in C also takes frames of mixed lengths; here they are all left to the long way.

    Args:
        data: The runs, one behind the other.
        cuts: Of each run where it ends in the data, and the length of its datagrams in bytes; the
            last of a run may be shorter.
        index: Of the run to begin with, in `cuts`; even.
        start: Of the datagram to begin with, in `data`.
        term: The term as bytes.
        words: The term as 32-bit words.
        offset: Term offset that the first header names.
        limit: Most bytes that may be placed.
    """
    placed = 0
    ids = bytes(data[start + IDS_OFFSET : start + IDS_OFFSET + IDS.size])
    for each in range(index, len(cuts), 2):
        run = data[start + placed : cuts[each]]
        placed_length = 0
        # The last datagram of a run may be shorter, and is then placed by itself.
        while len(run) and run[IDS_OFFSET : IDS_OFFSET + IDS.size] == ids:
            segment_length = min(cuts[each + 1], len(run))
            where = term, words, offset + placed
            placed_length = place_run(run, segment_length, *where, limit=limit - placed)
            if not placed_length:
                break
            placed += placed_length
            run = run[placed_length:]
        if len(run) or not placed_length:
            break
    return placed


def place_run(
    data: memoryview,
    segment_length: int,
    term: memoryview,
    words: memoryview,
    offset: int,
    *,
    limit: int,
) -> int:
    """Place datagrams of data that follow one another in a hole; return how many bytes of them.

    Stops before the first datagram that is anything else: padding, a heartbeat, not the next one,
    of another stream, already there, beyond the limit, or damaged. Zero means that not even the
    first was placed, which says nothing of whether it is good: the caller takes it the long way.

    Args:
        data: Datagrams of `segment_length` bytes each; the last may be shorter.
        segment_length: In bytes.
        term: The term as bytes.
        words: The term as 32-bit words.
        offset: Term offset that the first header names.
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
    """Return whether frames of one length and stream follow one another over all of a run.

    The rest of the first header has been looked at.
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
    """Return whether the second words of headers say data of our version, with whatever flags."""
    return (
        second_words[0::4] == b"\0" * count
        and second_words[2::4] == b"\1" * count
        and second_words[3::4] == b"\0" * count
    )


def skip_whole(words: memoryview, offset: int, limit: int) -> int:
    """Return the offset up to which frames follow one another, none of them beyond the limit.

    An offset where no frame can begin is returned as it is.

    Args:
        words: The term as 32-bit words.
        offset: Where to begin; start of a frame, or where one is missing.
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
    from aeron_async._speedups.frames import place_runs, skip_whole
