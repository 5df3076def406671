"""Hand metrics to prometheus_client and to OpenTelemetry, which ask from threads of their own."""

from __future__ import annotations

import asyncio
import os
import sys

import aeron_async as aa
from aeron_async.metrics import LatestStats

try:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from prometheus_client import CollectorRegistry, generate_latest

    from aeron_async.metrics.otel import StatsInstruments
    from aeron_async.metrics.prometheus import StatsCollector
except ModuleNotFoundError as error:
    sys.exit(f"{error}: pip install prometheus-client opentelemetry-sdk")

CHANNEL = os.environ.get("CHANNEL", "aeron:udp?endpoint=127.0.0.1:20121")


async def main() -> None:
    """Print one metric as each of both sees it."""
    async with aa.Aeron.connect() as aeron:
        await aeron.add_publication(CHANNEL, stream_id=1001)

        registry = CollectorRegistry(auto_describe=False)
        registry.register(StatsCollector(LatestStats(aeron.stats)))
        page = await asyncio.to_thread(generate_latest, registry)
        print(*(line for line in page.decode().splitlines() if line.startswith("aeron_connected")))

        reader = InMemoryMetricReader()
        provider = MeterProvider(metric_readers=[reader])
        StatsInstruments(provider.get_meter("my.service"), LatestStats(aeron.stats))
        data = await asyncio.to_thread(reader.get_metrics_data)
        assert data is not None
        for metric in data.resource_metrics[0].scope_metrics[0].metrics:
            if metric.name == "aeron.connected":
                for point in metric.data.data_points:
                    print(metric.name, getattr(point, "value", None))
        provider.shutdown()


asyncio.run(main())
