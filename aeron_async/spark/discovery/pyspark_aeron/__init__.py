"""Lets Spark find `spark.read.format("aeron_archive")` by itself.

Spark imports every top-level module whose name begins with `pyspark_` and registers what it calls
`DefaultSource`. One that raises would take all others with it, so this one never does.
"""

from __future__ import annotations

__all__ = []

try:
    from aeron_async.spark.source import AeronArchiveSource as DefaultSource
except ImportError:  # pragma: no cover - only where PySpark is missing or too old
    pass
else:
    __all__ += ["DefaultSource"]
