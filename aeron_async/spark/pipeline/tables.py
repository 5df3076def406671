"""Writes the batches of a table, each in place of what an earlier attempt at it has left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import pyarrow as pa
import pyarrow.parquet as pq

from aeron_async.spark.pipeline.lake import (
    batch_folder,
    batch_folders,
    forget_batch,
    sync,
    sync_all,
)

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from aeron_async.spark.pipeline.settings import PipelineSettings

__all__ = ["Tables", "read_folders", "write_rows"]

BATCH_COLUMN: Final = "ingest_batch"
NAMESPACE: Final = "aeron"
"""Of Iceberg tables, in the catalog that the session has by default."""


@final
class Tables:
    """The tables of bronze and silver, in the format that was chosen.

    Args:
        spark: The session.
        settings: Of the pipeline.
    """

    def __init__(self, spark: SparkSession, settings: PipelineSettings) -> None:
        self._spark = spark
        self._format = settings.format

    def write(
        self, frame: DataFrame, table: Path, batch_id: int, partitions: tuple[str, ...] = ()
    ) -> None:
        """Write a batch of a table.

        Args:
            frame: With a column `ingest_batch` that is `batch_id` in every row.
            table: Its folder.
            batch_id: Of the batch.
            partitions: Columns that have a folder for each value.
        """
        if self._format == "parquet":
            writer = frame.write.mode("overwrite").option("compression", "zstd")
            folder = batch_folder(table, batch_id)
            writer.partitionBy(*partitions).parquet(str(folder))
            # Spark leaves that to the system, and goes on behind the batch for good: what a host
            # that fails has lost would never be written again.
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
        from pyspark.sql import functions as F  # noqa: N812, PLC0415 - as everybody calls it

        name = iceberg_name(table)
        keys = [F.col(each) for each in (*partitions, BATCH_COLUMN)]
        writer = frame.writeTo(name).using("iceberg").option("fanout-enabled", "true")
        self._spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {NAMESPACE}")
        if self._spark.catalog.tableExists(name):
            writer.overwrite(F.col(BATCH_COLUMN) == batch_id)
        else:
            writer.partitionedBy(*keys).create()

    def read_batch(self, table: Path, batch_id: int) -> DataFrame:
        """Return what was written of a batch."""
        from pyspark.sql import functions as F  # noqa: N812, PLC0415 - as everybody calls it

        if self._format == "parquet":
            return self._spark.read.parquet(str(batch_folder(table, batch_id)))
        if self._format == "delta":
            frame = self._spark.read.format("delta").load(str(table))
        else:
            frame = self._spark.read.table(iceberg_name(table))
        return frame.where(F.col(BATCH_COLUMN) == batch_id)

    def count(self, table: Path, batch_id: int) -> int:
        """Return how many rows were written of a batch."""
        if self._format == "parquet":
            files = batch_folder(table, batch_id).rglob("*.parquet")
            return sum(pq.read_metadata(file).num_rows for file in files)
        return self.read_batch(table, batch_id).count()


def iceberg_name(table: Path) -> str:
    """Return what a table is called in the session's catalog."""
    prefix = "silver_" if table.parent.name == "silver" else ""
    return f"{NAMESPACE}.{prefix}{table.name}"


def write_rows(table: Path, batch_id: int, rows: pa.Table) -> None:
    """Write a batch of a table that is small, from here; nothing where there are no rows."""
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
    """Read what batches have written, with those columns; without rows where there is nothing.

    Args:
        table: Its folder.
        schema: The columns.
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
