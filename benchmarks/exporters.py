"""Question: what do the page of metrics, prometheus_client and OpenTelemetry cost in turn?

    python -m benchmarks.exporters --streams 1000

One event loop publishes on so many streams and reads them, so that each is there as a publication
and as an image, and its counters move before each look. Of one snapshot each exporter makes what it
makes of it: the text of our page, `generate_latest` of prometheus_client, and a collection of the
SDK of OpenTelemetry, with a series for each stream, and with the default `max_series`. The
figures are the median processor time of the rounds, without that of the snapshot, which has a line
of its own; the first round, which makes all labels, does not count. A library that is not installed
is left out. `directory` is the same of the counters in an Aeron directory, read as `top` reads them
where there is no door.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from statistics import median
from typing import TYPE_CHECKING, Final

import aeron_async as aa
from aeron_async.cli.bench_processes import free_port
from aeron_async.driver.core.context import DriverContext
from aeron_async.driver.counter_stats import CncSource
from aeron_async.metrics import MetricsText
from benchmarks.machine import machine

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.stats import Stats

__all__ = ["main"]

NS_PER_MS: Final = 1_000_000
NAMED: Final = 5_000
"""A `max_series` that every stream of 1,000 finds a place in."""
DEFAULT: Final = 500


class Exporters:
    """Every way to make metrics of a snapshot, by its name.

    Args:
        max_series: Most series of a metric.
    """

    def __init__(self, max_series: int) -> None:
        self.stats: Stats | None = None
        text = MetricsText(max_series=max_series)
        self.ways: dict[str, Callable[[], object]] = {
            "page": lambda: text.render(self._taken()),
            **self._prometheus(max_series),
            **self._otel(max_series),
        }

    def _taken(self) -> Stats:
        assert self.stats is not None
        return self.stats

    def _prometheus(self, max_series: int) -> dict[str, Callable[[], object]]:
        try:
            from prometheus_client import CollectorRegistry, generate_latest  # noqa: PLC0415

            from aeron_async.metrics.prometheus import StatsCollector  # noqa: PLC0415
        except ModuleNotFoundError:
            return {}
        registry = CollectorRegistry(auto_describe=False)
        registry.register(StatsCollector(self._taken, max_series=max_series))
        return {"prometheus_client": lambda: generate_latest(registry)}

    def _otel(self, max_series: int) -> dict[str, Callable[[], object]]:
        try:
            from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415
            from opentelemetry.sdk.metrics.export import InMemoryMetricReader  # noqa: PLC0415

            from aeron_async.metrics.otel import StatsInstruments  # noqa: PLC0415
        except ModuleNotFoundError:
            return {}
        reader = InMemoryMetricReader()
        provider = MeterProvider(metric_readers=[reader])
        meter = provider.get_meter("benchmarks")
        self._instruments = StatsInstruments(meter, self._taken, max_series=max_series)
        return {"opentelemetry": reader.get_metrics_data}


def used_ms(work: Callable[[], object]) -> float:
    """Return the processor time of a call, in milliseconds."""
    before_ns = time.thread_time_ns()
    work()
    return (time.thread_time_ns() - before_ns) / NS_PER_MS


async def move(pairs: list[tuple[aa.Publication, aa.Subscription]]) -> None:
    """Publish a message on each stream and read it, so that counters move."""
    for publication, subscription in pairs:
        await publication.offer(b"moved")
        await anext(subscription)


async def measure(stream_count: int, rounds: int, directory: str) -> dict[str, float]:
    """Return the median processor time of everything, in milliseconds."""
    channel = f"aeron:udp?endpoint=127.0.0.1:{free_port()}"
    exporters = {"all named": Exporters(NAMED), "default": Exporters(DEFAULT)}
    times: dict[str, list[float]] = {}
    context = DriverContext(
        aeron_directory=directory,
        counters_buffer_length=8 << 20,
        term_buffer_length=1 << 17,
    )
    async with aa.Aeron.connect(context=context) as aeron:
        pairs = []
        for stream_id in range(stream_count):
            subscription = await aeron.add_subscription(channel, stream_id)
            pairs.append((await aeron.add_publication(channel, stream_id), subscription))
        source = CncSource(directory)
        for each_round in range(rounds + 1):
            await move(pairs)
            before_ns = time.thread_time_ns()
            stats = await aeron.gather_stats()
            found = {"gather_stats": (time.thread_time_ns() - before_ns) / NS_PER_MS}
            for series, each in exporters.items():
                each.stats = stats
                for name, way in each.ways.items():
                    found[f"{name}, {series}"] = used_ms(way)
            found["directory"] = used_ms(source.take)
            if each_round:
                for name, took_ms in found.items():
                    times.setdefault(name, []).append(took_ms)
    return {name: round(median(each), 2) for name, each in times.items()}


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--streams", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(measure(given.streams, given.rounds, folder))
    print(json.dumps({"machine": machine(), "processor_ms": found}, indent=1))


if __name__ == "__main__":
    main()
