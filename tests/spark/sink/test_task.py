"""What a task knows of itself, from Spark's undocumented properties or from options."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from aeron_async.errors import ConfigurationError
from aeron_async.spark.sink.options import SinkOptions
from aeron_async.spark.sink.task import MOST_KNOWN, Task, keep

CHANNEL = "aeron:udp?endpoint=127.0.0.1:20121"
GIVEN = {"channel": CHANNEL, "streamId": "7", "delivery": "effectively-once"}
ONCE = SinkOptions.parse({**GIVEN, "archive.control.channel": CHANNEL})
ON_PATH = SinkOptions.parse({**GIVEN, "archive.path": "/a"})
STREAMING = {"streaming.sql.batchId": "12", "sql.streaming.queryId": "abc"}


def test_spark_s_properties_say_query_and_batch() -> None:
    task = Task.of(ONCE, 3, STREAMING.get)
    assert (task.query, task.batch, task.partition) == ("abc", 12, 3)
    assert task.has_identity


def test_options_go_first() -> None:
    options = SinkOptions.parse({"queryId": "mine", "batchId": "0"})
    task = Task.of(options, 3, STREAMING.get)
    assert (task.query, task.batch) == ("mine", 0)


@pytest.mark.parametrize("missing", list(STREAMING))
def test_rows_without_identity_are_told_of(missing: str) -> None:
    known = {name: value for name, value in STREAMING.items() if name != missing}
    with capture_logs() as logs:
        task = Task.of(ONCE, 0, known.get)
    assert not task.has_identity
    (line,) = logs
    assert line["event"] == "sink_without_identity"
    assert line["delivery"] == "at-least-once"


@pytest.mark.parametrize("missing", list(STREAMING))
def test_rows_without_identity_have_no_place_on_a_path(missing: str) -> None:
    known = {name: value for name, value in STREAMING.items() if name != missing}
    with pytest.raises(ConfigurationError, match="set queryId and batchId"):
        Task.of(ON_PATH, 0, known.get)


def test_nobody_is_told_where_none_is_wanted() -> None:
    with capture_logs() as logs:
        assert not Task.of(SinkOptions(), 0, dict[str, str]().get).has_identity
    assert logs == []


def test_speculation_is_refused_with_once() -> None:
    speculating = {**STREAMING, "spark.speculation": "true"}
    assert Task.of(SinkOptions(), 0, speculating.get).batch == 12
    with pytest.raises(ConfigurationError, match="set it to false"):
        Task.of(ONCE, 0, speculating.get)


def test_the_end_kept_for_longest_makes_way_for_a_new_partition_only() -> None:
    end: Any = object()
    known: dict[tuple[str, int], Any] = {}
    for partition in range(MOST_KNOWN):
        keep(known, ("query", partition), end)
    newer: Any = object()
    keep(known, ("query", 5), newer)
    assert len(known) == MOST_KNOWN
    assert known["query", 5] is newer
    assert ("query", 0) in known
    keep(known, ("query", MOST_KNOWN), end)
    assert len(known) == MOST_KNOWN
    assert ("query", 0) not in known
    assert ("query", 5) in known
