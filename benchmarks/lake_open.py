"""Question: how long does a lake of many files take to open, for Spark, DuckDB, Polars and Arrow?

`python -m benchmarks.lake_open` makes a table of 100,000 files by add actions: one file of 100 rows
under as many names, 2,000 a day in 20 streams. Opening is the load of the table and all that a
reader does before its first query: it knows the columns and the list of files. Then the reader
counts the rows of one stream on one day, once from that list, and once from a list that the
conditions have cut before. Each round is a line, with seconds of time and of the processor, that of
Java included, which needs several times as much in the first round as in the last.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import shutil
import tempfile
import warnings
from functools import partial
from pathlib import Path
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.transaction import AddAction

from aeron_async.spark.lake import TableSnapshot

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

ROWS: Final = 100
FILES_A_DAY: Final = 2_000
STREAMS: Final = 20
LINKS_MAX: Final = 10_000
"""Names of one file; file systems have a limit."""
ACTIONS: Final = 10_000
SCHEMA: Final = pa.schema(
    [
        ("recording_id", pa.int64()),
        ("position", pa.int64()),
        ("event_ns", pa.int64()),
        ("price", pa.float64()),
        ("date", pa.date32()),
        ("stream_id", pa.int32()),
    ]
)
WHERE: Final = "date = '2026-01-01' and stream_id = 1003"


def make_table(folder: Path, count: int) -> None:
    """Make a table of so many files."""
    table = DeltaTable.create(
        str(folder), schema=SCHEMA, partition_by=["date", "stream_id"], mode="error"
    )
    inside = pa.schema([each for each in SCHEMA if each.name not in {"date", "stream_id"}])
    numbers = pa.array(range(ROWS), pa.int64())
    rows = pa.table([numbers, numbers, numbers, numbers.cast(pa.float64())], schema=inside)
    actions = []
    source = folder
    for place in range(count):
        day = dt.date(2026, 1, 1) + dt.timedelta(days=place // FILES_A_DAY)
        stream_id = 1_001 + place % STREAMS
        path = f"date={day}/stream_id={stream_id}/b{place:08}-p00000-abcdef01-000.parquet"
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if place % LINKS_MAX == 0:
            pq.write_table(rows, target, store_schema=False)
            source = target
        else:
            os.link(source, target)
        limits = {"recording_id": 0, "position": 0, "event_ns": 0}
        statistics = {
            "numRecords": ROWS,
            "minValues": limits,
            "maxValues": dict.fromkeys(limits, ROWS - 1),
        }
        keys: dict[str, str | None] = {"date": str(day), "stream_id": str(stream_id)}
        size = source.stat().st_size
        actions.append(AddAction(path, size, keys, 1_800_000_000_000, True, json.dumps(statistics)))
    for start in range(0, count, ACTIONS):
        part = actions[start : start + ACTIONS]
        table.update_incremental()
        table.create_write_transaction(list(part), "append", table.schema(), ["date", "stream_id"])
    table.update_incremental()
    table.create_checkpoint()


def opened_by_polars(path: str) -> Callable[[], int]:
    """Open the table; return what counts rows."""
    import polars as pl  # noqa: PLC0415 - each process of a user needs one reader

    frame = TableSnapshot.open(path).polars()
    frame.collect_schema()
    rows = frame.filter(
        (pl.col("date") == dt.date(2026, 1, 1)) & (pl.col("stream_id") == 1_003)  # noqa: PLR2004 - WHERE
    )
    return lambda: int(rows.select(pl.len()).collect().item())


def opened_by_duckdb(path: str) -> Callable[[], int]:
    """Open the table; return what counts rows."""
    import duckdb  # noqa: PLC0415 - as above

    connection = duckdb.connect()
    connection.register("quotes", TableSnapshot.open(path).arrow())
    query = f"SELECT count(*) FROM quotes WHERE {WHERE}"  # noqa: S608 - ours
    return lambda: int(connection.execute(query).fetchall()[0][0])


def opened_by_arrow(path: str) -> Callable[[], int]:
    """Open the table; return what counts rows."""
    snapshot = TableSnapshot.open(path)
    snapshot.arrow()
    return lambda: int(snapshot.arrow(WHERE).count_rows())


def opened_by_spark(spark: SparkSession, path: str) -> Callable[[], int]:
    """Open the table; return what counts rows."""
    frame = TableSnapshot.open(path).spark(spark)
    assert frame.columns
    return lambda: frame.where(WHERE).count()


def pruned_by_spark(spark: SparkSession, path: str) -> int:
    """Open what the conditions leave, and count it."""
    return TableSnapshot.open(path).spark(spark, WHERE).count()


def pruned_by_arrow(path: str) -> int:
    """Open what the conditions leave, and count it."""
    return int(TableSnapshot.open(path).arrow(WHERE).count_rows())


def pruned_by_polars(path: str) -> int:
    """Open what the conditions leave, and count it."""
    import polars as pl  # noqa: PLC0415 - as above

    return int(TableSnapshot.open(path).polars(WHERE).select(pl.len()).collect().item())


def timed(
    work: Callable[[], Any], others: Callable[[], float] = lambda: 0.0
) -> tuple[Any, float, float]:
    """Return a result, and the time and processor time that it took.

    Args:
        work: What to do.
        others: Returns the processor time of another process that works for this one.
    """
    began, used = perf_counter(), process_time() + others()
    result = work()
    return result, perf_counter() - began, process_time() + others() - used


def java_seconds(spark: SparkSession) -> float:
    """Return how much processor time Java has used."""
    handle = spark.sparkContext._jvm.java.lang.ProcessHandle.current()  # type: ignore[union-attr]  # noqa: SLF001 - the only way to Java
    return float(handle.info().totalCpuDuration().get().toMillis()) / 1_000


def session() -> SparkSession:
    """Return a session that has counted something."""
    from aeron_async.spark.java import ensure_interpreter, ensure_java  # noqa: PLC0415 - as above

    ensure_java()
    ensure_interpreter()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession  # noqa: PLC0415 - after Java was found

    builder = SparkSession.builder.master("local[2]").appName("lake_open")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "1g",
    }.items():
        builder = builder.config(name, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.range(10).count()
    return spark


def main() -> None:
    """Print a line for each reader."""
    parser = argparse.ArgumentParser(description="How long a lake of many files takes to open.")
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--readers", default="arrow,duckdb,polars,spark")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="lake-open-"))
    try:
        _, seconds, _ = timed(partial(make_table, folder / "quotes", options.files))
        print(f"{options.files:,} files made in {seconds:.1f} s")
        path = str(folder / "quotes")
        openers: dict[str, Any] = {
            "arrow": (opened_by_arrow, pruned_by_arrow),
            "duckdb": (opened_by_duckdb, pruned_by_arrow),
            "polars": (opened_by_polars, pruned_by_polars),
        }
        others: Callable[[], float] = lambda: 0.0  # noqa: E731 - nothing but Java helps
        if "spark" in options.readers:
            spark = session()
            others = partial(java_seconds, spark)
            openers["spark"] = (partial(opened_by_spark, spark), partial(pruned_by_spark, spark))
        for name in options.readers.split(","):
            open_table, pruned = openers[name]
            for turn in range(options.rounds):
                count, opening, used = timed(partial(open_table, path), others)
                rows, query, _ = timed(count)
                again, cut, cut_used = timed(partial(pruned, path), others)
                assert rows == again
                print(
                    f"{name:<7} round {turn}: opens in {opening:5.2f} s (processor {used:.2f}), "
                    f"counts {rows:,} rows in {query:.2f} s, cut before: all of it in {cut:.2f} s "
                    f"({cut_used:.2f})",
                    flush=True,
                )
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
