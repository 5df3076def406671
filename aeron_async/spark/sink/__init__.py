"""Spark sink `aeron`: rows become messages on Aeron streams.

Names are imported on first access, so that `CommittedRows` works without PySpark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from aeron_async.spark.sink.committed import CommittedRows
    from aeron_async.spark.sink.committed_table import committed_rows
    from aeron_async.spark.sink.identity import Identity
    from aeron_async.spark.sink.source import AeronSink

__all__ = ["AeronSink", "CommittedRows", "Identity", "committed_rows"]

MODULES: Final = {
    "AeronSink": "source",
    "CommittedRows": "committed",
    "Identity": "identity",
    "committed_rows": "committed_table",
}


def __getattr__(name: str) -> object:
    if name not in MODULES:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    return getattr(import_module(f"{__name__}.{MODULES[name]}"), name)
