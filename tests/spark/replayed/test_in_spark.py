"""A query of Spark on an archive whose files none of its workers has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from examples import spark_first_query
from tests.archive.golden import copy_of, facts
from tests.spark.growing import NUMBER
from tests.spark.replayed.live import LiveArchive, live_archive
from tests.spark.sessions import LONG
from tests.spark.sink.neighbours import served_archive
from tests.spark.test_golden_tables import VALID, WHOLE, framed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture
def control(unused_udp_port_factory: Callable[[], int]) -> str:
    return f"aeron:udp?endpoint=localhost:{unused_udp_port_factory()}"


@pytest.fixture
def live(tmp_path: Path, control: str) -> Iterator[LiveArchive]:
    with live_archive(tmp_path / "archive", control) as archive:
        yield archive


def test_a_table_is_replayed(spark: SparkSession, live: LiveArchive) -> None:
    live.record()
    live.write(2_000)
    frame = spark.read.format("aeron_archive").options(**live.options, maxBytesPerPartition="64k")
    rows = frame.load().orderBy("position").collect()
    assert [NUMBER.unpack_from(row.payload)[0] for row in rows] == list(range(2_000))
    assert frame.load().rdd.getNumPartitions() == 5


@LONG
def test_a_query_follows_replays_and_goes_on_after_a_restart(
    spark: SparkSession, live: LiveArchive, tmp_path: Path
) -> None:
    def run() -> None:
        stream = spark.readStream.format("aeron_archive").options(**live.options)
        query = (
            stream.option("maxRowsPerTrigger", 70)
            .load()
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(60)

    live.record()
    live.write(200)
    run()
    live.write(100)
    run()
    rows = spark.read.parquet(str(tmp_path / "out")).orderBy("position").collect()
    assert [NUMBER.unpack_from(row.payload)[0] for row in rows] == list(range(300))


@pytest.mark.parametrize("name", WHOLE)
def test_official_recordings_are_replayed(
    spark: SparkSession, tmp_path: Path, control: str, name: str
) -> None:
    with served_archive(copy_of(name, tmp_path), control):
        rows = spark_first_query.replayed(spark, control).collect()
    for each in facts()[name]["recordings"]:
        if each["state"] != VALID:
            continue
        mine = [row for row in rows if row.recording_id == each["recording_id"]]
        assert [row.end_position for row in mine] == each["message_end_positions"]
        assert framed([bytes(row.payload) for row in mine]) == each["framed_messages_sha256"]
        assert {row.stream_id for row in mine} <= {each["stream_id"]}
