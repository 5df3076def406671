"""Spark batch reader of `aeron_archive`, and two measures that make its workers faster.

Spark plans in one process and reads in others. The objects made here are pickled on the way, so
none of them holds a file, and their constructors do no I/O.

Without `acknowledge` and `settle`, each task takes 80 ms longer, as long as reading 50 MB.
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

from aeron_async.spark.few_lines import few_lines
from aeron_async.spark.lake.conditions import Condition
from aeron_async.spark.planning import partitions_of, plan_batch, pruned
from aeron_async.spark.query_schema import decoder_named
from aeron_async.spark.scan import Scanner

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark.sql.datasource import Filter

    from aeron_async.spark.options import ArchiveOptions
    from aeron_async.spark.ranges import RecordingRange, ScanSettings

__all__ = [
    "ArchiveBatchReader",
    "ArchivePartition",
    "PruningBatchReader",
    "SentToWorkers",
    "acknowledge",
    "read_partition",
    "settle",
]

OPEN_FILES: Final = Path("/proc/self/fd")
QUICK_ACK: Final[int | None] = getattr(socket, "TCP_QUICKACK", None)


class SentToWorkers:
    """Base of objects that Spark sends to workers; each calls `acknowledge` when it is received."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        acknowledge()


def acknowledge() -> None:
    """Acknowledge the received part of a task at once; do nothing outside a Spark worker.

    Spark sends a task in two writes and holds back the second, which says what to read, until the
    first is acknowledged (Nagle's algorithm). The kernel delays that acknowledgement by up to 40
    ms, to send it along with data. This object is unpickled from the first write, so this is the
    moment between the two. The socket is not passed to data sources, so every socket of the process
    is set.
    """
    if QUICK_ACK is None or TaskContext.get() is None:
        return
    for each in OPEN_FILES.iterdir():
        # One descriptor is that of the listing itself, which is closed by now.
        with suppress(OSError):
            if stat.S_ISSOCK(os.fstat(int(each.name)).st_mode):
                with socket.socket(fileno=os.dup(int(each.name))) as found:
                    found.setsockopt(socket.IPPROTO_TCP, QUICK_ACK, 1)


def settle() -> None:
    """Exempt imported modules from garbage collection, once in each Spark worker.

    Spark collects after each task, and every time walks the objects that belong to modules, which
    takes 40 ms and never finds garbage. The first task has imported what later tasks need.

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
    In: "=",
}


@final
class ArchivePartition(InputPartition):
    """Ranges that one worker reads, one after the other."""

    def __init__(self, parts: tuple[RecordingRange, ...]) -> None:
        super().__init__(None)
        self.parts = parts


class ArchiveBatchReader(SentToWorkers, DataSourceReader):
    """Reads recordings in a batch.

    Args:
        options: Options of the query.
        settings: How frames become rows.
    """

    def __init__(self, options: ArchiveOptions, settings: ScanSettings) -> None:
        self.options = options
        self.settings = settings

    def planned(self) -> list[RecordingRange]:
        """Return the range to read of each recording."""
        return plan_batch(self.options)

    @few_lines()
    def partitions(self) -> Sequence[InputPartition]:
        """Return the partitions, one for each task; Spark wants a list."""
        groups = partitions_of(
            self.planned(),
            max_bytes=self.options.max_bytes_per_partition,
            min_partitions=self.options.min_partitions,
        )
        return [ArchivePartition(parts) for parts in groups]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield Arrow batches; nothing for the empty partition that Spark adds if none exists."""
        return read_partition(self.settings, partition)


@final
class PruningBatchReader(ArchiveBatchReader):
    """Skips what filters exclude; Spark refuses such a reader unless its own setting allows it."""

    conditions: tuple[Condition, ...] = ()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Keep the usable filters, and return all: Spark still applies each filter to every row."""
        found = filter(None, map(condition_of, filters))
        self.conditions = tuple(each for each in found if is_ours(each.column, self.settings))
        return filters

    def planned(self) -> list[RecordingRange]:
        """Return the range to read of each recording, without parts that no row can come from."""
        return pruned(super().planned(), self.conditions)


def is_ours(column: str, settings: ScanSettings) -> bool:
    """Return whether a column is one of a recording, and not made by a decoder."""
    if settings.options.decoder is None:
        return True
    # Imported here because few queries use a decoder.
    from aeron_async.spark.decoding import KINDS  # noqa: PLC0415

    # These decoders replace the payload by their columns, and refuse a name that already exists.
    kind = settings.options.decoder.partition(":")[0]
    return kind in KINDS and column in settings.projection.names


def condition_of(each: Filter) -> Condition | None:
    """Return the condition of a Spark filter; None if it does not help."""
    operator = OPERATORS.get(type(each))
    if operator is None:
        return None
    column, value = ".".join(each.attribute), each.value  # type: ignore[attr-defined] # all of these have both
    values = tuple(value or ()) if isinstance(each, In) else (value,)
    return Condition(column, operator, values) if values and value is not None else None


@few_lines()
def read_partition(settings: ScanSettings, partition: InputPartition) -> Iterator[Any]:
    """Return an iterator of the batches of a partition."""
    if not isinstance(partition, ArchivePartition):
        return iter(())
    if settings.options.decoder is None:
        return settling(Scanner(settings).batches(partition.parts))
    decoder = decoder_named(settings.options.decoder, settings.projection)
    batches = Scanner(settings, decoder=decoder.of_payloads).batches(partition.parts)
    return settling(decoder.decoded(batches, settings.decoded))


def settling(batches: Iterator[Any]) -> Iterator[Any]:
    """Yield all batches, then call `settle`."""
    with few_lines():
        yield from batches
    settle()
