"""Makes the data source known to a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aeron_async.spark.source import AeronArchiveSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Let a session know `aeron_archive`.

    Where the package is installed in the Python of the workers, Spark finds it by itself, through
    `pyspark_aeron`; a package that travels by `--py-files` needs this call.
    """
    spark.dataSource.register(AeronArchiveSource)
