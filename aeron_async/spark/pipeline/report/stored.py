"""Files of a lake: how many each table has, and how large they are.

That is in the logs of the tables, or in the folders of tables in Parquet; no file is opened. Of
tables with partitions only those of the range are counted.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from aeron_async.spark.lake.tables import Lake
    from aeron_async.spark.pipeline.report.reading import ReportRange, TableReader

__all__ = ["SMALL_BYTES", "TableFiles", "files_of_tables"]

SMALL_BYTES: Final = 16 << 20
"""A shorter file takes as long to be opened as to be read."""
FOLDERS: Final = re.compile(r"(?:^|/)date=([0-9-]{1,16})/stream_id=(-?[0-9]{1,10})/")


@attrs.frozen
class TableFiles:
    """Files of one table.

    Attributes:
        table: Name of the table.
        files: Number of files.
        bytes: Length of all of them.
        rows: Rows in them; None if only the files themselves say that.
        smallest: Length of the smallest.
        median: Length that half of the files do not exceed.
        largest: Length of the largest.
        small: Number of files shorter than `SMALL_BYTES`.
        sizes: Number of files by bit length of their length.
        is_whole: Whether all files are counted because the table has no partitions.
    """

    table: str
    files: int
    bytes: int
    rows: int | None
    smallest: int
    median: int
    largest: int
    small: int
    sizes: dict[int, int]
    is_whole: bool


def files_of_tables(lake: Lake, reader: TableReader, shown: ReportRange) -> list[TableFiles]:
    """Return the files of all tables that have some in the range."""
    found = []
    for table in lake.tables():
        stored = reader.stored(table)
        chosen = in_range(stored, shown)
        part = stored if chosen is None else stored.filter(chosen)
        if part.num_rows:
            found.append(table_files(table, part, is_whole=chosen is None))
    return found


def in_range(stored: pa.Table, shown: ReportRange) -> Any:
    """Return which files are in partitions of the range; None if there are no partitions."""
    if not stored.num_rows:
        return None
    names = "partition.date", "partition.stream_id"
    if set(names) <= set(stored.column_names):
        dates, streams = (stored.column(name).cast(pa.string()) for name in names)
    else:
        matches = [FOLDERS.search(each) for each in stored.column("path").to_pylist()]
        if None in matches:
            return None
        dates, streams = (
            pa.array([each[group] for each in matches if each is not None]) for group in (1, 2)
        )
    first, last = shown.days()
    chosen = pc.and_(pc.greater_equal(dates, first), pc.less_equal(dates, last))
    if shown.streams:
        ids = pa.array(map(str, shown.streams), pa.string())
        chosen = pc.and_(chosen, pc.is_in(streams, ids))
    return chosen


def table_files(table: str, part: pa.Table, *, is_whole: bool) -> TableFiles:
    """Return what is known of files."""
    sizes: NDArray[np.int64] = np.sort(part.column("size_bytes").to_numpy())
    has_rows = "num_records" in part.column_names
    bits, counts = np.unique(np.frexp(sizes.astype(np.float64))[1], return_counts=True)
    return TableFiles(
        table=table,
        files=len(sizes),
        bytes=int(sizes.sum()),
        rows=pc.sum(part.column("num_records")).as_py() if has_rows else None,
        smallest=int(sizes[0]),
        median=int(sizes[(len(sizes) - 1) // 2]),
        largest=int(sizes[-1]),
        small=int(np.count_nonzero(sizes < SMALL_BYTES)),
        sizes=dict(zip(bits.tolist(), counts.tolist(), strict=True)),
        is_whole=is_whole,
    )
