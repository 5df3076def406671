"""Each message comes through once, whatever is killed and whenever.

A campaign starts Spark again after each kill, which takes minutes: `AERON_ASYNC_SPARK_KILLS=20`
asks for it. Without it `sink/test_in_spark.py` and `pipeline/test_kills.py` kill workers and jobs.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final, Literal

import pytest

from aeron_async.errors import ConfigurationError
from aeron_async.spark.java import ensure_java
from tests.by_hand import runs_java
from tests.spark.exactly_once.campaign import Campaign
from tests.spark.exactly_once.feed import AT_ONCE

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

KILLS: Final = int(os.environ.get("AERON_ASYNC_SPARK_KILLS", "0"))
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc")


@pytest.fixture(autouse=True)
def _java() -> None:
    try:
        ensure_java()
    except ConfigurationError as error:
        if runs_java():
            raise
        pytest.skip(str(error))


@pytest.mark.skipif(KILLS <= 2, reason="takes minutes: set AERON_ASYNC_SPARK_KILLS=20")
def test_a_driver_that_is_killed_again_and_again_loses_and_doubles_nothing(tmp_path: Path) -> None:
    outcome = Campaign(tmp_path).run(KILLS)
    assert outcome.rows == outcome.sent > 0


@pytest.mark.skipif(KILLS <= 2, reason="takes minutes: set AERON_ASYNC_SPARK_KILLS=20")
def test_executors_that_are_killed_again_and_again_lose_and_double_nothing(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path, master="local-cluster[2,1,1024]", victim="executor")
    outcome = campaign.run(KILLS)
    assert outcome.rows == outcome.sent > 0


@pytest.mark.skipif(KILLS <= 2, reason="takes minutes: set AERON_ASYNC_SPARK_KILLS=20")
@pytest.mark.parametrize(
    ("master", "victim"), [("local[2]", "driver"), ("local-cluster[2,1,1024]", "executor")]
)
def test_a_lake_has_each_message_once_whatever_is_killed(
    tmp_path: Path, master: str, victim: Literal["driver", "executor"]
) -> None:
    outcome = Campaign(tmp_path, master=master, victim=victim, through="lake").run(KILLS)
    assert outcome.rows == outcome.sent > 0
    assert outcome.kills_within_a_batch > 0


@pytest.mark.skipif(not KILLS, reason="takes a minute: set AERON_ASYNC_SPARK_KILLS=20")
def test_what_is_published_effectively_once_is_there_once_however_often_the_driver_is_killed(
    spark: SparkSession, tmp_path: Path
) -> None:
    # A session that is there already reads the rest: a start takes longer than what is left. One
    # kill needs few messages, each of which takes its time on its way.
    at_once = 15 if KILLS <= 2 else AT_ONCE
    campaign = Campaign(tmp_path, through="sink", reader=spark, at_once=at_once)
    outcome = campaign.run(KILLS)
    assert outcome.rows == outcome.sent > 0
    assert outcome.kills_within_a_batch > 0


@pytest.mark.skipif(KILLS <= 2, reason="takes minutes: set AERON_ASYNC_SPARK_KILLS=20")
def test_what_is_published_effectively_once_is_there_once_however_many_executors_are_killed(
    tmp_path: Path,
) -> None:
    campaign = Campaign(
        tmp_path, master="local-cluster[2,1,1024]", victim="executor", through="sink"
    )
    outcome = campaign.run(KILLS)
    assert outcome.rows == outcome.sent > 0
