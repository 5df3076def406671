"""Makes the data sources known to a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aeron_async.spark.sink.source import AeronSink
from aeron_async.spark.source import AeronArchiveSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Let a session know the source `aeron_archive` and the sink `aeron`.

    Where the package is installed in the Python of the workers, Spark finds them by itself, through
    `pyspark_aeron` and `pyspark_aeron_sink`; one that travels by `--py-files` needs this call.
    """
    spark.dataSource.register(AeronArchiveSource)
    spark.dataSource.register(AeronSink)
