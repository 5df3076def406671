"""The examples about feeds find what is in them."""

from __future__ import annotations

import asyncio
import json
from itertools import count as count_from
from typing import TYPE_CHECKING

from aeron_async.spark import register
from aeron_async.spark.pipeline import sample
from aeron_async.spark.pipeline.sample import Planted, quotes, record_sample
from examples import archive_outliers, market_data_bars
from tests.spark.sessions import LONG

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pytest
    from pyspark.sql import SparkSession

PATIENCE_S = 300
HOUR_NS = 3_600 * 10**9
LATE_NS = {1_000: HOUR_NS, 2_000: 3 * HOUR_NS, 3_000: 2 * HOUR_NS}
"""How much earlier some messages were sent, as they say; longer than any machine stands still."""


def quotes_some_late(count: int, epoch_ns: Callable[[], int], planted: Planted) -> Iterator[bytes]:
    places = count_from()
    return quotes(count, lambda: epoch_ns() - LATE_NS.get(next(places), 0), planted)


@LONG
def test_what_was_lost_and_late_is_found(
    spark: SparkSession, tmp_path: Path, unused_udp_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = tmp_path / "archive"
    # What the sample itself plants is late before it is sent; the example looks at the time after.
    monkeypatch.setattr(sample, "quotes", quotes_some_late)
    planted = asyncio.run(
        record_sample(where, count=4_000, rate=10**6, endpoint=f"127.0.0.1:{unused_udp_port}")
    )
    rows = archive_outliers.messages(spark, str(where))
    found = archive_outliers.losses(rows).collect()
    assert 0 < planted.sequence_gaps <= len(found) <= planted.sequence_gaps + planted.cut_messages
    assert all(row["missing"] >= 1 for row in found)
    late = archive_outliers.late(rows).limit(5).collect()
    assert all(row["usual_ns"] < HOUR_NS / 10 for row in late)
    # The latest comes first; those that a busy machine adds come after them.
    assert [row["latency_ns"] // HOUR_NS for row in late[: len(LATE_NS)]] == [3, 2, 1]
    assert all(row["latency_ns"] < HOUR_NS for row in late[len(LATE_NS) :])


async def record_fewer(directory: Path, *, count: int, rate: int) -> Planted:
    """Record a sixth of a feed, in as many seconds."""
    return await record_sample(directory, count=count // 6, rate=rate // 6)


@LONG
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
