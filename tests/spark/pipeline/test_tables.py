"""What is written of a table is on the disk before anybody goes on behind it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from aeron_async.spark.pipeline.settings import PipelineSettings
from aeron_async.spark.pipeline.tables import Tables

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from pyspark.sql import SparkSession


def test_a_batch_is_brought_to_the_disk(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = set()
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        synced.add(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    table = tmp_path / "bronze"
    frame = spark.createDataFrame([(1, 0), (2, 0)], "day int, ingest_batch bigint")
    Tables(spark, PipelineSettings.parse({})).write(frame, table, 0, ("day",))
    written = [table, *table.rglob("*")]
    assert sum(each.suffix == ".parquet" for each in written) == 2
    assert {each.stat().st_ino for each in written} <= synced
