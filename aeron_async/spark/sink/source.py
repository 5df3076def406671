"""Spark data source `aeron`: a sink for tables.

Importing this module is cheap: Spark imports it in a process of its own before it knows what the
query writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from pyspark.sql.datasource import DataSource

from aeron_async.errors import ConfigurationError
from aeron_async.spark.few_lines import few_lines

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter
    from pyspark.sql.types import StructType

    from aeron_async.spark.sink.options import SinkOptions
    from aeron_async.spark.sink.rows import RowLayout

__all__ = ["AeronSink"]


class AeronSink(DataSource):
    """`df.write.format("aeron")` and `df.writeStream.format("aeron")`; see docs/howto."""

    @classmethod
    def name(cls) -> str:
        """Return the name that queries use for this sink."""
        return "aeron"

    @few_lines()
    def schema(self) -> NoReturn:
        """Refuse to be read.

        Raises:
            ConfigurationError: Always.
        """
        message = "aeron is a sink: read recordings with the format aeron_archive"
        raise ConfigurationError(message)

    @few_lines()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001 - Spark's signature
        """Return a writer for one table; Spark names the arguments."""
        from aeron_async.spark.sink.writers import BatchWriter  # noqa: PLC0415 - see the module

        if overwrite:
            message = (
                'mode("overwrite"), but published messages cannot be taken back: use mode("append")'
            )
            raise ConfigurationError(message)
        return BatchWriter(*self._parsed(schema))

    @few_lines()
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802, FBT001 - Spark's signature
        """Return a writer for batches; in output mode `complete`, each batch is the whole table."""
        from aeron_async.spark.sink.writers import StreamWriter  # noqa: PLC0415 - see the module

        del overwrite
        return StreamWriter(*self._parsed(schema))

    def _parsed(self, schema: StructType) -> tuple[SinkOptions, RowLayout]:
        from aeron_async.spark.sink.options import SinkOptions  # noqa: PLC0415 - see the module
        from aeron_async.spark.sink.rows import RowLayout  # noqa: PLC0415 - see the module

        options = SinkOptions.parse(self.options)
        return options, RowLayout.of(schema.fields, options)
