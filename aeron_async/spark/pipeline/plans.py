"""Source of plans: as `aeron_archive`, but a row is what a task shall read, not what it has read.

A plan is one partition: ranges of recordings, which depend on the offsets of the batch only. So
Spark keeps its offsets, limits, triggers and retries, and has a row for each task to move.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any, final

from pyspark.sql.datasource import DataSource

from aeron_async.spark.batch_reader import ArchivePartition
from aeron_async.spark.stream_reader import StreamReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
    from pyspark.sql.types import StructType

__all__ = ["PlanReader", "PlanSource"]


class PlanSource(DataSource):
    """Plans of a query on `aeron_archive`, which takes the same options."""

    @classmethod
    def name(cls) -> str:
        """Return the name that queries use for this source."""
        return "aeron_archive_plans"

    def schema(self) -> str:
        """Return the column."""
        return "plan BINARY NOT NULL"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return a stream reader."""
        from aeron_async.spark.columns import default_columns  # noqa: PLC0415 - see `source`
        from aeron_async.spark.options import ArchiveOptions  # noqa: PLC0415 - see `source`
        from aeron_async.spark.ranges import ScanSettings  # noqa: PLC0415 - see `source`

        del schema
        options = ArchiveOptions.parse(self.options)
        return PlanReader(options, ScanSettings.of(options, default_columns(options)))


@final
class PlanReader(StreamReader):
    """Follows recordings, and plans what to read of them."""

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the plan that a partition is."""
        import pyarrow as pa  # noqa: PLC0415 - planning does not need it

        if isinstance(partition, ArchivePartition):
            plans = pa.array([pickle.dumps(partition.parts)], pa.binary())
            schema = pa.schema([pa.field("plan", pa.binary(), nullable=False)])
            yield pa.RecordBatch.from_arrays([plans], schema=schema)
