"""Writers that Spark calls: `write` in tasks, and `commit` in a process where no task ran.

The objects made here are pickled on the way, so they hold no connection, and `commit` knows only
what the messages of the tasks contain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from aeron_async.logs import get_logger
from aeron_async.spark.few_lines import few_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aeron_async.spark.sink.identity import TaskEnd
    from aeron_async.spark.sink.options import SinkOptions
    from aeron_async.spark.sink.rows import RowLayout

__all__ = ["BatchWriter", "StreamWriter", "Written"]

log: Final = get_logger(__name__)


@final
class Written(WriterCommitMessage):
    """Commit message of a task."""

    def __init__(self, end: TaskEnd) -> None:
        self.end = end


class Writing:
    """Base of both writers.

    Args:
        options: Options of the query.
        layout: Columns to publish.
    """

    def __init__(self, options: SinkOptions, layout: RowLayout) -> None:
        self.options = options
        self.layout = layout

    @few_lines()
    def write(self, iterator: Iterator[Any]) -> Written:
        """Publish the rows of a task, wait as the options say, and return the result."""
        # Imported here because planning needs neither an event loop nor numpy.
        from aeron_async.spark.sink.task import current_task, write_task  # noqa: PLC0415

        rows = map(self.layout.read, iterator)
        return Written(write_task(self.options, current_task(self.options), rows))

    @few_lines()
    def close(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Close the batch that tasks have written."""
        from aeron_async.spark.sink.task import close_written  # noqa: PLC0415 - as above

        ends = [each.end for each in messages if isinstance(each, Written)]
        close_written(self.options, ends)

    def give_up(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Log what was published by an aborted batch: it cannot be taken back."""
        ends = [each.end for each in messages if isinstance(each, Written)]
        log.warning(
            "sink_batch_aborted",
            published_rows=sum(end.row_count for end in ends),
            failed_partitions=len(messages) - len(ends),
        )


@final
class BatchWriter(Writing, DataSourceArrowWriter):
    """Writes one table; see `Writing`."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Close what all tasks have written."""
        self.close(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Keep what some tasks have published, and log it."""
        self.give_up(messages)


@final
class StreamWriter(Writing, DataSourceStreamArrowWriter):
    """Writes each batch of a streaming query; see `Writing`."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Close what all tasks have written; Spark may call this twice for a batch."""
        del batchId
        self.close(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Keep what some tasks have published, and log it."""
        del batchId
        self.give_up(messages)
