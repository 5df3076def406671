"""The data source `aeron_archive`: recordings as tables.

Light to import, for Spark does so in a process of its own before it knows what it will read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
    from pyspark.sql.types import StructType

    from aeron_async.spark.options import ArchiveOptions
    from aeron_async.spark.ranges import ScanSettings

__all__ = ["AeronArchiveSource"]


class AeronArchiveSource(DataSource):
    """`spark.read.format("aeron_archive").load("/var/archive")`; see docs/howto/spark.md."""

    @classmethod
    def name(cls) -> str:
        """Return what queries call it."""
        return "aeron_archive"

    def schema(self) -> StructType | str:
        """Return the columns of a query that has not said which it wants."""
        from aeron_async.spark.query_schema import declared_schema  # noqa: PLC0415 - see the module

        return declared_schema(self._parsed())

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads a batch with those columns; Spark names the argument."""
        from aeron_async.spark import batch_reader  # noqa: PLC0415 - see the module

        options = self._parsed()
        settings = self._settings(options, schema)
        # Spark refuses to read with one that takes filters where its own setting forbids them.
        if options.filter_pushdown:
            return batch_reader.PruningBatchReader(options, settings)
        return batch_reader.BatchReader(options, settings)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return what follows recordings with those columns."""
        from aeron_async.spark.stream_reader import StreamReader  # noqa: PLC0415 - see the module

        options = self._parsed()
        return StreamReader(options, self._settings(options, schema))

    def _parsed(self) -> ArchiveOptions:
        from aeron_async.spark.options import ArchiveOptions  # noqa: PLC0415 - see the module

        return ArchiveOptions.parse(self.options)

    def _settings(self, options: ArchiveOptions, schema: StructType) -> ScanSettings:
        from aeron_async.spark.query_schema import settings_for  # noqa: PLC0415 - see the module

        return settings_for(options, schema)
