"""How far whole frames reach: for blocks, for datagrams of the sender, and for files.

Source: Aeron `TermBlockScanner`, `TermScanner`; runs are ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aeron_async._speedups import WHY_PURE
from aeron_async.logbuffer.frame import HEADER, TYPE_SHIFT

if TYPE_CHECKING:
    from aeron_async.logbuffer.placing import Cuts

__all__ = [
    "BLOCK_BITS",
    "mark_starts",
    "scan_block",
    "scan_chain",
    "scan_for_send",
    "scan_run",
    "scan_runs",
]


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


WORD: Final = 4
SLOT: Final = 32
SLOT_MASK: Final = 31
FEW: Final = 2
"""Datagrams of equal length with which a run is so short that other cuts are worth a look."""
CALL_COST: Final = 5
"""What a call to the system costs, counted in datagrams: about 5 against 1 microsecond."""
LOOK_COUNT: Final = 3
"""Datagrams of one length that there must be before more is looked at."""
LOOK_LENGTH: Final = 65_536
"""The furthest look ahead, in bytes."""
MORE: Final = 21
MORE_OF: Final = 20
"""A run may have 21 datagrams for every 20 full ones: 5 % more."""
BLOCK_BITS: Final = 12
"""Of each 4 KiB of a stream the first datagram is noted."""


def scan_for_send(
    term: memoryview, words: memoryview, offset: int, *, limit: int
) -> tuple[int, int]:
    """Return how many bytes of whole frames may go into one datagram, and the padding behind them.

    A padding frame travels as its bare header: it counts 32 bytes, ends the scan, and the rest of
    its length is returned apart, to be added to the position once the datagram is sent. A first
    frame longer than the limit gives nothing. Padding that claims to go on beyond the term ends
    with it: the log may be a file that another process writes. An offset where no frame can begin
    gives nothing.

    Args:
        term: The term as bytes.
        words: The term as 32-bit words.
        offset: Where to begin; start of a frame.
        limit: Most bytes wanted, such as the MTU or what is left of the window.
    """
    if offset < 0 or offset & SLOT_MASK:
        return 0, 0
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


def scan_runs(
    term: memoryview,
    words: memoryview,
    offset: int,
    cuts: Cuts,
    *,
    limit: int,
    mtu_length: int,
    run_length: int,
    max_count: int,
    cost: int,
) -> tuple[int, int, int, int]:
    """Cut what may be sent into runs that follow one another, each as `scan_run` has it.

    Args:
        term: The term as bytes.
        words: The term as 32-bit words.
        offset: Where to begin; start of a frame.
        cuts: Gets for each run where it ends, in bytes from `offset`, and the length to cut it at;
            as many as there is room for.
        limit: Most bytes wanted: what is left of the window.
        mtu_length: Longest datagram.
        run_length: Longest run, in bytes.
        max_count: Most datagrams in a run, at least 1; with 1 every one is full.
        cost: No further run once they cost that much; each costs `CALL_COST` and its datagrams.

    Returns:
        Bytes of all runs, how many runs, the padding behind them, and what they cost.
    """
    total = count = padding = used = 0
    while used < cost and 2 * count < len(cuts) and not padding:
        length, segment, padding = scan_run(
            term,
            words,
            offset + total,
            limit=limit - total,
            run_length=run_length,
            mtu_length=mtu_length,
            max_count=max_count,
        )
        if length <= 0:
            break
        total += length
        cuts[2 * count], cuts[2 * count + 1] = total, segment
        used += CALL_COST + length // segment
        count += 1
    return total, count, padding, used


def mark_starts(
    positions: memoryview, following: int, position: int, cuts: Cuts, length: int
) -> int:
    """Note where the first datagram of each block begins; return where the next block does.

    Args:
        positions: Where to note it, by the block modulo its length.
        following: Where the first block begins of which nothing is noted.
        position: Of the first run.
        cuts: Of the runs; see `scan_runs`.
        length: Bytes of them that have left.
    """
    begin = position
    for index in range(0, len(cuts), 2):
        end, segment = position + min(cuts[index], length), cuts[index + 1]
        while following < end:
            before = max(0, following - begin)
            start = begin - (-before // segment) * segment
            if start >= end:
                break
            block = start >> BLOCK_BITS
            positions[block % len(positions)] = start
            following = (block + 1) << BLOCK_BITS
        begin = end
    return following


def scan_run(
    term: memoryview,
    words: memoryview,
    offset: int,
    *,
    limit: int,
    run_length: int,
    mtu_length: int,
    max_count: int,
) -> tuple[int, int, int]:
    """Return bytes of whole frames to be sent, the length to cut them at, and padding behind.

    Every datagram but the last has the length to cut at, and so they can leave in one call; all are
    cut between frames, and the last may be shorter. Each datagram is as full as `scan_for_send`
    makes it. Only where hardly any two such datagrams are equal, and where that makes at most 5 %
    more datagrams, shorter ones are taken that give a longer run.

    Args:
        term: The term as bytes.
        words: The term as 32-bit words.
        offset: Where to begin; start of a frame.
        limit: Most bytes wanted: what is left of the window.
        run_length: Longest run, in bytes.
        mtu_length: Longest datagram.
        max_count: Most datagrams wanted, at least 1; with 1 every one is full.
    """
    segment, padding = scan_for_send(term, words, offset, limit=min(limit, run_length, mtu_length))
    if segment == 0 or padding:
        return segment, segment, padding
    limit = min(limit, len(term) - offset)
    total, padding, count = _repeat(
        term, words, offset, segment, limit, run_length, mtu_length, max_count
    )
    # Differs: Aeron fills every datagram, for each costs it as much as any other.
    if count <= FEW < max_count and limit >= 4 * mtu_length and not padding:
        reach = min(limit, run_length, max_count * mtu_length, LOOK_LENGTH)
        better, better_count = _longer_run(
            words, offset, reach, segment, total, count, mtu_length, max_count
        )
        if better_count:
            return better * better_count, better, 0
    return total, segment, padding


def _repeat(
    term: memoryview,
    words: memoryview,
    offset: int,
    segment: int,
    limit: int,
    run_length: int,
    mtu_length: int,
    max_count: int,
) -> tuple[int, int, int]:
    """Return how far full datagrams of one length go, the padding behind, and how many they are."""
    count = _uniform(words, offset, segment, min(max_count, min(limit, run_length) // segment))
    # What follows the last of them may be short enough to go with it: that one is looked at again.
    count = max(1, count - 1)
    total, padding = count * segment, 0
    while count < max_count:
        following, behind = scan_for_send(
            term, words, offset + total, limit=min(limit - total, mtu_length)
        )
        if not 0 < following <= min(segment, run_length - total):
            break
        total += following
        padding = behind
        count += 1
        if following != segment or padding:
            break
    return total, padding, count


def _uniform(words: memoryview, offset: int, segment: int, most: int) -> int:
    """Return how many datagrams, up to `most`, hold frames of one length only; 1 at least.

    Thousands of headers are compared by a few calls; whoever has none like them loses little.
    """
    step = (words[offset >> 2] + 31) & -32
    if most <= 1 or segment % step:
        return 1
    start = offset >> 2
    first = words[start : start + 2].tobytes()
    per_datagram = segment // step
    step >>= 2
    while most > 1:
        end = start + most * (segment >> 2)
        frames = most * per_datagram
        if (
            words[start:end:step].tobytes() == first[:WORD] * frames
            and words[start + 1 : end : step].tobytes() == first[WORD:] * frames
        ):
            return most
        most >>= 1
    return 1


def _longer_run(
    words: memoryview,
    offset: int,
    reach: int,
    segment: int,
    total: int,
    count: int,
    mtu_length: int,
    max_count: int,
) -> tuple[int, int]:
    """Return a length that cuts frames of mixed sizes into a longer run, and how many; or zeros.

    Args:
        words: The term as 32-bit words.
        offset: Where to begin; start of a frame.
        reach: How far to look, in bytes.
        segment: Length of the first full datagram.
        total: Bytes of the run of full datagrams.
        count: How many they are.
        mtu_length: Longest datagram.
        max_count: Most datagrams wanted.
    """
    ends = [0]
    _add_ends(words, offset, min(reach, LOOK_COUNT * mtu_length), ends)
    known = set(ends)
    shortest = max(SLOT, mtu_length // 64 * 32)
    lengths = [
        each
        for each in ends
        if shortest <= each <= segment and 2 * each in known and LOOK_COUNT * each in known
    ]
    if not lengths:
        return 0, 0
    _add_ends(words, offset, reach, ends)
    known = set(ends)
    full_ends = _full_ends(ends, mtu_length)
    best = best_count = 0
    for length in lengths:
        found = full = each = 0
        while each < max_count and (each + 1) * length in known:
            each += 1
            while full < len(full_ends) and full_ends[full] <= each * length:
                full += 1
            if MORE_OF * each <= MORE * full:
                found = each
        # Bytes for each unit of cost: total / (CALL_COST + count), cross-multiplied.
        if found * length * (CALL_COST + count) > total * (CALL_COST + found):
            best, best_count = length, found
            total, count = found * length, found
    return best, best_count


def _add_ends(words: memoryview, offset: int, reach: int, ends: list[int]) -> None:
    """Add where frames end, from the last end on, that are whole and no padding."""
    position = ends[-1]
    while position < reach:
        index = (offset + position) >> 2
        frame_length = words[index]
        if frame_length <= 0 or words[index + 1] >> TYPE_SHIFT == 0:
            break
        position += (frame_length + 31) & -32
        if position > reach:
            break
        ends.append(position)


def _full_ends(ends: list[int], mtu_length: int) -> list[int]:
    """Return where datagrams end into which the next frame would not fit."""
    full_ends: list[int] = []
    begin = end = 0
    for each in ends:
        if each - begin > mtu_length:
            full_ends.append(end)
            begin = end
        end = each
    return full_ends


FRAME_HEADER: Final = 32
KIND_SHIFT: Final = 16
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
    while available + FRAME_HEADER <= limit:
        index = available >> 2
        frame_length, kind, offset = words[index], words[index + 1], words[index + 2]
        if (
            frame_length < FRAME_HEADER
            or kind & VERSION_BITS
            or offset != term_offset + available
            or words[index + 4] != stream_id
            or words[index + 5] != term_id
        ):
            break
        aligned = (frame_length + 31) & -32
        if aligned > term_length - offset:
            break
        if kind >> KIND_SHIFT == PADDING:
            return available + FRAME_HEADER, aligned - FRAME_HEADER
        if kind >> KIND_SHIFT != DATA or aligned > limit - available:
            break
        available += aligned
    return available, 0


if not TYPE_CHECKING and WHY_PURE is None:
    from aeron_async._speedups.chains import scan_chain
    from aeron_async._speedups.frames import mark_starts, scan_for_send, scan_runs
