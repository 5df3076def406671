"""Spark data source `aeron_archive`, and registration of this package's sources with a session.

Importing this module is cheap: Spark imports it in a process of its own before it knows what the
query reads.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from aeron_async.errors import AeronError
from aeron_async.spark.few_lines import few_lines
from aeron_async.spark.java import check_interpreter
from aeron_async.spark.sink.source import AeronSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
    from pyspark.sql.types import StructType

    from aeron_async.spark.options import ArchiveOptions
    from aeron_async.spark.ranges import ScanSettings

__all__ = [
    "AeronArchiveSource",
    "PlanSource",
    "register",
]


class AeronArchiveSource(DataSource):
    """`spark.read.format("aeron_archive").load("/var/archive")`; see docs/howto/spark.md."""

    @classmethod
    def name(cls) -> str:
        """Return the name that queries use for this source."""
        return "aeron_archive"

    @few_lines()
    def schema(self) -> StructType | str:
        """Return the default columns of a query that declares no schema."""
        from aeron_async.spark.query_schema import declared_schema  # noqa: PLC0415 - see the module

        return declared_schema(self._parsed())

    @few_lines()
    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a batch reader for these columns; Spark names the argument."""
        from aeron_async.spark import batch_reader  # noqa: PLC0415 - see the module

        options = self._parsed()
        settings = self._settings(options, schema)
        # Spark refuses a reader with filter pushdown unless its own setting enables pushdown.
        if options.filter_pushdown:
            return batch_reader.PruningBatchReader(options, settings)
        return batch_reader.ArchiveBatchReader(options, settings)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return a stream reader for these columns."""
        from aeron_async.spark import stream_reader  # noqa: PLC0415 - see the module

        try:
            options = self._parsed()
            return stream_reader.StreamReader(options, self._settings(options, schema))
        except AeronError as error:
            return stream_reader.RefusingReader(str(error))

    def _parsed(self) -> ArchiveOptions:
        from aeron_async.spark.options import ArchiveOptions  # noqa: PLC0415 - see the module

        return ArchiveOptions.parse(self.options)

    def _settings(self, options: ArchiveOptions, schema: StructType) -> ScanSettings:
        from aeron_async.spark.query_schema import settings_for  # noqa: PLC0415 - see the module

        return settings_for(options, schema)


class PlanSource(AeronArchiveSource):
    """Source of the pipeline's job: what `aeron_archive` would read, as one plan for each task."""

    @classmethod
    def name(cls) -> str:
        """Return the name that queries use for this source."""
        return "aeron_archive_plans"

    def schema(self) -> str:
        """Return the column."""
        return "plan BINARY NOT NULL"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return a stream reader."""
        from aeron_async.spark import stream_reader  # noqa: PLC0415 - see the module
        from aeron_async.spark.columns import default_columns  # noqa: PLC0415 - see the module
        from aeron_async.spark.ranges import ScanSettings  # noqa: PLC0415 - see the module

        del schema
        try:
            options = self._parsed()
            settings = ScanSettings(options, default_columns(options))
            return stream_reader.PlanReader(options, settings)
        except AeronError as error:
            return stream_reader.RefusingReader(str(error))


def register(spark: SparkSession) -> None:
    """Register the source `aeron_archive`, that of its plans, and the sink `aeron` with a session.

    If the package is installed in the Python of the workers, Spark finds both by itself, through
    `pyspark_aeron` and `pyspark_aeron_sink`. An editable install, and one that is shipped with
    `--py-files`, need this call. Sources that the session already has are left as they are.

    Raises:
        ConfigurationError: The workers run on this machine and their Python lacks the package.
    """
    python = worker_python(spark)
    if python is not None and python != sys.executable:
        check_interpreter(python, modules=("aeron_async", "pyarrow"))
    for source in (AeronArchiveSource, PlanSource, AeronSink):
        # Spark warns if a name is taken, even by a source that it discovered itself.
        if not is_known(spark, source.name()):
            spark.dataSource.register(source)


def is_known(spark: SparkSession, name: str) -> bool:
    """Return whether a session has a source of this name; False if the session cannot be asked."""
    from py4j.protocol import Py4JError  # noqa: PLC0415 - a part of pyspark without types

    # A Spark Connect session has no Java session.
    session = getattr(spark, "_jsparkSession", None)
    if session is None:
        return False
    try:
        return bool(session.sessionState().dataSourceManager().dataSourceExists(name))
    except Py4JError:
        return False


def worker_python(spark: SparkSession) -> str | None:
    """Return the Python of the workers if they run on this machine; None if they run elsewhere."""
    # A Spark Connect session has no context.
    context = getattr(spark, "_sc", None)
    if context is None or not str(context.master).startswith("local["):
        return None
    return str(context.pythonExec)
