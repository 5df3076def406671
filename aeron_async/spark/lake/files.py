"""Data files of a table: written by one attempt at a part of a batch, each with its statistics.

    date=2026-11-18/stream_id=1001/b00000007-p00003-5f0c1e2a-000.parquet

The name says batch, part, attempt and file. An attempt never writes over a file of another, and a
file that no commit names belongs to no table. Partition columns are in the path only.

Integers are packed as differences, which is faster than compressing them and a third smaller; ids
and texts have a dictionary.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final, final
from uuid import uuid4

import attrs
import pyarrow as pa
import pyarrow.parquet as pq

from aeron_async.errors import ArchiveError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aeron_async.spark.lake.places import LakePlace

__all__ = [
    "BATCH_COLUMN",
    "EPOCH",
    "OPEN_FILES",
    "PARTITION_COLUMNS",
    "RANGED",
    "DataFile",
    "FileWriter",
    "attempt",
    "batch_of",
    "file_schema",
    "is_partitioned",
    "statistics",
]

BATCH_COLUMN: Final = "ingest_batch"
PARTITION_COLUMNS: Final = ("date", "stream_id")
"""Columns that are folders, in this order; a table has both or none."""
ROW_GROUP: Final = 256 << 10
"""Rows of a row group."""
ROW_GROUP_BYTES: Final = 64 << 20
"""Upper limit on the memory of rows that wait for their row group; a single batch may exceed it."""
OPEN_FILES: Final = 32
"""Upper limit on the open files of a table, which has one for each day and stream."""
IDS: Final = frozenset({"recording_id", "session_id"})
RANGED: Final = (
    "recording_id",
    "position",
    "event_ns",
    "event_time",
    BATCH_COLUMN,
    # Of tables without partitions, whose readers want a range of time or a stream.
    "stream_id",
    "second",
    "minute",
    "first_ns",
    "last_ns",
    "before_ns",
    "after_ns",
)
"""Columns whose smallest and largest values tell readers which files to skip."""
EPOCH: Final = date(1970, 1, 1)
BATCH_FILE: Final = re.compile(r"b(\d{8,19})-p\d+-[0-9a-f]+-\d+\.parquet")


@final
@attrs.frozen
class DataFile:
    """A file that was written and brought to the disk.

    Attributes:
        path: Relative to the folder of its table.
        size: In bytes.
        rows: Number of rows.
        partition: Values of the partition columns, as text.
        stats: Statistics as Delta has them, in JSON.
    """

    path: str
    size: int
    rows: int
    partition: dict[str, str]
    stats: str


def is_partitioned(table: pa.Schema) -> bool:
    """Return whether a table has the partition columns."""
    return set(PARTITION_COLUMNS) <= set(table.names)


def file_schema(table: pa.Schema) -> pa.Schema:
    """Return the columns that the files of a table have: all but those that are folders."""
    folders = PARTITION_COLUMNS if is_partitioned(table) else ()
    return pa.schema([field for field in table if field.name not in folders])


def attempt(batch: int, part: int) -> str:
    """Return the beginning of the names of all files of a new attempt."""
    return f"b{batch:08}-p{part:05}-{uuid4().hex[:8]}"


def batch_of(path: str) -> int:
    """Return the batch that the name of a file says; -1 if it says none, as after a compaction."""
    match = BATCH_FILE.fullmatch(PurePosixPath(path).name)
    return -1 if match is None else int(match[1])


@final
class FileWriter:
    """Writes the rows of one table in one attempt.

    Args:
        place: Folder of the table, or another one whose files are moved there.
        name: Beginning of the names of the files; see `attempt`.
        schema: Columns of the files, without partition columns.
        max_bytes: Length at which a file is closed and the next one begun.

    Attributes:
        schema: The same.
        rows: Rows written so far.
    """

    def __init__(self, place: LakePlace, name: str, schema: pa.Schema, *, max_bytes: int) -> None:
        self._place = place
        self._name = name
        self.schema: pa.Schema = schema
        self._max_bytes = max_bytes
        self._open: dict[tuple[int, int] | None, OpenFile] = {}
        self._files: list[DataFile] = []
        self._count = 0
        self.rows: int = 0

    def write(self, columns: list[Any], key: tuple[int, int] | None = None) -> None:
        """Write rows.

        Args:
            columns: In the order of the schema.
            key: Day since 1970 and stream id; None for a table without partitions.

        Raises:
            ArchiveError: The store of the table does not answer.
        """
        with self._place.answering():
            self._write(columns, key)

    def _write(self, columns: list[Any], key: tuple[int, int] | None) -> None:
        batch = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        file = self._open.pop(key, None)
        if file is None:
            if len(self._open) == OPEN_FILES:
                self._close(next(iter(self._open)))
            file = OpenFile(self._place, self._next(key), self.schema)
        # The one that was used last comes last.
        self._open[key] = file
        self.rows += batch.num_rows
        if file.add(batch) >= self._max_bytes:
            self._close(key)
        elif sum(each.waiting_bytes for each in self._open.values()) >= ROW_GROUP_BYTES:
            max(self._open.values(), key=lambda each: each.waiting_bytes).flush()

    def close(self) -> list[DataFile]:
        """Complete all files and return them."""
        with self._place.answering():
            for key in list(self._open):
                self._close(key)
        return self._files

    def abandon(self) -> None:
        """Remove the files that are not complete."""
        for file in self._open.values():
            file.abandon()
        self._open.clear()

    def _next(self, key: tuple[int, int] | None) -> str:
        name = f"{self._name}-{self._count:03}.parquet"
        self._count += 1
        return "".join(f"{each}={value}/" for each, value in partition_of(key).items()) + name

    def _close(self, key: tuple[int, int] | None) -> None:
        file = self._open[key]
        metadata = file.close()
        self._place.keep(file.path)
        self._files.append(
            DataFile(
                path=file.path,
                size=file.size,
                rows=metadata.num_rows,
                partition=partition_of(key),
                stats=json.dumps(statistics(metadata)),
            )
        )
        # Until then `abandon` removes it.
        del self._open[key]


def partition_of(key: tuple[int, int] | None) -> dict[str, str]:
    """Return the values of the partition columns as text."""
    if key is None:
        return {}
    day, stream_id = key
    values = ((EPOCH + timedelta(days=day)).isoformat(), str(stream_id))
    return dict(zip(PARTITION_COLUMNS, values, strict=True))


@final
class OpenFile:
    """A file that is being written.

    Args:
        place: Folder of the table.
        path: Of the file within it.
        schema: Its columns.

    Attributes:
        path: The same.
        waiting_bytes: Memory of the rows that wait for their row group.
        size: Its length in bytes, when it is closed.
    """

    def __init__(self, place: LakePlace, path: str, schema: pa.Schema) -> None:
        self._place = place
        self.path = path
        self.size = 0
        self._stream = place.create(path)
        self._metadata: list[pq.FileMetaData] = []
        self._writer = pq.ParquetWriter(
            self._stream,
            schema,
            compression="zstd",
            store_schema=False,
            metadata_collector=self._metadata,
            **encodings(schema),
        )
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0
        self.waiting_bytes: int = 0

    def add(self, batch: pa.RecordBatch) -> int:
        """Add rows; return the length of the file so far, without rows that wait."""
        self._waiting.append(batch)
        self._rows += batch.num_rows
        self.waiting_bytes += batch.nbytes
        if self._rows >= ROW_GROUP:
            self.flush()
        return int(self._stream.tell())

    def flush(self) -> None:
        """Write the rows that wait as a row group."""
        if self._waiting:
            table = pa.Table.from_batches(self._waiting)
            self._writer.write_table(table, row_group_size=len(table))
            self._waiting, self._rows, self.waiting_bytes = [], 0, 0

    def close(self) -> pq.FileMetaData:
        """Complete the file; return what its footer says."""
        self.flush()
        self._writer.close()
        self.size = int(self._stream.tell())
        self._stream.close()
        return self._metadata[0]

    def abandon(self) -> None:
        """Remove the file."""
        with suppress(OSError, pa.ArrowException):
            self._writer.close()
        # A store has what was written so far when the stream is closed, and only then.
        with suppress(OSError):
            self._stream.close()
        with suppress(OSError, ArchiveError):
            self._place.remove(self.path)


def encodings(schema: pa.Schema) -> dict[str, Any]:
    """Return how columns are encoded, as arguments of a Parquet writer."""
    with_dictionary, packed = [], {}
    for field in schema:
        if pa.types.is_string(field.type) or field.name in IDS:
            with_dictionary.append(field.name)
        elif pa.types.is_integer(field.type) or pa.types.is_timestamp(field.type):
            packed[field.name] = "DELTA_BINARY_PACKED"
    ranged = [name for name in RANGED if name in schema.names]
    return {
        "use_dictionary": with_dictionary or False,
        "column_encoding": packed or None,
        "write_statistics": ranged or False,
    }


def statistics(metadata: pq.FileMetaData) -> dict[str, Any]:
    """Return the statistics of an add action: the number of rows, and ranges of a few columns."""
    ranges: dict[str, tuple[Any, Any]] = {}
    for name, low, high in row_group_ranges(metadata):
        before = ranges.get(name, (low, high))
        ranges[name] = min(before[0], low), max(before[1], high)
    return {
        "numRecords": metadata.num_rows,
        "minValues": {name: in_json(low) for name, (low, _) in ranges.items()},
        "maxValues": {name: in_json(high) for name, (_, high) in ranges.items()},
        "nullCount": {},
    }


def row_group_ranges(metadata: pq.FileMetaData) -> Iterator[tuple[str, Any, Any]]:
    """Yield the range of each of `RANGED` in each row group."""
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for number in range(row_group.num_columns):
            column = row_group.column(number)
            found = column.statistics if column.path_in_schema in RANGED else None
            if found is not None and found.has_min_max:
                yield column.path_in_schema, found.min, found.max


def in_json(value: Any) -> Any:
    """Return a number, or a time as Delta spells it."""
    if not isinstance(value, datetime):
        return value
    return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
