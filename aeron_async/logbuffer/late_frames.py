"""Datagrams for places where frames may already lie: duplicates, resends and forgeries.

Invariant: frames that `LateFrames` places never overlap one another, and no frame replaces another
one. All honest copies of one frame have the same header; payload and reserved value may differ,
because they may carry the send time or the receive time.

To find out what lies around a place, `LateFrames` walks over the frames and gaps before it. Any
peer can send a datagram that makes this walk long, so `WalkBudget` limits each image to a number of
slots of 32 bytes per second. A resend needs no walk: its receiver has walked from the start
of a frame up to its place, and found that a gap begins there at the end of a frame. No frame that
is placed later can cover the place, since each must fit a hole. When frames are removed, nothing of
that counts any more.

Differs: Aeron checks only the first four bytes of the first frame, and overwrites the rest.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from aeron_async.logbuffer.frame import DATA_WORD, HEADER
from aeron_async.logbuffer.log_buffers import zero
from aeron_async.logbuffer.placing import is_same_term, skip_whole
from aeron_async.logbuffer.position import partition_index, term_id_at
from aeron_async.logbuffer.rebuilder import (
    Places,
    batch_at,
    insert,
    is_hole,
    place_apart,
    room_in_gap,
    scan_for_gap,
)
from aeron_async.protocol.header import align_frame

if TYPE_CHECKING:
    from aeron_async.logbuffer.log_buffers import LogBuffers
    from aeron_async.logbuffer.placing import SegmentTable

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
"""A header without its reserved value, as six 32-bit words."""
TYPE_AND_VERSION_MASK: Final = ~0xFF00
"""Mask for the second word: archives write padding with flags of their own."""
FRAME_TYPES: Final = frozenset({0, DATA_WORD & TYPE_AND_VERSION_MASK})
SLOT: Final = 32
STEPS_MAX: Final = 64
"""Most gaps that one walk crosses; a stream hardly ever has as many at once.

Beyond that a place counts as one that no frame covers. That is true of every place where an honest
publisher's frame begins, so an honest stream loses nothing.
"""
FRAMES_MAX: Final = 512
"""Most frames that a walk in Python crosses to find the last one before a gap."""
NS_PER_SLOT: Final = 250
BUDGET_SLOTS_PER_SECOND: Final = 1_000_000_000 // NS_PER_SLOT
"""Slots per second that walks of one image may cross: less than a sixth of a core, compiled.

They cover 122 MiB. Data for requested gaps and duplicates of what was shown need no walk. Padding
at the first gap has a second budget of the same size.
"""
BUDGET_SLOTS: Final = 1 << 20
"""Most slots that one walk may cross: 32 MiB, more than the longest padding of a publisher."""
GAP_SLOTS: Final = 64
"""What crossing a gap costs, in slots; it takes at least as long."""
LOOK_SLOTS: Final = 16
"""What checking one slot in Python costs, in slots."""
ZERO_DIVISOR: Final = 8
"""At least this many slots are zeroed in the time in which a walk crosses one."""


class Conflict(NamedTuple):
    """A place for which two different headers came.

    Attributes:
        start: Where the frames in question begin, in bytes of the stream.
        end: Where they end.
        is_shown: Whether readers have been shown what lies there.
    """

    start: int
    end: int
    is_shown: bool


BEYOND_BUDGET: Final = Conflict(-1, -1, is_shown=False)
"""No conflict: the walk to the place is too long for now, and the datagram counts as lost."""


class WalkBudget:
    """The slots that walks may cross now; they are refilled over time.

    A walk that is too long is refused as a whole, which leaves the budget to shorter walks: honest
    ones are short.
    """

    __slots__ = ("_filled_ns", "slots")

    def __init__(self) -> None:
        self.slots: int = BUDGET_SLOTS
        self._filled_ns = 0

    def fill(self, now_ns: int) -> None:
        """Add the slots for the time since the last call."""
        slots = (now_ns - self._filled_ns) // NS_PER_SLOT
        if slots > 0:
            self.slots = min(self.slots + slots, BUDGET_SLOTS)
            self._filled_ns += slots * NS_PER_SLOT

    def try_take(self, length: int) -> bool:
        """Return whether a walk may cross this many bytes, and count them if so."""
        if length <= 0:
            return True
        slots = length // SLOT
        if slots > self.slots:
            return False
        self.slots -= slots
        return True

    def spend(self, slots: int) -> None:
        """Count a cost that is known only after the walk; the budget may become negative."""
        self.slots -= slots


class RequestedPlaces(Places, Protocol):
    """What `LateFrames` knows of the gaps that were requested: where they begin, and more."""

    def on_placed(self, position: int, end_position: int, now_ns: int) -> None:
        """Frames were placed from the one position to the other."""
        ...

    def clear(self) -> None:
        """Forget all: frames may have been removed."""
        ...


class LateFrames:
    """Places datagrams between the frames that an image has, and finds conflicts.

    Args:
        log: The log in which the image is rebuilt.

    Attributes:
        requested: The gaps that were requested; None for none.
        budget: Limits the walks.
        first_gap_budget: Limits padding that begins at the first gap, and nothing else, so that the
            stream progresses whatever walks are caused behind it.
    """

    __slots__ = (
        "_log",
        "_now_ns",
        "_placed_end",
        "_placed_position",
        "budget",
        "first_gap_budget",
        "requested",
    )

    budget: WalkBudget
    first_gap_budget: WalkBudget

    def __init__(self, log: LogBuffers) -> None:
        self.budget, self.first_gap_budget = WalkBudget(), WalkBudget()
        self.requested: RequestedPlaces | None = None
        self._log = log
        self._now_ns = 0
        # Begin and end of the frames last placed: the next ones are often near.
        self._placed_position = self._placed_end = -1

    def fill_budgets(self, now_ns: int) -> None:
        """Refill the budgets; to be called before `place` and `room_at`."""
        self._now_ns = now_ns
        self.budget.fill(now_ns)
        self.first_gap_budget.fill(now_ns)

    def room_at(
        self, position: int, *, floor_position: int, hwm_position: int, wanted_length: int
    ) -> int:
        """Return how many bytes from a place on are free; 0 if a frame covers it, or may.

        No more is scanned than is wanted: a forged heartbeat may claim half a term to be missing.

        Args:
            position: Where a datagram begins that arrived out of order.
            floor_position: Up to where the stream is complete, in bytes; not beyond `position`.
            hwm_position: Up to where anything may lie, in bytes.
            wanted_length: How many bytes arrived.
        """
        words, base, offset = self._find(position)
        if words[offset >> 2] or self._covering(words, base, floor_position, offset) != offset:
            return 0
        return room_in_gap(words, offset, hwm=hwm_position - base, wanted_length=wanted_length)

    def place_apart(
        self,
        data: memoryview,
        segments: SegmentTable,
        behind: tuple[int, int, int, int],
        known: tuple[int, int, int],
        now_ns: int,
    ) -> tuple[int, int]:
        """Place datagrams behind a run of their term; return how many bytes, and the new end.

        Those that need no walk are placed as `room_at` would allow one by one; it stops at others.

        Args:
            data: The datagrams.
            segments: Segment table of the batches; see `placing.place_batches`.
            behind: Index in `segments`, offset in `data`, length and position of the run that was
                placed, in bytes; more data follows it.
            known: Up to where the stream is complete, up to where anything may lie, and the
                position that no frame may pass.
            now_ns: The time.
        """
        log, (index, start, placed, position), (floor, hwm_position, limit) = (
            self._log,
            behind,
            known,
        )
        following = start + placed
        # Streams that alternate leave nothing to place here.
        if self.requested is None or not is_same_term(data, start, following):
            return 0, hwm_position
        words, base, _ = self._find(position)
        taken, hwm, late = place_apart(
            data,
            segments,
            batch_at(segments, index, following),
            following,
            log.terms[partition_index(base, bits=log.position_bits)],
            words,
            self._ids(base),
            base=base,
            first=floor - base,
            hwm=hwm_position - base,
            limit=limit - base,
            requested=self.requested,
        )
        if late:
            self._now_ns = now_ns
            for each in range(0, len(late), 2):
                self.on_placed(base + late[each], base + late[each + 1])
        return taken, base + hwm

    def place(
        self, datagram: memoryview, position: int, *, floor_position: int, hwm_position: int
    ) -> Conflict | None:
        """Place the missing frames of a datagram, or return where it contradicts the log.

        If it returns a conflict or `BEYOND_BUDGET`, it has placed nothing.

        Args:
            datagram: Checked; all of it in one term.
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
            # The end is not recorded: padding extends beyond the bytes that were placed.
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
            # Received bytes need no budget; padding covers more than was received.
            elif not self._can_pay(min(following, hwm) - end, is_first=place == first):
                return BEYOND_BUDGET
            elif is_hole(words, place, min(following, hwm)):
                missing.append((place, min(following, end)))
            else:
                return Conflict(base + place, base + following, is_shown=False)
            place = following
        return missing

    def _can_pay(self, length: int, *, is_first: bool) -> bool:
        """Return whether this many bytes may be walked over, and count them if so."""
        return self.budget.try_take(length) or (is_first and self.first_gap_budget.try_take(length))

    def on_placed(self, position: int, end_position: int) -> None:
        """Record begin and end of the frames that were just placed."""
        self._placed_position, self._placed_end = position, end_position
        if self.requested is not None:
            self.requested.on_placed(position, end_position, self._now_ns)

    def _covering(self, words: memoryview, base: int, floor_position: int, offset: int) -> int:
        """Return where the frame that covers an offset begins; the offset if there is none.

        Returns -1 if the walk to it is too long for now.
        """
        start = min(max(0, floor_position - base), offset)
        if self.requested is not None and base + offset in self.requested:
            return offset
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
        """Return session id, stream id and term id of the frames in a term."""
        log = self._log
        term_id = term_id_at(base, initial_term_id=log.initial_term_id, bits=log.position_bits)
        return log.session_id, log.stream_id, term_id

    def last_frame(self, position: int, *, from_position: int) -> int:
        """Return where the frame that ends at a position begins; the position if unknown.

        Args:
            position: Up to where the stream is complete, in bytes.
            from_position: Start of an earlier frame.
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
        # Too far to walk: search backwards, no further than the length of one datagram.
        start = shown_start(self._log, position - SLOT)
        return position if start < 0 else start

    def _find(self, position: int) -> tuple[memoryview, int, int]:
        """Return the words of the term of a position, the term's position, and the offset."""
        log = self._log
        offset = position & (log.term_length - 1)
        words = log.term_words[partition_index(position, bits=log.position_bits)]
        return words, position - offset, offset

    def clear(self, conflict: Conflict, *, hwm_position: int) -> None:
        """Clear a place that readers have not been shown, up to the next undisputed frame.

        If that is too far to scan for now, what came first stays.

        Args:
            conflict: The place with two headers.
            hwm_position: Up to where anything may lie, in bytes.
        """
        log = self._log
        words, base, start = self._find(conflict.start)
        end = conflict.end - base
        hwm = min(hwm_position - base, log.term_length)
        end = min(end, hwm)
        ids = self._ids(base)
        # Forged padding may cover half a term, so this must not loop over its slots. What is empty
        # up to the first frame needs no clearing.
        first = start
        if not words[first >> 2] and not self.budget.try_take(end - first):
            return
        # The frames from which walks would begin may be cleared.
        self._placed_position = self._placed_end = -1
        if self.requested is not None:
            self.requested.clear()
        while first < end and not words[first >> 2]:
            first += scan_for_gap(words, first, limit=end)[1]
        # A frame that begins at the end of the conflict is not part of it.
        if first < end and is_frame(words, first, ids):
            end = min(max(end, first + align_frame(words[first >> 2])), hwm)
        looked_from = end
        while end < hwm and words[end >> 2] and not is_frame(words, end, ids):
            end += SLOT
        looked = (end - looked_from) // SLOT * LOOK_SLOTS
        self.budget.spend(looked + max(0, end - first) // SLOT // ZERO_DIVISOR)
        zero(log.terms[partition_index(base, bits=log.position_bits)], first, end)


def covering(words: memoryview, start: int, offset: int) -> int:
    """Return where the frame that covers an offset begins; the offset itself if there is none.

    Args:
        words: The term as 32-bit words.
        start: Start of a frame or of a gap; not behind `offset`.
        offset: The offset in question.
    """
    return walk(words, start, offset)[0]


def walk(words: memoryview, start: int, offset: int) -> tuple[int, int]:
    """Return the result of `covering`, and how many gaps the walk crossed."""
    for gap_count in range(STEPS_MAX):
        start = skip_whole(words, start, offset)
        if start >= offset:
            return offset, gap_count
        if words[start >> 2] > 0:
            return start, gap_count
        start += scan_for_gap(words, start, limit=offset)[1]
    return offset, STEPS_MAX


def is_same(words: memoryview, offset: int, header: tuple[int, ...]) -> bool:
    """Return whether the frame at an offset has this header, apart from its reserved value."""
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
    """Return whether the bytes at an offset look like a frame of this stream and term."""
    start = offset >> 2
    return (
        HEADER <= words[start] <= words.nbytes - offset
        and words[start + 1] & TYPE_AND_VERSION_MASK in FRAME_TYPES
        and words[start + 2] == offset
        and tuple(words[start + 3 : start + 6]) == ids
    )


def shown_start(log: LogBuffers, position: int) -> int:
    """Return where the frame that covers a position begins; -1 if it is longer than a datagram.

    Args:
        log: The log, complete at the position.
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
    """Return where the frame of any length that covers a position begins; -1 if unknown.

    Args:
        log: The log, complete at both positions.
        boundary: Start of an earlier frame, in bytes.
        position: In bytes.
    """
    if position < boundary:
        return -1
    offset = position & (log.term_length - 1)
    words = log.term_words[partition_index(position, bits=log.position_bits)]
    start = covering(words, max(0, boundary - (position - offset)), offset)
    return position - offset + start if start < offset else -1


def total(ranges: list[tuple[int, int]]) -> int:
    """Return the total length of some ranges."""
    return sum(end - start for start, end in ranges)
