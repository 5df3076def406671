"""Spark reads a snapshot by its list of files, and looks at none before the query."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import write_deltalake

from aeron_async.spark.lake import TableSnapshot, maintain, read_delta
from examples import spark_lake
from tests.spark.lake.lakes import add_batch, little_lake
from tests.spark.lake.test_reading import WHERE, truth

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


def together(frames: Iterable[DataFrame]) -> list[tuple[Any, ...]]:
    """Return the one row of each frame, by one query of them all: Spark takes a second for each."""
    numbered = [frame.selectExpr(f"{number} AS number", "*") for number, frame in enumerate(frames)]
    rows = sorted(reduce(type(numbered[0]).union, numbered).collect())
    assert [row[0] for row in rows] == list(range(len(numbered)))
    return [tuple(row[1:]) for row in rows]


def test_spark_reads_what_others_read(spark: SparkSession, tmp_path: Path) -> None:
    lake = little_lake(tmp_path / "a [lake] é=1")
    table = lake / "silver" / "quotes"
    snapshot = TableSnapshot.open(table)
    sums = "count(*)", "coalesce(sum(sequence), 0)"
    found = together(read_delta(spark, table, where=where).selectExpr(*sums) for where in WHERE)
    assert dict(zip(WHERE, found, strict=True)) == {where: truth(where) for where in WHERE}
    frame = read_delta(spark, table)
    assert frame.columns == snapshot.schema.names
    assert [each.simpleString() for each in frame.schema.fields[-2:]] == [
        "date:date",
        "stream_id:int",
    ]
    assert sorted(each.rpartition("/")[2] for each in frame.inputFiles()) == sorted(
        each.rpartition("/")[2] for each in snapshot.paths()
    )
    frame.createOrReplaceTempView("lake_quotes")
    days = spark.sql("select date, count(*) from lake_quotes group by date order by date").collect()
    assert [(row[0].day, row[1]) for row in days] == [(18, 400), (19, 400)]

    symbols = spark_lake.symbols(spark, str(lake), "2026-11-18").collect()
    assert [(row["symbol"], row["messages"]) for row in symbols] == [("ALPHA", 266), ("BRAVO", 134)]

    # What began before goes on through compaction and removal; a new reader sees what is new.
    list(maintain(lake))
    add_batch(table, 9, range(1_000, 1_010))
    list(maintain(lake))
    frames = [frame, read_delta(spark, table), read_delta(spark, table, snapshot.version)]
    counts = together(each.selectExpr("count(*)") for each in frames)
    assert counts == [(800,), (810,), (800,)]
    orphan = table / "date=2026-11-18" / "stream_id=1001" / "b00000099-p00000-abcdef01-000.parquet"
    orphan.write_bytes(b"a batch that failed")
    assert read_delta(spark, table).count() == 810

    assert read_delta(spark, table, where="date = '1970-01-01'").collect() == []
    # Two versions are two tables, also within one query.
    both = [read_delta(spark, table, version) for version in (snapshot.version, None)]
    assert both[0].union(both[1]).count() == 1_610
    assert both[1].subtract(both[0]).count() == 10


def test_spark_reads_a_table_without_partitions(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "rates"
    for number in range(3):
        rows = pa.table({"recording_id": [number, number], "messages": [5, 6]})
        write_deltalake(str(folder), rows, mode="append")
    frame = read_delta(spark, folder, where="recording_id > 0").orderBy("recording_id", "messages")
    assert [tuple(row) for row in frame.collect()] == [(1, 5), (1, 6), (2, 5), (2, 6)]
