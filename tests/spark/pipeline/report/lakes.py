"""Lakes whose gold tables a test writes itself."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from aeron_async.spark.lake.commits import DeltaStore
from aeron_async.spark.lake.files import BATCH_COLUMN
from aeron_async.spark.lake.tables import BATCHES
from aeron_async.spark.pipeline import gold
from aeron_async.spark.pipeline.batches import BATCHES_SCHEMA
from aeron_async.spark.pipeline.job import BatchWork
from aeron_async.spark.pipeline.runs import GapKind, RecordedGap, Run
from tests.spark.pipeline.local import write_gold

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aeron_async.spark.lake.tables import Lake

__all__ = [
    "BEGAN_NS",
    "BEGAN_S",
    "GAP",
    "NOW_MS",
    "RECORDING",
    "RUN",
    "decoded",
    "latencies",
    "lengths",
    "rates",
    "write_batches",
    "write_rates",
    "write_year",
]

NOW_MS = 1_900_000_000_000
BEGAN_S = 1_800_000_000
BEGAN_NS = BEGAN_S * 10**9
DAY = 86_400
RUN = Run(
    recording_id=0,
    session_id=7,
    stream_id=1001,
    first_position=0,
    end_position=6_400,
    messages=100,
    bytes=3_200,
    first_ns=BEGAN_NS,
    last_ns=BEGAN_NS + 5 * 10**9,
)
GAP = RecordedGap(
    kind=GapKind.SEQUENCE,
    recording_id=0,
    stream_id=1001,
    name="quotes.sequence",
    position=640,
    end_position=640,
    missing=3,
    before_ns=BEGAN_NS + 10**9,
    after_ns=BEGAN_NS + 10**9 + 5_000,
)
RECORDING: dict[str, Any] = {
    "recording_id": 0,
    "session_id": 7,
    "stream_id": 1001,
    "channel": "aeron:udp?alias=<script>alert(1)</script>",
    "source_identity": "<b>host</b>:1",
    "start_position": 0,
    "stop_position": 6_400,
    "start_timestamp_ms": BEGAN_S * 1_000,
    "stop_timestamp_ms": BEGAN_S * 1_000 + 8_000,
    "term_length": 65_536,
    "segment_length": 131_072,
}


def rates(*rows: tuple[int, int, int]) -> pa.Table:
    """Return messages of 32 bytes by stream and second; all are of recording 0."""
    return pa.Table.from_pylist(
        [
            {
                "recording_id": 0,
                "session_id": 7,
                "stream_id": stream_id,
                "second": second,
                "messages": messages,
                "bytes": 32 * messages,
            }
            for stream_id, second, messages in rows
        ],
        schema=gold.RATES,
    )


def write_rates(lake: Lake, table: pa.Table, batch: int = 0) -> None:
    """Write both tables of rates."""
    write_gold(lake, "rates_second", table, batch)
    write_gold(lake, "rates_minute", gold.per_minute(table), batch)


def latencies(name: str, counts: dict[int, int], minute: int = BEGAN_S // 60) -> pa.Table:
    """Return counts of a latency by bin."""
    rows = [
        {"name": name, "stream_id": 1001, "minute": minute, "bin": index, "count": count}
        for index, count in counts.items()
    ]
    return pa.Table.from_pylist(rows, schema=gold.LATENCY)


def lengths(*rows: tuple[int, int, int, int]) -> pa.Table:
    """Return rows of stream, minute, bin and count."""
    return of(gold.LENGTHS, rows)


def decoded(*rows: tuple[str, str, int, int, int]) -> pa.Table:
    """Return rows of kind, reason, stream, minute and messages."""
    return of(gold.DECODED, rows)


def of(schema: pa.Schema, rows: tuple[tuple[Any, ...], ...]) -> pa.Table:
    """Return rows as a table."""
    found = [dict(zip(schema.names, row, strict=True)) for row in rows]
    return pa.Table.from_pylist(found, schema=schema)


def write_batches(lake: Lake, *times: tuple[int, int | None, int | None], batch: int = 0) -> None:
    """Write rows of batches: when they were committed, first and last time, in nanoseconds."""
    schema = BATCHES_SCHEMA.remove(BATCHES_SCHEMA.get_field_index(BATCH_COLUMN))
    rows = [
        {
            "committed": datetime.fromtimestamp(committed_ns / 10**9, UTC),
            "first_ns": first_ns,
            "last_ns": last_ns,
        }
        for committed_ns, first_ns, last_ns in times
    ]
    store = DeltaStore(lake)
    store.query = "q"
    store.prepare(BATCHES, BATCHES_SCHEMA)
    BatchWork(store, batch, {BATCHES}).write(BATCHES, pa.Table.from_pylist(rows, schema=schema))


def write_year(lake: Lake, months: int = 12, streams: int = 2) -> None:
    """Write a year with a row a minute for each stream, in a batch for each month of 30 days."""
    recordings = [RECORDING | {"recording_id": each, "stream_id": each} for each in range(streams)]
    write_gold(lake, "recordings", pa.Table.from_pylist(recordings, schema=gold.RECORDINGS))
    for month, table in enumerate(months_of(months, streams)):
        write_gold(lake, "rates_minute", table.select(gold.RATES_MINUTE.names), month)
        write_gold(lake, "latency", table.select(gold.LATENCY.names), month)
        write_gold(lake, "lengths", table.select(gold.LENGTHS.names), month)
        first_ns = BEGAN_NS + month * 30 * DAY * 10**9
        runs = [
            Run(
                recording_id=each,
                session_id=7,
                stream_id=each,
                first_position=month * 1_000_000,
                end_position=(month + 1) * 1_000_000,
                messages=30 * 1_440,
                bytes=30 * 1_440 * 32,
                first_ns=first_ns,
                last_ns=first_ns + 30 * DAY * 10**9 - 1,
            )
            for each in range(streams)
        ]
        write_gold(lake, "runs", gold.table_of(runs, gold.RUNS), month)


def months_of(months: int, streams: int) -> Iterator[pa.Table]:
    """Yield the columns of several tables for each month."""
    count = 30 * 1_440 * streams
    stream_ids = np.tile(np.arange(streams), count // streams)
    for month in range(months):
        minutes = BEGAN_S // 60 + month * 30 * 1_440 + np.arange(count) // streams
        columns = {
            "recording_id": pa.array(stream_ids),
            "session_id": pa.array(stream_ids, pa.int32()),
            "stream_id": pa.array(stream_ids, pa.int32()),
            "minute": pa.array(minutes),
            "name": pa.array(["x"] * count),
            "bin": pa.array(minutes % 50 + 100),
            "count": pa.array(np.ones(count, np.int64)),
            "messages": pa.array(np.ones(count, np.int64)),
            "bytes": pa.array(np.full(count, 32)),
        }
        yield pa.table(columns)
