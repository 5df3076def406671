"""Hand metrics to prometheus_client and to OpenTelemetry, which ask from threads of their own."""

from __future__ import annotations

import asyncio
import os
import time

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry, generate_latest

from aeron_async.metrics import LatestStats
from aeron_async.metrics.otel import StatsInstruments
from aeron_async.metrics.prometheus import StatsCollector
from aeron_async.stats import Stats


def take() -> Stats:
    """Return a snapshot; LatestStats calls this in the event loop."""
    nothing: dict[str, list[int]] = {"registration_id": []}
    return Stats.from_dict({
        "source": "program",
        "epoch_ns": time.time_ns(),
        "monotonic_ns": time.monotonic_ns(),
        "driver": {"pid": os.getpid(), "version": "1.0", "limits": {"images_refused": 3}},
        "publications": nothing,
        "images": nothing,
        "subscriptions": nothing,
    })  # fmt: skip


async def main() -> None:
    """Print one metric as each of both sees it."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(StatsCollector(LatestStats(take)))
    page = await asyncio.to_thread(generate_latest, registry)
    print(*(line for line in page.decode().splitlines() if line.startswith("aeron_driver_limit")))

    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])
    StatsInstruments(provider.get_meter("my.service"), LatestStats(take))
    data = await asyncio.to_thread(reader.get_metrics_data)
    assert data is not None
    for metric in data.resource_metrics[0].scope_metrics[0].metrics:
        if metric.name == "aeron.driver.limit_reached":
            for point in metric.data.data_points:
                print(metric.name, dict(point.attributes or {}), getattr(point, "value", None))
    provider.shutdown()


asyncio.run(main())
