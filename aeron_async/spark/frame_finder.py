"""Frame finder for a piece of a recording: finds frames, checks checksums, assembles messages.

Every header holds its own term offset and term id, and lies at a multiple of 32. So one comparison
over the whole piece finds every place where the right offset stands, including payloads that look
like a header. The candidates are the frames if the first one lies at the beginning of the piece and
each ends where the next begins. Otherwise the frames are walked one by one, up to the first invalid
frame.

Invariant: both ways give the same frames. The session is never compared, because recordings with
checksums have the checksum in its place.

A message is a run of data frames in one term without gaps, from a frame with the begin flag to one
with the end flag. Fragments before the first begin flag belong to a message that began earlier. A
run that is interrupted by padding, or that never ends, is a broken message.

Source: Aeron `TermBlockScanner`; the layout is that of `DataHeaderFlyweight`; checksums in place of
the session are those of `RecordingWriter`; messages are those of `FragmentAssembler`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from aeron_async.archive.disk.checksums import CHECKSUMS
from aeron_async.archive.disk.files import read_exactly
from aeron_async.archive.disk.segment_scan import HEADER_LENGTH, check_frame
from aeron_async.archive.disk.segments import segment_name

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from aeron_async.archive.disk.checksums import Checksum
    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.archive.disk.files import ReadableDirectory

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
    "Messages",
    "assemble",
    "each_frame",
    "first_bad",
    "has_checksums",
]

if TYPE_CHECKING:
    Ints = NDArray[np.int32]
    Longs = NDArray[np.int64]

WORDS: Final = 8
"""Number of 32-bit words in a header; the indices of the fields follow."""
FRAME_LENGTH: Final = 0
KIND: Final = 1
TERM_OFFSET: Final = 2
SESSION: Final = 3
STREAM: Final = 4
TERM_ID: Final = 5
RESERVED: Final = 6
DATA: Final = 0x1_0000
"""Bit of a data frame in the second word: version in the lowest byte, flags next, type above."""
ZERO: Final = ~0x1_FF00
"""Bits that must be zero in the second word: the version, and the type but for its lowest bit."""
CACHE: Final[dict[str, Ints]] = {}


@final
class Frames:
    """Frames of a piece, in order.

    Attributes:
        heads: One header a row, as eight 32-bit words.
        starts: Where each frame begins in the piece, in bytes.
        ends: Where each frame ends, aligned; padding may end behind the piece.
        end: End of the last whole frame.
        problem: What is wrong with the data at `end`; None if the piece just ends there.
        is_proven: Whether the frames were found by comparison, and not walked one by one.
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
        self.heads: Ints = heads
        self.starts: Longs = starts
        self.ends: Longs = ends
        self.end: int = end
        self.problem: str | None = problem
        self.is_proven: bool = is_proven

    def __len__(self) -> int:
        return len(self.starts)

    def cut(self, number: int) -> None:
        """Drop the frames from a number on."""
        self.end = int(self.starts[number])
        self.heads = self.heads[:number]
        self.starts = self.starts[:number]
        self.ends = self.ends[:number]

    def picked(self, which: Any) -> Frames:
        """Return some of the frames, selected by a mask, a slice, or their numbers."""
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
    """Finds frames of one recording."""

    def __init__(self, descriptor: RecordingDescriptor) -> None:
        self._descriptor = descriptor
        self._term_mask = np.int32(descriptor.term_length - 1)
        self._bits = descriptor.term_length.bit_length() - 1

    def find(self, piece: memoryview, position: int) -> Frames:
        """Return the frames of a piece.

        Args:
            piece: Begins with a frame and ends at any multiple of 32 in the same segment.
            position: Position of its beginning in the recording, in bytes.
        """
        words: Ints = np.frombuffer(piece, np.int32).reshape(-1, WORDS)
        found = self._mask(words, position)
        return found if found is not None else self.walk(piece, position)

    def _mask(self, words: Ints, position: int) -> Frames | None:
        """Return the frames found by comparison; None if they cannot be proven to be all."""
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
        """Return whether versions, types, streams and lengths are valid."""
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
        """Return the term id that a header at each place must hold; term ids wrap at 32 bits."""
        first = self._descriptor.initial_term_id
        terms = ((position + starts) >> self._bits) + first
        return terms.astype(np.int32)

    def _whole(self, heads: Ints, starts: Longs, ends: Longs, count: int) -> Frames:
        """Drop the last frame if it continues behind the piece, unless it is padding."""
        last = int(ends[-1])
        if last > count and heads[-1, KIND] & DATA:
            return Frames(heads[:-1], starts[:-1], ends[:-1], end=int(starts[-1]))
        return Frames(heads, starts, ends, end=last)

    def walk(self, piece: memoryview, position: int) -> Frames:
        """Return the frames one by one, up to the first invalid one."""
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
    """Return the byte offsets of the first header places; the array is cached for reuse."""
    found = CACHE.get("places")
    if found is None or len(found) < count:
        found = np.arange(0, count * HEADER_LENGTH, HEADER_LENGTH, dtype=np.int32)
        CACHE["places"] = found
    return found[:count]


def take_rows(words: Ints, rows: Longs) -> Ints:
    """Return copies of some headers; each is taken as one value of 32 bytes, which is fastest."""
    whole = words.reshape(-1).view("V32")
    return whole[rows].view(np.int32).reshape(-1, WORDS)


SAMPLE_LENGTH: Final = 128 << 10
"""Bytes read to find a data frame; longer than any data frame."""


def first_bad(
    piece: memoryview, frames: Frames, checksum: Checksum, *, session_id: int | None = None
) -> int | None:
    """Return the number of the first data frame with a wrong checksum; None if all are right.

    Args:
        piece: Bytes of a recording.
        frames: Frames in it.
        checksum: Function whose result frames hold in place of their session.
        session_id: Frames that hold this value have no checksum; None if all frames have one.
    """
    stored = frames.heads[:, SESSION].tolist()
    is_data = ((frames.heads[:, KIND] & DATA) != 0).tolist()
    starts = (frames.starts + HEADER_LENGTH).tolist()
    for number, end in enumerate(frames.ends.tolist()):
        if not is_data[number] or stored[number] == session_id:
            continue
        if checksum(piece[starts[number] : end]) != stored[number]:
            return number
    return None


def has_checksums(
    directory: ReadableDirectory, descriptor: RecordingDescriptor, start: int, end: int
) -> bool:
    """Return whether the first data frame of a range has a checksum in place of its session.

    The catalog does not tell. A value that is neither the session of the catalog entry nor a
    checksum is the session of a publication that was recorded before the recording was extended.

    Args:
        directory: Directory of the archive.
        descriptor: The recording.
        start: Where a frame begins, in bytes.
        end: End of the last frame, in bytes.
    """
    sample = first_data(directory, descriptor, start, end)
    if sample is None:
        return False
    session, body = sample
    if session == descriptor.session_id:
        return False
    return any(matches(name, body, session) for name in ("crc32", "crc32c"))


def first_data(
    directory: ReadableDirectory, descriptor: RecordingDescriptor, start: int, end: int
) -> tuple[int, memoryview] | None:
    """Return the session field and the body of the first data frame; None if there is none.

    A range may begin with padding that is longer than one read, and that fills the rest of a file.
    """
    memory = memoryview(bytearray(min(SAMPLE_LENGTH, end - start)))
    position = start
    while position < end:
        base = descriptor.segment_base(position)
        try:
            file = directory.open_to_read(segment_name(descriptor.recording_id, base))
        except FileNotFoundError:
            return None
        piece = memory[: min(len(memory), end - position)]
        try:
            count = read_exactly(file, piece, position - base) & -HEADER_LENGTH
        finally:
            file.close()
        frames = FrameFinder(descriptor).find(piece[:count], position)
        found = np.flatnonzero((frames.heads[:, KIND] & DATA) != 0)
        if len(found):
            first = int(found[0])
            body = piece[int(frames.starts[first]) + HEADER_LENGTH : int(frames.ends[first])]
            return int(frames.heads[first, SESSION]), body
        if not frames.end:
            return None
        position += frames.end
    return None


def matches(name: str, body: memoryview, value: int) -> bool:
    """Return whether a value is the checksum of a frame; False if that cannot be computed here."""
    try:
        return CHECKSUMS[name](body) == value
    except ImportError:
        return False


BEGIN: Final = 0x8000
END: Final = 0x4000
WHOLE: Final = BEGIN | END | DATA


@final
class Messages:
    """Rows of a piece: messages, or single frames.

    Attributes:
        frames: The frames that are in a row.
        first: Number of the first frame of each row.
        last: Number of the last frame of each row.
        end: Where the next piece must begin; a message that is not whole begins there.
        dropped: Fragments in no row: the message began earlier, or lacks a part.
        broken: Messages that lack a part.
    """

    __slots__ = ("broken", "dropped", "end", "first", "frames", "last")

    def __init__(
        self,
        frames: Frames,
        first: Longs,
        last: Longs,
        *,
        end: int,
        dropped: int = 0,
        broken: int = 0,
    ) -> None:
        self.frames: Frames = frames
        self.first: Longs = first
        self.last: Longs = last
        self.end: int = end
        self.dropped: int = dropped
        self.broken: int = broken

    def __len__(self) -> int:
        return len(self.first)


def each_frame(frames: Frames, *, with_padding: bool) -> Messages:
    """Return a row for each frame."""
    if not with_padding:
        is_data = (frames.heads[:, KIND] & DATA) != 0
        if not is_data.all():
            frames = frames.picked(is_data)
    numbers = np.arange(len(frames))
    return Messages(frames, numbers, numbers, end=frames.end)


def assemble(frames: Frames, *, goes_on: bool) -> Messages:
    """Return a row for each message.

    Args:
        frames: Frames of a piece, in order.
        goes_on: Whether frames of the same term follow the piece.
    """
    kinds = frames.heads[:, KIND]
    if not len(kinds) or np.bitwise_and.reduce(kinds) & WHOLE == WHOLE:
        return each_frame(frames, with_padding=True)
    end = frames.end
    is_data = (kinds & DATA) != 0
    data = frames if is_data.all() else frames.picked(is_data)
    kinds = data.heads[:, KIND]
    begins = np.flatnonzero(kinds & BEGIN)
    ends = np.flatnonzero(kinds & END)
    # Number of the run of adjacent frames in one term that each frame is in.
    runs = np.zeros(len(data), np.int64)
    np.cumsum(
        (data.starts[1:] != data.ends[:-1]) | (data.heads[1:, TERM_OFFSET] == 0), out=runs[1:]
    )
    first, last = pairs(begins, ends, runs)
    broken = len(begins) - len(first)
    if len(begins) and (not len(ends) or ends[-1] < begins[-1]):
        opened = begins[-1]
        if goes_on and runs[opened] == runs[-1] and data.ends[-1] == end:
            end = int(data.starts[opened])
            broken -= 1
    is_kept = in_rows(first, last, len(data))
    numbers = np.cumsum(is_kept) - 1
    dropped = int(np.searchsorted(data.starts, end)) - int(is_kept.sum())
    return Messages(
        data.picked(is_kept), numbers[first], numbers[last], end=end, dropped=dropped, broken=broken
    )


def pairs(begins: Longs, ends: Longs, runs: Longs) -> tuple[Longs, Longs]:
    """Return the first and the last frame of each whole message."""
    if not len(ends):
        return ends, ends
    places = np.searchsorted(ends, begins)
    following = np.append(begins[1:], len(runs))
    last = ends[np.minimum(places, len(ends) - 1)]
    is_whole = (last >= begins) & (last < following) & (runs[last] == runs[begins])
    return begins[is_whole], last[is_whole]


def in_rows(first: Longs, last: Longs, count: int) -> NDArray[np.bool_]:
    """Return which of `count` frames lie between a first frame and its last one."""
    steps = np.zeros(count + 1, np.int64)
    steps[first] += 1
    steps[last + 1] -= 1
    return np.cumsum(steps[:-1]) > 0
