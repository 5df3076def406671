"""The metrics for a registry of prometheus_client, which asks from threads of its own.

Needs prometheus_client, which the extra `prometheus` installs. A page of a thousand streams costs
it some ten times what `serve_metrics` takes: it is for programs that have a registry already.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, final

try:
    from prometheus_client.core import Metric as CollectedMetric
    from prometheus_client.registry import Collector
except ModuleNotFoundError as error:
    WHY: Final = (
        f"metrics by prometheus_client need {error.name}: pip install 'aeron-async[prometheus]'"
    )
    raise ModuleNotFoundError(WHY, name=error.name) from error

from aeron_async.clock import SystemClock
from aeron_async.metrics.definitions import MetricKind
from aeron_async.metrics.series import MetricSeries
from aeron_async.metrics.text import bound_text
from aeron_async.protocol.arguments import check_function

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from aeron_async.metrics.series import Family
    from aeron_async.stats import Stats

__all__ = ["StatsCollector"]


@final
class StatsCollector(Collector):
    """A collector: `registry.register(StatsCollector(LatestStats(take)))`.

    Its names, labels and values are those of the text page.

    Args:
        take_latest: Returns the newest snapshot, in any thread; see `LatestStats`.
        max_series: Most series of a metric; see `MetricsText`.
        info: More labels of `aeron_info`, such as `kernel` and `loop`.
        label_recordings: Whether each active recording has series of its own; see `MetricSeries`.

    Raises:
        ConfigurationError: `max_series` is below 1, or `take_latest` is no function.
    """

    def __init__(
        self,
        take_latest: Callable[[], Stats | None],
        *,
        max_series: int = 500,
        info: Mapping[str, str] | None = None,
        label_recordings: bool = False,
    ) -> None:
        self._take_latest = check_function(take_latest, "take_latest")
        self._series = MetricSeries(max_series, info, label_recordings=label_recordings)
        # Taken together with the snapshot, so that no older one follows a newer one.
        self._lock: Final = threading.Lock()

    def describe(self) -> Iterable[CollectedMetric]:
        """Return nothing: otherwise registering would take a snapshot."""
        return []

    def collect(self) -> Iterable[CollectedMetric]:
        """Return every metric that has a series."""
        with self._lock:
            stats = self._take_latest()
            if stats is None:
                return []
            families = list(self._series.collect(stats, now_ns=SystemClock.now_ns()))
        return [collected(each) for each in families]


def collected(family: Family) -> CollectedMetric:
    """Return one metric as prometheus_client has it."""
    name, kind = family.metric.name, family.metric.kind
    plain_name = name.removesuffix("_total") if kind is MetricKind.COUNTER else name
    metric = CollectedMetric(plain_name, family.metric.help, kind.value)
    for labels, value in zip(family.labels, family.values, strict=True):
        metric.add_sample(name, dict(labels.pairs), value)
    histogram = family.histogram
    if histogram is not None:
        for bound, count in zip(histogram.bounds, histogram.counts, strict=True):
            metric.add_sample(f"{name}_bucket", {"le": bound_text(bound)}, count)
        metric.add_sample(f"{name}_sum", {}, histogram.total)
        metric.add_sample(f"{name}_count", {}, histogram.counts[-1])
    return metric
