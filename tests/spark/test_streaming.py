"""Structured Streaming over a recording that grows."""

from __future__ import annotations

import json
import pickle
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxFiles,
    ReadMaxRows,
)

from aeron_async.errors import ConfigurationError
from aeron_async.spark.admission import Limit
from aeron_async.spark.columns import project
from aeron_async.spark.lag import LagListener, QueryLag, offsets_of
from aeron_async.spark.options import ArchiveOptions
from aeron_async.spark.ranges import ScanSettings
from aeron_async.spark.stream_reader import RefusingReader, StreamReader, limit_of
from examples import spark_follow
from tests.spark.growing import NUMBER, GrowingArchive
from tests.spark.sessions import LONG

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def archive(tmp_path: Path) -> GrowingArchive:
    return GrowingArchive(tmp_path / "archive")


def reader(path: Path, **given: str) -> StreamReader:
    options = ArchiveOptions.parse({"path": str(path), **given})
    return StreamReader(options, ScanSettings(options, project(("position", "payload"), "message")))


def stream(spark: SparkSession, archive: GrowingArchive, **options: Any) -> DataFrame:
    return spark.readStream.format("aeron_archive").options(**options).load(str(archive.path))


def run(frame: DataFrame, target: Path) -> list[dict[str, Any]]:
    """Write what there is as Parquet; return what Spark says of each batch with rows."""
    query = (
        frame.writeStream.format("parquet")
        .option("path", str(target / "out"))
        .option("checkpointLocation", str(target / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    return [json.loads(each.json) for each in query.recentProgress if each.numInputRows]


def numbers(spark: SparkSession, target: Path) -> list[int]:
    rows = spark.read.parquet(str(target / "out")).orderBy("recording_id", "position").collect()
    return [NUMBER.unpack_from(row.payload)[0] for row in rows]


def test_available_now_reads_in_batches_and_resumes(
    spark: SparkSession, archive: GrowingArchive, tmp_path: Path
) -> None:
    recording = archive.record()
    recording.write(100)
    frame = stream(spark, archive, maxRowsPerTrigger=40)
    told: SimpleQueue[QueryLag] = SimpleQueue()
    listener = LagListener(told.put)
    spark.streams.addListener(listener)
    progress = run(frame, tmp_path)
    # Spark tells listeners in its own time.
    behind = [told.get(timeout=30).total for _ in range(3)]
    spark.streams.removeListener(listener)
    assert behind[0] > behind[1] > behind[2] == 0
    assert [each["numInputRows"] for each in progress] == [40, 40, 20]
    (source,) = progress[-1]["sources"]
    latest = offsets_of(source["latestOffset"])
    assert latest is not None
    assert latest.recordings[0].position == recording.position
    recording.write(10)
    archive.record(stream_id=11).write(5)
    assert sum(each["numInputRows"] for each in run(frame, tmp_path)) == 15
    assert numbers(spark, tmp_path) == [*range(110), *range(5)]


@LONG
def test_a_purged_recording_fails_a_query_with_what_was_lost(
    spark: SparkSession, archive: GrowingArchive, tmp_path: Path
) -> None:
    from aeron_async.archive.disk import changes  # noqa: PLC0415 - next to its only use

    recording = archive.record()
    recording.write(400)
    run(stream(spark, archive, maxRowsPerTrigger=400), tmp_path)
    recording.write(400)
    recording.stop()
    changes.purge_segments(archive.directory, archive.catalog, 0, 3 * 131_072)
    with pytest.raises(StreamingQueryException, match="purged: it now begins at 393216") as caught:
        run(stream(spark, archive), tmp_path)
    assert "Traceback" not in str(caught.value)
    assert run(stream(spark, archive, failOnDataLoss="false"), tmp_path)


def test_options_that_a_stream_cannot_have_are_named(
    spark: SparkSession, archive: GrowingArchive, tmp_path: Path
) -> None:
    archive.record().write(1)
    with pytest.raises(StreamingQueryException, match="endingPositions end a batch") as caught:
        run(stream(spark, archive, endingPositions="earliest"), tmp_path)
    assert "Traceback" not in str(caught.value)
    assert "UnboundLocalError" not in str(caught.value)


def test_the_example_copies_an_archive(
    spark: SparkSession, archive: GrowingArchive, tmp_path: Path
) -> None:
    archive.record().write(30)
    query = spark_follow.follow(spark, str(archive.path), str(tmp_path))
    assert query.awaitTermination(120)
    assert spark.read.parquet(str(tmp_path / "messages")).count() == 30


def test_making_one_touches_nothing_and_what_it_knows_does_not_travel(tmp_path: Path) -> None:
    made = reader(tmp_path / "nowhere")
    with pytest.raises(ConfigurationError, match="change path"):
        made.initialOffset()
    GrowingArchive(tmp_path).record().write(1)
    made = reader(tmp_path)
    start = made.initialOffset()
    again = pickle.loads(pickle.dumps(made))  # noqa: S301 - what it was made of a line before
    end = again.latestOffset(start, ReadAllAvailable())
    (partition,) = made.partitions(start, end)
    assert sum(batch.num_rows for batch in again.read(partition)) == 1


def test_what_is_refused_says_so_whatever_it_is_asked() -> None:
    refusing: Any = RefusingReader("change it")
    for ask in (
        refusing.initialOffset,
        lambda: refusing.latestOffset({}, ReadAllAvailable()),
        lambda: refusing.partitions({}, {}),
        lambda: refusing.read(None),
    ):
        with pytest.raises(ConfigurationError, match="change it"):
            ask()


def parts_of(partitions: Sequence[Any]) -> list[Any]:
    return [each.parts for each in partitions]


def test_a_batch_that_is_done_again_has_the_partitions_it_had(tmp_path: Path) -> None:
    archive = GrowingArchive(tmp_path)
    recording = archive.record()
    recording.write(1_000)
    first = reader(tmp_path, maxBytesPerPartition="128k", minPartitions="2")
    start = first.initialOffset()
    end = first.latestOffset(start, ReadAllAvailable())
    planned = first.partitions(start, end)
    assert len(planned) > 2
    other = reader(tmp_path, maxBytesPerPartition="64m")
    assert parts_of(other.partitions(start, end)) == parts_of(planned)
    # And what follows is as it is wished by now; nothing follows from the wish alone.
    assert other.latestOffset(end, ReadAllAvailable()) is end
    recording.write(1_000)
    after = other.latestOffset(end, ReadAllAvailable())
    assert len(other.partitions(end, after)) == 1


def test_the_start_itself_is_the_end_of_nothing(tmp_path: Path) -> None:
    GrowingArchive(tmp_path).record()
    made = reader(tmp_path)
    start = made.initialOffset()
    assert made.latestOffset(start, ReadAllAvailable()) is start
    assert made.partitions(start, start) == []
    assert made.reportLatestOffset() == start
    made.commit(start)


@pytest.mark.parametrize(
    "options",
    [
        {"endingPositions": "earliest"},
        {"endingTimestamp": "5", "timestampFrom": "reserved"},
    ],
)
def test_a_stream_has_no_end(tmp_path: Path, options: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match=f"{next(iter(options))} end a batch"):
        reader(tmp_path, **options)


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, ReadAllAvailable()),
        ({"maxBytesPerTrigger": "1m"}, ReadMaxBytes(1 << 20)),
        ({"maxRowsPerTrigger": "9"}, ReadMaxRows(9)),
        ({"minBytesPerTrigger": "1m"}, ReadMaxBytes((1 << 63) - 1)),
        ({"minBytesPerTrigger": "1m", "maxBytesPerTrigger": "2m"}, ReadMaxBytes(2 << 20)),
    ],
)
def test_the_limit_of_the_options_is_what_spark_hands_back(
    tmp_path: Path, options: dict[str, str], limit: Any
) -> None:
    assert reader(tmp_path, **options).getDefaultReadLimit() == limit


def test_limits_of_spark_are_limits_of_ours() -> None:
    assert limit_of(ReadAllAvailable()) is None
    assert limit_of(ReadMaxBytes(5)) == Limit(max_bytes=5)
    assert limit_of(ReadMaxRows(6)) == Limit(max_rows=6)
    with pytest.raises(ConfigurationError, match="by bytes or rows"):
        limit_of(ReadMaxFiles(1))
