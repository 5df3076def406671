"""Rows of a piece of a recording: its messages or frames, found in one scan, and their values.

`RowScan` here works with NumPy, and its compiled twin in one pass over the bytes. Both give the
same rows, values and problems for any bytes. What they return is memory to make arrays of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

import numpy as np
import pyarrow as pa

from aeron_async._speedups import WHY_PURE
from aeron_async.archive.disk.segment_scan import HEADER_LENGTH
from aeron_async.spark.frame_finder import (
    DATA,
    FRAME_LENGTH,
    KIND,
    RESERVED,
    SESSION,
    TERM_ID,
    TERM_OFFSET,
    FrameFinder,
    assemble,
    each_frame,
    first_bad,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aeron_async.archive.disk.checksums import Checksum
    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.spark.frame_finder import Frames, Ints, Longs, Messages

__all__ = ["RowColumn", "RowScan"]


@final
class RowColumn:
    """Numbers that a row has; those before `SESSION` have 64 bits, the others 32."""

    POSITION: Final = 0
    END_POSITION: Final = 1
    RESERVED: Final = 2
    SESSION: Final = 3
    TERM_ID: Final = 4
    TERM_OFFSET: Final = 5
    FLAGS: Final = 6
    FRAME_TYPE: Final = 7
    FRAGMENTS: Final = 8
    LENGTH: Final = 9


@final
class RowScan:
    """Finds the rows of pieces of one recording, one piece after the other.

    Args:
        descriptor: The recording.
        by_message: One row for each message; for each frame otherwise.
        include_padding: Whether padding is a row as well, if frames are.
        checksum: Function whose result data frames hold in place of their session; None to verify
            none.

    Attributes:
        count: Rows of the piece.
        frames: Frames before `end`, padding included.
        end: Where the next piece must begin; a message that is not whole begins there.
        dropped: Fragments in no row: the message began earlier, or lacks a part.
        broken: Messages that lack a part.
        problem_at: Offset of the first frame that is not valid; -1 if the piece just ends.
        is_checksum_wrong: Whether only its checksum is wrong.
        is_walked: Whether NumPy had to find the frames one by one; False in the compiled twin.
    """

    count: int
    frames: int
    end: int
    dropped: int
    broken: int
    problem_at: int
    is_checksum_wrong: bool
    is_walked: bool

    def __init__(
        self,
        descriptor: RecordingDescriptor,
        *,
        by_message: bool,
        include_padding: bool,
        checksum: Checksum | None = None,
    ) -> None:
        self._finder = FrameFinder(descriptor)
        self._term_length = descriptor.term_length
        self._by_message = by_message
        self._include_padding = include_padding
        self._checksum = checksum

    def scan(self, piece: memoryview, position: int, *, goes_on: bool) -> None:
        """Find the rows of a piece, which may be reused after the values of all rows were taken.

        Args:
            piece: Begins with a frame and ends at any multiple of 32 in the same segment.
            position: Position of its beginning in the recording, in bytes.
            goes_on: Whether more data follows the piece in the segment.
        """
        self._piece = piece
        self._position = position
        frames = self._finder.find(piece, position)
        self.is_walked = not frames.is_proven
        self.problem_at = -1 if frames.problem is None else frames.end
        bad = None if self._checksum is None else first_bad(piece, frames, self._checksum)
        self.is_checksum_wrong = bad is not None
        if bad is not None:
            frames.cut(bad)
            self.problem_at = frames.end
        rows = self._rows_of(frames, goes_on=goes_on and self.problem_at < 0)
        self._rows = rows
        self.count = len(rows)
        self.frames = int(np.searchsorted(frames.starts, rows.end))
        self.end = rows.end
        self.dropped = rows.dropped
        self.broken = rows.broken
        heads = rows.frames.heads
        lengths = heads[:, FRAME_LENGTH].astype(np.int64) - HEADER_LENGTH
        if self._include_padding:
            # Padding has a frame length, but no payload was written.
            lengths[heads[:, KIND] & DATA == 0] = 0
        self._totals: Longs = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=self._totals[1:])
        self._edges = self._totals[rows.last + 1]

    def _rows_of(self, frames: Frames, *, goes_on: bool) -> Messages:
        if not self._by_message:
            return each_frame(frames, with_padding=self._include_padding)
        # No message continues behind the end of a term.
        is_term_end = (self._position + frames.end) % self._term_length == 0
        return assemble(frames, goes_on=goes_on and not is_term_end)

    def cut(self, begin: int, most_rows: int, most_bytes: int) -> int:
        """Return the end of a batch that begins with a row; it has a row, if there is one.

        Args:
            begin: Number of its first row.
            most_rows: Upper limit on its rows.
            most_bytes: Upper limit on its payload.
        """
        before = int(self._edges[begin - 1]) if begin else 0
        by_bytes = int(np.searchsorted(self._edges, before + most_bytes, "right"))
        return min(max(min(begin + most_rows, by_bytes), begin + 1), self.count)

    def column(self, which: int, begin: int, end: int) -> Any:
        """Return one number of each row.

        Args:
            which: Number of the column, of `RowColumn`.
            begin: Number of the first row.
            end: Number of the row behind the last one.
        """
        found = COLUMNS[which](Span(self, begin, end))
        return np.ascontiguousarray(found)

    def payloads(self, begin: int, end: int) -> tuple[Any, Any]:
        """Return where each payload begins and the last one ends, in 32 bits, and all their bytes.

        They are copied in one step: an Arrow array over the whole piece, in which payloads and the
        bytes between them alternate, and from which every other element is taken. The fragments of
        a message are then adjacent, so joining them means dropping the offsets between them.
        """
        if begin == end:
            return bytes(4), b""
        rows = Span(self, begin, end)
        span = slice(int(rows.first[0]), int(rows.last[-1]) + 1)
        starts = rows.frames.starts[span] + HEADER_LENGTH
        lengths = np.diff(self._totals[span.start : span.stop + 1])
        offsets = np.empty(2 * len(starts) + 1, np.int32)
        offsets[:-1:2] = starts
        offsets[1::2] = starts + lengths
        offsets[-1] = offsets[-2]
        both = pa.BinaryArray.from_buffers(
            pa.binary(), 2 * len(starts), [None, pa.py_buffer(offsets), pa.py_buffer(self._piece)]
        )
        taken = both.take(pa.array(np.arange(0, 2 * len(starts), 2, dtype=np.int32)))
        found = np.frombuffer(taken.buffers()[1], np.int32, len(taken) + 1)
        if len(taken) > end - begin:
            found = np.append(found[rows.first - span.start], found[-1])
        return found, taken.buffers()[2] or b""

    def bounds(self, begin: int, end: int, reach: int) -> tuple[Any, Any] | None:
        """Return where each payload begins and ends in the piece, in 64 bits.

        Return None if a payload, up to `reach`, does not lie in one fragment. Behind that its bytes
        are those of its other fragments, with their headers.

        Args:
            begin: Number of the first row.
            end: Number of the row behind the last one.
            reach: Bytes at the beginning of each payload that are looked at.
        """
        rows = Span(self, begin, end)
        starts = rows.frames.starts[rows.first] + HEADER_LENGTH
        lengths = rows.lengths()
        in_first = self._totals[rows.first + 1] - self._totals[rows.first]
        if (in_first < np.minimum(lengths, reach)).any():
            return None
        return starts, starts + lengths

    def values(self, offset: int, width: int, begin: int, end: int) -> tuple[Any, Any]:
        """Return some bytes of each payload, and which payloads are too short: zeros stand there.

        Args:
            offset: Offset in the payload, in bytes.
            width: Number of bytes, in whichever fragments they lie.
            begin: Number of the first row.
            end: Number of the row behind the last one.
        """
        rows = Span(self, begin, end)
        is_short = rows.lengths() < offset + width
        at = rows.places(offset, width)
        at[is_short] = 0
        found = np.frombuffer(self._piece, np.uint8)[at]
        found[is_short] = 0
        return found, is_short


class Span:
    """Some rows of a scan with NumPy.

    Attributes:
        frames: Frames that are in rows.
        first: Number of the first frame of each row.
        last: Number of the last frame of each row.
    """

    def __init__(self, scan: RowScan, begin: int, end: int) -> None:
        rows = scan._rows  # noqa: SLF001 - a part of it
        self.frames: Frames = rows.frames
        self.first: Longs = rows.first[begin:end]
        self.last: Longs = rows.last[begin:end]
        self.position: int = scan._position  # noqa: SLF001 - as above
        self._totals = scan._totals  # noqa: SLF001 - as above
        # Usually every frame is a row, and a slice is cheaper than an index array.
        span = slice(int(self.first[0]), int(self.last[-1]) + 1) if begin < end else slice(0)
        is_dense = span.stop - (span.start or 0) == end - begin
        self._heads: Ints = rows.frames.heads[span if is_dense else self.first]

    def word(self, number: int) -> Any:
        """Return a 32-bit field of the first header of each row."""
        return self._heads[:, number]

    def flags(self) -> Any:
        """Return the flags of the first and of the last frame, combined."""
        return (self.word(KIND) | self.frames.heads[self.last, KIND]) >> 8 & 0xFF

    def reserved(self) -> Any:
        """Return the reserved value of the first header of each row."""
        return np.ascontiguousarray(self._heads[:, RESERVED:]).view(np.int64).reshape(-1)

    def lengths(self) -> Longs:
        """Return the payload length of each row, in bytes."""
        found: Longs = self._totals[self.last + 1] - self._totals[self.first]
        return found

    def places(self, offset: int, count: int) -> Longs:
        """Return where some bytes of each message lie in the piece, whichever fragment holds them.

        Args:
            offset: Offset in the payload, in bytes.
            count: Number of bytes.
        """
        frame: Longs = self.first[:, None]
        within: Longs = offset + np.broadcast_to(np.arange(count), (len(self.first), count))
        if len(self.frames) > len(self.first):
            at = within + self._totals[frame]
            frame = np.minimum(np.searchsorted(self._totals, at, "right") - 1, len(self.frames) - 1)
            within = at - self._totals[frame]
        found: Longs = self.frames.starts[frame] + HEADER_LENGTH + within
        return found


Values: TypeAlias = "Callable[[Span], Any]"
COLUMNS: Final[Mapping[int, Values]] = {
    RowColumn.POSITION: lambda rows: rows.frames.starts[rows.first] + rows.position,
    RowColumn.END_POSITION: lambda rows: rows.frames.ends[rows.last] + rows.position,
    RowColumn.RESERVED: lambda rows: rows.reserved(),
    RowColumn.SESSION: lambda rows: rows.word(SESSION),
    RowColumn.TERM_ID: lambda rows: rows.word(TERM_ID),
    RowColumn.TERM_OFFSET: lambda rows: rows.word(TERM_OFFSET),
    RowColumn.FLAGS: lambda rows: rows.flags(),
    RowColumn.FRAME_TYPE: lambda rows: rows.word(KIND) >> 16,
    RowColumn.FRAGMENTS: lambda rows: (rows.last - rows.first + 1).astype(np.int32),
    RowColumn.LENGTH: lambda rows: rows.lengths().astype(np.int32),
}


if not TYPE_CHECKING and WHY_PURE is None:
    from aeron_async._speedups.scanning import RowScan
