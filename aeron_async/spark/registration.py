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
    `pyspark_aeron` and `pyspark_aeron_sink`; one that travels by `--py-files` needs this call. What
    a session knows already is left as it is.

    Raises:
        ConfigurationError: The workers are of this machine, and their Python lacks the package.
    """
    python = worker_python(spark)
    if python is not None and python != sys.executable:
        check_interpreter(python, modules=("aeron_async", "pyarrow"))
    for source in (AeronArchiveSource, AeronSink):
        # Spark warns of a name that is taken, also by what it has found by itself.
        if not is_known(spark, source.name()):
            spark.dataSource.register(source)


def is_known(spark: SparkSession, name: str) -> bool:
    """Return whether a session has a source of a name; False where it cannot be asked."""
    from py4j.protocol import Py4JError  # noqa: PLC0415 - pyspark brings it, without its types

    # A session of Spark Connect has no Java.
    session = getattr(spark, "_jsparkSession", None)
    if session is None:
        return False
    try:
        return bool(session.sessionState().dataSourceManager().dataSourceExists(name))
    except Py4JError:
        return False


def worker_python(spark: SparkSession) -> str | None:
    """Return the Python of workers that run on this machine; None for elsewhere."""
    # A session of Spark Connect has no context.
    context = getattr(spark, "_sc", None)
    if context is None or not str(context.master).startswith("local["):
        return None
    return str(context.pythonExec)
