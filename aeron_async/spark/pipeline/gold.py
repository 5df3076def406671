"""Gold tables: rates, gaps, latencies and runs of each batch; results of batches add up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs
import pyarrow as pa

from aeron_async.spark.pipeline.histogram import bin_sql
from aeron_async.spark.pipeline.runs import (
    SUMMARY,
    RecordedGap,
    Run,
    Summariser,
    gaps_of,
    runs_of,
    stitch,
)
from aeron_async.spark.pipeline.settings import RECORDED_NS
from aeron_async.spark.pipeline.silver import BLOCK_BITS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame

    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.spark.pipeline.settings import Latency

__all__ = [
    "GAPS",
    "LATENCY",
    "RECORDINGS",
    "RUNS",
    "latency_counts",
    "per_minute",
    "rates",
    "recording_rows",
    "stitched",
    "summary",
    "table_of",
]

NS_PER_SECOND: Final = 1_000_000_000
SECONDS_PER_MINUTE: Final = 60
KEYS: Final = ("recording_id", "session_id", "stream_id")
INTEGERS: Final = {"recording_id": pa.int64(), "session_id": pa.int32(), "stream_id": pa.int32()}


def schema_of(kind: type) -> pa.Schema:
    """Return the columns of an attrs class whose fields are integers and texts."""
    return pa.schema(
        [
            (
                field.name,
                INTEGERS.get(field.name, pa.string() if field.type == "str" else pa.int64()),
            )
            for field in attrs.fields(kind)
        ]
    )


RUNS: Final = schema_of(Run)
GAPS: Final = schema_of(RecordedGap)
RATES: Final = pa.schema(
    [*INTEGERS.items(), ("second", pa.int64()), ("messages", pa.int64()), ("bytes", pa.int64())]
)
RATES_MINUTE: Final = pa.schema(
    [*INTEGERS.items(), ("minute", pa.int64()), ("messages", pa.int64()), ("bytes", pa.int64())]
)
LATENCY: Final = pa.schema(
    [
        ("name", pa.string()),
        ("stream_id", pa.int32()),
        ("minute", pa.int64()),
        ("bin", pa.int64()),
        ("count", pa.int64()),
    ]
)
RECORDINGS: Final = pa.schema(
    [
        *INTEGERS.items(),
        ("channel", pa.string()),
        ("source_identity", pa.string()),
        ("start_position", pa.int64()),
        ("stop_position", pa.int64()),
        ("start_timestamp_ms", pa.int64()),
        ("stop_timestamp_ms", pa.int64()),
        ("term_length", pa.int64()),
        ("segment_length", pa.int64()),
    ]
)


def table_of(rows: Iterable[Any], schema: pa.Schema) -> pa.Table:
    """Return attrs instances as a table."""
    return pa.Table.from_pylist(
        [{name: getattr(row, name) for name in schema.names} for row in rows], schema=schema
    )


def recording_rows(recordings: Iterable[RecordingDescriptor]) -> pa.Table:
    """Return the catalog entries of recordings as a table."""
    return pa.Table.from_pylist(
        [
            {
                name: each.stripped_channel if name == "channel" else getattr(each, name)
                for name in RECORDINGS.names
            }
            for each in recordings
        ],
        schema=RECORDINGS,
    )


def summary(
    frame: DataFrame, term_lengths: Mapping[int, int], name: str = "", number: str = ""
) -> pa.Table:
    """Return the runs of a batch, and the gaps inside them, as a table; see `Summariser`.

    Args:
        frame: Rows of bronze, or of a kind of silver.
        term_lengths: Term lengths by recording id.
        name: Name of the number that counts messages; "" for runs of positions.
        number: Column that holds the number.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 - workers do without it

    lengths = dict(term_lengths)
    # Rows from one split of one file are in the order in which they were recorded.
    piece = [F.col("_metadata.file_path"), F.col("_metadata.file_block_start")]
    columns = [F.col(each) for each in (*KEYS, "position", "end_position", RECORDED_NS)]
    is_apart = False
    if name:
        block = F.expr(f"shiftright(position, {BLOCK_BITS})")
        # If several days are interleaved, each file holds some messages of a block, and none holds
        # all of them.
        is_apart = frame.select("date").distinct().limit(2).count() > 1
        piece = [F.col("recording_id"), block] if is_apart else [*piece, block]
        columns += [F.lit(0).alias("length"), F.col(number).cast("bigint").alias("number")]
    else:
        columns.append(F.col("length"))

    def summarise(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return Summariser(lengths, name).summarise(batches)

    rows = frame.select(*columns, F.xxhash64(*piece).alias("origin"))
    if name:
        rows = rows.where(F.col("number").isNotNull())
    if is_apart:
        spread = rows.repartition("recording_id", "origin")
        rows = spread.sortWithinPartitions("recording_id", "origin", "position")
    return rows.mapInArrow(summarise, from_arrow_schema(SUMMARY)).toArrow().cast(SUMMARY)


def stitched(
    found: pa.Table, earlier: Iterable[Run], term_lengths: Mapping[int, int]
) -> tuple[list[Run], list[RecordedGap]]:
    """Return the joined runs of a batch, and all gaps including that to the batch before.

    Args:
        found: Rows of `summary`.
        earlier: Runs of earlier batches.
        term_lengths: Term lengths by recording id.
    """
    runs, gaps = stitch(runs_of(found), term_lengths)
    last: dict[tuple[int, str], Run] = {}
    for run in earlier:
        key = run.recording_id, run.name
        if key in runs and (key not in last or run.end_position > last[key].end_position):
            last[key] = run
    _, between = stitch([*last.values(), *runs.values()], term_lengths)
    return list(runs.values()), [*gaps_of(found), *gaps, *between]


def rates(frame: DataFrame) -> pa.Table:
    """Return messages and bytes in each second."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name

    second = F.expr(f"{RECORDED_NS} div {NS_PER_SECOND}").alias("second")
    counts = [F.count("*").alias("messages"), F.sum("length").cast("bigint").alias("bytes")]
    timed = frame.where(F.col(RECORDED_NS).isNotNull())
    return timed.groupBy(*KEYS, second).agg(*counts).toArrow().cast(RATES)


def per_minute(seconds: pa.Table) -> pa.Table:
    """Return messages and bytes in each minute."""
    minute = pa.compute.divide(seconds.column("second"), SECONDS_PER_MINUTE)
    table = seconds.append_column("minute", minute)
    sums = table.group_by([*KEYS, "minute"]).aggregate([("messages", "sum"), ("bytes", "sum")])
    names = {"messages_sum": "messages", "bytes_sum": "bytes"}
    renamed = sums.rename_columns([names.get(name, name) for name in sums.column_names])
    return renamed.select(RATES_MINUTE.names).cast(RATES_MINUTE)


def latency_counts(frame: DataFrame, latencies: Sequence[Latency]) -> pa.Table:
    """Return the count of each latency bin, by minute.

    Args:
        frame: Rows of a kind of silver.
        latencies: Latencies to measure of this kind; at least one.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name

    minute = F.expr(f"event_ns div {SECONDS_PER_MINUTE * NS_PER_SECOND}").alias("minute")
    # Measure all latencies in one pass over the rows.
    measured = F.array(
        *(
            F.struct(F.lit(each.name).alias("name"), F.expr(value_of(each)).alias("value"))
            for each in latencies
        )
    )
    values = frame.select("stream_id", minute, F.explode(measured).alias("one"))
    bins = values.where("one.value is not null").select(
        F.col("one.name"), "stream_id", "minute", F.expr(bin_sql("one.value")).alias("bin")
    )
    return bins.groupBy(*LATENCY.names[:-1]).count().toArrow().cast(LATENCY)


def value_of(latency: Latency) -> str:
    """Return a latency in nanoseconds, as SQL; null if it exceeds 64 bits."""

    def nanoseconds(name: str) -> str:
        unit_ns = 1 if name == RECORDED_NS else latency.unit_ns
        return f"try_multiply(cast(`{name}` as bigint), {unit_ns})"

    return f"try_subtract({nanoseconds(latency.end)}, {nanoseconds(latency.start)})"
