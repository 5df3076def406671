"""The sink as Spark drives it: batches, streams, replays, and a worker that is killed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from aeron_async.spark import register
from aeron_async.spark.sink import Identity, committed_rows
from examples import spark_sink
from tests.ports import unused_udp_ports
from tests.spark.sessions import LONG
from tests.spark.sink.killing import killer_of
from tests.spark.sink.neighbours import listening

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

PORTS = unused_udp_ports()
PATIENCE_S = 120


@pytest.fixture
def channel() -> str:
    return f"aeron:udp?endpoint=127.0.0.1:{next(PORTS)}|term-length=1m"


def numbers(spark: SparkSession, count: int, partitions: int = 2) -> DataFrame:
    return spark.range(0, count, 1, partitions).selectExpr("CAST(id AS STRING) AS text")


def payloads(table: DataFrame) -> DataFrame:
    return table.selectExpr("CAST(text AS BINARY) AS payload")


def recordings(spark: SparkSession, directory: Path) -> DataFrame:
    """Return what the archives of all partitions below a directory have."""
    found = sorted(each.parent for each in directory.glob("*/archive.catalog"))
    # Who was killed a moment ago still counts as alive, and its last bytes as under way.
    options = {"includeHeaders": "true", "safetyLagBytes": "0"}
    reader = spark.read.format("aeron_archive").options(**options)
    tables = [reader.load(str(each)) for each in found]
    whole = tables[0]
    for table in tables[1:]:
        whole = whole.union(table)
    return whole.select("reserved_value", "payload", "session_id")


def test_a_subscriber_hears_the_rows_of_a_table(spark: SparkSession, channel: str) -> None:
    with listening(channel, 1001) as listener:
        spark_sink.publish(spark.range(0, 3_000, 1, 2), channel)
        # Consumed is what the write has waited for.
        heard = listener.heard
        assert sorted(int(payload) for _, _, payload in heard) == list(range(3_000))
    for session in {session for session, _, _ in heard}:
        of_task = [int(payload) for each, _, payload in heard if each == session]
        assert of_task == sorted(of_task)


def test_columns_name_streams_and_options_are_checked(spark: SparkSession, channel: str) -> None:
    register(spark)
    rows = numbers(spark, 10, 1).selectExpr(
        "CAST(text AS BINARY) AS payload",
        f"'{channel}' AS channel",
        "9 AS stream_id",
        "-CAST(text AS BIGINT) AS reserved_value",
    )
    writer = rows.write.format("aeron").mode("append")
    with listening(channel, 9) as listener:
        writer.save()
        assert [each[1:] for each in listener.heard] == [(-n, b"%d" % n) for n in range(10)]
    with pytest.raises(PySparkException, match="did you mean channel") as caught:
        writer.option("chanel", channel).save()
    assert "Traceback" not in str(caught.value)


def test_an_error_of_a_task_is_what_it_says(spark: SparkSession, channel: str) -> None:
    register(spark)
    writer = payloads(numbers(spark, 1, 1)).write.format("aeron").mode("append")
    writer = writer.options(channel=channel, streamId="9", publishTimeoutMs="100")
    with pytest.raises(PySparkException, match="no subscriber connected") as caught:
        writer.save()
    assert "Traceback" not in str(caught.value)


def followed(spark: SparkSession, folder: Path, count: int, files: int) -> DataFrame:
    """Return a stream of numbers that comes in as many batches as there are files."""
    numbers(spark, count, files).write.parquet(str(folder))
    return (
        spark.readStream.schema("text STRING").option("maxFilesPerTrigger", 1).parquet(str(folder))
    )


def run_once(table: DataFrame, channel: str, folder: Path) -> StreamingQuery:
    """Run the query of the example on all there is; what it raised is raised."""
    archives, checkpoint = folder / "archives", folder / "checkpoint"
    query = spark_sink.publish_once(table, channel, str(archives), str(checkpoint))
    assert query.awaitTermination(PATIENCE_S)
    return query


def forget_commit(folder: Path, batch: int) -> None:
    """Leave what a crash leaves between the sink's commit and Spark's own."""
    commits = folder / "checkpoint" / "commits"
    (commits / str(batch)).unlink()
    (commits / f".{batch}.crc").unlink(missing_ok=True)


@LONG
def test_a_killed_worker_and_a_replayed_batch_lose_and_repeat_nothing(
    spark: SparkSession, channel: str, tmp_path: Path
) -> None:
    archives, flag = tmp_path / "archives", tmp_path / "killed"
    # What is on its way between two workers is little, beside what there is.
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 500)
    through = killer_of(str(archives), str(flag), after=6_000)
    wide = followed(spark, tmp_path / "in", 20_000, 2).selectExpr("lpad(text, 200, '0') AS text")
    table = payloads(wide.mapInArrow(through, "text STRING"))
    with pytest.raises(PySparkException):
        run_once(table, channel, tmp_path)
    assert flag.exists()
    (directory,) = archives.iterdir()
    torn = recordings(spark, directory)
    assert 0 < torn.count() < 10_000
    assert committed_rows(torn).count() == 0

    query = run_once(table, channel, tmp_path)
    assert str(query.id) == directory.name
    forget_commit(tmp_path, 1)
    run_once(table, channel, tmp_path)
    found = recordings(spark, directory)
    whole = [Identity.of(each.reserved_value) for each in found.collect()]
    assert whole == sorted(set(whole))
    assert [each.batch for each in whole if each.is_marker] == [0, 1]
    rows = spark_sink.read_back(spark, str(directory / "0")).collect()
    assert sorted(int(each.payload) for each in rows) == list(range(20_000))
    spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


def test_complete_publishes_the_whole_result_and_update_is_refused(
    spark: SparkSession, channel: str, tmp_path: Path
) -> None:
    counted = followed(spark, tmp_path / "in", 40, 2).groupBy().count()
    table = counted.selectExpr("CAST(CAST(count AS STRING) AS BINARY) AS payload")

    def writer(mode: str) -> DataStreamWriter:
        options = {"channel": channel, "streamId": "7"}
        checkpoint = str(tmp_path / f"checkpoint-{mode}")
        return (
            table.writeStream.format("aeron")
            .outputMode(mode)
            .options(**options, checkpointLocation=checkpoint)
            .trigger(availableNow=True)
        )

    with listening(channel, 7) as listener:
        assert writer("complete").start().awaitTermination(PATIENCE_S)
        assert listener.payloads == [b"20", b"40"]
    with pytest.raises(PySparkException, match=r"(?i)update"):
        writer("update").start().awaitTermination(PATIENCE_S)
