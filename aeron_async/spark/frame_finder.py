"""Finds all frames of a piece of a recording at once, and proves that they are all.

Every header says its own term offset and term id, and lies at a multiple of 32. So whatever says
the right offset at the right place may be a header: a comparison over the whole piece finds all of
those, and sometimes a payload that looks like one. They are the frames if the first lies where the
piece begins and each ends where the next begins. If that does not hold, the frames are walked one
by one, which ends where one is not what it must be.

Invariant: both ways give the same frames; the session is never looked at, for recordings with
checksums have no session there.

Source: Aeron `TermBlockScanner`; the layout is that of `DataHeaderFlyweight`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from aeron_async.archive.disk.segment_scan import HEADER_LENGTH, check_frame

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from aeron_async.archive.disk.descriptor import RecordingDescriptor

    Ints = NDArray[np.int32]
    Longs = NDArray[np.int64]

__all__ = [
    "DATA",
    "FRAME_LENGTH",
    "KIND",
    "RESERVED",
    "SESSION",
    "STREAM",
    "TERM_ID",
    "TERM_OFFSET",
    "FrameFinder",
    "Frames",
]

WORDS: Final = 8
"""32-bit words of a header; what each is follows."""
FRAME_LENGTH: Final = 0
KIND: Final = 1
TERM_OFFSET: Final = 2
SESSION: Final = 3
STREAM: Final = 4
TERM_ID: Final = 5
RESERVED: Final = 6
DATA: Final = 0x1_0000
"""In the second word, whose lowest byte is the version and whose next one the flags."""
ZERO: Final = ~0x1_FF00
"""What must be zero in the second word: the version, and all of the type but its lowest bit."""
CACHE: Final[dict[str, Ints]] = {}


@final
class Frames:
    """The frames of a piece, in order.

    Attributes:
        heads: A header in each row, as eight 32-bit words.
        starts: Where each begins in the piece, in bytes.
        ends: Where each ends, aligned; that of padding may lie behind the piece.
        end: Behind the last that is whole.
        problem: What is wrong with what lies at `end`; None if it only goes on beyond the piece.
        is_proven: Whether they were found at once; None was there to be walked.
    """

    __slots__ = ("end", "ends", "heads", "is_proven", "problem", "starts")

    def __init__(
        self,
        heads: Ints,
        starts: Longs,
        ends: Longs,
        *,
        end: int,
        problem: str | None = None,
        is_proven: bool = True,
    ) -> None:
        self.heads = heads
        self.starts = starts
        self.ends = ends
        self.end = end
        self.problem = problem
        self.is_proven = is_proven

    def __len__(self) -> int:
        return len(self.starts)

    def cut(self, number: int) -> None:
        """Let them end before one of them."""
        self.end = int(self.starts[number])
        self.heads = self.heads[:number]
        self.starts = self.starts[:number]
        self.ends = self.ends[:number]

    def picked(self, which: Any) -> Frames:
        """Return some of them, by a mask, a slice, or their numbers."""
        return Frames(
            self.heads[which],
            self.starts[which],
            self.ends[which],
            end=self.end,
            problem=self.problem,
            is_proven=self.is_proven,
        )


@final
class FrameFinder:
    """Finds frames of one recording.

    Args:
        descriptor: Of the recording.
    """

    def __init__(self, descriptor: RecordingDescriptor) -> None:
        self._descriptor = descriptor
        self._term_mask = np.int32(descriptor.term_length - 1)
        self._bits = descriptor.term_length.bit_length() - 1

    def find(self, piece: memoryview, position: int) -> Frames:
        """Return the frames of a piece.

        Args:
            piece: From where a frame begins, up to any multiple of 32 in the same segment.
            position: Of its beginning, in the recording, in bytes.
        """
        words: Ints = np.frombuffer(piece, np.int32).reshape(-1, WORDS)
        found = self._mask(words, position)
        return found if found is not None else self.walk(piece, position)

    def _mask(self, words: Ints, position: int) -> Frames | None:
        """Return the frames if they can be proven to be all."""
        count = len(words)
        descriptor = self._descriptor
        start = position & (descriptor.term_length - 1)
        expected = places(count)
        if start or count * HEADER_LENGTH > descriptor.term_length:
            expected = (expected + np.int32(start)) & self._term_mask
        slots = np.flatnonzero(words[:, TERM_OFFSET] == expected)
        heads = take_rows(words, slots)
        starts = slots * HEADER_LENGTH
        terms = self._term_ids(position, starts)
        is_frame = (heads[:, TERM_ID] == terms) & (heads[:, FRAME_LENGTH] > 0)
        if not is_frame.all():
            heads, starts = heads[is_frame], starts[is_frame]
        if len(starts) == 0 or starts[0] != 0:
            return None
        lengths = heads[:, FRAME_LENGTH].astype(np.int64)
        ends = starts + ((lengths + 31) & -HEADER_LENGTH)
        if not (ends[:-1] == starts[1:]).all() or ends[-1] < count * HEADER_LENGTH:
            return None
        if not self._is_sound(heads, starts, ends, lengths, start):
            return None
        return self._whole(heads, starts, ends, count * HEADER_LENGTH)

    def _is_sound(
        self, heads: Ints, starts: Longs, ends: Longs, lengths: Longs, start: int
    ) -> bool:
        """Return whether versions, types, streams and lengths are what they must be."""
        descriptor = self._descriptor
        kinds = int(np.bitwise_or.reduce(heads[:, KIND]))
        offsets = (starts + start) & (descriptor.term_length - 1)
        return bool(
            kinds & ZERO == 0
            and (heads[:, STREAM] == descriptor.stream_id).all()
            and lengths.min() >= HEADER_LENGTH
            and (offsets + (ends - starts) <= descriptor.term_length).all()
        )

    def _term_ids(self, position: int, starts: Longs) -> Any:
        """Return the term id that a header at each place must say; they wrap at 32 bits."""
        first = self._descriptor.initial_term_id
        terms = ((position + starts) >> self._bits) + first
        return terms.astype(np.int32)

    def _whole(self, heads: Ints, starts: Longs, ends: Longs, count: int) -> Frames:
        """Leave the last one out if it goes on beyond the piece; of padding that is no matter."""
        last = int(ends[-1])
        if last > count and heads[-1, KIND] & DATA:
            return Frames(heads[:-1], starts[:-1], ends[:-1], end=int(starts[-1]))
        return Frames(heads, starts, ends, end=last)

    def walk(self, piece: memoryview, position: int) -> Frames:
        """Return the frames up to the first that is not what it must be, one by one."""
        descriptor = self._descriptor
        words = piece.cast("B").cast("i")
        count = len(piece)
        term_length = descriptor.term_length
        stream_id = descriptor.stream_id
        starts: list[int] = []
        offset = 0
        problem = None
        while offset < count:
            at = offset >> 2
            length = words[at]
            aligned = (length + 31) & -HEADER_LENGTH
            term_offset = (position + offset) & (term_length - 1)
            term_id = descriptor.initial_term_id + ((position + offset) >> self._bits)
            is_sound = (
                length >= HEADER_LENGTH
                and term_offset + aligned <= term_length
                and words[at + KIND] & ZERO == 0
                and words[at + TERM_OFFSET] == term_offset
                and words[at + STREAM] == stream_id
                and (words[at + TERM_ID] - term_id) & 0xFFFF_FFFF == 0
            )
            if not is_sound:
                problem, _ = check_frame(
                    piece[offset:], descriptor, position=position + offset, checksum=None
                )
                break
            if offset + aligned > count and words[at + KIND] & DATA:
                break
            starts.append(offset)
            offset += aligned
        slots = np.array(starts, np.int64) // HEADER_LENGTH
        heads = take_rows(np.frombuffer(piece, np.int32).reshape(-1, WORDS), slots)
        begins = slots * HEADER_LENGTH
        ends = begins + ((heads[:, FRAME_LENGTH].astype(np.int64) + 31) & -HEADER_LENGTH)
        return Frames(heads, begins, ends, end=offset, problem=problem, is_proven=False)


def places(count: int) -> Ints:
    """Return the offsets of so many places where a header may lie; made once for all recordings."""
    found = CACHE.get("places")
    if found is None or len(found) < count:
        found = np.arange(0, count * HEADER_LENGTH, HEADER_LENGTH, dtype=np.int32)
        CACHE["places"] = found
    return found[:count]


def take_rows(words: Ints, rows: Longs) -> Ints:
    """Return copies of some headers; as one value of 32 bytes each, which is fastest."""
    whole = words.reshape(-1).view("V32")
    return whole[rows].view(np.int32).reshape(-1, WORDS)
