"""The whole job in Spark, from an archive in S3 into a lake in S3: workers know the URL only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from aeron_async.spark.lake.tables import Lake
from aeron_async.spark.pipeline.job import BatchReport, PipelineJob
from aeron_async.spark.pipeline.settings import PipelineSettings
from tests.spark.pipeline.test_task import DAY_NS, SPEC, quotes
from tests.spark.stores import s3_server

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from pyspark.sql import SparkSession

COUNT = 4_000


def test_a_lake_in_s3_is_gone_on_with_by_a_job_of_another_host(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    quotes(tmp_path / "archive", [(n, DAY_NS, 1) for n in range(COUNT)])
    quotes(tmp_path / "archive", [(n, DAY_NS, 1) for n in range(COUNT)])
    given: dict[str, Any] = {"decode": SPEC, "timestamp_from": "reserved"}
    with s3_server() as s3:
        archive, url = s3.copy(tmp_path / "archive"), s3.url("lake")
        told = []
        for ids in ("0", "0,1"):
            reports: list[BatchReport] = []
            settings = PipelineSettings.parse({**given, "source": {"recordingIds": ids}})
            PipelineJob(archive, Lake(url), settings, reports.append).run(spark)
            told.append([sum(each.messages for each in reports), reports[0].batch_id])
        # The second one has read nothing of the first recording.
        assert told == [[COUNT, 0], [COUNT, 1]]
        rows = Lake(url).read("silver/quotes", pa.schema([("recording_id", pa.int64())]))
        assert rows.column(0).to_pylist().count(1) == rows.num_rows / 2 == COUNT
        assert not [each for each in s3.keys("lake") if each.startswith("_checkpoint")]
