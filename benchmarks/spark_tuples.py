"""The plain way to read a recording in Spark: a loop over frames that yields tuples."""

from __future__ import annotations

from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from aeron_async.spark.options import ArchiveOptions
from aeron_async.spark.planning import partitions_of, plan_batch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.types import StructType

    from aeron_async.spark.ranges import RecordingRange

__all__ = ["TUPLE_COLUMNS", "TupleSource"]

HEADER: Final = Struct("<iBBHiiiiq")
TUPLE_COLUMNS: Final = (
    "recording_id BIGINT, position BIGINT, end_position BIGINT, session_id INT, stream_id INT, "
    "term_id INT, flags INT, reserved_value BIGINT, length INT, payload BINARY"
)


class TuplePartition(InputPartition):
    """Ranges of recordings."""

    def __init__(self, parts: tuple[RecordingRange, ...]) -> None:
        super().__init__(None)
        self.parts = parts


class TupleReader(DataSourceReader):
    """Reads whole segments, and builds a tuple for each data frame."""

    def __init__(self, options: dict[str, str]) -> None:
        self.options = options

    def partitions(self) -> list[InputPartition]:
        """Return what `aeron_archive` would have each worker read."""
        options = ArchiveOptions.parse(self.options)
        size = options.max_bytes_per_partition
        groups = partitions_of(plan_batch(options), max_bytes=size, min_partitions=None)
        return [TuplePartition(parts) for parts in groups]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Yield ten columns."""
        assert isinstance(partition, TuplePartition)
        for part in partition.parts:
            descriptor = part.descriptor
            position = part.start
            while position < part.end:
                base = position & -descriptor.segment_length
                path = Path(self.options["path"]) / f"{descriptor.recording_id}-{base}.rec"
                data = path.read_bytes()
                end = min(part.end, base + descriptor.segment_length)
                while position < end:
                    at = position - base
                    length, _, flags, kind, _, session, stream, term, reserved = HEADER.unpack_from(
                        data, at
                    )
                    following = position + ((length + 31) & -32)
                    if kind == 1:
                        payload = data[at + 32 : at + length]
                        yield (
                            descriptor.recording_id,
                            position,
                            following,
                            session,
                            stream,
                            term,
                            flags,
                            reserved,
                            length - 32,
                            payload,
                        )
                    position = following


class TupleSource(DataSource):
    """What `aeron_archive` is held against."""

    @classmethod
    def name(cls) -> str:
        """Return what queries call it."""
        return "tuples"

    def schema(self) -> str:
        """Return ten columns."""
        return TUPLE_COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads them."""
        assert len(schema) > 0
        return TupleReader({**self.options})
