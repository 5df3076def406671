"""Commits: the files of a batch become a part of their table, once, or not at all.

The fence of a Delta table is an application transaction: whoever commits a batch loads the table,
looks whether a batch of this query is there that is not older, and commits with that same handle.
If another job with the same query came in between, Delta refuses the commit.

Tables in Parquet have a folder for each batch. An attempt writes its files elsewhere; a commit
moves them into a new folder and gives that its name. A folder that has the name already refuses it.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, final

from deltalake import Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction

from aeron_async.clock import SystemClock
from aeron_async.errors import ArchiveError
from aeron_async.spark.lake.files import batch_of, sync
from aeron_async.spark.lake.maintenance import next_turn
from aeron_async.spark.lake.reading import lake_tables, load_table
from aeron_async.spark.lake.tables import (
    batch_folder,
    batch_folders,
    check_columns,
    open_table,
    write_commit,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from deltalake import DeltaTable

    from aeron_async.spark.lake.files import DataFile
    from aeron_async.spark.lake.tables import Lake

__all__ = ["DeltaStore", "FolderStore", "Store"]

ATTEMPTS: Final = 10
"""How often a commit is tried again after another one came between."""


class Store(Protocol):
    """Tables of a lake in one format, written by one query."""

    query: str

    def prepare(self, table: str, schema: pa.Schema) -> None:
        """Create a table, or check and complete its columns; partition columns are in them.

        Raises:
            ConfigurationError: The table has other columns.
        """
        ...

    def last(self, table: str) -> int | None:
        """Return the last batch of this query in a table; None if there is none."""
        ...

    def folder(self, table: str, batch: int) -> Path:
        """Return where files of a table are written before they are committed."""
        ...

    def commit(
        self, table: str, batch: int, files: Sequence[DataFile], *, replace: bool = False
    ) -> None:
        """Make files a part of a table.

        Args:
            table: Table that was prepared.
            batch: Batch that the files belong to.
            files: Files in the folder that `folder` returned.
            replace: Whether they replace all files of the table.

        Raises:
            ArchiveError: Another job has committed the batch, or commits all the time.
        """
        ...

    def versions(self) -> dict[str, int]:
        """Return the version of each table that has versions."""
        ...

    def roll_back(self, last: int) -> None:
        """Take out of all tables what batches after the last one have left.

        Raises:
            ArchiveError: Other processes commit all the time.
        """
        ...


def is_taken(table: str, batch: int) -> ArchiveError:
    """Return the error about a batch that another job has committed."""
    return ArchiveError(
        f"another job has committed batch {batch} to table {table} of this lake: nothing is lost, "
        "and nothing is there twice; let one of the two jobs end"
    )


def is_busy(problem: str, table: str) -> ArchiveError:
    """Return the error about a table to which others commit all the time."""
    return ArchiveError(
        f"{problem}: table {table} had other commits in each of {ATTEMPTS} attempts; let the "
        "processes that write to it end, and start again"
    )


@final
class DeltaStore:
    """Delta tables.

    Args:
        lake: The lake.

    Attributes:
        query: Id of the query, which is the id of its application transactions; known when the
            query has begun.
    """

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self.query: str = ""
        self._tables: dict[str, DeltaTable] = {}

    def prepare(self, table: str, schema: pa.Schema) -> None:
        """Create a table, or complete its columns."""
        self._tables[table] = open_table(self._lake.path(table), schema)

    def last(self, table: str) -> int | None:
        """Return the last batch of this query in a table."""
        self._tables[table].update_incremental()
        return self._tables[table].transaction_version(self.query)

    def folder(self, table: str, batch: int) -> Path:
        """Return the folder of the table: its log says which files count."""
        del batch
        return self._lake.path(table)

    def commit(
        self, table: str, batch: int, files: Sequence[DataFile], *, replace: bool = False
    ) -> None:
        """Add files to a table by one commit."""
        done = [
            AddAction(
                path=each.path,
                size=each.size,
                partition_values=dict(each.partition),
                modification_time=SystemClock().epoch_ms(),
                data_change=True,
                stats=each.stats,
            )
            for each in files
        ]
        for _ in range(ATTEMPTS):
            last = self.last(table)
            if last is not None and last >= batch:
                raise is_taken(table, batch)
            removed = removals(self._tables[table]) if replace else []
            try:
                self._write(table, [*removed, *done], batch)
            except CommitFailedError:
                continue
            return
        problem = f"batch {batch} could not be committed"
        raise is_busy(problem, table)

    def versions(self) -> dict[str, int]:
        """Return the version of each table."""
        for each in self._tables.values():
            each.update_incremental()
        return {name: each.version() for name, each in self._tables.items()}

    def roll_back(self, last: int) -> None:
        """Remove files that name a later batch; they belong to one that not all tables have."""
        for name, folder in lake_tables(self._lake.root).items():
            if name not in self._tables:
                self._tables[name] = load_table(folder)
            self._roll_back(name, last)

    def _roll_back(self, table: str, last: int) -> None:
        for _ in range(ATTEMPTS):
            self._tables[table].update_incremental()
            actions = removals(self._tables[table], after=last)
            try:
                if actions:
                    self._write(table, actions, None)
            except CommitFailedError:
                continue
            return
        problem = f"what batches after {last} have left could not be removed"
        raise is_busy(problem, table)

    def _write(
        self, table: str, actions: Sequence[AddAction | RemoveAction], batch: int | None
    ) -> None:
        handle = self._tables[table]
        fence = [] if batch is None else [Transaction(self.query, batch)]
        if any(isinstance(each, RemoveAction) for each in actions):
            # Maintenance may replace the same files meanwhile: one of the two commits is refused.
            fence.append(next_turn(handle))
        # Spark commits the batch behind this one, and the host may fail after that.
        write_commit(handle, actions, fence, {"aeron.query": self.query, "aeron.batch": str(batch)})


def removals(table: DeltaTable, after: int = -1) -> list[RemoveAction]:
    """Return actions that remove the files of later batches from a table.

    Args:
        table: The table.
        after: Last batch that stays; -1 removes files whatever their names.
    """
    now_ms = SystemClock().epoch_ms()
    found = table.get_add_actions(flatten=True)
    paths, sizes = (found.column(name).to_pylist() for name in ("path", "size_bytes"))
    partitions = {
        name: found.column(f"partition.{name}").to_pylist()
        for name in table.metadata().partition_columns
    }
    return [
        RemoveAction(
            path=path,
            data_change=True,
            deletion_timestamp=now_ms,
            size=size,
            partition_values={name: str(values[row]) for name, values in partitions.items()},
        )
        for row, (path, size) in enumerate(zip(paths, sizes, strict=True))
        if after < 0 or batch_of(path) > after
    ]


@final
class FolderStore:
    """Tables in Parquet, with a folder for each batch.

    Args:
        lake: The lake.

    Attributes:
        query: Not used here: whoever is first with a folder has it.
    """

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self.query: str = ""
        self._tables: set[str] = set()

    def prepare(self, table: str, schema: pa.Schema) -> None:
        """Check the columns of a table."""
        check_columns(self._lake.path(table), schema)

    def last(self, table: str) -> int | None:
        """Return the last batch in a table."""
        return max(batch_folders(self._lake.path(table)), default=None)

    def folder(self, table: str, batch: int) -> Path:
        """Return a folder outside of the table, which no reader knows."""
        return self._lake.attempts / str(batch) / table

    def commit(
        self, table: str, batch: int, files: Sequence[DataFile], *, replace: bool = False
    ) -> None:
        """Move files into a folder, which gets its name when it is complete."""
        source, root = self.folder(table, batch), self._lake.path(table)
        target = batch_folder(root, batch)
        partial = root / f".{target.name}.{Path(files[0].path).stem}"
        earlier = batch_folders(root).values() if replace else ()
        try:
            for each in files:
                place = partial / each.path
                place.parent.mkdir(parents=True, exist_ok=True)
                (source / each.path).replace(place)
            for path in (*partial.rglob("*"), partial):
                sync(path)
            partial.rename(target)
        except OSError as error:
            shutil.rmtree(partial, ignore_errors=True)
            if target.exists():
                raise is_taken(table, batch) from error
            message = (
                f"batch {batch} could not be committed to table {table}: "
                f"{error.strerror or error}; nothing of it is there: mend that, and start again"
            )
            raise ArchiveError(message) from error
        for folder in earlier:
            shutil.rmtree(folder)
        sync(root)
        # What attempts have left that were killed while they moved their files.
        for folder in root.glob(f".{target.name}.*"):
            shutil.rmtree(folder, ignore_errors=True)

    def versions(self) -> dict[str, int]:
        """Return nothing: a folder has no versions."""
        return {}

    def roll_back(self, last: int) -> None:
        """Remove the folders of later batches."""
        for name in self._lake.tables():
            for batch, folder in batch_folders(self._lake.path(name)).items():
                if batch > last:
                    shutil.rmtree(folder)
