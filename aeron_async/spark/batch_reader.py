"""What Spark calls to read a batch: which partitions there are, and what is in each.

Spark plans in one process and reads in others. What is made here is pickled on the way, so nothing
here holds a file, and making one does no I/O.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

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

from aeron_async.spark.batch_decoder import decoder_named
from aeron_async.spark.planning import partitions_of, plan_batch
from aeron_async.spark.pruning import Predicate, pruned
from aeron_async.spark.worker_process import SentToWorkers, settle

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark.sql.datasource import Filter

    from aeron_async.spark.options import ArchiveOptions
    from aeron_async.spark.ranges import RecordingRange, ScanSettings

__all__ = ["ArchivePartition", "BatchReader", "PruningBatchReader", "read_partition"]

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
