"""Spark integration: the source `aeron_archive` reads recordings, the sink `aeron` publishes rows.

Names are imported on first access, so that `ensure_java` works without PySpark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from aeron_async.spark.java import ensure_interpreter, ensure_java
    from aeron_async.spark.lag import LagListener, QueryLag
    from aeron_async.spark.source import register

__all__ = ["LagListener", "QueryLag", "ensure_interpreter", "ensure_java", "register"]

MODULES: Final = {
    "LagListener": "lag",
    "QueryLag": "lag",
    "ensure_interpreter": "java",
    "ensure_java": "java",
    "register": "source",
}


def __getattr__(name: str) -> object:
    if name not in MODULES:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    return getattr(import_module(f"{__name__}.{MODULES[name]}"), name)
