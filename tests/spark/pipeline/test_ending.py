"""How a query is stopped: after its batch, and without a word of the one begun meanwhile."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from aeron_async.spark.pipeline.query import QueryStopper, follow

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

LONG = "x" * 50_000
"""More of a message than the stack of Spark's regular expression holds."""


class Stopped:
    """A query that has nothing to end."""

    def stop(self) -> None: ...


def test_what_fails_before_the_end_is_told_and_what_fails_behind_it_is_short() -> None:
    ending = QueryStopper(lambda: False)

    def failing(_frame: object, batch_id: int) -> None:
        raise ValueError(LONG * batch_id)

    guarded = ending.guarded(failing)
    with pytest.raises(ValueError, match="xxx"):
        guarded(None, 1)  # type: ignore[arg-type] # a fake
    ending.stop(Stopped())  # type: ignore[arg-type] # a fake
    with pytest.raises(RuntimeError) as caught:
        guarded(None, 1)  # type: ignore[arg-type] # a fake
    assert caught.value.__suppress_context__
    # As Spark's StreamExecution has it, but for the other names.
    proxy_error = r"py4j.protocol.Py4JJavaError: An error occurred while calling"
    assert re.search(rf"{proxy_error}(.|\n)*java\.lang\.InterruptedException", str(caught.value))


@pytest.mark.parametrize("end_at", [0, 1])
def test_the_batch_behind_the_wish_does_nothing_and_is_no_failure(
    spark: SparkSession, tmp_path: Path, end_at: int
) -> None:
    done: list[int] = []
    ending = QueryStopper(lambda: len(done) >= end_at)
    rates = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
    writer = rates.writeStream.foreachBatch(ending.guarded(lambda _, each: done.append(each)))
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    follow(query, lambda _: None, ending)
    assert query.exception() is None
    assert done == list(range(end_at))
