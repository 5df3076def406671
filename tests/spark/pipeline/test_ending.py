"""How a query is stopped: after its batch, and without a word of the one begun meanwhile."""

from __future__ import annotations

import re
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest

from aeron_async.spark.pipeline.query import Ending, follow

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PATIENCE_S = 60
LONG = "x" * 50_000
"""More of a message than the stack of Spark's regular expression holds."""


class AtWork:
    """A query whose next batch has begun by the time that somebody looks."""

    def __init__(self, query: StreamingQuery) -> None:
        self.isActive = True
        self.lastProgress = None
        self.status = {"isTriggerActive": False}
        self.stop, self.exception = query.stop, query.exception


def test_what_fails_before_the_end_is_told_and_what_fails_behind_it_is_short() -> None:
    ending = Ending()

    def failing(_frame: object, batch_id: int) -> None:
        raise ValueError(LONG * batch_id)

    guarded = ending.guarded(failing)
    with pytest.raises(ValueError, match="xxx"):
        guarded(None, 1)  # type: ignore[arg-type] # a fake
    ending.begin()
    with pytest.raises(RuntimeError) as caught:
        guarded(None, 1)  # type: ignore[arg-type] # a fake
    assert caught.value.__suppress_context__
    # As Spark's StreamExecution has it, but for the other names.
    proxy_error = r"py4j.protocol.Py4JJavaError: An error occurred while calling"
    assert re.search(rf"{proxy_error}(.|\n)*java\.lang\.InterruptedException", str(caught.value))


def test_a_batch_that_is_cut_off_is_no_failure(spark: SparkSession, tmp_path: Path) -> None:
    ending, started, queries = Ending(), Event(), list[Any]()

    def process(_frame: DataFrame, batch_id: int) -> None:
        if batch_id:
            started.set()
            while queries[0].isActive:
                Event().wait(0.01)
            raise ValueError

    rates = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
    writer = rates.writeStream.foreachBatch(ending.guarded(process))
    queries.append(writer.option("checkpointLocation", str(tmp_path)).start())
    assert started.wait(PATIENCE_S)
    follow(AtWork(queries[0]), lambda: True, lambda _: None, ending)  # type: ignore[arg-type]
    assert queries[0].exception() is None
