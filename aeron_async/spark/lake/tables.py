"""Tables of a lake: where they lie, and what they are made of.

    LAKE/
    ├── bronze               one row per message
    ├── quarantine           messages that could not be decoded
    ├── silver/KIND          decoded messages
    ├── gold/TABLE           partial results, which add up
    ├── batches              one row per batch, after all other tables have it
    ├── _checkpoint/         of Spark: how far recordings were read; not in a store
    └── _state/              of this package: settings, last runs

Each is a Delta table, or with `--format parquet` a folder with a folder `batch=N` for each batch.

Spark without more packages writes no checkpoint to a store. There each job begins behind the last
batch that all tables have, and its checkpoint is a folder of its own that ends with it.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
import weakref
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, final

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import DeltaError

from aeron_async.errors import ArchiveError, ConfigurationError
from aeron_async.spark.lake.files import (
    BATCH_COLUMN,
    PARTITION_COLUMNS,
    file_schema,
    is_partitioned,
)
from aeron_async.spark.lake.places import LocalPlace, place_at, place_of
from aeron_async.spark.lake.reading import LOG, load_table, table_folders

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from deltalake import Transaction
    from deltalake.transaction import AddAction, RemoveAction

    from aeron_async.spark.lake.places import LakePlace

__all__ = [
    "BATCHES",
    "BRONZE",
    "QUARANTINE",
    "Lake",
    "batch_folder",
    "batch_folders",
    "files_of",
    "gold",
    "is_delta",
    "open_table",
    "silver",
    "sync_log",
    "write_commit",
]

BRONZE: Final = "bronze"
QUARANTINE: Final = "quarantine"
BATCHES: Final = "batches"
PROPERTIES: Final = {
    "delta.checkpointInterval": "100",
    "delta.logRetentionDuration": "interval 7 days",
    "delta.deletedFileRetentionDuration": "interval 1 days",
    # Maintenance removes the old log, when the checkpoint that stands for it is on the disk.
    "delta.enableExpiredLogCleanup": "false",
}
LAYOUT: Final = 2
"""Layout of a lake; a lake of another one is refused."""
BATCH: Final = re.compile(r"batch=(\d{1,19})")


def silver(kind: str) -> str:
    """Return the name of the table of a kind."""
    return f"silver/{kind}"


def gold(table: str) -> str:
    """Return the name of a table of results."""
    return f"gold/{table}"


@final
class Lake:
    """Folders of a lake.

    Args:
        root: Folder of the lake, which every executor must see under the same path, or its URL.

    Raises:
        ConfigurationError: A lake cannot be there.
    """

    def __init__(self, root: str | os.PathLike[str] | LakePlace) -> None:
        self.root: LakePlace = place_at(root)

    @cached_property
    def checkpoint(self) -> Path:
        """Return the folder of Spark's checkpoint; one that ends with this object for a store."""
        if isinstance(self.root, LocalPlace):
            return self.root.path / "_checkpoint"
        folder = tempfile.mkdtemp(prefix="aeron-checkpoint-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        return Path(folder)

    @property
    def state(self) -> LakePlace:
        """Return the folder of what only the job reads."""
        return self.root / "_state"

    @property
    def attempts(self) -> LocalPlace:
        """Return the folder of files that belong to no table in Parquet yet, by batch.

        Raises:
            ConfigurationError: The lake is in a store, in which folders cannot get a name at once.
        """
        if isinstance(self.root, LocalPlace):
            return self.root / "_state" / "attempts"
        message = f"lake {str(self.root)!r} is in a store, and --format parquet needs a folder"
        raise ConfigurationError(message)

    def path(self, table: str) -> LakePlace:
        """Return the folder of a table."""
        return self.root / table

    def tables(self) -> list[str]:
        """Return the names of all existing tables."""
        found = [name for name, _ in table_folders(self.root)]
        # As they are listed: what batches sum up comes behind them.
        return sorted(found, key=lambda name: "/" in name)

    def files(self, table: str) -> list[str]:
        """Return the paths or URLs of the files of a table's newest version; none without one."""
        place = self.path(table)
        return [place.url_of(each) for each in files_of(place)]

    def read(self, table: str, schema: pa.Schema, where: ds.Expression | None = None) -> pa.Table:
        """Read a small table; a column that a file lacks is null.

        Args:
            table: Name of a table without partitions.
            schema: Columns to read.
            where: Rows to read; all by default.
        """
        files = files_of(self.path(table))
        if not files:
            return schema.empty_table()
        known = schema if BATCH_COLUMN in schema.names else schema.append(BATCH_FIELD)
        place = self.path(table)
        paths = [place.inside(each) for each in files]
        read = ds.dataset(paths, schema=known, format="parquet", filesystem=place.files)
        return read.to_table(columns=schema.names, filter=where)

    def check_readable(self) -> None:
        """Refuse a folder that is no lake.

        Raises:
            ConfigurationError: The folder does not exist, or nothing was ingested into it.
        """
        if not self.root.has(""):
            message = (
                f"lake {str(self.root)!r} is no directory: name the LAKE of `pipeline run`"
                f"{self.root.hint()}"
            )
            raise ConfigurationError(message)
        if self.is_empty():
            message = (
                f"lake {str(self.root)!r} has no messages yet: `pipeline run` brings those that "
                "its archive has"
            )
            raise ConfigurationError(message)

    def is_empty(self) -> bool:
        """Return whether no batch has reached the gold tables."""
        return not self.files(gold("runs"))

    def check_settings(self, resolved: Mapping[str, Any]) -> None:
        """Refuse to continue a lake with settings that would mix different data.

        Args:
            resolved: Settings that must stay what they were when the lake was begun.

        Raises:
            ConfigurationError: A setting has changed, or an older version has begun the lake.
        """
        begun = self.begun()
        if begun and begun.get("layout") != LAYOUT:
            message = (
                f"lake {str(self.root)!r} was begun by an older version, whose tables were other "
                "ones: begin another LAKE"
            )
            raise ConfigurationError(message)
        for name, value in resolved.items():
            if begun.get(name, value) != value:
                message = (
                    f"lake {str(self.root)!r} was begun with {name}={begun[name]!r}, and this is "
                    f"{value!r}: change {name}, or begin another LAKE"
                )
                raise ConfigurationError(message)
        # A setting that was not recorded yet is fixed from now on.
        self.note({"layout": LAYOUT, **resolved})

    def begun(self) -> dict[str, Any]:
        """Return what was noted when the lake was begun, and since; nothing for a new lake."""
        found: dict[str, Any] = json.loads(self.state.read("begun.json") or b"{}")
        return found

    def note(self, values: Mapping[str, Any]) -> None:
        """Add to what is noted about the lake."""
        data = json.dumps(self.begun() | dict(values), indent=2)
        self.state.write("begun.json", data.encode())


BATCH_FIELD: Final = pa.field(BATCH_COLUMN, pa.int64())


def is_delta(folder: LakePlace) -> bool:
    """Return whether a folder has a Delta table.

    Raises:
        ArchiveError: Its store does not answer.
    """
    try:
        return DeltaTable.is_deltatable(folder.uri, folder.options)
    except (DeltaError, OSError) as error:
        message = f"table {str(folder)!r} cannot be looked for: {folder.told(error)}{folder.hint()}"
        raise ArchiveError(message) from folder.cause(error)


def files_of(folder: LakePlace) -> list[str]:
    """Return the files of the newest version of a table, in it; none if there is no table."""
    if is_delta(folder):
        # Not `file_uris`, which spells a space in the folder of the table as %20.
        return sorted(load_table(folder).get_add_actions().column("path").to_pylist())
    if not isinstance(folder, LocalPlace):
        return []
    found = [each.rglob("*.parquet") for each in batch_folders(folder.path).values()]
    return [str(file.relative_to(folder.path)) for files in found for file in sorted(files)]


def open_table(folder: LakePlace, schema: pa.Schema) -> DeltaTable:
    """Return a Delta table with at least these columns; it is created if it is not there.

    Raises:
        ConfigurationError: The table has a column as another type.
        ArchiveError: The table cannot be loaded, or its store does not answer.
    """
    if not is_delta(folder):
        try:
            table = DeltaTable.create(
                folder.uri,
                schema=schema,
                partition_by=list(PARTITION_COLUMNS) if is_partitioned(schema) else [],
                mode="ignore",
                configuration=PROPERTIES,
                storage_options=folder.options,
            )
        except (DeltaError, OSError) as error:
            # Another job may have been first with it.
            if not is_delta(folder):
                message = f"table {str(folder)!r} cannot be created: {folder.told(error)}"
                raise ArchiveError(message + folder.hint()) from folder.cause(error)
        else:
            sync_log(table, -1)
            return table
    table = load_table(folder)
    there = {field.name: field.type for field in table.schema().fields}
    added = []
    for field in Schema.from_arrow(schema).fields:
        if field.name not in there:
            added.append(field)
        elif there[field.name] != field.type:
            refuse_type(folder, field.name, there[field.name], field.type)
    if added:
        before = table.version()
        table.alter.add_columns(added)
        sync_log(table, before)
    return table


def write_commit(
    table: DeltaTable,
    actions: Sequence[AddAction | RemoveAction],
    fence: Sequence[Transaction],
    note: Mapping[str, str],
) -> None:
    """Commit to a table on this handle, load what came since, and bring that to the disk.

    Args:
        table: The loaded table.
        actions: Files to add and to remove; may be none.
        fence: Application transactions: if one of them was committed since the table was loaded,
            this commit is refused.
        note: What the commit says about itself.

    Raises:
        CommitFailedError: Another commit came between.
        OSError: The log could not be synced; the commit is in.
    """
    before = table.version()
    table.create_write_transaction(
        list(actions),
        "append",
        table.schema(),
        list(table.metadata().partition_columns),
        commit_properties=CommitProperties(
            custom_metadata=dict(note), app_transactions=list(fence), max_commit_retries=15
        ),
    )
    sync_log(table, before)


def sync_log(table: DeltaTable, before: int) -> None:
    """Load the commits of a table behind a version, and bring them to the disk.

    Raises:
        OSError: They could not be synced.
    """
    table.update_incremental()
    versions = range(before + 1, table.version() + 1)
    (place_of(table) / LOG).sync_names([f"{version:020}.json" for version in versions])


def check_columns(folder: LocalPlace, schema: pa.Schema) -> None:
    """Refuse a table in Parquet that has other columns: readers take them from any of its files.

    Raises:
        ConfigurationError: The table has other columns.
    """
    files = files_of(folder)
    if not files:
        return
    there = types_of(pq.read_schema(folder.inside(files[0])))
    wanted = types_of(file_schema(schema))
    for name in {**wanted, **there}:
        if there.get(name) != wanted.get(name):
            refuse_type(folder, name, there.get(name), wanted.get(name))


def types_of(schema: pa.Schema) -> dict[str, Any]:
    """Return the type of each column as Delta has it."""
    return {field.name: field.type for field in Schema.from_arrow(schema).fields}


def refuse_type(folder: LakePlace, column: str, before: object, now: object) -> NoReturn:
    """Raise an error about a column whose type has changed."""
    message = (
        f"table {str(folder)!r} has column {column!r} as {name_of(before)}, and now it is "
        f"{name_of(now)}: a column keeps its type; decode into another kind, or begin another LAKE"
    )
    raise ConfigurationError(message)


def name_of(kind: object) -> str:
    """Return the name of a column's type; none if there is no such column."""
    return "none" if kind is None else str(getattr(kind, "type", kind))


def batch_folders(table: Path) -> dict[int, Path]:
    """Return the folders of a table's batches by batch id, in order."""
    if not table.is_dir():
        return {}
    found = [(BATCH.fullmatch(each.name), each) for each in table.iterdir()]
    return dict(sorted((int(match[1]), each) for match, each in found if match is not None))


def batch_folder(table: Path, batch: int) -> Path:
    """Return the folder of a batch of a table in Parquet."""
    return table / f"batch={batch}"
