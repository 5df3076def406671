"""Report about a lake: one HTML page made from its gold tables, without server, Spark or assets."""

from __future__ import annotations

from aeron_async.spark.pipeline.report.page import render_report

__all__ = ["render_report"]
