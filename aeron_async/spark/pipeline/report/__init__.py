"""Report about a lake: one HTML page made from its gold tables, without server, Spark or assets."""

from __future__ import annotations

from aeron_async.spark.pipeline.report.page import Report, render_report
from aeron_async.spark.pipeline.report.reading import EVERYTHING, ReportRange

__all__ = ["EVERYTHING", "Report", "ReportRange", "render_report"]
