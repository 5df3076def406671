"""Discovery module that makes Spark find `df.write.format("aeron")`; see `pyspark_aeron`."""

from __future__ import annotations

__all__ = []

try:
    from aeron_async.spark.sink.source import AeronSink as DefaultSource
except ImportError:  # pragma: no cover - only where PySpark is missing or too old
    pass
else:
    __all__ += ["DefaultSource"]
