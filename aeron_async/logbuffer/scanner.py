"""Scans for whole frames: for blocks, for the sender's datagrams, and for files.

Source: Aeron `TermBlockScanner`, `TermScanner`; segment batches have no counterpart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aeron_async._speedups import WHY_PURE
from aeron_async.logbuffer.frame import HEADER, TYPE_SHIFT

if TYPE_CHECKING:
    from aeron_async.logbuffer.placing import SegmentTable

__all__ = [
    "BLOCK_BITS",
    "mark_starts",
    "scan_batch",
    "scan_batches",
    "scan_block",
    "scan_chain",
    "scan_for_send",
    "skip_own",
]


def scan_block(words: memoryview, offset: int, *, limit: int) -> int:
    """Return the end offset of the whole frames that one block may hold.

    A padding frame ends the block and is left out, unless it comes first: then it is the whole
    block, and may be longer than the limit, but never extends beyond the term.

    Args:
        words: The term as 32-bit words.
        offset: Where to begin; start of a frame.
        limit: Offset that the block may not pass; never beyond the term.
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
"""A batch of at most this many equal datagrams is so short that other lengths are worth trying."""
CALL_COST: Final = 5
"""Cost of a system call, in datagrams: about 5 microseconds against 1."""
LOOK_COUNT: Final = 3
"""This many datagrams of one length must be found before more is scanned."""
LOOK_LENGTH: Final = 65_536
"""The longest scan ahead, in bytes."""
MORE: Final = 21
MORE_OF: Final = 20
"""A batch may have 21 datagrams where 20 full ones would do: 5 % more."""
BLOCK_BITS: Final = 12
"""The start of the first datagram is recorded for each block of this size: 4 KiB."""


def scan_for_send(
    term: memoryview, words: memoryview, offset: int, *, limit: int
) -> tuple[int, int]:
    """Return how many bytes of whole frames one datagram may hold, and the padding behind them.

    Of a padding frame only the header is sent: it counts 32 bytes and ends the scan, and the rest
    of its length is returned as padding, to be added to the position once the datagram is sent. If
    the first frame is longer than the limit, the result is 0. Padding that claims to extend beyond
    the term ends with the term: the log may be a file that another process writes. At an offset
    where no frame can begin, the result is 0.

    Args:
        term: The term as bytes.
        words: The term as 32-bit words.
        offset: Where to begin; start of a frame.
        limit: Most bytes wanted, such as the MTU or the rest of the window.
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


def scan_batches(
    term: memoryview,
    words: memoryview,
    offset: int,
    segments: SegmentTable,
    *,
    limit: int,
    mtu_length: int,
    batch_length: int,
    max_count: int,
    cost: int,
) -> tuple[int, int, int, int]:
    """Divide what may be sent into segment batches, each as `scan_batch` makes it.

    Args:
        term: The term as bytes.
        words: The term as 32-bit words.
        offset: Where to begin; start of a frame.
        segments: Receives for each batch its end, in bytes from `offset`, and the length of its
            datagrams; its size limits the number of batches.
        limit: Most bytes wanted: the rest of the window.
        mtu_length: Longest datagram, in bytes.
        batch_length: Longest batch, in bytes.
        max_count: Most datagrams in a batch, at least 1; with 1 each datagram is full.
        cost: Stop when the batches cost this much; each costs `CALL_COST` plus its datagrams.

    Returns:
        Bytes of all batches, number of batches, the padding behind them, and their cost.
    """
    total = count = padding = used = 0
    while used < cost and 2 * count < len(segments) and not padding:
        length, segment, padding = scan_batch(
            term,
            words,
            offset + total,
            limit=limit - total,
            batch_length=batch_length,
            mtu_length=mtu_length,
            max_count=max_count,
        )
        if length <= 0:
            break
        total += length
        segments[2 * count], segments[2 * count + 1] = total, segment
        used += CALL_COST + length // segment
        count += 1
    return total, count, padding, used


def mark_starts(
    positions: memoryview, following: int, position: int, segments: SegmentTable, length: int
) -> int:
    """Record where the first datagram of each block begins; return where the next block begins.

    Args:
        positions: Receives the starts, indexed by the block number modulo its length.
        following: Start of the first block that is not recorded yet.
        position: Position of the first batch.
        segments: The batches; see `scan_batches`.
        length: How many bytes of them were sent.
    """
    begin = position
    for index in range(0, len(segments), 2):
        end, segment = position + min(segments[index], length), segments[index + 1]
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


def scan_batch(
    term: memoryview,
    words: memoryview,
    offset: int,
    *,
    limit: int,
    batch_length: int,
    mtu_length: int,
    max_count: int,
) -> tuple[int, int, int]:
    """Return the bytes of one segment batch, the length of its datagrams, and the padding behind.

    Every datagram ends with a frame. All but the last have the same length, so one system call
    can send them; the last may be shorter. Each datagram is as full as `scan_for_send` makes it.
    Shorter datagrams are used only if hardly any two full ones are equal, if they give a longer
    batch, and if that makes at most 5 % more datagrams.

    Args:
        term: The term as bytes.
        words: The term as 32-bit words.
        offset: Where to begin; start of a frame.
        limit: Most bytes wanted: the rest of the window.
        batch_length: Longest batch, in bytes.
        mtu_length: Longest datagram, in bytes.
        max_count: Most datagrams wanted, at least 1; with 1 each datagram is full.
    """
    segment, padding = scan_for_send(
        term, words, offset, limit=min(limit, batch_length, mtu_length)
    )
    if segment == 0 or padding:
        return segment, segment, padding
    limit = min(limit, len(term) - offset)
    total, padding, count = _repeat(
        term, words, offset, segment, limit, batch_length, mtu_length, max_count
    )
    # Differs: Aeron fills every datagram, because each one costs it a full send.
    if count <= FEW < max_count and limit >= 4 * mtu_length and not padding:
        reach = min(limit, batch_length, max_count * mtu_length, LOOK_LENGTH)
        better, better_count = _longer_batch(
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
    batch_length: int,
    mtu_length: int,
    max_count: int,
) -> tuple[int, int, int]:
    """Return the bytes of the full datagrams of one length, the padding behind, and their count."""
    count = _uniform(words, offset, segment, min(max_count, min(limit, batch_length) // segment))
    # The next frame may be short enough to fit into the last datagram, so scan that one again.
    count = max(1, count - 1)
    total, padding = count * segment, 0
    while count < max_count:
        following, behind = scan_for_send(
            term, words, offset + total, limit=min(limit - total, mtu_length)
        )
        if not 0 < following <= min(segment, batch_length - total):
            break
        total += following
        padding = behind
        count += 1
        if following != segment or padding:
            break
    return total, padding, count


def _uniform(words: memoryview, offset: int, segment: int, most: int) -> int:
    """Return how many datagrams, up to `most`, hold frames of one length only; 1 at least.

    A few calls compare thousands of headers; where no frames are equal, little time is lost.
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


def _longer_batch(
    words: memoryview,
    offset: int,
    reach: int,
    segment: int,
    total: int,
    count: int,
    mtu_length: int,
    max_count: int,
) -> tuple[int, int]:
    """Return a datagram length that gives mixed frames a longer batch, and the count; or zeros.

    Args:
        words: The term as 32-bit words.
        offset: Where to begin; start of a frame.
        reach: How far to scan, in bytes.
        segment: Length of the first full datagram.
        total: Bytes of the batch of full datagrams.
        count: Number of those datagrams.
        mtu_length: Longest datagram, in bytes.
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
    """Append the ends of whole data frames to `ends`, starting from its last one."""
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
    """Return the ends of the datagrams into which the next frame would not fit."""
    full_ends: list[int] = []
    begin = end = 0
    for each in ends:
        if each - begin > mtu_length:
            full_ends.append(end)
            begin = end
        end = each
    return full_ends


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

    Stops before the first frame that does not belong there or is not whole: its version, type, term
    offset, term id and stream id must be those of the chain. A padding frame counts its header and
    ends the chain, and the rest of its length is returned as padding; it may not extend beyond the
    term.

    Args:
        words: Frames as 32-bit words, from the first one on.
        limit: How many bytes of them to scan.
        term_offset: Term offset of the first frame, in bytes.
        term_id: Term id of the frames, signed.
        stream_id: Stream id of the frames, signed.
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


def skip_own(
    words: memoryview,
    offset: int,
    limit: int,
    *,
    session_id: int,
    stream_id: int,
    term_id: int,
    mtu_length: int,
) -> tuple[int, bool]:
    """Return up to where the frames of a term are those of one stream, and whether one is not.

    Stops before the first frame that is not committed, or that the stream cannot have, and at the
    first one that begins at or beyond `limit`. Each length is read once: what another process
    commits in the meantime is not seen, and is no frame that the stream cannot have.

    Args:
        words: The term as 32-bit words, which another process may write at any time.
        offset: Where to begin, in bytes; start of a frame.
        limit: Where to stop, in bytes.
        session_id: Session id of the frames, signed.
        stream_id: Stream id of the frames, signed.
        term_id: Term id of the frames, signed.
        mtu_length: Longest data frame, in bytes.
    """
    term_length = len(words) << 2
    limit = min(limit, term_length)
    while offset < limit:
        index = offset >> 2
        frame_length, kind = words[index], words[index + 1]
        aligned = (frame_length + 31) & -32
        frame_type = kind >> TYPE_SHIFT
        if (
            frame_length < HEADER
            or aligned > term_length - offset
            or kind & VERSION_BITS
            or frame_type not in (PADDING, DATA)
            or (frame_type == DATA and frame_length > mtu_length)
            or words[index + 2] != offset
            or words[index + 3] != session_id
            or words[index + 4] != stream_id
            or words[index + 5] != term_id
        ):
            return offset, frame_length > 0
        offset += aligned
    return offset, False


if not TYPE_CHECKING and WHY_PURE is None:
    from aeron_async._speedups.chains import scan_chain
    from aeron_async._speedups.frames import (
        mark_starts,
        scan_batches,
        scan_for_send,
        skip_own,
    )
