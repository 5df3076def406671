"""Tables of a lake: batches are written, read, counted, and compacted.

Compaction joins the folders of several batches, and only of batches that Spark has committed. It
writes the joined folder aside and a note; then it removes the parts and moves the joined folder to
the place of the last part. An interrupted compaction is completed or discarded the next time. A
reader may miss those batches while the folders are replaced.
"""

from __future__ import annotations

import json
import math
import shutil
from typing import TYPE_CHECKING, Final, final

import pyarrow as pa
import pyarrow.parquet as pq

from aeron_async.spark.pipeline.lake import (
    batch_folder,
    batch_folders,
    forget_batch,
    sync,
    sync_all,
    write_atomically,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from aeron_async.spark.pipeline.lake import Lake
    from aeron_async.spark.pipeline.settings import PipelineSettings

__all__ = [
    "Tables",
    "choose",
    "compact_lake",
    "read_folders",
    "recover",
    "replace_folders",
    "write_rows",
]

BATCH_COLUMN: Final = "ingest_batch"
NAMESPACE: Final = "aeron"
"""Namespace of Iceberg tables, in the default catalog of the session."""


@final
class Tables:
    """The tables of bronze and silver, in the chosen format."""

    def __init__(self, spark: SparkSession, settings: PipelineSettings) -> None:
        self._spark = spark
        self._format = settings.format

    def write(
        self, frame: DataFrame, table: Path, batch_id: int, partitions: tuple[str, ...] = ()
    ) -> None:
        """Write a batch of a table.

        Args:
            frame: Rows with a column `ingest_batch` that holds `batch_id`.
            table: Folder of the table.
            batch_id: The batch.
            partitions: Columns that have a folder for each value.
        """
        if self._format == "parquet":
            writer = frame.write.mode("overwrite").option("compression", "zstd")
            folder = batch_folder(table, batch_id)
            writer.partitionBy(*partitions).parquet(str(folder))
            # Spark does not sync files, but commits the batch and never writes it again; a host
            # that fails could lose it.
            sync_all(folder)
            sync(table)
        elif self._format == "delta":
            writer = frame.write.format("delta").mode("overwrite")
            writer = writer.option("replaceWhere", f"{BATCH_COLUMN} = {batch_id}")
            writer.partitionBy(*partitions, BATCH_COLUMN).save(str(table))
        else:
            self._write_iceberg(frame, table, batch_id, partitions)

    def _write_iceberg(
        self, frame: DataFrame, table: Path, batch_id: int, partitions: tuple[str, ...]
    ) -> None:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name

        name = iceberg_name(table)
        keys = [F.col(each) for each in (*partitions, BATCH_COLUMN)]
        writer = frame.writeTo(name).using("iceberg").option("fanout-enabled", "true")
        self._spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {NAMESPACE}")
        if self._spark.catalog.tableExists(name):
            writer.overwrite(F.col(BATCH_COLUMN) == batch_id)
        else:
            writer.partitionedBy(*keys).create()

    def read_batch(self, table: Path, batch_id: int) -> DataFrame:
        """Return the rows that were written for a batch."""
        from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name

        if self._format == "parquet":
            return self._spark.read.parquet(str(batch_folder(table, batch_id)))
        if self._format == "delta":
            frame = self._spark.read.format("delta").load(str(table))
        else:
            frame = self._spark.read.table(iceberg_name(table))
        return frame.where(F.col(BATCH_COLUMN) == batch_id)

    def count(self, table: Path, batch_id: int) -> int:
        """Return how many rows were written for a batch."""
        if self._format == "parquet":
            files = batch_folder(table, batch_id).rglob("*.parquet")
            return sum(pq.read_metadata(file).num_rows for file in files)
        return self.read_batch(table, batch_id).count()


def iceberg_name(table: Path) -> str:
    """Return the name of a table in the session's catalog."""
    prefix = "silver_" if table.parent.name == "silver" else ""
    return f"{NAMESPACE}.{prefix}{table.name}"


def write_rows(table: Path, batch_id: int, rows: pa.Table) -> None:
    """Write a batch of a small table without Spark; nothing if there are no rows."""
    forget_batch(table, batch_id)
    if not rows.num_rows:
        return
    folder = batch_folder(table, batch_id)
    partial = folder.with_name(f".{folder.name}.partial")
    partial.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, partial / "part.parquet", compression="zstd")
    for path in (partial / "part.parquet", partial):
        sync(path)
    partial.replace(folder)
    sync(table)


def read_folders(
    table: Path, schema: pa.Schema, before: int | None = None, after: int = -1
) -> pa.Table:
    """Read what batches have written, with the given columns; an empty table if there is nothing.

    Args:
        table: Folder of the table.
        schema: Columns to read.
        before: Only batches before this one.
        after: Only batches after this one.
    """
    folders = [
        folder
        for batch_id, folder in batch_folders(table).items()
        if batch_id > after and (before is None or batch_id < before)
    ]
    found = [
        pq.read_table(file, schema=schema, partitioning=None)
        for folder in folders
        for file in sorted(folder.rglob("*.parquet"))
    ]
    return pa.concat_tables([schema.empty_table(), *found])


ASIDE: Final = "_compacting"
NOTE: Final = "_compaction.json"


def choose(sizes: Mapping[int, int], *, max_bytes: int, count: int) -> list[list[int]]:
    """Return groups of adjacent batches to join, each as large as a full file.

    The last batches wait until there are `count` of them.

    Args:
        sizes: Sizes of the batch folders in bytes, in order of batch.
        max_bytes: Size of a full file.
        count: Number of small folders that are joined even if they fill no file.
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
    """Replace the folders of those batches by the joined folder."""
    write_atomically(table / NOTE, json.dumps(batch_ids).encode())
    finish(table, batch_ids)


def recover(table: Path) -> None:
    """Complete an interrupted compaction, or discard it if its note was not written."""
    note = table / NOTE
    if note.exists():
        finish(table, json.loads(note.read_text()))
    elif (table / ASIDE).exists():
        shutil.rmtree(table / ASIDE)


def finish(table: Path, batch_ids: list[int]) -> None:
    """Remove the parts, and move the joined folder to the place of the last one."""
    if (table / ASIDE).exists():
        # The joined folder must be on the disk before the parts are removed, in case the host
        # fails.
        sync_all(table / ASIDE)
        for batch_id in batch_ids:
            shutil.rmtree(batch_folder(table, batch_id), ignore_errors=True)
        (table / ASIDE).replace(batch_folder(table, batch_ids[-1]))
        sync(table)
    (table / NOTE).unlink()


def compact_lake(
    spark: SparkSession, lake: Lake, *, before: int, max_bytes: int, count: int
) -> int:
    """Join small folders in every table of a lake; return how many folders were removed.

    Args:
        spark: The session.
        lake: Lake with tables in Parquet.
        before: Only batches before this one, which may not be committed.
        max_bytes: Size of a full file.
        count: Number of small folders that are joined even if they fill no file.
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
    """Join the rows of several batches of a gold table, which are few."""
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
    """Return the size of a batch folder in bytes."""
    return sum(each.stat().st_size for each in folder.rglob("*.parquet"))
