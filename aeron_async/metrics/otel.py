"""The metrics as observable instruments of OpenTelemetry, whose readers ask from their own threads.

Needs opentelemetry-api, which the extra `otel` installs. Messages have the names of OpenTelemetry's
conventions for messaging, everything else `aeron.*`. There is no observable histogram: lags of the
loop are two counters, how many there were and their sum.

A collection of a thousand streams takes the SDK a fifth of a second: leave its reader the usual
interval of a minute.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Final, final

try:
    from opentelemetry.metrics import Observation
except ModuleNotFoundError as error:
    WHY: Final = f"metrics for OpenTelemetry need {error.name}: pip install 'aeron-async[otel]'"
    raise ModuleNotFoundError(WHY, name=error.name) from error

from aeron_async.clock import SystemClock
from aeron_async.metrics.definitions import METRICS, REFUSED, Metric, MetricKind, MetricSource
from aeron_async.metrics.series import MetricSeries
from aeron_async.protocol.arguments import check_function

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from opentelemetry.metrics import CallbackOptions, Meter

    from aeron_async.metrics.series import Family, Labels
    from aeron_async.stats import Stats

__all__ = ["StatsInstruments"]

OPERATIONS: Final = {MetricSource.PUBLICATIONS: "send", MetricSource.SUBSCRIPTIONS: "receive"}
"""`messaging.operation.name` of the metrics that OpenTelemetry's conventions name."""


@final
class StatsInstruments:
    """Creates an instrument for each metric: `StatsInstruments(meter, LatestStats(take))`.

    Args:
        meter: Makes the instruments.
        take_latest: Returns the newest snapshot, in any thread; see `LatestStats`.
        max_series: Most series of a metric; see `MetricsText`.
        info: More attributes of `aeron.info`, such as `kernel` and `loop`.
        label_recordings: Whether each active recording has series of its own; see `MetricSeries`.

    Raises:
        ConfigurationError: `max_series` is below 1, or `take_latest` is no function.
    """

    def __init__(
        self,
        meter: Meter,
        take_latest: Callable[[], Stats | None],
        *,
        max_series: int = 500,
        info: Mapping[str, str] | None = None,
        label_recordings: bool = False,
    ) -> None:
        self._take_latest = check_function(take_latest, "take_latest")
        self._series = MetricSeries(max_series, info, label_recordings=label_recordings)
        self._lock: Final = threading.Lock()
        self._families: dict[Metric, Family] = {}
        self._asked: set[str] = set()
        for metric in METRICS:
            if metric is not REFUSED:
                self._create(meter, metric)

    def _create(self, meter: Meter, metric: Metric) -> None:
        name = metric.otel_name
        if metric.kind is MetricKind.GAUGE:
            callback = partial(self._observe, metric, name)
            meter.create_observable_gauge(name, [callback], metric.unit, metric.help)
        elif metric.kind is MetricKind.COUNTER:
            callback = partial(self._observe, metric, name)
            meter.create_observable_counter(name, [callback], metric.unit, metric.help)
        else:
            for part, unit in (("count", "{event}"), ("sum", metric.unit)):
                callback = partial(self._observe, metric, f"{name}.{part}")
                meter.create_observable_counter(
                    f"{name}.{part}", [callback], unit, f"{metric.help} The {part}."
                )

    def _observe(
        self, metric: Metric, name: str, _options: CallbackOptions
    ) -> Sequence[Observation]:
        """Return what one instrument says.

        All instruments are asked one after another: a snapshot serves all of them, until one of
        them is asked again.
        """
        with self._lock:
            if not self._asked or name in self._asked:
                self._asked.clear()
                stats = self._take_latest()
                self._families = (
                    {}
                    if stats is None
                    else {
                        each.metric: each
                        for each in self._series.collect(stats, now_ns=SystemClock.now_ns())
                    }
                )
            self._asked.add(name)
            family = self._families.get(metric)
        if family is None:
            return []
        if family.histogram is not None:
            is_count = name.endswith(".count")
            histogram = family.histogram
            return [Observation(histogram.counts[-1] if is_count else histogram.total)]
        return [
            Observation(value, attributes_of(metric, labels))
            for labels, value in zip(family.labels, family.values, strict=True)
        ]


def attributes_of(metric: Metric, labels: Labels) -> dict[str, str]:
    """Return the labels as attributes: those of the conventions for metrics that these name."""
    pairs = dict(labels.pairs)
    if not metric.otel_name.startswith("messaging."):
        return pairs
    alias = {"alias": pairs["alias"]} if "alias" in pairs else {}
    return alias | {
        "messaging.system": "aeron",
        "messaging.operation.name": OPERATIONS[metric.source],
        "messaging.destination.name": f"{pairs['channel']}/{pairs['stream']}",
    }
