"""Datagrams for places where frames may lie already: duplicates, retransmissions, and forgeries.

Invariant: frames that `LateFrames` places never overlap one another, and no frame takes the place
of another one. What an honest publisher sends for one place has the same header every time; payload
and reserved value may carry the time of sending or of arrival.

To find out what lies around a place, `LateFrames` walks over the frames and gaps before it. Any
peer can send a datagram that makes that way long, so `WalkBudget` gives each image so many slots of
32 bytes a second for it.

Differs: Aeron looks at the first four bytes of the first place alone, and writes over the rest.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from aeron_async.logbuffer.frame import DATA_WORD, HEADER
from aeron_async.logbuffer.log_buffers import zero
from aeron_async.logbuffer.placing import skip_whole
from aeron_async.logbuffer.position import partition_index, term_id_at
from aeron_async.logbuffer.rebuilder import insert, is_hole, scan_for_gap
from aeron_async.protocol.header import align_frame

if TYPE_CHECKING:
    from aeron_async.logbuffer.log_buffers import LogBuffers

__all__ = [
    "BEYOND_BUDGET",
    "BUDGET_SLOTS",
    "BUDGET_SLOTS_PER_SECOND",
    "Conflict",
    "LateFrames",
    "WalkBudget",
    "shown_cover",
    "shown_start",
]

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
NS_PER_SLOT: Final = 250
BUDGET_SLOTS_PER_SECOND: Final = 1_000_000_000 // NS_PER_SLOT
"""Slots of one image that are walked over in a second: less than a sixth of a core, compiled.

They cover 122 MiB. Data for the first gap needs none of it, a duplicate of what was shown neither,
and what fills gaps in their order is walked to from the one before it. Padding at the first gap has
as much of its own.
"""
BUDGET_SLOTS: Final = 1 << 20
"""Slots that are walked over at once: 32 MiB, more than the longest padding of a publisher."""
GAP_SLOTS: Final = 64
"""A gap on the way takes as long as so many slots of frames, or more."""
LOOK_SLOTS: Final = 16
"""So does a slot that is looked at in Python."""
ZERO_DIVISOR: Final = 8
"""So many slots are zeroed while one is walked over, or more."""


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


BEYOND_BUDGET: Final = Conflict(-1, -1, is_shown=False)
"""No conflict: the walk to the place was too long for now, and the datagram counts as lost."""


class WalkBudget:
    """Slots that may be walked over now; time gives more.

    What is too long is refused as a whole, and leaves what there is to shorter ways: honest ones
    are short.
    """

    __slots__ = ("_filled_ns", "slots")

    def __init__(self) -> None:
        self.slots: int = BUDGET_SLOTS
        self._filled_ns = 0

    def fill(self, now_ns: int) -> None:
        """Add what the time since the last call gives."""
        slots = (now_ns - self._filled_ns) // NS_PER_SLOT
        if slots > 0:
            self.slots = min(self.slots + slots, BUDGET_SLOTS)
            self._filled_ns += slots * NS_PER_SLOT

    def try_take(self, length: int) -> bool:
        """Return whether so many bytes may be walked over, and take note that they are."""
        if length <= 0:
            return True
        slots = length // SLOT
        if slots > self.slots:
            return False
        self.slots -= slots
        return True

    def spend(self, slots: int) -> None:
        """Take note of what turned out only on the way; there may be less than nothing then."""
        self.slots -= slots


class LateFrames:
    """Places what fits between the frames that an image has, and tells what does not.

    Args:
        log: Where the image is rebuilt.

    Attributes:
        budget: Pays for the walks.
        first_gap_budget: Pays for padding that begins at the first gap, and for nothing else, so
            that the stream moves on whatever walks are asked for behind it.
    """

    __slots__ = ("_log", "_placed_end", "_placed_position", "budget", "first_gap_budget")

    budget: WalkBudget
    first_gap_budget: WalkBudget

    def __init__(self, log: LogBuffers) -> None:
        self.budget, self.first_gap_budget = WalkBudget(), WalkBudget()
        self._log = log
        # Where the frames begin and end that were placed last: the next are often not far.
        self._placed_position = self._placed_end = -1

    def fill_budgets(self, now_ns: int) -> None:
        """Add what time gives; to be called before what places frames or looks for room."""
        self.budget.fill(now_ns)
        self.first_gap_budget.fill(now_ns)

    def room_at(
        self, position: int, *, floor_position: int, hwm_position: int, wanted_length: int
    ) -> int:
        """Return how many bytes from a place on are free; 0 if another frame lies there or may.

        No more is looked at than is wanted: a forged heartbeat may claim half a term to be missing.

        Args:
            position: Where a datagram begins that did not come in order.
            floor_position: Up to where the stream is whole, in bytes; not beyond the place.
            hwm_position: Up to where anything may lie.
            wanted_length: How many bytes have come.
        """
        words, base, offset = self._find(position)
        if words[offset >> 2] or self._covering(words, base, floor_position, offset) != offset:
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

        Then nothing of it is placed, and neither is if it returns `BEYOND_BUDGET`.

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
        first = floor_position - base
        hwm = min(hwm_position - base, self._log.term_length)
        start = self._covering(words, base, floor_position, offset)
        if start < 0:
            return BEYOND_BUDGET
        if start != offset:
            return Conflict(base + start, base + offset, is_shown=False)
        missing = self._missing(datagram, words, base, offset, first, hwm)
        if isinstance(missing, Conflict):
            return missing
        if missing and missing[-1][1] - missing[0][0] == len(datagram) == total(missing):
            missing = [(offset, end)]
        for start, stop in missing:
            insert(term, words, start, datagram[start - offset : stop - offset])
            # Padding reaches further than what has come of it.
            self.on_placed(base + start, base + start)
        return None

    def _missing(
        self, datagram: memoryview, words: memoryview, base: int, offset: int, first: int, hwm: int
    ) -> list[tuple[int, int]] | Conflict:
        """Return which ranges of a datagram are missing, or where it contradicts what is there.

        `first` is the offset of the first gap, which is negative where it lies in an earlier term.
        """
        end = offset + len(datagram)
        missing: list[tuple[int, int]] = []
        place = offset
        while place < end:
            header = HEADER_WORDS.unpack_from(datagram, place - offset)
            following = place + align_frame(header[0])
            if place < first or words[place >> 2]:
                if not is_same(words, place, header):
                    return Conflict(base + place, base + following, is_shown=place < first)
            # What has come in full pays for itself; padding claims more than comes.
            elif not self._can_pay(min(following, hwm) - end, is_first=place == first):
                return BEYOND_BUDGET
            elif is_hole(words, place, min(following, hwm)):
                missing.append((place, min(following, end)))
            else:
                return Conflict(base + place, base + following, is_shown=False)
            place = following
        return missing

    def _can_pay(self, length: int, *, is_first: bool) -> bool:
        """Return whether so many bytes may be walked over, and take note that they are."""
        return self.budget.try_take(length) or (is_first and self.first_gap_budget.try_take(length))

    def on_placed(self, position: int, end_position: int) -> None:
        """Take note of where frames begin, and end, that have come into their place."""
        self._placed_position, self._placed_end = position, end_position

    def _covering(self, words: memoryview, base: int, floor_position: int, offset: int) -> int:
        """Return where the frame begins that reaches over an offset; the offset if none does.

        -1 where that is too far to walk for now.
        """
        start = min(max(0, floor_position - base), offset)
        placed = self._placed_position - base
        if start <= placed < offset and is_frame(words, placed, self._ids(base)):
            end = self._placed_end - base
            start = end if placed < end <= offset else placed
        if start == offset:
            return offset
        budget = self.budget
        if not budget.try_take(offset - start):
            return -1
        found, gap_count = walk(words, start, offset)
        budget.spend(gap_count * GAP_SLOTS)
        return found

    def _ids(self, base: int) -> tuple[int, int, int]:
        """Return session, stream and term that the frames of a term have."""
        log = self._log
        term_id = term_id_at(base, initial_term_id=log.initial_term_id, bits=log.position_bits)
        return log.session_id, log.stream_id, term_id

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

        What came first stays where the way to that is too long for now.

        Args:
            conflict: What there are two headers for.
            hwm_position: Up to where anything may lie, in bytes.
        """
        log = self._log
        words, base, start = self._find(conflict.start)
        end = conflict.end - base
        hwm = min(hwm_position - base, log.term_length)
        end = min(end, hwm)
        ids = self._ids(base)
        # Forged padding may reach over half a term, so that this is no loop over places. What is
        # empty up to the first frame needs no clearing.
        first = start
        if not words[first >> 2] and not self.budget.try_take(end - first):
            return
        # What a walk may begin with is perhaps there no more.
        self._placed_position = self._placed_end = -1
        while first < end and not words[first >> 2]:
            first += scan_for_gap(words, first, limit=end)[1]
        # One that begins where the conflict ends is none of its frames.
        if first < end and is_frame(words, first, ids):
            end = min(max(end, first + align_frame(words[first >> 2])), hwm)
        looked_from = end
        while end < hwm and words[end >> 2] and not is_frame(words, end, ids):
            end += SLOT
        looked = (end - looked_from) // SLOT * LOOK_SLOTS
        self.budget.spend(looked + max(0, end - first) // SLOT // ZERO_DIVISOR)
        zero(log.terms[partition_index(base, bits=log.position_bits)], first, end)


def covering(words: memoryview, start: int, offset: int) -> int:
    """Return where the frame begins that reaches over an offset; the offset itself if none does.

    Args:
        words: The term as 32-bit words.
        start: Where a frame begins, or is missing; not behind the offset.
        offset: Of the place in question.
    """
    return walk(words, start, offset)[0]


def walk(words: memoryview, start: int, offset: int) -> tuple[int, int]:
    """Return what `covering` does, and how many gaps were walked over on the way."""
    for gap_count in range(STEPS_MAX):
        start = skip_whole(words, start, offset)
        if start >= offset:
            return offset, gap_count
        if words[start >> 2] > 0:
            return start, gap_count
        start += scan_for_gap(words, start, limit=offset)[1]
    return offset, STEPS_MAX


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
