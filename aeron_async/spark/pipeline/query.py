"""The streaming query of a pipeline, and bronze, its rows as recorded."""

from __future__ import annotations

import json
from threading import Event
from typing import TYPE_CHECKING, Any, Final, final

import attrs

from aeron_async.spark.offsets import Offsets
from aeron_async.spark.pipeline.session import in_one_line
from aeron_async.spark.source import register

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from aeron_async.spark.pipeline.settings import PipelineSettings

__all__ = [
    "BRONZE_COLUMNS",
    "Ending",
    "Lag",
    "bronze",
    "follow",
    "lag_of",
    "source_options",
    "start_query",
]

BRONZE_COLUMNS: Final = (
    "recording_id",
    "position",
    "end_position",
    "session_id",
    "stream_id",
    "channel",
    "reserved_value",
    "timestamp",
    "timestamp_ns",
    "length",
    "payload",
)


def source_options(archive: Path, settings: PipelineSettings) -> dict[str, str]:
    """Return the options of `aeron_archive` that a pipeline reads with."""
    options = {"path": str(archive), "columns": ",".join(BRONZE_COLUMNS), **settings.source}
    if settings.timestamp_from is not None:
        options["timestampFrom"] = settings.timestamp_from
    return options


def bronze(frame: DataFrame, batch_id: int) -> DataFrame:
    """Return the rows of a batch as bronze keeps them, be they of a query or of a stream."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - as everybody calls it

    return frame.withColumn("ingest_batch", F.lit(batch_id).cast("bigint"))


HOLD_SECONDS: Final = 30
"""A batch waits no longer for a query to be stopped, which is looked for every second."""
LOOK_SECONDS: Final = 1
"""Between two looks at whether somebody wants an end."""

CUT_OFF: Final = (
    "py4j.protocol.Py4JJavaError: An error occurred while calling a batch that was stopped: "
    "java.lang.InterruptedException"
)
"""What Spark takes for an interruption of its own, and not for a failure."""


@final
@attrs.frozen
class Lag:
    """How far a lake is behind its archive.

    Attributes:
        batch_id: After which batch.
        behind: Bytes by recording id.
    """

    batch_id: int
    behind: Mapping[int, int]


@final
class Ending:
    """Lets a query end after its batch, without a word of the next one.

    Where there is much to do, Spark begins the next batch at once. Here that waits, before it does
    anything, until the query is stopped, and then breaks off: interrupted at work it would be a
    hundred lines of log. What it breaks off with is short, for Spark finds out whether it was an
    interruption by a regular expression over the traceback, and a long one overflows its stack.

    Args:
        is_wanted: Whether somebody wants an end.

    Attributes:
        is_holding: Whether a batch waits for the query to be stopped.
    """

    def __init__(self, is_wanted: Callable[[], bool]) -> None:
        self.is_wanted = is_wanted
        self.is_holding = False
        self._stopping = Event()
        self._query: StreamingQuery | None = None

    def stop(self, query: StreamingQuery) -> None:
        """Stop the query; returns when no batch is at work."""
        self._query = query
        self._stopping.set()
        query.stop()

    def guarded(
        self, process: Callable[[DataFrame, int], None]
    ) -> Callable[[DataFrame, int], None]:
        """Return the same, for batches that begin before an end is wanted."""

        def guarded(frame: DataFrame, batch_id: int) -> None:
            if not self.is_wanted():
                try:
                    process(frame, batch_id)
                except Exception:
                    if not self._stopping.is_set():
                        raise
                    # A batch that is cut off is done again, so whatever it was comes again.
                    raise RuntimeError(CUT_OFF) from None
                return
            self.is_holding = True
            self._stopping.wait(HOLD_SECONDS)
            for _ in range(HOLD_SECONDS * 100):
                if self._query is None or not self._query.isActive:
                    break
                # Raised before Spark has noted that it is stopped, this would be a failure.
                Event().wait(0.01)
            raise RuntimeError(CUT_OFF)

        return guarded


def start_query(
    spark: SparkSession,
    archive: Path,
    checkpoint: Path,
    settings: PipelineSettings,
    process: Callable[[DataFrame, int], None],
) -> StreamingQuery:
    """Start a query that hands over batch after batch.

    Args:
        spark: The session.
        archive: Directory of the archive.
        checkpoint: Where it is kept how far recordings were read.
        settings: Of the pipeline.
        process: Takes a batch and its id.

    Raises:
        ArchiveError: Spark refuses.
    """
    register(spark)
    options = source_options(archive, settings)
    with in_one_line():
        frame = spark.readStream.format("aeron_archive").options(**options).load()
        writer = frame.writeStream.foreachBatch(process).queryName("aeron-pipeline")
        writer = writer.option("checkpointLocation", str(checkpoint))
        if settings.trigger is None:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{settings.trigger} milliseconds").start()


def follow(
    query: StreamingQuery,
    tell: Callable[[Lag], None],
    ending: Ending,
) -> None:
    """Watch a query until it ends, or somebody wants it to: then it ends after its batch.

    Args:
        query: To watch.
        tell: Called with how far the lake is behind.
        ending: Asked now and then, and stops the query.

    Raises:
        ArchiveError: It failed.
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
    """Return the last batch that Spark reports; -1 where there is none."""
    return -1 if progress is None else int(progress["batchId"])


def lag_of(progress: Any) -> Lag | None:
    """Return how far a query is behind, by what Spark reports of it; None where it says nothing."""
    if progress is None or not progress["sources"]:
        return None
    source = progress["sources"][0]
    end, latest = offsets_of(source["endOffset"]), offsets_of(source["latestOffset"])
    if end is None or latest is None:
        return None
    behind = {}
    for recording_id, each in latest.recordings.items():
        read = end.recordings.get(recording_id)
        behind[recording_id] = max(
            each.position - (each.first if read is None else read.position), 0
        )
    return Lag(progress["batchId"], behind)


def offsets_of(given: Any) -> Offsets | None:
    """Return what a report of Spark calls an offset, as it comes: a text, or what that says."""
    found = json.loads(given) if isinstance(given, str) else given
    return Offsets.from_json(found) if isinstance(found, dict) and "recs" in found else None
