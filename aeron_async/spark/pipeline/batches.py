"""What a batch leaves to those behind it, and who may go on with a lake.

A batch has a row when all other tables have it. Its versions name one state of all of them.

A lake belongs to the query whose checkpoint it holds. With another checkpoint all messages would be
ingested again, so that is refused, unless the user says that the new query takes over: then it
begins where the last batch ended, and numbers its batches behind those that are there.

The last runs are stored beside the tables, so that a batch costs the same however many came before.
If they are missing, the job reads the runs themselves: those of later batches, or all. Their names
have the turn of the job, because one that was taken over may still write its own.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from aeron_async.errors import ArchiveError, ConfigurationError
from aeron_async.spark.lake.files import BATCH_COLUMN
from aeron_async.spark.lake.places import sync
from aeron_async.spark.lake.tables import BATCHES, gold
from aeron_async.spark.offsets import Offsets
from aeron_async.spark.pipeline.gold import RUNS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from aeron_async.spark.lake.tables import Lake

__all__ = [
    "BATCHES_SCHEMA",
    "BatchLog",
    "Edges",
    "has_checkpoint",
    "last_runs",
    "offsets_text",
    "query_of",
    "sync_offsets",
]

TAKEN_OVER: Final = "taken over from"
BATCHES_SCHEMA: Final = pa.schema(
    [
        (BATCH_COLUMN, pa.int64()),
        ("query", pa.string()),
        ("committed", pa.timestamp("us", tz="UTC")),
        ("messages", pa.int64()),
        ("bytes", pa.int64()),
        ("first_ns", pa.int64()),
        ("last_ns", pa.int64()),
        ("gaps", pa.int64()),
        ("quarantined", pa.int64()),
        ("decoded", pa.string()),
        ("offsets", pa.string()),
        ("versions", pa.string()),
    ]
)
"""Columns: `decoded` counts by kind, `versions` by table, `offsets` as Spark has them; in JSON.

`first_ns` and `last_ns` are the earliest and the latest time of a message, null if none has one.
"""


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


def sync_offsets(checkpoint: Path, batch: int) -> None:
    """Bring the offsets at which a batch ends to the disk, if Spark has written them.

    Spark does not. If the host failed, a batch that some tables have would be done again with
    another end.
    """
    folder = checkpoint / "offsets"
    for path in (folder / str(batch), checkpoint / "metadata"):
        if path.exists():
            sync(path)
    for path in (folder, checkpoint, checkpoint.parent):
        if path.exists():
            sync(path)


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

    def offsets(self) -> Offsets:
        """Return the offsets at which the last batch ends; empty if Spark had not written them."""
        given = json.loads(self._offsets_of(self.last) or "null")
        return Offsets.from_json(given) if isinstance(given, dict) and "v" in given else Offsets()

    def check_end(self, batch: int, text: str | None) -> None:
        """Refuse a batch that ended elsewhere when it was committed: it would be passed over.

        Args:
            batch: Batch that the lake has.
            text: The offsets at which the query ends it now; None if they are not known.

        Raises:
            ArchiveError: It ended at others.
        """
        known = self._offsets_of(batch)
        if known is not None and text is not None and known != text:
            message = (
                f"lake {str(self._lake.root)!r} has batch {batch}, which ended at other offsets "
                "than its _checkpoint says: that is an older copy; remove _checkpoint and give "
                "--take-over, to go on behind the last batch"
            )
            raise ArchiveError(message)

    def _offsets_of(self, batch: int) -> str | None:
        """Return the offsets at which a batch ends, as it was committed; None if not known."""
        where = pc.field(BATCH_COLUMN) == batch
        columns = pa.schema([BATCHES_SCHEMA.field(name) for name in (BATCH_COLUMN, "offsets")])
        found = self._lake.read(BATCHES, columns, where).column("offsets").to_pylist()
        return found[0] if found else None

    def check(self, *, take_over: bool) -> bool:
        """Return whether a new query takes over the lake.

        Args:
            take_over: Whether it may.

        Raises:
            ConfigurationError: The lake belongs to another query.
        """
        lake = self._lake
        query, begun = query_of(lake.checkpoint), lake.begun()
        if query is not None and query == self.query:
            return False
        if not any(lake.files(table) for table in lake.tables()):
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


NAME: Final = re.compile(r"(\d{1,19})(?:-(\d{1,19}))?\.parquet")


def last_runs(runs: pa.Table) -> pa.Table:
    """Return the last run of each recording and each name.

    That is not always the run with the highest position: a recording may have been cut since.

    Args:
        runs: Runs of batches in their order; a batch has one of each recording and name.
    """
    placed = runs.append_column("place", pa.array(np.arange(len(runs))))
    places = placed.group_by(["recording_id", "name"]).aggregate([("place", "max")])
    found = runs.take(places.column("place_max"))
    return found.sort_by([(name, "ascending") for name in ("recording_id", "name")])


@final
class Edges:
    """Stores the last runs of a lake after each batch."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._place = lake.state / "edges"
        self._turn = 0
        self._last = -1

    def begin(self, turn: int, last: int) -> None:
        """Say who writes from now on.

        Args:
            turn: Turn of the job; see `commits`.
            last: Last batch that all tables have. What another job stores of a later one is not
                read: it may have been taken over before it was complete.
        """
        self._turn = turn
        self._last = last

    def before(self, batch: int) -> pa.Table:
        """Return the last runs of all batches before this one."""
        last, known = -1, RUNS.empty_table()
        for place, turn in reversed([each for each in self._kept() if each[0] < batch]):
            if turn != self._turn and place > self._last:
                continue
            kept = read_runs(self._place.read(name_of(place, turn)))
            if kept is not None:
                last, known = place, kept
                break
        if last == batch - 1:
            return known
        number = pc.field(BATCH_COLUMN)
        where = (number > last) & (number < batch)
        columns = RUNS.append(BATCHES_SCHEMA.field(BATCH_COLUMN))
        read = self._lake.read(gold("runs"), columns, where).sort_by(BATCH_COLUMN)
        return last_runs(pa.concat_tables([known, read.select(RUNS.names)]))

    def keep(self, batch: int, runs: pa.Table, recordings: Sequence[int]) -> None:
        """Store the last runs for the next batch.

        Args:
            batch: Batch that is about to be in all tables.
            runs: Its runs, and the last ones before it.
            recordings: Ids of existing recordings; the runs of others are not needed any more.
        """
        ids = pa.array(recordings, pa.int64())
        found = last_runs(runs.filter(pc.is_in(runs.column("recording_id"), ids)))
        sink = pa.BufferOutputStream()
        pq.write_table(found, sink)
        self._place.write(name_of(batch, self._turn), sink.getvalue().to_pybytes())
        # Keep the one before as well, because Spark may repeat this batch.
        for each in [each for each in self._kept() if each[0] < batch][:-1]:
            self._place.remove(name_of(*each))

    def forget_after(self, last: int) -> None:
        """Remove what was kept after later batches, which were taken out of the lake."""
        for each in self._kept():
            if each[0] > last:
                self._place.remove(name_of(*each))

    def _kept(self) -> list[tuple[int, int]]:
        """Return the batches after which runs were stored, and in which turn, in order."""
        matches = [NAME.fullmatch(each) for each in self._place.names()]
        return sorted((int(each[1]), int(each[2] or 0)) for each in matches if each is not None)


def name_of(batch: int, turn: int) -> str:
    """Return the name of the file with the last runs after a batch."""
    return f"{batch}-{turn}.parquet" if turn else f"{batch}.parquet"


def read_runs(data: bytes | None) -> pa.Table | None:
    """Return stored runs; None if another version wrote them, or the file is incomplete."""
    try:
        return pq.read_table(pa.BufferReader(data or b"")).select(RUNS.names).cast(RUNS)
    except (OSError, KeyError, ValueError, pa.ArrowException):
        return None
