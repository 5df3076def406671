"""One page of HTML about a lake, drawn from its gold tables; no server, no Spark, no assets."""

from __future__ import annotations

from aeron_async.spark.pipeline.report.page import render_report

__all__ = ["render_report"]
