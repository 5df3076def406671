"""Repair of terms: placing datagrams, finding and padding gaps, clearing blocked claims.

`insert`, `scan_for_gap` and `fill_gap` rebuild the log of an image. `unblock` repairs the log of a
publication. A publisher that stopped can have left four things behind: a term that is full and was
not rotated, a frame that was opened and not committed, room that was reserved and not opened, and
the end of a term that was crossed and not padded. Each becomes padding or a rotation, so that
readers can continue.

Source: Aeron `TermRebuilder`, `TermGapScanner`, `TermGapFiller`, `LogBufferUnblocker`,
`TermUnblocker`.
"""

from __future__ import annotations

from enum import Enum, auto
from struct import Struct
from typing import TYPE_CHECKING, Final, Protocol, final

import attrs

from aeron_async._speedups import WHY_PURE
from aeron_async.logbuffer.frame import session_word, stream_word, write_padding
from aeron_async.logbuffer.metadata import rotate_shared_log
from aeron_async.logbuffer.placing import place_batches, skip_whole
from aeron_async.logbuffer.position import (
    PARTITION_COUNT,
    partition_index,
    term_offset_at,
    unpack_tail,
)
from aeron_async.protocol.header import FRAME_ALIGNMENT, wrap_int32

if TYPE_CHECKING:
    from aeron_async.logbuffer.log_buffers import LogBuffers
    from aeron_async.logbuffer.placing import SegmentTable

__all__ = [
    "FILLED",
    "HoleScan",
    "UnblockResult",
    "batch_at",
    "fill_gap",
    "insert",
    "is_hole",
    "place_apart",
    "room_in_gap",
    "scan_for_gap",
    "unblock",
]

FRAME_LENGTH: Final = Struct("<i")
PLACE: Final = Struct("<8xiiii")
"""Term offset, session id, stream id and term id of a header."""
UNALIGNED_MASK: Final = FRAME_ALIGNMENT - 1
WORD_LENGTH: Final = 4
WORDS_PER_SLOT: Final = FRAME_ALIGNMENT // WORD_LENGTH
GAP_LENGTH_LIMIT: Final = 1024 * 1024
"""The longest gap or hole that one call scans, in bytes."""
CONFIRMED_LENGTH_MAX: Final = 16 * 1024 * 1024
"""How much of a hole is looked at again before it becomes padding: the longest message."""
GAP_LENGTH_AT_FIRST: Final = 4096
"""The length of the first step in the search for the end of a gap, in bytes."""


# Rebuilding.


class Places(Protocol):
    """Positions of which one can be looked up."""

    def __contains__(self, position: int) -> bool:
        """Return whether a position, in bytes, is one of them."""
        ...


def insert(term: memoryview, words: memoryview, offset: int, packet: memoryview) -> bool:
    """Place a datagram of one or more frames into its term; return False for a duplicate.

    A duplicate is recognised by its first four bytes alone. A datagram that begins in a hole and
    covers frames already there writes the same bytes again. A datagram that does not fit the term,
    or does not start at a frame, is refused as well: the caller has counted it before.

    Args:
        term: The term as bytes.
        words: The term as 32-bit words.
        offset: Term offset in the first header.
        packet: The datagram; at least one header long.
    """
    end = offset + len(packet)
    if offset < 0 or offset & UNALIGNED_MASK or end > len(term) or words[offset >> 2]:
        return False
    term[offset + 4 : end] = packet[4:]
    # The first length is stored last: no reader passes it before the whole datagram is there.
    words[offset >> 2] = FRAME_LENGTH.unpack_from(packet)[0]
    return True


def scan_for_gap(words: memoryview, offset: int, *, limit: int) -> tuple[int, int]:
    """Return the offset up to which frames are complete, and the length of the gap there.

    The length is 0 if there is no gap. A frame that claims to extend beyond the limit is not valid:
    no datagram that arrived has such a length. The gap then begins with it and extends to the
    limit, whatever else lies there. An offset where no frame can begin is returned as it is.

    Differs: Aeron searches any distance for the end of a gap; here a gap of more than 1 MiB is
    returned in pieces, which is also how senders answer it. And Aeron believes every length.

    Args:
        words: The term as 32-bit words.
        offset: Where to begin; start of a frame or of a gap.
        limit: Offset up to which frames may have arrived, such as that of the high-water mark.
    """
    limit = min(limit, words.nbytes) & -FRAME_ALIGNMENT
    offset = skip_whole(words, offset, limit)
    if offset >= limit or offset < 0 or offset & UNALIGNED_MASK:
        return offset, 0
    if words[offset >> 2] > 0:
        return offset, limit - offset
    start = offset + FRAME_ALIGNMENT
    limit = max(start, min(limit, offset + GAP_LENGTH_LIMIT))
    # Many slots are checked at once: one by one, a gap of half a term would stall the loop. But few
    # at first: most gaps are a datagram or two, and the data behind them is long.
    step = GAP_LENGTH_AT_FIRST
    while start < limit:
        end = min(start + step, limit)
        found = end_of_hole(words, start, end)
        if found < end:
            return offset, found - offset
        start, step = end, step * 4
    return offset, limit - offset


def place_apart(
    data: memoryview,
    segments: SegmentTable,
    index: int,
    start: int,
    term: memoryview,
    words: memoryview,
    ids: tuple[int, int, int],
    *,
    base: int,
    first: int,
    hwm: int,
    limit: int,
    requested: Places,
) -> tuple[int, int, list[int]]:
    """Place datagrams of one term of which some are missing, or were: each run where it belongs.

    A run may lie beyond all that has arrived, or in a gap that begins where the run does and in
    which nothing lies: the first one, or one that was requested. Stops before the first datagram
    that is anything else.

    Returns:
        How many bytes of the data were placed, the new high-water mark, and the runs that lie in
        gaps: begin and end of each, one after the other. The mark and the runs are term offsets.

    Args:
        data: As for `placing.place_batches`, as are the next five.
        segments: Segment table of the batches.
        index: Index in `segments` of the first batch.
        start: Offset in `data` of the first datagram.
        term: The term as bytes.
        words: The term as 32-bit words.
        ids: Session id, stream id and term id of the frames.
        base: Position of the term, in bytes.
        first: Offset of the first gap; negative if that lies in an earlier term.
        hwm: Offset up to which anything may lie; beyond the term if that is a later one.
        limit: Offset that no frame may pass.
        requested: The positions at which requested gaps begin.
    """
    taken, late, end = start, list[int](), segments[len(segments) - 2]
    while index < len(segments):
        if min(segments[index + 1], segments[index] - taken) < FRAME_ALIGNMENT:
            break
        offset, *found = PLACE.unpack_from(data, taken)
        if tuple(found) != ids or not max(0, first) <= offset < len(term):
            break
        room = limit - offset
        if offset < hwm:
            if offset != first and base + offset not in requested:
                break
            room = min(room, room_in_gap(words, offset, hwm=hwm, wanted_length=end - taken))
        placed = place_batches(data, segments, index, taken, term, words, offset, limit=room)
        if not placed:
            break
        taken += placed
        if offset < hwm:
            late += offset, offset + placed
        hwm = max(hwm, offset + placed)
        index = batch_at(segments, index, taken)
    return taken - start, hwm, late


def batch_at(segments: SegmentTable, index: int, start: int) -> int:
    """Return the index of the batch that begins, or goes on, at an offset in the data.

    Args:
        segments: Segment table of the batches.
        index: Index in `segments` of a batch that begins before.
        start: Offset in the data.
    """
    while segments[index] < start:
        index += 2
    # Only once: an empty datagram also counts as a batch.
    return index + 2 if segments[index] == start else index


def room_in_gap(words: memoryview, offset: int, *, hwm: int, wanted_length: int) -> int:
    """Return how many bytes are free from an offset on: 0 if a frame begins there.

    No more is scanned than is wanted.

    Args:
        words: The term as 32-bit words.
        offset: Where a gap may begin, which no frame covers.
        hwm: Offset up to which anything may lie.
        wanted_length: How many bytes arrived.
    """
    if offset & UNALIGNED_MASK or words[offset >> 2]:
        return 0
    end = min(hwm, words.nbytes)
    limit = min(end, offset + wanted_length)
    length = scan_for_gap(words, offset, limit=limit)[1] if limit > offset else 0
    return length if offset + length < end else words.nbytes - offset


def end_of_hole(words: memoryview, start: int, limit: int) -> int:
    """Return where the first frame of a range begins, or where the range ends, in bytes."""
    lengths = words[start >> 2 : limit >> 2 : WORDS_PER_SLOT].tobytes()
    filled = lengths.lstrip(b"\0")
    return start + (len(lengths) - len(filled)) // WORD_LENGTH * FRAME_ALIGNMENT


def is_hole(words: memoryview, start: int, end: int) -> bool:
    """Return whether no frame starts in a range of a term."""
    return not words[start >> 2 : end >> 2 : WORDS_PER_SLOT].tobytes().strip(b"\0")


FILLED: Final = int.from_bytes(b"LostData", "little")
"""The reserved value of padding that stands for lost data, and not for a publisher's padding.

Differs: Aeron leaves the field as it was. The log of an image is not sent, so no peer sees it.
"""


def fill_gap(log: LogBuffers, *, term_id: int, offset: int, length: int) -> bool:
    """Lay padding over a gap that will not be repaired; return False if a frame has arrived there.

    Args:
        log: The log of an image of an unreliable stream.
        term_id: Term with the gap.
        offset: Where the gap starts.
        length: Length of the gap; a multiple of 32.
    """
    index = wrap_int32(term_id - log.initial_term_id) % PARTITION_COUNT
    words = log.term_words[index]
    if not is_hole(words, offset, offset + length):
        return False
    # Before the length, which shows the frame.
    log.term_longs[index][(offset >> 3) + 3] = FILLED
    write_padding(
        words,
        log.term_longs[index],
        offset,
        session_word(log.session_id),
        stream_word(stream_id=log.stream_id, term_id=term_id),
        length,
    )
    return True


# Unblocking.


@final
class UnblockResult(Enum):
    """The result of unblocking."""

    NO_ACTION = auto()
    UNBLOCKED = auto()
    UNBLOCKED_TO_END = auto()
    UNFINISHED = auto()
    """The hole is long: call again with the same scan."""


@attrs.define
class HoleScan:
    """How far a hole was scanned: a long one takes several calls.

    Attributes:
        position: Where it begins, in bytes of the stream.
        offset: Up to where in the term it was scanned, in bytes.
    """

    position: int = -1
    offset: int = 0

    def go_on(self, words: memoryview, offset: int, tail_offset: int) -> tuple[UnblockResult, int]:
        """Scan further; return what may be done, and where the hole ends.

        Args:
            words: The term as 32-bit words.
            offset: Where the hole begins, in bytes.
            tail_offset: Up to where the term is claimed, in bytes.
        """
        limit = min(tail_offset, self.offset + GAP_LENGTH_LIMIT)
        end = self.offset = end_of_hole(words, self.offset, limit)
        if limit <= end < tail_offset:
            return UnblockResult.UNFINISHED, end
        self.position = -1
        term_length = len(words) * WORD_LENGTH
        if end >= tail_offset and tail_offset < term_length:
            # Nothing behind the hole shows how long it is.
            return UnblockResult.NO_ACTION, end
        # A publisher of another process may have continued during the scan.
        if not is_hole(words, offset, min(end, offset + CONFIRMED_LENGTH_MAX)):
            return UnblockResult.NO_ACTION, end
        if end == term_length:
            return UnblockResult.UNBLOCKED_TO_END, end
        return UnblockResult.UNBLOCKED, end


def unblock(log: LogBuffers, blocked_position: int, scan: HoleScan | None = None) -> UnblockResult:
    """Turn what blocks the readers of a shared publication into padding, if anything does.

    Call it only if the position has not moved for the publication unblock timeout although the
    producer is ahead: a publisher that is still writing would lose its message.

    Differs: Aeron scans a hole of any length in one call, which holds up all streams.

    Args:
        log: The log of the publication.
        blocked_position: Up to where readers have come, in bytes.
        scan: How far earlier calls have scanned; a call scans 1 MiB.
    """
    scan = scan or HoleScan()
    metadata = log.metadata
    term_length = log.term_length
    term_count = blocked_position >> log.position_bits
    offset = term_offset_at(blocked_position, term_length=term_length)
    active = metadata.active_term_count
    if active == term_count - 1 and offset == 0:
        previous = partition_index(blocked_position - 1, bits=log.position_bits)
        rotate_shared_log(metadata, term_count=active, term_id=metadata.tail(previous) >> 32)
        return UnblockResult.UNBLOCKED

    index = partition_index(blocked_position, bits=log.position_bits)
    term_id, tail_offset = unpack_tail(metadata.tail(index), term_length=term_length)
    words = log.term_words[index]
    frame_length = words[offset >> 2]
    result = UnblockResult.UNBLOCKED
    if frame_length < 0:
        # Whatever length the frame was to have, it cannot extend beyond the term.
        end = min(offset - frame_length, term_length)
    elif frame_length > 0:
        return UnblockResult.NO_ACTION
    else:
        if scan.position != blocked_position:
            scan.position, scan.offset = blocked_position, offset + FRAME_ALIGNMENT
        result, end = scan.go_on(words, offset, tail_offset)
        if result not in {UnblockResult.UNBLOCKED, UnblockResult.UNBLOCKED_TO_END}:
            return result
    write_padding(
        words,
        log.term_longs[index],
        offset,
        session_word(log.session_id),
        stream_word(stream_id=log.stream_id, term_id=term_id),
        end - offset,
    )
    if result is UnblockResult.UNBLOCKED_TO_END:
        rotate_shared_log(metadata, term_count=term_count, term_id=term_id)
    return result


if not TYPE_CHECKING and WHY_PURE is None:
    from aeron_async._speedups.frames import place_apart, scan_for_gap
