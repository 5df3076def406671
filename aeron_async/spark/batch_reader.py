"""What Spark calls to read a batch: which partitions there are, and what is in each.

Spark plans in one process and reads in others. What is made here is pickled on the way, so nothing
here holds a file, and making one does no I/O.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from pyspark.sql.datasource import DataSourceReader, InputPartition

from aeron_async.spark.planning import partitions_of, plan_batch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aeron_async.spark.options import ArchiveOptions
    from aeron_async.spark.ranges import RecordingRange, ScanSettings

__all__ = ["ArchivePartition", "BatchReader", "read_partition"]


@final
class ArchivePartition(InputPartition):
    """Ranges that one worker reads, one after the other.

    Args:
        parts: Of one recording or several.
    """

    def __init__(self, parts: tuple[RecordingRange, ...]) -> None:
        super().__init__(None)
        self.parts = parts


class BatchReader(DataSourceReader):
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


def read_partition(settings: ScanSettings, partition: InputPartition) -> Iterator[Any]:
    """Return an iterator of the batches of a partition."""
    if not isinstance(partition, ArchivePartition):
        return iter(())
    # Here, for it takes numpy and pyarrow, and whoever plans needs neither of them.
    from aeron_async.spark.scan import Scanner  # noqa: PLC0415

    return Scanner(settings).batches(partition.parts)
