"""Task of the sink, from its first row to its commit.

Spark does not pass batch and query to a sink's `write`, but the task's local properties hold them.
These properties are undocumented; where they are missing, rows have no identity.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self, final

import attrs

from aeron_async.errors import ConfigurationError
from aeron_async.logs import get_logger
from aeron_async.spark.sink.at_least_once import Publishing, Streams
from aeron_async.spark.sink.effectively_once import OnceWriting, close_batch
from aeron_async.spark.sink.identity import TaskEnd
from aeron_async.spark.worker import worker_connection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from aeron_async.spark.sink.identity import KnownEnd
    from aeron_async.spark.sink.options import SinkOptions
    from aeron_async.spark.sink.rows import Rows
    from aeron_async.spark.worker import WorkerConnection

__all__ = [
    "Task",
    "close_written",
    "current_task",
    "write_task",
]

BATCH_PROPERTY: Final = "streaming.sql.batchId"
QUERY_PROPERTY: Final = "sql.streaming.queryId"
SPECULATION: Final = "spark.speculation"

log: Final = get_logger(__name__)


@final
@attrs.frozen(kw_only=True)
class Task:
    """Identity of a task.

    Attributes:
        query: Query that writes the rows; None if unknown.
        batch: Batch of the query; None if unknown.
        partition: Partition of the batch.
    """

    query: str | None
    batch: int | None
    partition: int

    @property
    def has_identity(self) -> bool:
        """Return whether its rows have an identity."""
        return self.query is not None and self.batch is not None

    @classmethod
    def of(
        cls, options: SinkOptions, partition: int, local_property: Callable[[str], str | None]
    ) -> Self:
        """Return the task that options and local properties describe; options take precedence.

        Raises:
            ConfigurationError: Delivery is effectively-once, and Spark may run two attempts of a
                task at the same time; or `archive.path` is set and query or batch are unknown.
        """
        if options.is_effectively_once and local_property(SPECULATION) == "true":
            message = (
                f"{SPECULATION}=true runs a task twice at the same time, and with "
                "delivery=effectively-once each attempt stops the one before: set it to false"
            )
            raise ConfigurationError(message)
        batch = local_property(BATCH_PROPERTY) if options.batch_id is None else options.batch_id
        found = cls(
            query=options.query_id or local_property(QUERY_PROPERTY),
            batch=None if batch is None else int(batch),
            partition=partition,
        )
        if options.is_effectively_once and not found.has_identity:
            if options.archive_path is not None:
                message = (
                    f"archive.path={options.archive_path} holds rows by query and batch, and Spark "
                    f"says query {found.query} and batch {found.batch} here: set queryId and "
                    "batchId"
                )
                raise ConfigurationError(message)
            log.warning(
                "sink_without_identity",
                query=found.query,
                batch=found.batch,
                delivery="at-least-once",
                remedy="set queryId and batchId",
            )
        return found


def current_task(options: SinkOptions) -> Task:
    """Return the task that runs here.

    Raises:
        ConfigurationError: See `Task.of`.
    """
    from pyspark import TaskContext  # noqa: PLC0415 - nothing else here needs PySpark

    context = TaskContext.get()
    assert context is not None, "Spark calls a writer in a task only"
    return Task.of(options, context.partitionId(), context.getLocalProperty)


STREAMS: Final = "streams"
KNOWN: Final = "known"
MOST_KNOWN: Final = 4_096
"""Upper limit on known ends of recordings in a worker; the oldest is dropped."""


def write_task(options: SinkOptions, task: Task, batches: Iterable[Rows]) -> TaskEnd:
    """Publish all rows of a task and wait as the options say.

    Raises:
        AeronError: The rows cannot be published, or not in time.
    """
    with worker_connection(options.linger_ms) as connection:
        if options.is_effectively_once and task.has_identity:
            return write_once(connection, options, task, batches)
        return write_at_least_once(connection, options, task, batches)


def write_at_least_once(
    connection: WorkerConnection, options: SinkOptions, task: Task, batches: Iterable[Rows]
) -> TaskEnd:
    """Publish rows as they come; after a failure, the next attempt has sessions of its own."""
    streams = connection.kept.setdefault(STREAMS, Streams(connection.aeron))
    publishing = Publishing(streams, options)
    try:
        for rows in batches:
            connection.call(publishing.publish, rows)
        ends = connection.call(publishing.finish)
    except BaseException:
        with suppress(RuntimeError):
            # If the loop has ended, the publications are closed.
            connection.call(streams.drop)
        raise
    return TaskEnd(
        query=None,
        batch=None,
        partition=task.partition,
        row_count=publishing.row_count,
        streams=tuple(ends),
    )


def write_once(
    connection: WorkerConnection, options: SinkOptions, task: Task, batches: Iterable[Rows]
) -> TaskEnd:
    """Publish those rows that are not recorded yet."""
    assert task.query is not None
    assert task.batch is not None
    known: dict[tuple[str, int], KnownEnd] = connection.kept.setdefault(KNOWN, {})
    key = (task.query, task.partition)
    writing = OnceWriting(
        connection.aeron, options, task.query, task.batch, task.partition, known=known.get(key)
    )
    try:
        for rows in batches:
            connection.call(writing.publish, rows)
        ends = connection.call(writing.finish)
    except BaseException:
        with suppress(RuntimeError):
            connection.call(writing.aclose)
        raise
    for end in ends:
        if end.known is not None:
            keep(known, key, end.known)
    return TaskEnd(
        query=task.query,
        batch=task.batch,
        partition=task.partition,
        row_count=writing.row_count,
        streams=tuple(ends),
    )


def keep(known: dict[tuple[str, int], KnownEnd], key: tuple[str, int], end: KnownEnd) -> None:
    """Keep the end of a partition for the next batch, in place of the one kept for longest."""
    known.pop(key, None)
    if len(known) >= MOST_KNOWN:
        del known[next(iter(known))]
    known[key] = end


def close_written(options: SinkOptions, ends: Sequence[TaskEnd]) -> None:
    """Close the batches that tasks wrote effectively-once; other rows need no marker.

    Raises:
        AeronError: A batch cannot be closed.
    """
    batches: dict[tuple[str, int], list[TaskEnd]] = {}
    for end in ends:
        if end.query is not None and end.batch is not None and end.row_count:
            batches.setdefault((end.query, end.batch), []).append(end)
    if not batches:
        return
    with worker_connection(options.linger_ms) as connection:
        for (query, batch), some in batches.items():
            connection.call(close_batch, connection.aeron, options, query, batch, some)
