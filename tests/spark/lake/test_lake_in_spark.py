"""Spark reads a snapshot by its list of files, and looks at none before the query."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.errors import PySparkAttributeError
from structlog.testing import capture_logs

from aeron_async.errors import ConfigurationError
from aeron_async.spark.lake import TableSnapshot, file_lists, maintain, read_delta
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


class WithoutClasses:
    """A session of a Spark in which a class is another one, or is not there."""

    def __init__(self, spark: SparkSession, lacks: str) -> None:
        self._spark, self._lacks = spark, lacks
        self._at: Any = spark

    def __getattr__(self, name: str) -> Any:
        if name == self._lacks:
            jvm: Any = self._spark._jvm
            return jvm.org.strange
        found = getattr(self._at, name)
        if name not in {"_jvm", "org", "apache", "spark", "sql", "execution", "datasources"}:
            return found
        inner = WithoutClasses(self._spark, self._lacks)
        inner._at = found
        return inner


@pytest.mark.parametrize("lacks", ["InMemoryFileIndex", "SharedInMemoryCache", "HadoopFsRelation"])
def test_another_spark_gets_a_list_that_it_parses(
    spark: SparkSession, tmp_path: Path, lacks: str
) -> None:
    table = little_lake(tmp_path / "a [lake] é=1") / "silver" / "quotes"
    strange: Any = WithoutClasses(spark, lacks)
    where = "date = '2026-11-18'"
    sums = "count(*)", "coalesce(sum(sequence), 0)"
    with capture_logs() as logs:
        (found,) = together([read_delta(strange, table, where=where).selectExpr(*sums)])
    assert found == truth(where)
    assert [each["event"] for each in logs] == ["file_list_is_parsed"]
    assert read_delta(strange, table).columns == read_delta(spark, table).columns


def test_a_list_of_which_spark_takes_nothing_is_no_empty_table(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = little_lake(tmp_path / "lake") / "silver" / "quotes"
    # Spark finds no file in it, as if it had looked elsewhere.
    monkeypatch.setattr(file_lists, "encoded_list", lambda *_: bytes(4))
    spark.conf.set(file_lists.IGNORED, "true")
    try:
        with pytest.raises(ConfigurationError, match="must be false for `read_delta`"):
            read_delta(spark, table)
    finally:
        spark.conf.unset(file_lists.IGNORED)
    assert read_delta(spark, table).count() == 800


class Remote:
    """A session of Spark Connect, which has no Java."""

    @property
    def _jvm(self) -> None:
        message = "[JVM_ATTRIBUTE_NOT_SUPPORTED] Directly accessing the underlying Spark driver JVM"
        raise PySparkAttributeError(message)


def test_a_session_of_spark_connect_is_told_what_to_do(tmp_path: Path) -> None:
    table = little_lake(tmp_path / "lake") / "silver" / "quotes"
    remote: Any = Remote()
    with pytest.raises(ConfigurationError, match=r"Spark Connect.*by `TableSnapshot.arrow` or"):
        read_delta(remote, table)


def test_spark_reads_a_table_without_partitions(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "rates"
    for number in range(3):
        rows = pa.table({"recording_id": [number, number], "messages": [5, 6]})
        write_deltalake(str(folder), rows, mode="append")
    frame = read_delta(spark, folder, where="recording_id > 0").orderBy("recording_id", "messages")
    assert [tuple(row) for row in frame.collect()] == [(1, 5), (1, 6), (2, 5), (2, 6)]
