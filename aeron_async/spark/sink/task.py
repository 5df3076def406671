"""Which part of which query a task writes.

Spark tells a sink's `write` neither batch nor query, but the task's local properties do. They are
not documented: where they are missing, rows have no identity.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self, final

import attrs

from aeron_async.errors import ConfigurationError
from aeron_async.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.spark.sink.options import SinkOptions

__all__ = ["Task", "current_task"]

BATCH_PROPERTY: Final = "streaming.sql.batchId"
QUERY_PROPERTY: Final = "sql.streaming.queryId"
SPECULATION: Final = "spark.speculation"

log = get_logger(__name__)


@final
@attrs.frozen(kw_only=True)
class Task:
    """What a task knows of itself.

    Attributes:
        query: Whose rows they are; None where nobody says it.
        batch: Of the query; likewise.
        partition: Of the batch.
    """

    query: str | None
    batch: int | None
    partition: int

    @property
    def has_identity(self) -> bool:
        """Return whether its rows can be told from all others."""
        return self.query is not None and self.batch is not None

    @classmethod
    def of(
        cls, options: SinkOptions, partition: int, local_property: Callable[[str], str | None]
    ) -> Self:
        """Return what options and local properties say; options go first.

        Raises:
            ConfigurationError: Each row is to be recorded once, and Spark may run a task twice at
                the same time; or nothing says which rows they are, and `archive.path` has a place
                for none but those.
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
    """Return what is known of the task that runs here.

    Raises:
        ConfigurationError: As `Task.of`.
    """
    from pyspark import TaskContext  # noqa: PLC0415 - all else here goes without PySpark

    context = TaskContext.get()
    assert context is not None, "Spark calls a writer in a task only"
    return Task.of(options, context.partitionId(), context.getLocalProperty)
