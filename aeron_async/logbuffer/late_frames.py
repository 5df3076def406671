"""Datagrams for places where frames may lie already: duplicates, retransmissions, and forgeries.

Invariant: frames that are placed here never overlap one another, and no frame takes the place of
another one. What an honest publisher sends for one place has the same header every time; payload
and reserved value may carry the time of sending or of arrival.

Differs: Aeron looks at the first four bytes of the first place alone, and writes over the rest.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from aeron_async.kernel import skip_whole
from aeron_async.logbuffer.cleaner import zero
from aeron_async.logbuffer.frame import DATA_WORD, HEADER
from aeron_async.logbuffer.position import partition_index, term_id_at
from aeron_async.logbuffer.rebuilder import insert, is_hole, scan_for_gap
from aeron_async.protocol.header import align_frame

if TYPE_CHECKING:
    from aeron_async.logbuffer.term_log import LogBuffers

__all__ = ["Conflict", "LateFrames", "shown_cover", "shown_start"]

HEADER_WORDS: Final = Struct("<6i")
"""A header without its reserved value."""
TYPE_AND_VERSION_MASK: Final = ~0xFF00
"""Of the second word: archives write padding with flags of their own."""
FRAME_TYPES: Final = frozenset({0, DATA_WORD & TYPE_AND_VERSION_MASK})
SLOT: Final = 32
STEPS_MAX: Final = 64
"""Gaps that are looked over on the way to a place; a stream has hardly ever as many at once.

Beyond them a place counts as one that no frame reaches over. That is true of every place where an
honest publisher's frame begins, so an honest stream loses nothing by it.
"""
FRAMES_MAX: Final = 512
"""Frames that are walked over, in Python, to the last one before a gap."""


class Conflict(NamedTuple):
    """A place for which two headers came.

    Attributes:
        start: Where the frames in question begin, in bytes of the stream.
        end: Where they end.
        is_shown: Whether readers have been shown what lies there.
    """

    start: int
    end: int
    is_shown: bool


class LateFrames:
    """Places what fits between the frames that an image has, and tells what does not.

    Args:
        log: Where the image is rebuilt.
    """

    __slots__ = ("_log",)

    def __init__(self, log: LogBuffers) -> None:
        self._log = log

    def room_at(
        self, position: int, *, floor_position: int, hwm_position: int, wanted_length: int
    ) -> int:
        """Return how many bytes from a place on are free; 0 where another frame lies there.

        No more is looked at than is wanted: a forged heartbeat may claim half a term to be missing.

        Args:
            position: Where a datagram begins that did not come in order.
            floor_position: Up to where the stream is whole, in bytes; not beyond the place.
            hwm_position: Up to where anything may lie.
            wanted_length: How many bytes have come.
        """
        words, base, offset = self._find(position)
        if words[offset >> 2] or covering(words, max(0, floor_position - base), offset) != offset:
            return 0
        end = min(hwm_position - base, self._log.term_length)
        limit = min(end, offset + wanted_length)
        length = 0
        if limit > offset:
            _, length = scan_for_gap(words, offset, limit=limit)
        return length if offset + length < end else self._log.term_length - offset

    def place(
        self, datagram: memoryview, position: int, *, floor_position: int, hwm_position: int
    ) -> Conflict | None:
        """Place the frames of a datagram that are missing; return where it contradicts the log.

        Then nothing of it is placed.

        Args:
            datagram: Checked, all of one term.
            position: Where it begins, in bytes.
            floor_position: Up to where readers have been shown the stream; nothing is placed there.
            hwm_position: Up to where anything may lie.
        """
        words, base, offset = self._find(position)
        term = self._log.terms[partition_index(position, bits=self._log.position_bits)]
        end = offset + len(datagram)
        if words[offset >> 2] and term[offset:end].tobytes() == datagram.tobytes():
            return None
        floor = max(0, floor_position - base)
        hwm = min(hwm_position - base, self._log.term_length)
        start = covering(words, min(floor, offset), offset)
        if start != offset:
            return Conflict(base + start, base + offset, is_shown=False)
        missing: list[tuple[int, int]] = []
        place = offset
        while place < end:
            header = HEADER_WORDS.unpack_from(datagram, place - offset)
            following = place + align_frame(header[0])
            if place < floor or words[place >> 2]:
                if not is_same(words, place, header):
                    return Conflict(base + place, base + following, is_shown=place < floor)
            elif is_hole(words, place, min(following, hwm)):
                missing.append((place, min(following, end)))
            else:
                return Conflict(base + place, base + following, is_shown=False)
            place = following
        if missing and missing[-1][1] - missing[0][0] == len(datagram) == total(missing):
            missing = [(offset, end)]
        for start, stop in missing:
            insert(term, words, start, datagram[start - offset : stop - offset])
        return None

    def last_frame(self, position: int, *, from_position: int) -> int:
        """Return where the frame begins that ends at a position; the position where none is known.

        Args:
            position: Up to where the stream is whole, in bytes.
            from_position: Where a frame begins before it.
        """
        words, base, _ = self._find(position - SLOT)
        place, end = max(from_position - base, 0), position - base
        for _ in range(FRAMES_MAX):
            if place >= end or words[place >> 2] <= 0:
                return position
            following = place + align_frame(words[place >> 2])
            if following == end:
                return base + place
            place = following
        # Too far to walk: from behind, no further than one datagram is long.
        start = shown_start(self._log, position - SLOT)
        return position if start < 0 else start

    def _find(self, position: int) -> tuple[memoryview, int, int]:
        """Return the words of the term with a position, where the term begins, and the offset."""
        log = self._log
        offset = position & (log.term_length - 1)
        words = log.term_words[partition_index(position, bits=log.position_bits)]
        return words, position - offset, offset

    def clear(self, conflict: Conflict, *, hwm_position: int) -> None:
        """Clear a place that readers have not been shown, up to where an undisputed frame begins.

        Args:
            conflict: What there are two headers for.
            hwm_position: Up to where anything may lie, in bytes.
        """
        log = self._log
        words, base, start = self._find(conflict.start)
        end = conflict.end - base
        hwm = min(hwm_position - base, log.term_length)
        end = min(end, hwm)
        term_id = term_id_at(base, initial_term_id=log.initial_term_id, bits=log.position_bits)
        ids = (log.session_id, log.stream_id, term_id)
        # Forged padding may reach over half a term, so that this is no loop over places. What is
        # empty up to the first frame needs no clearing.
        first = start
        while first < end and not words[first >> 2]:
            first += scan_for_gap(words, first, limit=end)[1]
        # One that begins where the conflict ends is none of its frames.
        if first < end and is_frame(words, first, ids):
            end = min(max(end, first + align_frame(words[first >> 2])), hwm)
        while end < hwm and words[end >> 2] and not is_frame(words, end, ids):
            end += SLOT
        zero(log.terms[partition_index(base, bits=log.position_bits)], first, end)


def covering(words: memoryview, start: int, offset: int) -> int:
    """Return where the frame begins that reaches over an offset; the offset itself if none does.

    Args:
        words: The term as 32-bit words.
        start: Where a frame begins, or is missing; not behind the offset.
        offset: Of the place in question.
    """
    for _ in range(STEPS_MAX):
        start = skip_whole(words, start, offset)
        if start >= offset:
            break
        if words[start >> 2] > 0:
            return start
        start += scan_for_gap(words, start, limit=offset)[1]
    return offset


def is_same(words: memoryview, offset: int, header: tuple[int, ...]) -> bool:
    """Return whether the frame at an offset has this header, whatever its reserved value."""
    start = offset >> 2
    there = tuple(words[start : start + len(header)])
    if there == header:
        return True
    return (
        there[0] == header[0]
        and there[1] & TYPE_AND_VERSION_MASK == header[1] & TYPE_AND_VERSION_MASK == 0
        and there[2:] == header[2:]
    )


def is_frame(words: memoryview, offset: int, ids: tuple[int, int, int]) -> bool:
    """Return whether what lies at an offset looks like a frame of the stream there."""
    start = offset >> 2
    return (
        HEADER <= words[start] <= words.nbytes - offset
        and words[start + 1] & TYPE_AND_VERSION_MASK in FRAME_TYPES
        and words[start + 2] == offset
        and tuple(words[start + 3 : start + 6]) == ids
    )


def shown_start(log: LogBuffers, position: int) -> int:
    """Return where the frame begins that covers a position; -1 where it is longer than a datagram.

    Args:
        log: Where the position is whole.
        position: In bytes.
    """
    offset = position & (log.term_length - 1)
    words = log.term_words[partition_index(position, bits=log.position_bits)]
    term_id = term_id_at(position, initial_term_id=log.initial_term_id, bits=log.position_bits)
    ids = (log.session_id, log.stream_id, term_id)
    for start in range(offset, max(offset - log.mtu_length, -1), -SLOT):
        if words[(start >> 2) + 2] == start and is_frame(words, start, ids):
            return position - offset + start if start + words[start >> 2] > offset else -1
    return -1


def shown_cover(log: LogBuffers, boundary: int, position: int) -> int:
    """Return where the frame begins that covers a position, however long; -1 where that is unknown.

    Args:
        log: Where both positions are whole.
        boundary: Where a frame begins, in bytes.
        position: In bytes.
    """
    if position < boundary:
        return -1
    offset = position & (log.term_length - 1)
    words = log.term_words[partition_index(position, bits=log.position_bits)]
    start = covering(words, max(0, boundary - (position - offset)), offset)
    return position - offset + start if start < offset else -1


def total(ranges: list[tuple[int, int]]) -> int:
    """Return how long ranges are together."""
    return sum(end - start for start, end in ranges)
