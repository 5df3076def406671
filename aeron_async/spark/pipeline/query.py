"""The streaming query of a pipeline: started, watched, and stopped after its batch."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, final

import attrs

from aeron_async.spark.offsets import Offsets
from aeron_async.spark.pipeline.bronze import source_options
from aeron_async.spark.pipeline.failures import in_one_line
from aeron_async.spark.registration import register

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from aeron_async.spark.pipeline.settings import PipelineSettings

__all__ = ["Ending", "Lag", "follow", "lag_of", "start_query"]

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
    """Cuts short what a batch says that was begun when the query was stopped already.

    Where there is much to do, Spark has begun the next batch by then, and interrupts it. It finds
    out whether that was all by a regular expression over the whole traceback of Python, which
    overflows its stack, and a thousand lines of that, unless the traceback is short.
    """

    def __init__(self) -> None:
        self._has_begun = False

    def begin(self) -> None:
        """Say that the query is about to be stopped."""
        self._has_begun = True

    def guarded(
        self, process: Callable[[DataFrame, int], None]
    ) -> Callable[[DataFrame, int], None]:
        """Return the same, with a short error in place of any once the ending has begun."""

        def guarded(frame: DataFrame, batch_id: int) -> None:
            try:
                process(frame, batch_id)
            except Exception:
                if not self._has_begun:
                    raise
                # A batch that is cut off is done again, so whatever it was comes again.
                raise RuntimeError(CUT_OFF) from None

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
    is_stopped: Callable[[], bool],
    tell: Callable[[Lag], None],
    ending: Ending,
) -> None:
    """Watch a query until it ends, or somebody wants it to: then it ends after its batch.

    Args:
        query: To watch.
        is_stopped: Asked now and then whether somebody wants an end.
        tell: Called with how far the lake is behind.
        ending: Is told when the query is stopped.

    Raises:
        ArchiveError: It failed.
    """
    told = -1
    under_way: int | None = None
    with in_one_line():
        while query.isActive:
            if is_stopped():
                # Where there is much to do, one batch follows another without a pause.
                done = batch_of(query.lastProgress)
                under_way = done if under_way is None else under_way
                if done != under_way or not query.status["isTriggerActive"]:
                    break
            query.awaitTermination(LOOK_SECONDS)
            lag = lag_of(query.lastProgress)
            if lag is not None and lag.batch_id != told:
                told = lag.batch_id
                tell(lag)
        ending.begin()
        query.stop()
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
