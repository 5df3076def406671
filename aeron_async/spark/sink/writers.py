"""What Spark calls to write a table: in tasks, and to commit in a process where none of them ran.

What is made here is pickled on the way, so nothing here holds a connection, and all that a commit
knows came in the messages of the tasks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from aeron_async.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aeron_async.spark.sink.identity import TaskEnd
    from aeron_async.spark.sink.options import SinkOptions
    from aeron_async.spark.sink.rows import RowLayout

__all__ = ["BatchWriter", "StreamWriter", "Written"]

log: Final = get_logger(__name__)


@final
class Written(WriterCommitMessage):
    """What a task has written.

    Args:
        end: Where.
    """

    def __init__(self, end: TaskEnd) -> None:
        self.end = end


class Writing:
    """What both writers do.

    Args:
        options: Of the query.
        layout: Which columns there are.
    """

    def __init__(self, options: SinkOptions, layout: RowLayout) -> None:
        self.options = options
        self.layout = layout

    def write(self, iterator: Iterator[Any]) -> Written:
        """Publish the rows of a task, wait as the options say, and return what was done."""
        # Here, for planning needs none of it: neither an event loop nor numpy.
        from aeron_async.spark.sink.task import current_task, write_task  # noqa: PLC0415

        rows = map(self.layout.read, iterator)
        return Written(write_task(self.options, current_task(self.options), rows))

    def close(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Close the batch that tasks have written."""
        from aeron_async.spark.sink.task import close_written  # noqa: PLC0415 - as above

        ends = [each.end for each in messages if isinstance(each, Written)]
        close_written(self.options, ends)

    def give_up(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Say what stays: nothing that was published can be taken back."""
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
        """Leave what some tasks have written as it is."""
        self.give_up(messages)


@final
class StreamWriter(Writing, DataSourceStreamArrowWriter):
    """Writes each batch of a streaming query; see `Writing`."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Close what all tasks have written; again, when Spark forgot that it had asked."""
        del batchId
        self.close(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Leave what some tasks have written as it is."""
        del batchId
        self.give_up(messages)
