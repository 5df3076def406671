"""Spark's daemon of Python workers, with the modules that each worker would import for itself.

A worker is forked for each plan and for each task that finds none idle. It has what its daemon has
imported; the package alone takes half a second of a processor.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

from pyspark.daemon import manager

MODULES: Final = (
    "pandas",
    "pyarrow",
    "aeron_async.spark.batch_reader",
    "aeron_async.spark.pipeline.task",
    "aeron_async.spark.stream_reader",
)

if __name__ == "__main__":
    for name in MODULES:
        import_module(name)
    manager()
