"""Commits: the files of a batch become a part of their table, once, or not at all.

The fence of a Delta table is an application transaction: whoever commits a batch loads the table,
looks whether a batch of this query is there that is not older, and commits with that same handle.
If another job with the same query came in between, Delta refuses the commit.

A batch commits to one table after another, so that alone would not stop a job that is taken over
between two of them: its query has another id than that of its successor, which rolls its batch back
and begins it again, and what it commits after that would be in a table twice. So all jobs of a lake
have one more application id in common, `aeron:job`, whose version is the turn of the job. It is a
part of each of their commits. Who takes over commits the next turn to `batches`, which ends what
the other one may complete, reads which batch was the last one, and then rolls back each table by a
commit with its turn. So a commit of the job before it is in a table before that, and rolled back,
or it is refused.

Tables in Parquet have a folder for each batch. An attempt writes its files elsewhere; a commit
moves them into a new folder and gives that its name. A folder that has the name already refuses it.
They have no turns: end a job before another one takes over its lake.
"""

from __future__ import annotations

import shutil
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final, Protocol, final

from deltalake import Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction

from aeron_async.clock import SystemClock
from aeron_async.errors import ArchiveError
from aeron_async.spark.lake.files import batch_of
from aeron_async.spark.lake.maintenance import next_turn
from aeron_async.spark.lake.places import LocalPlace, sync
from aeron_async.spark.lake.reading import lake_tables, load_table
from aeron_async.spark.lake.tables import (
    BATCHES,
    batch_folder,
    batch_folders,
    check_columns,
    open_table,
    write_commit,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pyarrow as pa
    from deltalake import DeltaTable

    from aeron_async.spark.lake.files import DataFile
    from aeron_async.spark.lake.places import LakePlace
    from aeron_async.spark.lake.tables import Lake

__all__ = ["JOBS", "DeltaStore", "FolderStore", "Store"]

JOBS: Final = "aeron:job"
"""Application id of all jobs that write a lake; its version is the turn of a job."""
ATTEMPTS: Final = 10
"""How often a commit is tried again after another one came between."""


class Store(Protocol):
    """Tables of a lake in one format, written by one query.

    Attributes:
        query: Id of the query; known when it has begun.
        turn: How often a job had taken over the lake when this one began, itself included.
    """

    query: str
    turn: int

    def prepare(self, table: str, schema: pa.Schema) -> None:
        """Create a table, or check and complete its columns; partition columns are in them.

        Raises:
            ConfigurationError: The table has other columns.
        """
        ...

    def last(self, table: str) -> int | None:
        """Return the last batch of this query in a table; None if there is none."""
        ...

    def begin(self) -> None:
        """Learn which turn it is; all tables are prepared."""
        ...

    def take_turn(self) -> None:
        """Begin the next turn: no job of an earlier one completes a batch any more.

        Raises:
            ArchiveError: Other processes commit all the time.
        """
        ...

    def folder(self, table: str, batch: int) -> LakePlace:
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
            ArchiveError: Another job has committed the batch, has taken over, or commits all the
                time.
        """
        ...

    def versions(self) -> dict[str, int]:
        """Return the version of each table that has versions."""
        ...

    def roll_back(self, last: int) -> None:
        """Take out of all tables what batches after the last one have left.

        No job of an earlier turn commits to any of them after that.

        Raises:
            ArchiveError: Other processes commit all the time, or another job has taken over.
        """
        ...


def is_taken(table: str, batch: int) -> ArchiveError:
    """Return the error about a batch that another job has committed."""
    return ArchiveError(
        f"another job has committed batch {batch} to table {table} of this lake: nothing is lost, "
        "and nothing is there twice; let one of the two jobs end"
    )


def is_taken_over(table: str, turn: int, mine: int) -> ArchiveError:
    """Return the error about a lake that another job has taken over."""
    return ArchiveError(
        f"another job has taken over this lake: table {table} is at turn {turn}, and this job has "
        f"turn {mine}; nothing is lost, and nothing is there twice; let one of the two jobs end"
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
        turn: Turn of the job, which is the version of `JOBS`.
    """

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self.query: str = ""
        self.turn: int = 0
        self._tables: dict[str, DeltaTable] = {}

    def prepare(self, table: str, schema: pa.Schema) -> None:
        """Create a table, or complete its columns."""
        self._tables[table] = open_table(self._lake.path(table), schema)

    def last(self, table: str) -> int | None:
        """Return the last batch of this query in a table."""
        with self._lake.path(table).answering():
            self._tables[table].update_incremental()
        return self._tables[table].transaction_version(self.query)

    def begin(self) -> None:
        """Learn which turn it is: the one that `batches` has."""
        self.turn = self._seen_turn(BATCHES)

    def take_turn(self) -> None:
        """Commit the next turn to `batches`, which has a row of a batch that is complete."""
        for _ in range(ATTEMPTS):
            self.turn = self._seen_turn(BATCHES) + 1
            try:
                self._write(BATCHES, [], None)
            except CommitFailedError:
                continue
            return
        problem = f"turn {self.turn} could not be taken"
        raise is_busy(problem, BATCHES)

    def _seen_turn(self, table: str) -> int:
        with self._lake.path(table).answering():
            self._tables[table].update_incremental()
        return self._tables[table].transaction_version(JOBS) or 0

    def folder(self, table: str, batch: int) -> LakePlace:
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
            self._check_turn(table)
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

    def _check_turn(self, table: str) -> None:
        """Refuse to commit if the loaded version of a table has a later turn."""
        turn = self._tables[table].transaction_version(JOBS) or 0
        if turn > self.turn:
            raise is_taken_over(table, turn, self.turn)

    def _roll_back(self, table: str, last: int) -> None:
        for _ in range(ATTEMPTS):
            is_mine = self._seen_turn(table) == self.turn
            self._check_turn(table)
            actions = removals(self._tables[table], after=last)
            try:
                if actions or not is_mine:
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
        fence = [Transaction(JOBS, self.turn)]
        if batch is not None:
            fence.append(Transaction(self.query, batch))
        if any(isinstance(each, RemoveAction) for each in actions):
            # Maintenance may replace the same files meanwhile: one of the two commits is refused.
            fence.append(next_turn(handle))
        # Spark commits the batch behind this one, and the host may fail after that.
        note = {"aeron.query": self.query, "aeron.batch": str(batch)}
        with self._lake.path(table).answering():
            write_commit(handle, actions, fence, note)


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
        turn: Not used here.

    Raises:
        ConfigurationError: The lake is in a store.
    """

    def __init__(self, lake: Lake) -> None:
        self._attempts = lake.attempts
        self._lake = lake
        self.query: str = ""
        self.turn: int = 0

    def prepare(self, table: str, schema: pa.Schema) -> None:
        """Check the columns of a table."""
        check_columns(LocalPlace(self._path(table)), schema)

    def last(self, table: str) -> int | None:
        """Return the last batch in a table."""
        return max(batch_folders(self._path(table)), default=None)

    def begin(self) -> None:
        """Do nothing: there are no turns."""

    def take_turn(self) -> None:
        """Do nothing: there are no turns."""

    def folder(self, table: str, batch: int) -> LocalPlace:
        """Return a folder outside of the table, which no reader knows."""
        return self._attempts / f"{batch}/{table}"

    def _path(self, table: str) -> Path:
        return self._attempts.path.parent.parent / table

    def commit(
        self, table: str, batch: int, files: Sequence[DataFile], *, replace: bool = False
    ) -> None:
        """Move files into a folder, which gets its name when it is complete."""
        source, root = self.folder(table, batch).path, self._path(table)
        target = batch_folder(root, batch)
        partial = root / f".{target.name}.{PurePosixPath(files[0].path).stem}"
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
            for batch, folder in batch_folders(self._path(name)).items():
                if batch > last:
                    shutil.rmtree(folder)
