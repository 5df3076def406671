"""Keeps small files in bounds: puts folders of many small batches together, one table at a time.

Only batches that are done for good are touched. What is put together is written aside first, and
noted; then the parts are removed and the whole takes the place of the last. Whatever is interrupted
is finished, or forgotten, the next time. Whoever reads in between may miss those batches for as
long as a rename takes.
"""

from __future__ import annotations

import json
import math
import shutil
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from aeron_async.spark.pipeline.lake import (
    batch_folder,
    batch_folders,
    sync,
    sync_all,
    write_atomically,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from aeron_async.spark.pipeline.lake import Lake

__all__ = ["choose", "compact_lake", "recover", "replace_folders"]

ASIDE: Final = "_compacting"
NOTE: Final = "_compaction.json"


def choose(sizes: Mapping[int, int], *, max_bytes: int, count: int) -> list[list[int]]:
    """Return which batches to put together: neighbours, as many as make a file of full size.

    Those at the end wait until there are so many of them.

    Args:
        sizes: Of the folders of batches, in bytes; in order.
        max_bytes: Of a file.
        count: Of folders that are too many.
    """
    groups: list[list[int]] = []
    small: list[int] = []
    length = 0
    for batch_id, size in sizes.items():
        if size < max_bytes:
            small.append(batch_id)
            length += size
        if size >= max_bytes or length >= max_bytes:
            groups.append(small)
            small, length = [], 0
    groups.append(small if len(small) >= count else [])
    return [group for group in groups if len(group) > 1]


def replace_folders(table: Path, batch_ids: list[int]) -> None:
    """Let what was written aside take the place of those batches."""
    write_atomically(table / NOTE, json.dumps(batch_ids).encode())
    finish(table, batch_ids)


def recover(table: Path) -> None:
    """Finish what was interrupted, or forget it where it had not come far enough."""
    note = table / NOTE
    if note.exists():
        finish(table, json.loads(note.read_text()))
    elif (table / ASIDE).exists():
        shutil.rmtree(table / ASIDE)


def finish(table: Path, batch_ids: list[int]) -> None:
    """Remove the parts, and put the whole where the last of them was."""
    if (table / ASIDE).exists():
        # The parts are to go: whatever the host does then, the whole must be there.
        sync_all(table / ASIDE)
        for batch_id in batch_ids:
            shutil.rmtree(batch_folder(table, batch_id), ignore_errors=True)
        (table / ASIDE).replace(batch_folder(table, batch_ids[-1]))
        sync(table)
    (table / NOTE).unlink()


def compact_lake(
    spark: SparkSession, lake: Lake, *, before: int, max_bytes: int, count: int
) -> int:
    """Put small folders together in every table of a lake; return how many are gone.

    Args:
        spark: The session.
        lake: With tables in Parquet.
        before: Only batches before this one, which may not be done.
        max_bytes: Of a file.
        count: Of folders that are too many.
    """
    removed = 0
    for table in lake.tables():
        recover(table)
        folders = {key: path for key, path in batch_folders(table).items() if key < before}
        sizes = {key: length_of(path) for key, path in folders.items()}
        for group in choose(sizes, max_bytes=max_bytes, count=count):
            total = sum(sizes[key] for key in group)
            parts = [folders[key] for key in group]
            if table.parent.name == "gold":
                join_small(table / ASIDE, parts)
            else:
                keys = ("date", "stream_id") if table.parent.name == "silver" else ()
                writer = union(spark, parts).coalesce(math.ceil(max(total, 1) / max_bytes)).write
                writer.partitionBy(*keys).mode("overwrite").parquet(str(table / ASIDE))
            replace_folders(table, group)
            removed += len(group) - 1
    return removed


def join_small(folder: Path, parts: list[Path]) -> None:
    """Write the rows of several batches of results, which are few."""
    files = [file for part in parts for file in sorted(part.rglob("*.parquet"))]
    folder.mkdir()
    whole = pa.concat_tables([pq.read_table(file, partitioning=None) for file in files])
    pq.write_table(whole, folder / "part.parquet", compression="zstd")


def union(spark: SparkSession, folders: list[Path]) -> DataFrame:
    """Return the rows of several batches."""
    frame = spark.read.parquet(str(folders[0]))
    for each in folders[1:]:
        frame = frame.unionByName(spark.read.parquet(str(each)), allowMissingColumns=True)
    return frame


def length_of(folder: Path) -> int:
    """Return the bytes of a batch."""
    return sum(each.stat().st_size for each in folder.rglob("*.parquet"))
