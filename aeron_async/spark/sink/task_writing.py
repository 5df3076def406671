"""A task from its first row to its last, and a commit: both synchronous, as Spark's workers are."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from aeron_async.spark.sink.messages import TaskEnd
from aeron_async.spark.sink.once import OnceWriting, close_batch
from aeron_async.spark.sink.streams import Publishing, Streams
from aeron_async.spark.worker_connection import worker_connection

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aeron_async.spark.sink.messages import KnownEnd
    from aeron_async.spark.sink.options import SinkOptions
    from aeron_async.spark.sink.rows import Rows
    from aeron_async.spark.sink.task import Task
    from aeron_async.spark.worker_connection import WorkerConnection

__all__ = ["close_written", "write_task"]

STREAMS: Final = "streams"
KNOWN: Final = "known"
MOST_KNOWN: Final = 4_096
"""Ends of recordings that a worker remembers; the oldest is forgotten."""


def write_task(options: SinkOptions, task: Task, batches: Iterable[Rows]) -> TaskEnd:
    """Publish all rows of a task and wait as the options say.

    Raises:
        AeronError: They cannot be published, or not in time.
    """
    with worker_connection(options.linger_ms) as connection:
        if options.is_effectively_once and task.has_identity:
            return write_once(connection, options, task, batches)
        return write_at_least_once(connection, options, task, batches)


def write_at_least_once(
    connection: WorkerConnection, options: SinkOptions, task: Task, batches: Iterable[Rows]
) -> TaskEnd:
    """Publish rows as they come; after a failure the next attempt has sessions of its own."""
    streams = connection.kept.setdefault(STREAMS, Streams(connection.aeron))
    publishing = Publishing(streams, options)
    try:
        for rows in batches:
            connection.call(publishing.publish, rows)
        ends = connection.call(publishing.finish)
    except BaseException:
        with suppress(RuntimeError):
            # Where the loop is gone, so are they.
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
            known.pop(next(iter(known)) if len(known) >= MOST_KNOWN else key, None)
            known[key] = end.known
    return TaskEnd(
        query=task.query,
        batch=task.batch,
        partition=task.partition,
        row_count=writing.row_count,
        streams=tuple(ends),
    )


def close_written(options: SinkOptions, ends: Sequence[TaskEnd]) -> None:
    """Close what tasks have written once; what they have written otherwise needs no closing.

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
