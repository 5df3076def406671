"""Batches through Spark: what its contract asks for, and what a user is told who errs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

import aeron_async.spark
from aeron_async.archive.disk.catalog import Catalog
from aeron_async.archive.disk.files import OsDirectory
from aeron_async.spark.columns import COLUMNS
from tests.archive.golden import copy_of, golden_path, recording_facts

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, Row, SparkSession

NAME = "A2-mid-term-start"


def table(spark: SparkSession, name: str = NAME, **options: Any) -> DataFrame:
    return spark.read.format("aeron_archive").options(**options).load(str(golden_path(name)))


def refusal(frame: DataFrame) -> str:
    with pytest.raises(PySparkException) as caught:
        frame.collect()
    return str(caught.value)


def test_the_source_is_found_without_being_registered(spark: SparkSession) -> None:
    assert table(spark).count() == 100


def test_the_source_can_be_registered_as_well(spark: SparkSession) -> None:
    aeron_async.spark.register(spark)
    assert table(spark).count() == 100


def test_every_column_can_be_asked_for_in_any_order(spark: SparkSession) -> None:
    for mode in ("message", "frame"):
        known = [column for column in COLUMNS if mode in column.modes]
        ddl = ", ".join(f"{column.name} {column.spark_type}" for column in reversed(known))
        reader = spark.read.format("aeron_archive").option("fragmentMode", mode).schema(ddl)
        frame = reader.load(str(golden_path(NAME)))
        assert frame.columns == [column.name for column in reversed(known)]
        whole = table(
            spark,
            fragmentMode=mode,
            includeHeaders="true",
            includeChannel="true",
            timestampFrom="reserved",
        )
        assert sorted(whole.columns) == sorted(frame.columns)
        same = [column.name for column in known if not column.name.startswith("timestamp")]
        assert frame.select(same).collect() == whole.select(same).collect()


def test_each_column_alone_is_what_it_is_among_all(spark: SparkSession) -> None:
    every = {
        "columns": ",".join(column.name for column in COLUMNS if "message" in column.modes),
        "recordingIds": "0",
    }
    whole = table(spark, **every).collect()
    for column in COLUMNS:
        if "message" in column.modes:
            alone = table(spark, columns=column.name, recordingIds="0").collect()
            assert [row[0] for row in alone] == [row[column.name] for row in whole]


def test_columns_that_must_not_be_null_are_read(spark: SparkSession) -> None:
    reader = spark.read.format("aeron_archive").schema("position BIGINT NOT NULL")
    assert reader.load(str(golden_path(NAME))).count() == 100


def test_sql_reads_a_recording(spark: SparkSession) -> None:
    path = golden_path(NAME)
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW recorded USING aeron_archive "
        f"OPTIONS (path '{path}', recordingIds '0')"
    )
    (row,) = spark.sql("SELECT count(*) AS n, sum(length) AS bytes FROM recorded").collect()
    each = recording_facts(NAME, 0)
    assert (row.n, row.bytes) == (each["messages"], each["payload_bytes"])


def test_a_limit_reads_no_more_than_it_must(spark: SparkSession) -> None:
    assert len(table(spark).limit(3).collect()) == 3


def test_small_batches_hold_the_same_rows(spark: SparkSession) -> None:
    few = table(spark, rowsPerBatch="7", bytesPerBatch="2k", maxBytesPerPartition="64k")
    assert sorted(few.collect()) == sorted(table(spark).collect())
    assert few.rdd.getNumPartitions() > 3


def test_an_archive_without_recordings_is_an_empty_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    Catalog.open(OsDirectory(tmp_path)).close()
    frame = spark.read.format("aeron_archive").load(str(tmp_path))
    assert frame.collect() == []
    assert "payload" in frame.columns


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"recordingIds": "77"}, "no recording has the id 77"),
        ({"streamId": "1"}, "no recording in"),
        ({"startingOffsets": "earliest"}, "did you mean startingPositions?"),
        ({"failOnDataLos": "true"}, "did you mean failOnDataLoss?"),
        ({"columns": "positon"}, "did you mean position?"),
        ({"decoder": "tests.spark.decoders:absent"}, "cannot be imported"),
        ({"decoder": "tests.spark.decoders:no_schema"}, "must be callable and have an attribute"),
        ({"decoder": "tests.spark.decoders:liar"}, "returned size as string"),
        ({"decoder": "tests.spark.decoders:no_batch"}, "returned a int"),
    ],
)
def test_a_query_that_cannot_be_meant_is_told_so(
    spark: SparkSession, options: dict[str, str], says: str
) -> None:
    with pytest.raises(PySparkException, match=r"(?s).") as caught:
        table(spark, **options).collect()
    assert says in str(caught.value)


def test_a_missing_directory_is_told(spark: SparkSession) -> None:
    frame = spark.read.format("aeron_archive").load("/not/there")
    assert "is no directory on this host" in refusal(frame)


def test_a_directory_that_is_no_archive_is_told(spark: SparkSession, tmp_path: Path) -> None:
    assert "has no archive.catalog" in refusal(
        spark.read.format("aeron_archive").load(str(tmp_path))
    )


def test_a_wrong_schema_is_told(spark: SparkSession) -> None:
    reader = spark.read.format("aeron_archive").schema("position INT")
    assert "position is BIGINT, and the schema has INT" in refusal(
        reader.load(str(golden_path(NAME)))
    )


def test_a_missing_path_is_told(spark: SparkSession) -> None:
    with pytest.raises(PySparkException) as caught:
        spark.read.format("aeron_archive").load().collect()
    assert "load() needs the directory of an archive" in str(caught.value)


def test_several_paths_are_told(spark: SparkSession) -> None:
    with pytest.raises(PySparkException) as caught:
        spark.read.format("aeron_archive").load([str(golden_path(NAME)), "/b"]).collect()
    assert "one archive at a time" in str(caught.value)


def test_filters_leave_out_what_no_row_could_be_of(spark: SparkSession) -> None:
    # Loaded anew for each query: Spark would take what the filters of the last one have left.
    options = {"filterPushdown": "true", "maxBytesPerPartition": "64k"}
    rows = table(spark).collect()
    conditions: dict[str, Callable[[Row], bool]] = {
        "position between 262144 and 300000": lambda row: 262_144 <= row.position <= 300_000,
        "recording_id in (1, 5)": lambda row: row.recording_id == 1,
        "stream_id > 9999": lambda row: row.stream_id > 9_999,
        "length % 2 = 0 or position = 1": lambda row: row.length % 2 == 0,
    }
    for condition, holds in conditions.items():
        frame = table(spark, **options).where(condition)
        assert sorted(frame.collect()) == sorted(filter(holds, rows))
    few = table(spark, **options).where("recording_id = 1").rdd.getNumPartitions()
    assert few < table(spark, **options).rdd.getNumPartitions()


def test_filters_that_nobody_pushes_are_applied_too(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        assert table(spark).where("recording_id = 1").count() == 25
        assert "PUSHDOWN_DISABLED" in refusal(table(spark, filterPushdown="true"))
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


def test_a_decoder_makes_columns_of_its_own(spark: SparkSession) -> None:
    frame = table(spark, decoder="tests.spark.decoders:first_bytes", recordingIds="0")
    assert frame.columns == ["position", "number"]
    numbers = [row.number for row in frame.orderBy("position").collect()]
    assert numbers == list(range(75))
    packed = table(spark, decoder="struct:<number:I", columns="payload", recordingIds="0")
    assert [row.number for row in packed.collect()] == numbers
    named = table(spark, decoder="tests.spark.decoders:sized", recordingIds="0")
    assert sum(row.size for row in named.collect()) == recording_facts(NAME, 0)["payload_bytes"]


def test_a_schema_chooses_from_what_a_decoder_makes(spark: SparkSession) -> None:
    reader = spark.read.format("aeron_archive").option(
        "decoder", "tests.spark.decoders:first_bytes"
    )
    path = str(golden_path(NAME))
    assert reader.schema("number BIGINT").load(path).columns == ["number"]
    assert "and not number INT" in refusal(reader.schema("number INT").load(path))


def test_damage_names_the_position_or_is_skipped(spark: SparkSession, tmp_path: Path) -> None:
    path = copy_of("A1-one-finished", tmp_path)
    ends = recording_facts("A1-one-finished", 0)["message_end_positions"]
    position = next(each for each in ends if each > 80_000)
    with (path / "0-65536.rec").open("r+b") as file:
        file.seek(position - 65_536)
        file.write(b"\xff" * 32)
    reader = spark.read.format("aeron_archive")
    message = refusal(reader.load(str(path)))
    assert f"recording 0, position {position}: " in message
    assert "failOnDataLoss=false" in message
    whole = table(spark, "A1-one-finished")
    rest = reader.option("failOnDataLoss", "false").load(str(path))
    assert 0 < rest.count() < whole.count()
    assert rest.where("position >= 131072").count() == whole.where("position >= 131072").count()


def test_a_missing_file_is_named_or_skipped(spark: SparkSession, tmp_path: Path) -> None:
    path = copy_of("A1-one-finished", tmp_path)
    (path / "0-65536.rec").unlink()
    reader = spark.read.format("aeron_archive")
    assert "0-65536.rec is not there" in refusal(reader.load(str(path)))
    rest = reader.option("failOnDataLoss", "false").load(str(path))
    whole = table(spark, "A1-one-finished")
    outside = whole.where("position < 65536 or position >= 131072")
    assert sorted(rest.collect()) == sorted(outside.collect())
