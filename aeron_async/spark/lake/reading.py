"""Snapshots of tables of a lake: the files of one version, and readers that read no others.

A reader gets the list of files from the table's log, never from a folder: a folder also holds files
of batches that failed, and files that compaction has replaced. Conditions select the files by the
statistics in the log, so that a reader opens few of many files, and then the rows.

A snapshot is a version. Compaction leaves its files until `maintain` removes them, at the earliest
after the retention.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final, Self, final

import pyarrow as pa
import pyarrow.dataset as pds
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from aeron_async.errors import ArchiveError, ConfigurationError
from aeron_async.spark.lake.conditions import all_of, fitting_files, parse_conditions
from aeron_async.spark.lake.file_lists import frame_of
from aeron_async.spark.lake.places import LocalPlace, place_at, place_of
from aeron_async.text import printable

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    import polars as pl
    from pyspark.sql import DataFrame, SparkSession

    from aeron_async.spark.lake.places import LakePlace

__all__ = ["LOG", "TableSnapshot", "lake_tables", "load_table", "read_delta", "table_folders"]

FOLDERS: Final = ("bronze", "quarantine", "silver/*", "gold/*", "batches")
LOG: Final = "_delta_log"


def table_folders(root: LakePlace) -> Iterator[tuple[str, LakePlace]]:
    """Yield the names of all tables of a lake that may be there, and their folders."""
    top = root.folders()
    for pattern in FOLDERS:
        parent, _, is_several = pattern.partition("/")
        if parent in top:
            names = (root / parent).folders() if is_several else [""]
            for each in names:
                name = f"{parent}/{each}" if each else parent
                yield name, root / name


def lake_tables(root: str | os.PathLike[str] | LakePlace) -> dict[str, LakePlace]:
    """Return the folders of a lake's tables by name: `bronze`, `silver/KIND`, `gold/TABLE`.

    Args:
        root: Path or URL of the lake.

    Raises:
        ConfigurationError: The folder has no such table.
        ArchiveError: Its store does not answer.
    """
    folder = place_at(root)
    found = {name: each for name, each in table_folders(folder) if each.has(LOG)}
    if not found:
        message = (
            f"lake {printable(folder)!r} has no Delta table: name the LAKE of `pipeline run`, "
            f"which wrote it without --format parquet{folder.hint()}"
        )
        raise ConfigurationError(message)
    return found


def load_table(path: str | os.PathLike[str] | LakePlace, version: int | None = None) -> DeltaTable:
    """Load a table.

    Args:
        path: Path or URL of the table.
        version: Version to load; by default the newest one.

    Raises:
        ConfigurationError: The folder has no table, or no such version.
        ArchiveError: The table cannot be loaded.
    """
    folder = place_at(path)
    if not folder.has(LOG):
        message = f"path {printable(folder)!r} is no Delta table: name the folder of a table"
        raise ConfigurationError(message)
    try:
        return DeltaTable(folder.uri, version=version, storage_options=folder.options)
    except (DeltaError, OSError) as error:
        if version is not None:
            message = (
                f"table {printable(folder)!r} has no version {version}, or its log was removed "
                f"after its retention: {folder.told(error)}; choose a newer version"
            )
            raise ConfigurationError(message) from folder.cause(error)
        message = (
            f"table {printable(folder)!r} cannot be loaded: {folder.told(error)}{folder.hint()}"
        )
        raise ArchiveError(message) from folder.cause(error)


@final
class TableSnapshot:
    """One version of a table: its files, and readers for them.

    Args:
        table: The loaded table; its version must not change.
    """

    def __init__(self, table: DeltaTable) -> None:
        self._table = table
        self.folder: LakePlace = place_of(table)
        self.version: int = table.version()
        self.schema: pa.Schema = pa.schema(table.schema().to_arrow())
        self.partition_columns: tuple[str, ...] = tuple(table.metadata().partition_columns)

    @classmethod
    def open(cls, path: str | os.PathLike[str] | LakePlace, version: int | None = None) -> Self:
        """Open a table.

        Args:
            path: Path or URL of the table.
            version: Version to read; by default the newest one.

        Raises:
            ConfigurationError: The folder has no table, or no such version.
            ArchiveError: The table cannot be loaded.
        """
        return cls(load_table(path, version))

    @cached_property
    def _files(self) -> pa.Table:
        return pa.table(self._table.get_add_actions(flatten=True))

    def files(self, where: str | None = None) -> pa.Table:
        """Return a row for each file that may have rows for which the conditions hold.

        Args:
            where: Conditions, such as `date = '2026-11-18' and position < 4096`.

        Raises:
            ConfigurationError: `where` has another form, or names no column of the table.
        """
        return fitting_files(self._files, parse_conditions(where, self.schema))

    def paths(self, where: str | None = None) -> list[str]:
        """Return the absolute paths of those files, or their URLs."""
        return [self.folder.url_of(each) for each in self.files(where).column("path").to_pylist()]

    def polars(self, where: str | None = None) -> pl.LazyFrame:
        """Return the rows for which the conditions hold as a lazy frame of Polars."""
        import polars as pl  # noqa: PLC0415 - only this reader needs it

        conditions = parse_conditions(where, self.schema)
        schema = pl.DataFrame(self.schema.empty_table()).schema
        paths = self.paths(where)
        if not paths:
            return pl.LazyFrame(schema=schema)
        partitions = {name: schema[name] for name in self.partition_columns}
        frame = pl.scan_parquet(
            paths,
            glob=False,
            schema={name: kind for name, kind in schema.items() if name not in partitions},
            hive_partitioning=bool(partitions),
            hive_schema=partitions or None,
            missing_columns="insert",
            extra_columns="ignore",
            cast_options=pl.ScanCastOptions(integer_cast="upcast"),
            storage_options=self.folder.options,
        ).select(schema.names())
        rows = all_of([each.holds(pl.col(each.column), pl.lit) for each in conditions])
        return frame if rows is None else frame.filter(rows)

    def arrow(self, where: str | None = None) -> pds.Dataset:
        """Return the rows for which the conditions hold as a dataset of Arrow.

        DuckDB reads it once it is registered: `duckdb.register("quotes", snapshot.arrow())`.
        """
        conditions = parse_conditions(where, self.schema)
        stored = self.folder.files
        parquet = pds.ParquetFileFormat()
        files = self.files(where)
        keys = {name: files.column(f"partition.{name}") for name in self.partition_columns}
        fragments = []
        for place, path in enumerate(files.column("path").to_pylist()):
            values = [pds.field(name) == column[place] for name, column in keys.items()]
            fragment = parquet.make_fragment(
                self.folder.inside(path),
                filesystem=stored,
                partition_expression=all_of(values) if values else None,
            )
            fragments.append(fragment)
        found = pds.FileSystemDataset(fragments, self.schema, parquet, stored)
        rows = all_of([each.holds(pds.field(each.column), pds.scalar) for each in conditions])
        return found if rows is None else found.filter(rows)

    def spark(self, spark: SparkSession, where: str | None = None) -> DataFrame:
        """Return the rows for which the conditions hold as a frame of Spark.

        Spark gets the list of files, and looks at none of them before a query; see `file_lists`.

        Args:
            spark: A session, not of Spark Connect; it sees the files under the same paths.
            where: Conditions on the rows.

        Raises:
            ConfigurationError: `where` has another form, the table is not in a folder that Spark
                opens, or the session is one of Spark Connect, or takes no list of files.
        """
        from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name
        from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 - as above

        conditions = parse_conditions(where, self.schema)
        if not isinstance(self.folder, LocalPlace):
            message = (
                f"table {printable(self.folder)!r} is in a store, which Spark opens with packages "
                "of its own only: read it by `arrow` or `polars`"
            )
            raise ConfigurationError(message)
        files, schema = self.files(where), from_arrow_schema(self.schema)
        if not files.num_rows:
            return spark.createDataFrame([], schema)
        frame = frame_of(spark, self.folder.path, files, schema, self.partition_columns)
        rows = all_of([each.holds(F.col(f"`{each.column}`"), F.lit) for each in conditions])
        return frame if rows is None else frame.where(rows)


def read_delta(
    spark: SparkSession,
    path: str | os.PathLike[str],
    version: int | None = None,
    where: str | None = None,
) -> DataFrame:
    """Return a table, or some of its rows, as a frame of Spark.

    Args:
        spark: A session, not of Spark Connect.
        path: Folder of the table.
        version: Version to read; by default the newest one.
        where: Conditions on the rows, such as `date = '2026-11-18' and position < 4096`.

    Raises:
        ConfigurationError: The folder has no table, or no such version, or `where` is invalid.
        ArchiveError: The table cannot be loaded.
    """
    return TableSnapshot.open(path, version).spark(spark, where)
