"""Table `batches`, and who may go on with a lake.

A batch has a row when all other tables have it. Its versions name one state of all of them.

A lake belongs to the query whose checkpoint it holds. With another checkpoint all messages would be
ingested again, so that is refused, unless the user says that the new query takes over: then it
begins where the last batch ended, and numbers its batches behind those that are there.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, final

import pyarrow as pa

from aeron_async.errors import ConfigurationError
from aeron_async.spark.lake.files import BATCH_COLUMN
from aeron_async.spark.lake.tables import BATCHES

if TYPE_CHECKING:
    from pathlib import Path

    from aeron_async.spark.lake.tables import Lake

__all__ = ["BATCHES_SCHEMA", "BatchLog", "has_checkpoint", "offsets_text", "query_of"]

TAKEN_OVER: Final = "taken over from"
BATCHES_SCHEMA: Final = pa.schema(
    [
        (BATCH_COLUMN, pa.int64()),
        ("query", pa.string()),
        ("committed", pa.timestamp("us", tz="UTC")),
        ("messages", pa.int64()),
        ("bytes", pa.int64()),
        ("gaps", pa.int64()),
        ("quarantined", pa.int64()),
        ("decoded", pa.string()),
        ("offsets", pa.string()),
        ("versions", pa.string()),
    ]
)
"""Columns: `decoded` counts by kind, `versions` by table, `offsets` as Spark has them; in JSON."""


def has_checkpoint(lake: Lake) -> bool:
    """Return whether a query has begun to write a lake."""
    return (lake.checkpoint / "metadata").exists()


def query_of(checkpoint: Path) -> str | None:
    """Return the id of the query that a checkpoint belongs to; None if it is none, or damaged."""
    try:
        return str(json.loads((checkpoint / "metadata").read_text())["id"])
    except (OSError, ValueError, TypeError, KeyError):
        return None


def offsets_text(checkpoint: Path, batch: int) -> str | None:
    """Return the offsets at which a batch ends, as Spark has written them; None if it has not."""
    path = checkpoint / "offsets" / str(batch)
    # A version, what Spark needs itself, and a line for each source.
    return path.read_text().splitlines()[-1] if path.exists() else None


@final
class BatchLog:
    """The batches of a lake and their queries, as they are when a job begins.

    Attributes:
        last: Last batch that all tables have; -1 if there is none.
        query: Its query; None if there is none.
    """

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        schema = pa.schema([BATCHES_SCHEMA.field(name) for name in (BATCH_COLUMN, "query")])
        rows: list[dict[str, Any]] = lake.read(BATCHES, schema).to_pylist()
        rows.sort(key=lambda row: int(row[BATCH_COLUMN]))
        self._rows = rows
        self.last: int = rows[-1][BATCH_COLUMN] if rows else -1
        self.query: str | None = rows[-1]["query"] if rows else None

    def first_of(self, query: str) -> int:
        """Return the number of the first batch of a query."""
        others = [row[BATCH_COLUMN] for row in self._rows if row["query"] != query]
        return max(others, default=-1) + 1

    def check(self, *, take_over: bool) -> bool:
        """Return whether a new query takes over the lake.

        Args:
            take_over: Whether it may.

        Raises:
            ConfigurationError: The lake belongs to another query.
        """
        lake = self._lake
        query, begun = query_of(lake.checkpoint), lake.begun()
        has_rows = any(lake.files(table) for table in lake.tables())
        if not has_rows or (query is not None and query == self.query):
            return False
        if TAKEN_OVER in begun and begun[TAKEN_OVER] == self.query:
            return True
        if has_checkpoint(lake):
            if self.query is None:
                # Its first batch is in some tables.
                return False
            message = (
                f"lake {str(lake.root)!r} belongs to query {self.query}, and its _checkpoint is "
                f"that of query {query}: restore the right one, or remove _checkpoint and give "
                "--take-over"
            )
            raise ConfigurationError(message)
        if not take_over:
            message = (
                f"lake {str(lake.root)!r} has messages and no _checkpoint, so that all of them "
                "would be ingested again: restore it, give --take-over to go on behind the last "
                "batch, or begin another LAKE"
            )
            raise ConfigurationError(message)
        lake.note({TAKEN_OVER: self.query})
        return True
