"""Metrics of a driver, for Prometheus and OpenTelemetry, made of its statistics.

The collector of `metrics.prometheus` and the instruments of `metrics.otel` need packages that
extras install, so they are imported from there.
"""

from __future__ import annotations

from aeron_async.metrics.endpoint import MetricsServer, ServerLimits, serve_metrics
from aeron_async.metrics.latest import LatestStats
from aeron_async.metrics.text import MetricsText

__all__ = ["LatestStats", "MetricsServer", "MetricsText", "ServerLimits", "serve_metrics"]
