"""Streaming query of a pipeline."""

from __future__ import annotations

from heapq import nlargest
from operator import itemgetter
from threading import Event
from typing import TYPE_CHECKING, Any, Final, final

import attrs

from aeron_async.spark.lag import bytes_behind, offsets_of
from aeron_async.spark.pipeline.session import in_one_line
from aeron_async.spark.source import PlanSource, register

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from aeron_async.spark.pipeline.settings import PipelineSettings

__all__ = [
    "MOST_TOLD",
    "Lag",
    "QueryStopper",
    "follow",
    "lag_of",
    "source_options",
    "start_query",
]


def source_options(archive: str | Path, settings: PipelineSettings) -> dict[str, str]:
    """Return the options of `aeron_archive` for a pipeline."""
    options = {"path": str(archive), **settings.source}
    if settings.timestamp_from is not None:
        options["timestampFrom"] = settings.timestamp_from
    return options


HOLD_SECONDS: Final = 30
"""How long a batch waits for its query to be stopped; `follow` checks for that every second."""
LOOK_SECONDS: Final = 1
"""Seconds between two checks for a requested stop."""

CUT_OFF: Final = (
    "py4j.protocol.Py4JJavaError: An error occurred while calling a batch that was stopped: "
    "java.lang.InterruptedException"
)
"""Error text that Spark takes for its own interruption, and not for a failure."""


@final
@attrs.frozen
class Lag:
    """How far a lake is behind its archive.

    Attributes:
        batch_id: Last batch in the lake.
        behind: Bytes not yet in the lake, by recording id, of those that are farthest behind; not
            more than `MOST_TOLD`.
        untold: How many more recordings are behind or not.
    """

    batch_id: int
    behind: Mapping[int, int]
    untold: int = 0


MOST_TOLD: Final = 8_192
"""Upper limit on the recordings that a report of a batch names, which is a line of JSON."""


@final
class QueryStopper:
    """Stops a query after its current batch, without beginning the next one.

    Spark begins the next batch at once if there is more data. After a stop was requested, that
    batch waits before it does any work until the query is stopped, and then raises an error;
    interrupting it at work would write a hundred log lines. The error text is short, because Spark
    matches a regular expression against the traceback to recognise an interruption, and a long
    traceback overflows its stack.

    Args:
        is_wanted: Whether a stop was requested.

    Attributes:
        is_holding: Whether a batch waits for the query to be stopped.
    """

    def __init__(self, is_wanted: Callable[[], bool]) -> None:
        self.is_wanted = is_wanted
        self.is_holding = False
        self._stopping = Event()
        self._query: StreamingQuery | None = None

    def stop(self, query: StreamingQuery) -> None:
        """Stop the query; return when no batch is running."""
        self._query = query
        self._stopping.set()
        query.stop()

    def guarded(
        self, process: Callable[[DataFrame, int], None]
    ) -> Callable[[DataFrame, int], None]:
        """Return a function that processes only batches that begin before a stop is requested."""

        def guarded(frame: DataFrame, batch_id: int) -> None:
            if not self.is_wanted():
                try:
                    process(frame, batch_id)
                except Exception:
                    if not self._stopping.is_set():
                        raise
                    # Spark repeats an interrupted batch, so an error that is not the interruption
                    # comes again.
                    raise RuntimeError(CUT_OFF) from None
                return
            self.is_holding = True
            self._stopping.wait(HOLD_SECONDS)
            for _ in range(HOLD_SECONDS * 100):
                if self._query is None or not self._query.isActive:
                    break
                # An error raised before Spark has noted the stop would count as a failure.
                Event().wait(0.01)
            raise RuntimeError(CUT_OFF)

        return guarded


def start_query(
    spark: SparkSession,
    options: Mapping[str, str],
    checkpoint: str | Path,
    trigger: int | None,
    process: Callable[[DataFrame, int], None],
) -> StreamingQuery:
    """Start a query that passes the plans of every batch to a function.

    Args:
        spark: The session.
        options: Options of the source.
        checkpoint: Directory of the query's checkpoint, or its URL.
        trigger: Interval between batches in milliseconds; None to read what there is.
        process: Takes the plans of a batch, and its id.

    Raises:
        ArchiveError: Spark refuses.
    """
    register(spark)
    with in_one_line():
        frame = spark.readStream.format(PlanSource.name()).options(**options).load()
        writer = frame.writeStream.foreachBatch(process).queryName("aeron-pipeline")
        writer = writer.option("checkpointLocation", str(checkpoint))
        if trigger is None:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{trigger} milliseconds").start()


def follow(
    query: StreamingQuery,
    tell: Callable[[Lag], None],
    ending: QueryStopper,
) -> None:
    """Watch a query until it ends; if a stop is requested, stop it after its batch.

    Args:
        query: Query to watch.
        tell: Called after each batch with how far the lake is behind.
        ending: Tells whether a stop was requested, and stops the query.

    Raises:
        ArchiveError: The query failed.
    """
    told = -1
    under_way: int | None = None
    with in_one_line():
        while query.isActive:
            if ending.is_wanted():
                done = batch_of(query.lastProgress)
                under_way = done if under_way is None else under_way
                is_idle = not query.status["isTriggerActive"]
                if done != under_way or is_idle or ending.is_holding:
                    break
            query.awaitTermination(LOOK_SECONDS)
            lag = lag_of(query.lastProgress)
            if lag is not None and lag.batch_id != told:
                told = lag.batch_id
                tell(lag)
        ending.stop(query)
        error = query.exception()
        if error is not None:
            raise error


def batch_of(progress: Any) -> int:
    """Return the last batch in a progress report of Spark; -1 if there is none."""
    return -1 if progress is None else int(progress["batchId"])


def lag_of(progress: Any) -> Lag | None:
    """Return how far a query is behind, from a progress report; None if it does not tell."""
    if progress is None or not progress["sources"]:
        return None
    source = progress["sources"][0]
    end, latest = offsets_of(source["endOffset"]), offsets_of(source["latestOffset"])
    if end is None or latest is None:
        return None
    behind = bytes_behind(end, latest)
    told = behind if len(behind) <= MOST_TOLD else farthest(behind)
    return Lag(progress["batchId"], told, len(behind) - len(told))


def farthest(behind: Mapping[int, int]) -> dict[int, int]:
    """Return the recordings that are farthest behind."""
    return dict(nlargest(MOST_TOLD, behind.items(), key=itemgetter(1)))
