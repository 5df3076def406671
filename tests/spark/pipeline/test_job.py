"""The whole job on one small feed: what was planted is found, once, however often it runs."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from aeron_async.errors import ArchiveError
from aeron_async.spark.lake.tables import BATCHES, BRONZE, QUARANTINE, Lake, gold
from aeron_async.spark.pipeline import job as job_module
from aeron_async.spark.pipeline.batches import BATCHES_SCHEMA
from aeron_async.spark.pipeline.gold import GAPS, LATENCY, RATES, RATES_MINUTE, RECORDINGS, RUNS
from aeron_async.spark.pipeline.job import BatchReport, PipelineJob
from aeron_async.spark.pipeline.runs import GapKind
from aeron_async.spark.pipeline.sample import SETTINGS, Planted, record_sample
from aeron_async.spark.pipeline.settings import PipelineSettings
from tests.spark.pipeline.killed import KilledTask
from tests.spark.sessions import LONG

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

# As few as have each kind of fault among them, more than once in all.
COUNT = 4_000
MORE = 2_000
FEW = 100
PATIENCE_S = 60
LIMIT = {"source": {"maxRowsPerTrigger": "2400"}}


def record(archive: Path, port: int, count: int = COUNT) -> Planted:
    sample = record_sample(archive, count=count, rate=10**6, endpoint=f"127.0.0.1:{port}")
    return asyncio.run(asyncio.wait_for(sample, PATIENCE_S))


def ingest(spark: SparkSession, archive: Path, lake: Lake, **more: Any) -> list[BatchReport]:
    reports: list[BatchReport] = []
    settings = PipelineSettings.parse({**SETTINGS, **LIMIT, **more})
    PipelineJob(archive, lake, settings, reports.append).run(spark)
    return reports


def table_of(spark: SparkSession, lake: Lake, table: str) -> DataFrame:
    frame = spark.read.option("basePath", str(lake.path(table)))
    return frame.parquet(*lake.files(table))


@attrs.define
class Ingested:
    """A feed in a lake, which several tests look at: a query takes seconds."""

    archive: Path
    lake: Lake
    planted: Planted
    reports: list[BatchReport]
    again: Planted | None = None


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


@pytest.fixture(scope="module")
def archive(
    tmp_path_factory: pytest.TempPathFactory, unused_udp_port_factory: Callable[[], int]
) -> Path:
    """Return an archive of few messages, for what fails before it reads many."""
    archive = tmp_path_factory.mktemp("few") / "archive"
    record(archive, unused_udp_port_factory(), FEW)
    return archive


@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_a_feed_is_ingested_once_and_what_is_wrong_with_it_found(
    spark: SparkSession, ingested: Ingested, tmp_path: Path, unused_udp_port: int, kind: str
) -> None:
    archive, lake, planted = ingested.archive, ingested.lake, ingested.planted
    if kind == "parquet":
        lake = Lake(tmp_path / "lake")
        reports, again = ingest(spark, archive, lake, format=kind), ingested.again
    else:
        reports = [*ingested.reports]
        assert sum(report.quarantined for report in reports) == planted.cut_messages
        assert ingest(spark, archive, lake) == []
        again = ingested.again = record(archive, unused_udp_port, MORE)
        reports += ingest(spark, archive, lake)
    assert again is not None
    assert len(reports) > 1
    assert sum(report.messages for report in reports) == COUNT + MORE
    assert set(reports[-1].positions) == {0, 1}
    wrong = planted.cut_messages + again.cut_messages
    check_tables(spark, lake, wrong)

    gaps = Counter(lake.read(gold("gaps"), GAPS).column("kind").to_pylist())
    # A number that cannot be decoded is missing too; two such in a row are one gap.
    most = planted.sequence_gaps + again.sequence_gaps + wrong
    assert most - 2 <= gaps.pop(GapKind.SEQUENCE) <= most
    assert not gaps
    for table, schema in (("rates_second", RATES), ("rates_minute", RATES_MINUTE)):
        rates = lake.read(gold(table), schema)
        assert sum(rates.column("messages").to_pylist()) == COUNT + MORE
        assert sum(rates.column("bytes").to_pylist()) == sum(each.bytes for each in reports)
    counts = lake.read(gold("latency"), LATENCY)
    latency = counts.group_by("name").aggregate([("count", "sum")])
    assert latency.column("count_sum").to_pylist() == [COUNT + MORE - wrong] * 2
    runs = lake.read(gold("runs"), RUNS).to_pylist()
    assert sum(run["messages"] for run in runs if not run["name"]) == COUNT + MORE
    assert lake.read(gold("recordings"), RECORDINGS).num_rows == 2
    assert [report.batch_id for report in reports] == list(range(len(reports)))
    offsets = lake.read(BATCHES, BATCHES_SCHEMA).column("offsets").to_pylist()
    assert all(json.loads(each)["v"] for each in offsets)


def check_tables(spark: SparkSession, lake: Lake, wrong: int) -> None:
    """Check that Spark reads each message once."""
    bronze = table_of(spark, lake, BRONZE)
    places = bronze.selectExpr("count(*)", "count(DISTINCT recording_id, position)").collect()
    assert [tuple(row) for row in places] == [(COUNT + MORE, COUNT + MORE)]
    silver = table_of(spark, lake, "silver/quotes")
    assert {"date", "stream_id", "event_ns", "event_time", "sequence"} <= set(silver.columns)
    days = silver.selectExpr("count(*)", "count_if(to_date(event_time) != date)").collect()
    assert [tuple(row) for row in days] == [(COUNT + MORE - wrong, 0)]
    aside = table_of(spark, lake, QUARANTINE).toArrow()
    assert aside.num_rows == wrong
    assert all(aside.column("decode_error").to_pylist())


@LONG
def test_a_worker_that_is_killed_behind_its_files_leaves_none_that_counts(
    spark: SparkSession, archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(tmp_path / "lake")
    monkeypatch.setattr(job_module, "BatchTask", KilledTask)
    with pytest.raises(ArchiveError, match="rashed"):
        ingest(spark, archive, lake)
    orphans = list(Path(str(lake.path(BRONZE))).rglob("*.parquet"))
    assert orphans
    assert not lake.files(BRONZE)
    monkeypatch.undo()
    assert sum(each.messages for each in ingest(spark, archive, lake)) == FEW
    assert len(lake.files(BRONZE)) == 1
    assert len(list(Path(str(lake.path(BRONZE))).rglob("*-000.parquet"))) == 1 + len(orphans)


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
    damaged = tmp_path / "archive"
    shutil.copytree(archive, damaged)
    for each in damaged.glob("*.rec"):
        each.write_bytes(bytes(each.stat().st_size))
    with pytest.raises(ArchiveError, match="recording 0") as caught:
        ingest(spark, damaged, lake)
    assert "\n" not in str(caught.value)
