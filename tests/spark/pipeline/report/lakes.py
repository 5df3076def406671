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
from aeron_async.spark.pipeline.histogram import bins_of
from aeron_async.spark.pipeline.job import BatchWork
from aeron_async.spark.pipeline.runs import GapKind, RecordedGap, Run
from tests.spark.pipeline.local import write_gold

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aeron_async.spark.lake.tables import Lake

__all__ = [
    "BEGAN_NS",
    "BEGAN_S",
    "DAY_S",
    "GAP",
    "NOW_MS",
    "RECORDING",
    "RUN",
    "decoded",
    "latencies",
    "lengths",
    "rates",
    "write_batches",
    "write_day",
    "write_rates",
    "write_year",
]

NOW_MS = 1_900_000_000_000
BEGAN_S = 1_800_000_000
BEGAN_NS = BEGAN_S * 10**9
DAY = 86_400
DAY_S = 20_775 * DAY
OUTAGE_S = (40_320, 42_720)
SLOW_S = (50_400, 51_840)
GAPS_OF = (69, 31, 14, 0)
"""Gaps of each recording of the day."""
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


def write_batches(
    lake: Lake, *times: tuple[int, int | None, int | None], batch: int = 1_000
) -> None:
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


def write_day(lake: Lake) -> None:
    """Write a day of a small exchange, with two busy times, an outage, loss and slow minutes."""
    chance = np.random.default_rng(5)
    kinds = {1001: "quotes", 1002: "trades", 1003: "books"}
    seconds = DAY_S + np.arange(DAY)
    hours = np.arange(DAY) / 3_600
    busy = (
        0.25 + 0.75 * np.exp(-(((hours - 9) / 2.2) ** 2)) + np.exp(-(((hours - 15.5) / 1.8) ** 2))
    )
    sums = [gold.Sums(each) for each in (gold.RATES, gold.LENGTHS, gold.LATENCY, gold.DECODED)]
    recordings, runs = [], []
    for number, (stream_id, rate, size) in enumerate(
        [(1001, 40_000, 72), (1002, 9_000, 220), (1003, 2_500, 1_400), (2001, 300, 48)]
    ):
        messages = (rate * busy * chance.gamma(40, 1 / 40, DAY)).astype(np.int64)
        if number == 1:
            messages[OUTAGE_S[0] : OUTAGE_S[1]] = 0
        sums[0].add([number, 77 + number, stream_id, seconds, messages, messages * size])
        minutes = seconds[::60] // 60
        each_minute = messages.reshape(-1, 60).sum(axis=1)
        few = np.unique(bins_of(chance.normal(size, size / 6, 30).clip(1).astype(np.int64)))
        for index in few.tolist():
            sums[1].add([stream_id, minutes, index, each_minute // len(few)])
        if stream_id in kinds:
            sums[3].add([kinds[stream_id], "", stream_id, minutes, each_minute])
        for name, scale in (("market_ns to sent_ns", 9.5), ("sent_ns to timestamp_ns", 11.5)):
            for minute in minutes if number == 0 else ():
                load = busy[(minute * 60 - DAY_S)]
                values = chance.lognormal(scale + 0.5 * load, 0.35 + 0.25 * load, 200)
                if SLOW_S[0] < minute * 60 - DAY_S < SLOW_S[1]:
                    values *= chance.choice([1, 1, 1, 40], 200)
                times = np.full(200, int(minute) * 60 * 10**9)
                name_of = f"quotes: {name}"
                gold.add_latencies(sums[2], name_of, stream_id, values.astype(np.int64), times)
        its: dict[str, Any] = {
            "recording_id": number,
            "session_id": 77 + number,
            "stream_id": stream_id,
        }
        channel = f"aeron:udp?endpoint=224.0.1.{number + 1}:20121|interface=10.0.0.5"
        more = {"channel": channel, "source_identity": f"10.0.0.{number + 20}:40123"}
        began_ms = {"start_timestamp_ms": DAY_S * 1_000, "stop_timestamp_ms": -1}
        recordings.append(RECORDING | its | more | began_ms)
        count, length = int(messages.sum()), int(messages.sum()) * size
        its |= {"first_ns": DAY_S * 10**9, "last_ns": (DAY_S + DAY) * 10**9 - 1}
        run: dict[str, Any] = {
            "first_position": 0,
            "end_position": length + 32 * count,
            "bytes": length,
        }
        runs.append(Run(messages=count, gaps=GAPS_OF[number], **its, **run))
    for stream_id, reason in (
        (1001, "the message has 17 bytes, and 48 are needed"),
        (1001, "symbol is no text in UTF-8"),
        (1003, "group bids is longer than its message"),
    ):
        minutes = np.unique(chance.choice(seconds[::60] // 60, int(chance.integers(9, 90))))
        sums[3].add(["", reason, stream_id, minutes, chance.integers(1, 30, len(minutes))])
    write_rates(lake, sums[0].table())
    for name, each in zip(("lengths", "latency", "decoded"), sums[1:], strict=True):
        write_gold(lake, name, each.table())
    table = pa.Table.from_pylist(recordings, schema=gold.RECORDINGS)
    write_gold(lake, "recordings", table)
    write_gold(lake, "runs", gold.table_of(runs, gold.RUNS))
    write_gold(lake, "gaps", gold.table_of(gaps_of_day(chance), gold.GAPS))
    late = np.where((hours[::30] > 15.2) & (hours[::30] < 16), 90, 3) * chance.gamma(2, 0.6, 2_880)
    begins = (DAY_S + np.arange(0, DAY, 30)).tolist()
    ends = [(begin + 30) * 10**9 - 1 for begin in begins]
    rows = [
        (end + int(wait * 1e9) + 10**9, begin * 10**9, end)
        for begin, end, wait in zip(begins, ends, late.tolist(), strict=True)
    ]
    write_batches(lake, *rows)


def gaps_of_day(chance: np.random.Generator) -> list[RecordedGap]:
    """Return the gaps of the day: around its busy times, and one long one."""
    found = []
    for recording_id, kind, name, hour, spread, most in (
        (0, GapKind.SEQUENCE, "quotes.sequence", 15, 1, 40),
        (0, GapKind.BACKWARDS, "quotes.sequence", 10, 5, -3),
        (1, GapKind.SEQUENCE, "trades.sequence", 10, 0.4, 400),
        (2, GapKind.PADDING, "", 9, 2, 128_000),
    ):
        count = {0: 60, 1: 30, 2: 14}[recording_id] if most > 0 else 9
        for second in chance.normal(hour * 3_600, spread * 3_600, count).clip(0, DAY - 1):
            before_ns = int((DAY_S + second) * 1e9)
            found.append(
                RecordedGap(
                    kind=kind,
                    recording_id=recording_id,
                    stream_id=1001 + recording_id,
                    name=name,
                    position=int(second) * 64_000,
                    end_position=int(second) * 64_000,
                    missing=int(chance.integers(min(most, 1), max(most, 0))),
                    before_ns=before_ns,
                    after_ns=before_ns + int(chance.integers(10**6, 10**8)),
                )
            )
    begin_ns, end_ns = ((DAY_S + each) * 10**9 for each in OUTAGE_S)
    outage: dict[str, Any] = {
        "kind": GapKind.MISSING,
        "recording_id": 1,
        "stream_id": 1002,
        "missing": 3 << 26,
    }
    outage |= {"name": "", "before_ns": begin_ns, "after_ns": end_ns, "position": 1 << 30}
    return [*found, RecordedGap(end_position=(1 << 30) + (3 << 26), **outage)]
