"""Makes the data sources known to a session."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from aeron_async.spark.java import check_interpreter
from aeron_async.spark.sink.source import AeronSink
from aeron_async.spark.source import AeronArchiveSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Let a session know the source `aeron_archive` and the sink `aeron`.

    Where the package is installed in the Python of the workers, Spark finds them by itself, through
    `pyspark_aeron` and `pyspark_aeron_sink`; one that travels by `--py-files` needs this call.

    Raises:
        ConfigurationError: The workers are of this machine, and their Python lacks the package.
    """
    python = worker_python(spark)
    if python is not None and python != sys.executable:
        check_interpreter(python, modules=("aeron_async", "pyarrow"))
    spark.dataSource.register(AeronArchiveSource)
    spark.dataSource.register(AeronSink)


def worker_python(spark: SparkSession) -> str | None:
    """Return the Python of workers that run on this machine; None for elsewhere."""
    # A session of Spark Connect has no context.
    context = getattr(spark, "_sc", None)
    if context is None or not str(context.master).startswith("local["):
        return None
    return str(context.pythonExec)
