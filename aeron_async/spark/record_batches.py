"""Arrow batches made from rows: only the requested columns, and no Python per row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
import pyarrow as pa

from aeron_async.codecs.columns import Payloads
from aeron_async.spark.rows import RowColumn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from aeron_async.spark.decoding import CodecDecoder
    from aeron_async.spark.frame_finder import Longs
    from aeron_async.spark.ranges import RecordingRange, ScanSettings
    from aeron_async.spark.rows import RowScan


__all__ = ["BatchBuilder", "RowBatch"]

LARGEST: Final = (1 << 63) - 1
DATA_TYPE: Final = 1
PAYLOAD: Final = "payload"


@final
class BatchBuilder:
    """Builds batches of one schema.

    Args:
        settings: What to read, and how frames become rows.
        decoder: Decodes payloads where they lie in the piece, in place of the column of payloads;
            None for that column.

    Attributes:
        schema: Arrow schema of every batch.
    """

    def __init__(self, settings: ScanSettings, decoder: CodecDecoder | None = None) -> None:
        self.schema: Any = settings.projection.arrow_schema()
        names = settings.projection.names
        self._decoder = decoder
        if decoder is not None:
            self.schema = decoder.schema_with(self.schema)
            names = tuple(name for name in names if name != PAYLOAD)
        self._settings = settings
        self._builders = [BUILDERS[name] for name in names]

    def build(self, batch: RowBatch) -> Any:
        """Return the columns of some rows as an Arrow batch."""
        columns = [build(batch) for build in self._builders]
        if self._decoder is None:
            return pa.RecordBatch.from_arrays(columns, schema=self.schema)
        return self._decoder.batch_with(columns, batch.payloads(self._decoder.reach), self.schema)


@final
class RowBatch:
    """The rows of one batch, and the source of its columns, which are copies.

    Attributes:
        part: The recording they belong to.
        count: Number of rows.
    """

    def __init__(
        self,
        piece: memoryview,
        rows: RowScan,
        part: RecordingRange,
        settings: ScanSettings,
        begin: int,
        end: int,
    ) -> None:
        self.piece = piece
        self.rows = rows
        self.part: RecordingRange = part
        self.settings = settings
        self.begin = begin
        self.end = end
        self.count: int = end - begin

    def column(self, name: str) -> Any:
        """Return a column by its name in a query."""
        return BUILDERS[name](self)

    def numbers(self, which: int) -> Any:
        """Return one number of each row, as a column."""
        kind = pa.int64() if which < RowColumn.SESSION else pa.int32()
        data = pa.py_buffer(self.rows.column(which, self.begin, self.end))
        return pa.Array.from_buffers(kind, self.count, [None, data])

    def payloads(self, reach: int) -> Payloads:
        """Return where payloads lie; those of several fragments are joined if need be.

        Args:
            reach: Bytes at the beginning of each that are looked at.
        """
        bounds = self.rows.bounds(self.begin, self.end, reach)
        if bounds is None:
            return Payloads.of_column(payload_of(self))
        starts, ends = (np.frombuffer(each, np.int64) for each in bounds)
        return Payloads(np.frombuffer(self.piece, np.uint8), starts, ends)

    def constant(self, value: object, kind: Any) -> Any:
        """Return the same value for each row."""
        return pa.repeat(pa.scalar(value, kind), self.count)

    def nanoseconds(self) -> tuple[Longs, NDArray[np.bool_]]:
        """Return the time of each row, and which rows have none."""
        source = self.settings.options.timestamp_from
        assert source is not None
        if source.payload_offset is None:
            reserved = self.rows.column(RowColumn.RESERVED, self.begin, self.end)
            return in_nanoseconds(np.frombuffer(reserved, np.int64), source.unit_ns, None)
        dtype = np.dtype(source.dtype)
        values, absent = self.rows.values(
            source.payload_offset, dtype.itemsize, self.begin, self.end
        )
        is_short = np.frombuffer(absent, np.bool_)
        return in_nanoseconds(np.frombuffer(values, dtype), source.unit_ns, is_short)


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


def session_of(batch: RowBatch) -> Any:
    """Return the session: as it was sent if the frames hold it, else that of the catalog.

    An extended recording holds the sessions of several publications; the catalog has only the last.
    """
    if batch.part.has_checksums or batch.part.is_replayed:
        return batch.constant(batch.part.descriptor.session_id, pa.int32())
    return batch.numbers(RowColumn.SESSION)


def checksum_of(batch: RowBatch) -> Any:
    """Return the value in place of the session in data frames of recordings with checksums."""
    if not batch.part.has_checksums:
        return pa.nulls(batch.count, pa.int32())
    rows, begin, end = batch.rows, batch.begin, batch.end
    kinds = np.frombuffer(rows.column(RowColumn.FRAME_TYPE, begin, end), np.int32)
    stored = np.frombuffer(rows.column(RowColumn.SESSION, begin, end), np.int32)
    return pa.array(stored, mask=kinds != DATA_TYPE)


def timestamp_ns_of(batch: RowBatch) -> Any:
    """Return the time of each row, in nanoseconds."""
    if batch.settings.options.timestamp_from is None:
        return pa.nulls(batch.count, pa.int64())
    found, mask = batch.nanoseconds()
    return pa.array(found, mask=mask)


def timestamp_of(batch: RowBatch) -> Any:
    """Return the time of each row in microseconds, as Spark stores it."""
    kind = pa.timestamp("us", tz="UTC")
    if batch.settings.options.timestamp_from is None:
        return pa.nulls(batch.count, kind)
    found, mask = batch.nanoseconds()
    return pa.array(found // 1_000, mask=mask).cast(kind)


def payload_of(batch: RowBatch) -> Any:
    """Return the payload of each row, joined from its fragments."""
    offsets, data = batch.rows.payloads(batch.begin, batch.end)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.BinaryArray.from_buffers(pa.binary(), batch.count, buffers)


BUILDERS: Final[Mapping[str, Callable[[RowBatch], Any]]] = {
    "recording_id": lambda each: each.constant(each.part.descriptor.recording_id, pa.int64()),
    "position": lambda each: each.numbers(RowColumn.POSITION),
    "end_position": lambda each: each.numbers(RowColumn.END_POSITION),
    "session_id": session_of,
    "stream_id": lambda each: each.constant(each.part.descriptor.stream_id, pa.int32()),
    "channel": lambda each: each.constant(each.part.descriptor.stripped_channel, pa.string()),
    "term_id": lambda each: each.numbers(RowColumn.TERM_ID),
    "term_offset": lambda each: each.numbers(RowColumn.TERM_OFFSET),
    "flags": lambda each: each.numbers(RowColumn.FLAGS),
    "frame_type": lambda each: each.numbers(RowColumn.FRAME_TYPE),
    "fragment_count": lambda each: each.numbers(RowColumn.FRAGMENTS),
    "reserved_value": lambda each: each.numbers(RowColumn.RESERVED),
    "frame_checksum": checksum_of,
    "timestamp": timestamp_of,
    "timestamp_ns": timestamp_ns_of,
    "length": lambda each: each.numbers(RowColumn.LENGTH),
    "payload": payload_of,
}
