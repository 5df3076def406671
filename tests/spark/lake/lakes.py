"""Little lakes as the pipeline writes them, made without Spark."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.transaction import AddAction

from aeron_async.spark.lake import places
from tests.kept_folders import copy_of_made

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import pytest

__all__ = [
    "PARTITIONS",
    "QUOTES",
    "STARTED_NS",
    "add_batch",
    "commit",
    "files_synced",
    "little_lake",
    "make_table",
    "quotes",
    "table_of_batches",
    "write_file",
]

NONE_LATE: Final[Mapping[int, int]] = {}
STARTED_NS: Final = 1_795_000_000_000_000_000
US: Final = pa.timestamp("us", tz="UTC")
PARTITIONS: Final = ("date", "stream_id")
QUOTES: Final = pa.schema(
    [
        ("recording_id", pa.int64()),
        ("session_id", pa.int32()),
        ("position", pa.int64()),
        ("timestamp_ns", pa.int64()),
        ("event_ns", pa.int64()),
        ("event_time", US),
        ("sequence", pa.int64()),
        ("sent_ns", pa.int64()),
        ("symbol", pa.string()),
        ("ingest_batch", pa.int64()),
        ("date", pa.date32()),
        ("stream_id", pa.int32()),
    ]
)
CONFIGURATION: Final = {
    "delta.checkpointInterval": "100",
    "delta.logRetentionDuration": "interval 7 days",
    "delta.deletedFileRetentionDuration": "interval 1 days",
}


def files_synced(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return a list to which each file is added that is synced from now on."""
    found: list[Path] = []

    def noted(path: Path) -> None:
        found.append(path)
        sync(path)

    sync = places.sync
    monkeypatch.setattr(places, "sync", noted)
    return found


def make_table(
    folder: Path, schema: pa.Schema = QUOTES, partitions: Sequence[str] = PARTITIONS
) -> Path:
    """Create a table without rows."""
    DeltaTable.create(
        str(folder), schema=schema, partition_by=list(partitions), configuration=CONFIGURATION
    )
    return folder


def quotes(
    numbers: Sequence[int],
    *,
    recording_id: int = 0,
    batch: int = 0,
    late: Mapping[int, int] = NONE_LATE,
) -> pa.Table:
    """Return a row for each number, which is its position in units of 64 bytes.

    Args:
        numbers: The numbers.
        recording_id: Recording of all rows.
        batch: Batch of all rows.
        late: Nanoseconds by which messages were recorded later than the others, by number.
    """
    count = len(numbers)
    event_ns = pa.array([STARTED_NS + number * 10_000_000 for number in numbers], pa.int64())
    recorded_ns = pa.array(
        [STARTED_NS + number * 10_000_000 + 40_000 + late.get(number, 0) for number in numbers],
        pa.int64(),
    )
    return pa.table(
        {
            "recording_id": pa.array([recording_id] * count, pa.int64()),
            "session_id": pa.array([7] * count, pa.int32()),
            "position": pa.array([number * 64 for number in numbers], pa.int64()),
            "timestamp_ns": recorded_ns,
            "event_ns": event_ns,
            "event_time": pc.divide(event_ns, 1_000).cast(US),
            "sequence": pa.array(list(numbers), pa.int64()),
            "sent_ns": event_ns,
            "symbol": pa.array(["ALPHA" if n % 3 else "BRAVO" for n in numbers], pa.string()),
            "ingest_batch": pa.array([batch] * count, pa.int64()),
        }
    )


def write_file(
    folder: Path, rows: pa.Table, name: str, *, day: str = "2026-11-18", stream_id: int = 1001
) -> AddAction:
    """Write a file as the job does; return its add action."""
    path = f"date={day}/stream_id={stream_id}/{name}.parquet"
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    ids = [each for each in ("recording_id", "session_id", "symbol") if each in rows.column_names]
    deltas = [each.name for each in rows.schema if pa.types.is_int64(each.type)]
    pq.write_table(
        rows,
        target,
        compression="zstd",
        store_schema=False,
        use_dictionary=ids,
        column_encoding=dict.fromkeys([e for e in deltas if e not in ids], "DELTA_BINARY_PACKED"),
        row_group_size=256 << 10,
    )
    low, high = {}, {}
    for each in ("recording_id", "position", "event_ns"):
        found = pc.min_max(rows.column(each)).as_py()
        low[each], high[each] = found["min"], found["max"]
    statistics = {"numRecords": rows.num_rows, "minValues": low, "maxValues": high, "nullCount": {}}
    modified_ms = int(target.stat().st_mtime * 1_000)
    keys: dict[str, str | None] = {"date": day, "stream_id": str(stream_id)}
    size = target.stat().st_size
    return AddAction(path, size, keys, modified_ms, True, json.dumps(statistics))


def commit(folder: Path, actions: Sequence[Any], batch: int, application: str = "query") -> None:
    """Commit files as one batch."""
    table = DeltaTable(str(folder))
    table.create_write_transaction(
        list(actions),
        "append",
        table.schema(),
        list(table.metadata().partition_columns),
        commit_properties=CommitProperties(app_transactions=[Transaction(application, batch)]),
    )


def add_batch(
    folder: Path,
    batch: int,
    numbers: Sequence[int],
    *,
    recording_id: int = 0,
    day: str = "2026-11-18",
    stream_id: int = 1001,
) -> None:
    """Add a file with a row for each number, as a batch of its own."""
    rows = quotes(numbers, recording_id=recording_id, batch=batch)
    name = f"b{batch:08}-p00000-{recording_id:08x}-000"
    commit(folder, [write_file(folder, rows, name, day=day, stream_id=stream_id)], batch)


def little_lake(root: Path) -> Path:
    """Make a lake with quotes of two days and streams, and a table of gold."""
    return copy_of_made(make_little_lake, root)


def make_little_lake(root: Path) -> None:
    """Make it anew."""
    table = make_table(root / "silver" / "quotes")
    for batch in range(4):
        start = batch * 100
        for place, (day, stream_id) in enumerate((("2026-11-18", 1001), ("2026-11-19", 1002))):
            rows = quotes(range(start, start + 100), recording_id=place, batch=batch)
            name = f"b{batch:08}-p{place:05}-abcdef01-000"
            action = write_file(table, rows, name, day=day, stream_id=stream_id)
            commit(table, [action], batch, f"query-{place}")
    rates = pa.schema(
        [("recording_id", pa.int64()), ("second", pa.int64()), ("messages", pa.int64())]
    )
    make_table(root / "gold" / "rates_second", rates, [])


def table_of_batches(folder: Path) -> Path:
    """Make a table with ten rows in each of ten batches."""
    return copy_of_made(make_batches, folder)


def make_batches(folder: Path) -> None:
    """Make it anew."""
    make_table(folder)
    for batch in range(10):
        add_batch(folder, batch, range(batch * 10, batch * 10 + 10))
