"""The batch reader of `aeron_archive`, and the preparation of Spark's workers.

Together they were 80 ms of each task, as long as reading 50 MB takes.

Spark plans in one process and reads in others. What is made here is pickled on the way, so nothing
here holds a file, and making one does no I/O.
"""

from __future__ import annotations

import gc
import os
import socket
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)

from aeron_async.spark.planning import Predicate, partitions_of, plan_batch, pruned
from aeron_async.spark.query_schema import decoder_named

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark.sql.datasource import Filter

    from aeron_async.spark.options import ArchiveOptions
    from aeron_async.spark.ranges import RecordingRange, ScanSettings

__all__ = [
    "ArchivePartition",
    "BatchReader",
    "PruningBatchReader",
    "SentToWorkers",
    "acknowledge",
    "read_partition",
    "settle",
]

OPEN_FILES: Final = Path("/proc/self/fd")
QUICK_ACK: Final[int | None] = getattr(socket, "TCP_QUICKACK", None)


class SentToWorkers:
    """Base of what Spark sends to workers, and what they do when it has come."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        acknowledge()


def acknowledge() -> None:
    """Acknowledge at once what has come for a task; nothing where this is no worker of Spark.

    Spark sends a task in two pieces, and holds the second, which says what to read, until the first
    is acknowledged (Nagle's algorithm); the kernel waits up to 40 ms with that, for something to go
    back with it. Unpickling what is in the first is the moment between the two. Its socket is not
    told to those that are called, so it is all of them, of this process.
    """
    if QUICK_ACK is None or TaskContext.get() is None:
        return
    for each in OPEN_FILES.iterdir():
        # One of them is the listing's own, which is closed by the time it is asked about.
        with suppress(OSError):
            if stat.S_ISSOCK(os.fstat(int(each.name)).st_mode):
                with socket.socket(fileno=os.dup(int(each.name))) as found:
                    found.setsockopt(socket.IPPROTO_TCP, QUICK_ACK, 1)


def settle() -> None:
    """Spare what has been imported from collection, once in a worker; nothing elsewhere.

    Spark collects after each task, and walks what belongs to modules each time, 40 ms: they are no
    garbage, and never will be. The first task has imported what others need.

    Source: `pyspark.daemon`.
    """
    if TaskContext.get() is None or gc.get_freeze_count():
        return
    gc.collect()
    gc.freeze()


OPERATORS: Final[Mapping[type, str]] = {
    EqualTo: "=",
    LessThan: "<",
    LessThanOrEqual: "<=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    In: "in",
}


@final
class ArchivePartition(InputPartition):
    """Ranges that one worker reads, one after the other.

    Args:
        parts: Of one recording or several.
    """

    def __init__(self, parts: tuple[RecordingRange, ...]) -> None:
        super().__init__(None)
        self.parts = parts


class BatchReader(SentToWorkers, DataSourceReader):
    """Reads recordings in a batch.

    Args:
        options: Of the query.
        settings: What to make of frames.
    """

    def __init__(self, options: ArchiveOptions, settings: ScanSettings) -> None:
        self.options = options
        self.settings = settings

    def planned(self) -> list[RecordingRange]:
        """Return what is read of each recording."""
        return plan_batch(self.options)

    def partitions(self) -> Sequence[InputPartition]:
        """Return what each worker reads; Spark wants a list."""
        groups = partitions_of(
            self.planned(),
            max_bytes=self.options.max_bytes_per_partition,
            min_partitions=self.options.min_partitions,
        )
        return [ArchivePartition(parts) for parts in groups]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield Arrow batches; nothing for the partition that Spark makes where there is none."""
        return read_partition(self.settings, partition)


@final
class PruningBatchReader(BatchReader):
    """Leaves out what filters rule out; Spark lets none be without a setting of its own."""

    predicates: tuple[Predicate, ...] = ()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Remember filters, and return them all: Spark applies them to each row nevertheless."""
        found = filter(None, map(predicate_of, filters))
        self.predicates = tuple(each for each in found if is_ours(each.column, self.settings))
        return filters

    def planned(self) -> list[RecordingRange]:
        """Return what is read of each recording, without what no row could be of."""
        return pruned(super().planned(), self.predicates)


def is_ours(column: str, settings: ScanSettings) -> bool:
    """Return whether a column of the query is one of a recording, and not what a decoder made."""
    if settings.decoder is None:
        return True
    # Here, for it takes pyarrow, and hardly any query decodes.
    from aeron_async.spark.decoding import KINDS  # noqa: PLC0415

    # These put columns in place of the payload, and none of a name that is there already.
    return settings.decoder.partition(":")[0] in KINDS and column in settings.projection.names


def predicate_of(each: Filter) -> Predicate | None:
    """Return what a filter of Spark says; None if it says nothing that helps."""
    operator = OPERATORS.get(type(each))
    if operator is None:
        return None
    column, value = ".".join(each.attribute), each.value  # type: ignore[attr-defined] # all of these have both
    return None if value is None else Predicate(column, operator, value)


def read_partition(settings: ScanSettings, partition: InputPartition) -> Iterator[Any]:
    """Return an iterator of the batches of a partition."""
    if not isinstance(partition, ArchivePartition):
        return iter(())
    # Here, for it takes numpy and pyarrow, and whoever plans needs neither of them.
    from aeron_async.spark.scan import Scanner  # noqa: PLC0415

    batches = Scanner(settings).batches(partition.parts)
    if settings.decoder is not None:
        decoder = decoder_named(settings.decoder, settings.projection)
        batches = decoder.decoded(batches, settings.decoded)
    return settling(batches)


def settling(batches: Iterator[Any]) -> Iterator[Any]:
    """Yield what it is given, and then do what is to be done once in a worker."""
    yield from batches
    settle()
