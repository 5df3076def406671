"""The examples about feeds find what is in them."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from aeron_async.spark import register
from aeron_async.spark.pipeline.sample import Planted, record_sample
from examples import archive_outliers, market_data_bars

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from pyspark.sql import SparkSession

PATIENCE_S = 300


def test_what_was_lost_and_late_is_found(
    spark: SparkSession, tmp_path: Path, unused_udp_port: int
) -> None:
    where = tmp_path / "archive"
    planted = asyncio.run(
        record_sample(where, count=4_000, rate=10**6, endpoint=f"127.0.0.1:{unused_udp_port}")
    )
    rows = archive_outliers.messages(spark, str(where))
    found = archive_outliers.losses(rows).collect()
    assert planted.sequence_gaps <= len(found) <= planted.sequence_gaps + planted.cut_messages
    assert all(row["missing"] >= 1 for row in found)
    late = archive_outliers.late(rows).limit(5).collect()
    assert all(row["latency_ns"] > 10 * row["usual_ns"] for row in late)


async def record_fewer(directory: Path, *, count: int, rate: int) -> Planted:
    """Record a sixth of a feed, in as many seconds."""
    return await record_sample(directory, count=count // 6, rate=rate // 6)


def test_bars_of_a_feed_are_heard(
    spark: SparkSession, tmp_path: Path, unused_udp_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(market_data_bars, "BARS", f"aeron:udp?endpoint=127.0.0.1:{unused_udp_port}")
    monkeypatch.setattr(market_data_bars, "record_sample", record_fewer)
    register(spark)
    run = market_data_bars.heard(spark, str(tmp_path))
    found = [json.loads(each) for each in asyncio.run(asyncio.wait_for(run, PATIENCE_S))]
    # Seconds that are over, each once for each symbol.
    assert len({(bar["symbol"], bar["second"]) for bar in found}) == len(found) > 0
    assert {bar["symbol"].rstrip("\0") for bar in found} == {
        *("ALPHA", "BRAVO", "CHARLIE", "DELTA", "ECHO")
    }
    for bar in found:
        assert bar["low"] <= min(bar["open"], bar["close"])
        assert max(bar["open"], bar["close"]) <= bar["high"]
        assert bar["volume"] > 0
