"""Pipeline job: recordings become a lake of bronze, silver and gold tables, with a report.

Names are imported on first access, so that the report can be drawn without PySpark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from aeron_async.spark.lake.tables import Lake
    from aeron_async.spark.pipeline.histogram import Histogram
    from aeron_async.spark.pipeline.job import PipelineJob
    from aeron_async.spark.pipeline.settings import PipelineSettings

__all__ = ["Histogram", "Lake", "PipelineJob", "PipelineSettings"]

MODULES: Final = {
    "Histogram": "pipeline.histogram",
    "Lake": "lake.tables",
    "PipelineJob": "pipeline.job",
    "PipelineSettings": "pipeline.settings",
}


def __getattr__(name: str) -> object:
    if name not in MODULES:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    return getattr(import_module(f"aeron_async.spark.{MODULES[name]}"), name)
