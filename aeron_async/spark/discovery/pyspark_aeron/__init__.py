"""Discovery module that makes Spark find `spark.read.format("aeron_archive")`.

Spark imports every top-level module whose name begins with `pyspark_` and registers its
`DefaultSource`. An error here would disable all other sources as well, so this module never raises
one.
"""

from __future__ import annotations

__all__ = []

try:
    from aeron_async.spark.source import AeronArchiveSource as DefaultSource
except ImportError:  # pragma: no cover - only where PySpark is missing or too old
    pass
else:
    __all__ += ["DefaultSource"]
