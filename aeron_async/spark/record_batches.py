"""Arrow batches made from frames: only the requested columns, and no Python per row.

Payloads are copied from the piece in one step: an Arrow array over the whole piece, in which
payloads and the bytes between them alternate, and from which every other element is taken. The
fragments of a message are then adjacent, so joining them means dropping the offsets between them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
import pyarrow as pa

from aeron_async.archive.disk.segment_scan import HEADER_LENGTH
from aeron_async.spark.frame_finder import (
    DATA,
    FRAME_LENGTH,
    KIND,
    RESERVED,
    SESSION,
    TERM_ID,
    TERM_OFFSET,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray

    from aeron_async.spark.frame_finder import Frames, Ints, Longs, Messages
    from aeron_async.spark.ranges import RecordingRange, ScanSettings


__all__ = ["BatchBuilder"]

LARGEST: Final = (1 << 63) - 1


@final
class BatchBuilder:
    """Builds batches of one schema.

    Attributes:
        schema: Arrow schema of every batch.
    """

    def __init__(self, settings: ScanSettings) -> None:
        self.schema: Any = settings.projection.arrow_schema()
        self._settings = settings
        self._builders = [BUILDERS[name] for name in settings.projection.names]

    def build(
        self, piece: memoryview, position: int, rows: Messages, part: RecordingRange
    ) -> Iterator[Any]:
        """Yield batches of the rows of a piece.

        Args:
            piece: Holds the frames; may be reused when all batches have been taken.
            position: Position of its beginning, in bytes.
            rows: Messages or frames in it.
            part: The recording they belong to.
        """
        if not len(rows):
            return
        heads = rows.frames.heads
        lengths = heads[:, FRAME_LENGTH].astype(np.int64) - HEADER_LENGTH
        if self._settings.include_padding:
            # Padding has a frame length, but no payload was written.
            lengths[heads[:, KIND] & DATA == 0] = 0
        totals = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=totals[1:])
        for begin, end in self._cuts(totals[rows.last + 1]):
            batch = RowBatch(piece, position, rows, totals, part, self._settings, begin, end)
            columns = [build(batch) for build in self._builders]
            yield pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _cuts(self, totals: Longs) -> Iterator[tuple[int, int]]:
        """Yield the first and last row of each batch, given the payload bytes up to each row."""
        settings = self._settings
        count = len(totals)
        begin = before = 0
        while begin < count:
            by_bytes = int(np.searchsorted(totals, before + settings.bytes_per_batch, "right"))
            end = max(min(begin + settings.rows_per_batch, by_bytes), begin + 1)
            yield begin, end
            before = int(totals[end - 1])
            begin = end


@final
class RowBatch:
    """The rows of one batch, and the source of its columns.

    Attributes:
        first: Number of the first frame of each row.
        last: Number of the last frame of each row.
        span: All frames from the first to the last row.
        heads: Header of the first frame of each row.
        count: Number of rows.
    """

    def __init__(
        self,
        piece: memoryview,
        position: int,
        rows: Messages,
        totals: Longs,
        part: RecordingRange,
        settings: ScanSettings,
        begin: int,
        end: int,
    ) -> None:
        self.piece = piece
        self.position = position
        self.frames: Frames = rows.frames
        self.totals = totals
        self.part = part
        self.settings = settings
        self.first: Longs = rows.first[begin:end]
        self.last: Longs = rows.last[begin:end]
        self.count: int = end - begin
        self.span: slice
        self.span = span = slice(int(self.first[0]), int(self.last[-1]) + 1)
        # Usually every frame is a row, and a slice is cheaper than an index array.
        is_dense = span.stop - span.start == self.count
        self.heads: Ints = rows.frames.heads[span if is_dense else self.first]

    def word(self, number: int) -> Any:
        """Return a 32-bit field of the first header of each row."""
        return self.heads[:, number].copy()

    def lengths(self) -> Longs:
        """Return the payload length of each row, in bytes."""
        found: Longs = self.totals[self.last + 1] - self.totals[self.first]
        return found

    def constant(self, value: object, kind: Any) -> Any:
        """Return the same value for each row."""
        return pa.repeat(pa.scalar(value, kind), self.count)

    def nanoseconds(self) -> tuple[Longs, NDArray[np.bool_]]:
        """Return the time of each row, and which rows have none."""
        source = self.settings.timestamp_from
        assert source is not None
        if source.payload_offset is None:
            return in_nanoseconds(self.reserved(), source.unit_ns, None)
        dtype = np.dtype(source.dtype)
        is_short = self.lengths() < source.payload_offset + dtype.itemsize
        at = self.places(source.payload_offset, dtype.itemsize)
        at[is_short] = 0
        found = np.frombuffer(self.piece, np.uint8)[at].reshape(-1).view(dtype)
        return in_nanoseconds(found, source.unit_ns, is_short)

    def places(self, offset: int, count: int) -> Longs:
        """Return where some bytes of each message lie in the piece, whichever fragment holds them.

        Args:
            offset: Offset in the payload, in bytes.
            count: Number of bytes.
        """
        frame: Longs = self.first[:, None]
        within: Longs = offset + np.broadcast_to(np.arange(count), (self.count, count))
        if len(self.frames) > self.count:
            at = within + self.totals[frame]
            frame = np.minimum(np.searchsorted(self.totals, at, "right") - 1, len(self.frames) - 1)
            within = at - self.totals[frame]
        found: Longs = self.frames.starts[frame] + HEADER_LENGTH + within
        return found

    def reserved(self) -> Longs:
        """Return the reserved value of the first header of each row."""
        return np.ascontiguousarray(self.heads[:, RESERVED:]).view(np.int64).reshape(-1)


def in_nanoseconds(
    values: Any, unit_ns: int, is_absent: NDArray[np.bool_] | None
) -> tuple[Longs, NDArray[np.bool_]]:
    """Return times, and which are absent; a time beyond 64 bits in nanoseconds counts as absent."""
    limit = LARGEST // unit_ns
    is_beyond = values > limit
    if values.dtype.kind == "i":
        is_beyond |= values < -limit
    is_none = is_beyond if is_absent is None else is_beyond | is_absent
    found: Longs = np.where(is_none, 0, values).astype(np.int64) * unit_ns
    return found, is_none


def position_of(batch: RowBatch) -> Any:
    """Return where the first frame of each row begins."""
    return pa.array(batch.frames.starts[batch.first] + batch.position)


def end_position_of(batch: RowBatch) -> Any:
    """Return where the last frame of each row ends."""
    return pa.array(batch.frames.ends[batch.last] + batch.position)


def session_of(batch: RowBatch) -> Any:
    """Return the session: as it was sent if the frames hold it, else that of the catalog.

    An extended recording holds the sessions of several publications; the catalog has only the last.
    """
    if batch.part.has_checksums or batch.part.is_replayed:
        return batch.constant(batch.part.descriptor.session_id, pa.int32())
    return pa.array(batch.word(SESSION))


def flags_of(batch: RowBatch) -> Any:
    """Return the flags of the first and of the last frame, combined."""
    kinds = batch.heads[:, KIND] | batch.frames.heads[batch.last, KIND]
    return pa.array(kinds >> 8 & 0xFF)


def checksum_of(batch: RowBatch) -> Any:
    """Return the value in place of the session in data frames of recordings with checksums."""
    if not batch.part.has_checksums:
        return pa.nulls(batch.count, pa.int32())
    return pa.array(batch.word(SESSION), mask=batch.heads[:, KIND] & DATA == 0)


def timestamp_ns_of(batch: RowBatch) -> Any:
    """Return the time of each row, in nanoseconds."""
    if batch.settings.timestamp_from is None:
        return pa.nulls(batch.count, pa.int64())
    found, mask = batch.nanoseconds()
    return pa.array(found, mask=mask)


def timestamp_of(batch: RowBatch) -> Any:
    """Return the time of each row in microseconds, as Spark stores it."""
    kind = pa.timestamp("us", tz="UTC")
    if batch.settings.timestamp_from is None:
        return pa.nulls(batch.count, kind)
    found, mask = batch.nanoseconds()
    return pa.array(found // 1_000, mask=mask).cast(kind)


def payload_of(batch: RowBatch) -> Any:
    """Return the payload of each row, joined from its fragments."""
    span = batch.span
    starts = batch.frames.starts[span] + HEADER_LENGTH
    lengths = np.diff(batch.totals[span.start : span.stop + 1])
    offsets = np.empty(2 * len(starts) + 1, np.int32)
    offsets[:-1:2] = starts
    offsets[1::2] = starts + lengths
    offsets[-1] = offsets[-2]
    both = pa.BinaryArray.from_buffers(
        pa.binary(), 2 * len(starts), [None, pa.py_buffer(offsets), pa.py_buffer(batch.piece)]
    )
    taken = both.take(pa.array(np.arange(0, 2 * len(starts), 2, dtype=np.int32)))
    if len(taken) == batch.count:
        return taken
    found = np.frombuffer(taken.buffers()[1], np.int32, len(taken) + 1)
    ends = np.append(found[batch.first - span.start], found[-1])
    return pa.BinaryArray.from_buffers(
        pa.binary(), batch.count, [None, pa.py_buffer(ends), taken.buffers()[2]]
    )


BUILDERS: Final[Mapping[str, Callable[[RowBatch], Any]]] = {
    "recording_id": lambda each: each.constant(each.part.descriptor.recording_id, pa.int64()),
    "position": position_of,
    "end_position": end_position_of,
    "session_id": session_of,
    "stream_id": lambda each: each.constant(each.part.descriptor.stream_id, pa.int32()),
    "channel": lambda each: each.constant(each.part.descriptor.stripped_channel, pa.string()),
    "term_id": lambda each: pa.array(each.word(TERM_ID)),
    "term_offset": lambda each: pa.array(each.word(TERM_OFFSET)),
    "flags": flags_of,
    "frame_type": lambda each: pa.array(each.heads[:, KIND] >> 16),
    "fragment_count": lambda each: pa.array((each.last - each.first + 1).astype(np.int32)),
    "reserved_value": lambda each: pa.array(each.reserved()),
    "frame_checksum": checksum_of,
    "timestamp": timestamp_of,
    "timestamp_ns": timestamp_ns_of,
    "length": lambda each: pa.array(each.lengths().astype(np.int32)),
    "payload": payload_of,
}
