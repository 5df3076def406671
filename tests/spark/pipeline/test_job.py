"""The whole job on one small feed: what was planted is found, once, however often it runs."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections import Counter
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from aeron_async.errors import ArchiveError, ConfigurationError
from aeron_async.spark.pipeline.gold import GAPS, LATENCY, RATES, RATES_MINUTE, RECORDINGS, RUNS
from aeron_async.spark.pipeline.histogram import bin_of, bin_sql
from aeron_async.spark.pipeline.job import BatchReport, PipelineJob
from aeron_async.spark.pipeline.lake import Lake, batch_folders, hold
from aeron_async.spark.pipeline.runs import GapKind
from aeron_async.spark.pipeline.sample import SETTINGS, Planted, record_sample
from aeron_async.spark.pipeline.settings import PipelineSettings
from aeron_async.spark.pipeline.tables import read_folders
from tests.archive.golden import golden_path

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

# As few as have each kind of fault among them, more than once in all.
COUNT = 4_000
MORE = 2_000
FEW = 100
PATIENCE_S = 60
LIMIT = {"source": {"maxRowsPerTrigger": "2400"}, "compact_batches": 3}


def record(archive: Path, port: int, count: int = COUNT) -> Planted:
    sample = record_sample(archive, count=count, rate=10**6, endpoint=f"127.0.0.1:{port}")
    return asyncio.run(asyncio.wait_for(sample, PATIENCE_S))


def ingest(spark: SparkSession, archive: Path, lake: Lake, **more: Any) -> list[BatchReport]:
    reports: list[BatchReport] = []
    settings = PipelineSettings.parse({**SETTINGS, **LIMIT, **more})
    PipelineJob(archive, lake, settings, reports.append).run(spark)
    return reports


@attrs.frozen
class Ingested:
    """A feed in a lake, which several tests look at: a query takes seconds."""

    archive: Path
    lake: Lake
    planted: Planted
    reports: list[BatchReport]


@pytest.fixture(scope="module")
def ingested(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    unused_udp_port_factory: Callable[[], int],
) -> Ingested:
    folder = tmp_path_factory.mktemp("ingested")
    archive, lake = folder / "archive", Lake(folder / "lake")
    planted = record(archive, unused_udp_port_factory())
    return Ingested(archive, lake, planted, ingest(spark, archive, lake))


@pytest.fixture
def own_copy(ingested: Ingested, tmp_path: Path) -> Ingested:
    """Return that feed in a lake of the test's own, which it may change."""
    folder = tmp_path / "ingested"
    shutil.copytree(ingested.archive.parent, folder)
    copy = attrs.evolve(ingested, archive=folder / "archive", lake=Lake(folder / "lake"))
    # A lake knows where its archive is.
    path = copy.lake.root / "_state" / "begun.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"archive": str(copy.archive)}))
    return copy


@pytest.fixture(scope="module")
def archive(
    tmp_path_factory: pytest.TempPathFactory, unused_udp_port_factory: Callable[[], int]
) -> Path:
    """Return an archive of few messages, for what fails before it reads many."""
    archive = tmp_path_factory.mktemp("few") / "archive"
    record(archive, unused_udp_port_factory(), FEW)
    return archive


def test_a_feed_is_ingested_once_and_what_is_wrong_with_it_found(
    spark: SparkSession, own_copy: Ingested, unused_udp_port: int
) -> None:
    archive, lake, planted = own_copy.archive, own_copy.lake, own_copy.planted
    reports = [*own_copy.reports]
    assert len(reports) > 1
    assert sum(report.messages for report in reports) == COUNT
    assert sum(report.quarantined for report in reports) == planted.cut_messages
    assert ingest(spark, archive, lake) == []

    again = record(archive, unused_udp_port, MORE)
    reports += ingest(spark, archive, lake)
    assert set(reports[-1].positions) == {0, 1}
    wrong = planted.cut_messages + again.cut_messages

    bronze = spark.read.parquet(str(lake.bronze))
    assert bronze.count() == bronze.select("recording_id", "position").distinct().count()
    assert bronze.count() == COUNT + MORE
    silver = spark.read.parquet(str(lake.silver("quotes")))
    assert silver.count() == COUNT + MORE - wrong
    assert {"date", "stream_id", "event_ns", "event_time", "sequence"} <= set(silver.columns)
    assert silver.where("to_date(event_time) != date").count() == 0
    aside = spark.read.parquet(str(lake.quarantine)).toArrow()
    assert aside.num_rows == wrong
    assert all(aside.column("decode_error").to_pylist())

    gaps = Counter(read_folders(lake.gold("gaps"), GAPS).column("kind").to_pylist())
    # A number that cannot be decoded is missing too; two such in a row are one gap.
    most = planted.sequence_gaps + again.sequence_gaps + wrong
    assert most - 2 <= gaps.pop(GapKind.SEQUENCE) <= most
    assert not gaps
    for table, schema in (("rates_second", RATES), ("rates_minute", RATES_MINUTE)):
        rates = read_folders(lake.gold(table), schema)
        assert sum(rates.column("messages").to_pylist()) == COUNT + MORE
        assert sum(rates.column("bytes").to_pylist()) == sum(each.bytes for each in reports)
    latency = (
        read_folders(lake.gold("latency"), LATENCY).group_by("name").aggregate([("count", "sum")])
    )
    assert latency.column("count_sum").to_pylist() == [COUNT + MORE - wrong] * 2
    runs = read_folders(lake.gold("runs"), RUNS).to_pylist()
    assert sum(run["messages"] for run in runs if not run["name"]) == COUNT + MORE
    assert read_folders(lake.gold("recordings"), RECORDINGS).num_rows == 2
    # Batches were put together when there were three of them.
    assert [report.batch_id for report in reports] == [0, 1, 2]
    assert list(batch_folders(lake.bronze)) == [2]


def test_a_batch_that_is_done_again_replaces_itself(
    spark: SparkSession, ingested: Ingested, tmp_path: Path
) -> None:
    place = ingested.archive
    reports: list[BatchReport] = []
    lake = Lake(tmp_path / "lake")
    job = PipelineJob(place, lake, PipelineSettings.parse(SETTINGS), reports.append)
    frame = spark.read.format("aeron_archive").options(
        path=str(place),
        recordingIds="0",
        includeChannel="true",
        includeHeaders="true",
        timestampFrom="reserved",
    )
    for _ in range(2):
        job.process(frame.load(), 0)
    assert reports[0].positions == reports[1].positions
    assert spark.read.parquet(str(lake.silver("quotes"))).count() == reports[0].decoded["quotes"]
    assert read_folders(lake.gold("runs"), RUNS).num_rows == 2
    # What a later batch has that was ingested already is decoded no second time.
    job.process(frame.load(), 1)
    assert reports[2].decoded == {"quotes": 0}


def test_a_batch_of_recordings_that_settings_mean_no_more_can_be_done_again(
    tmp_path: Path,
) -> None:
    settings = PipelineSettings.parse({"source": {"recordingIds": "5"}})
    archive = golden_path("A3-several-recordings")
    job = PipelineJob(archive, Lake(tmp_path), settings, lambda _: None)
    assert list(job.recordings()) == [5]
    assert {4, 5} < set(job.all_recordings())


def test_bins_are_the_same_in_sql(spark: SparkSession) -> None:
    values = [0, 1, 127, 128, 255, 256, 257, 1_000, 10**6, 10**12, (1 << 62) + 5, -3]
    frame = spark.createDataFrame([(each,) for each in values], "value bigint")
    found = [row[0] for row in frame.selectExpr(bin_sql("(value + 0)")).collect()]
    assert found == [bin_of(each) for each in values]


def test_a_lake_of_another_archive_is_left_alone(
    spark: SparkSession, archive: Path, tmp_path: Path
) -> None:
    lake = Lake(tmp_path / "lake")
    lake.check_resumable({"archive": "/elsewhere"})
    with pytest.raises(ConfigurationError, match="begun with archive='/elsewhere'"):
        ingest(spark, archive, lake)


def test_a_kind_keeps_its_columns(spark: SparkSession, ingested: Ingested) -> None:
    assert ingested.reports
    other = {"decode": ["1001:quotes=struct:<sequence:q,market_ns:q,sent_ns:q,price:q"]}
    with pytest.raises(ConfigurationError, match="begun with the columns of quotes='market_ns"):
        ingest(spark, ingested.archive, ingested.lake, **other)


def test_a_lake_that_somebody_writes_is_left_alone(
    spark: SparkSession, archive: Path, tmp_path: Path
) -> None:
    lake = Lake(tmp_path / "lake")
    with hold(lake.lock), pytest.raises(ConfigurationError, match="is being written by process"):
        ingest(spark, archive, lake)
    assert not lake.bronze.exists()


def test_what_spark_refuses_at_once_is_one_line(
    spark: SparkSession, archive: Path, tmp_path: Path
) -> None:
    lake = Lake(tmp_path / "lake")
    lake.checkpoint.mkdir(parents=True)
    (lake.checkpoint / "metadata").write_text("no JSON")
    with pytest.raises(ArchiveError) as caught:
        ingest(spark, archive, lake)
    assert "\n" not in str(caught.value)


def test_a_query_that_fails_says_why_in_one_line(
    spark: SparkSession, archive: Path, tmp_path: Path
) -> None:
    lake = Lake(tmp_path / "lake")
    (tmp_path / "lake").mkdir()
    lake.bronze.touch()
    with pytest.raises(ArchiveError) as caught:
        ingest(spark, archive, lake)
    assert "\n" not in str(caught.value)
