"""The instruments for OpenTelemetry, as a reader of its SDK sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("opentelemetry.sdk.metrics", reason="pip install opentelemetry-sdk")

from opentelemetry.sdk import metrics as sdk
from opentelemetry.sdk.metrics import export

from aeron_async.errors import ConfigurationError
from aeron_async.metrics import otel
from aeron_async.metrics.definitions import METRICS, REFUSED, MetricKind
from aeron_async.metrics.text import MetricsText
from tests.metrics.snapshots import CHANNEL, everything, publication, samples, snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.stats import Stats


class Reader:
    """Reads what the instruments of a driver say."""

    def __init__(self, take: Callable[[], Stats | None], **options: Any) -> None:
        self._reader = export.InMemoryMetricReader()
        self._provider = sdk.MeterProvider(metric_readers=[self._reader], shutdown_on_exit=False)
        otel.StatsInstruments(self._provider.get_meter("aeron_async"), take, **options)

    def read(self) -> dict[str, Any]:
        """Return every metric that has a point, by name."""
        data = self._reader.get_metrics_data()
        if data is None:
            return {}
        return {
            metric.name: metric
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


def points(metric: Any) -> dict[frozenset[tuple[str, str]], float]:
    return {frozenset(each.attributes.items()): each.value for each in metric.data.data_points}


def test_a_snapshot_is_no_function_that_takes_one() -> None:
    taken: Any = everything()
    with pytest.raises(ConfigurationError, match=r"^take_latest=.{0,130} must be a function"):
        Reader(taken)


def test_each_metric_of_the_table_has_an_instrument() -> None:
    found = Reader(everything).read()
    expected = set[str]()
    for metric in METRICS:
        if metric.kind is MetricKind.HISTOGRAM:
            expected |= {f"{metric.otel_name}.count", f"{metric.otel_name}.sum"}
        elif metric is not REFUSED:
            expected.add(metric.otel_name)
    assert found.keys() == expected


def test_names_units_and_types_follow_the_table() -> None:
    found = Reader(everything).read()
    for metric in METRICS:
        if metric.kind is MetricKind.HISTOGRAM or metric is REFUSED:
            continue
        one = found[metric.otel_name]
        assert (one.unit, one.description) == (metric.unit, metric.help)
        is_counter = metric.kind is MetricKind.COUNTER
        assert isinstance(one.data, export.Sum if is_counter else export.Gauge)
        assert not isinstance(one.data, export.Sum) or one.data.is_monotonic


def test_values_and_attributes_are_those_of_the_text() -> None:
    found = Reader(everything).read()
    page = samples(MetricsText().render(everything()))
    for metric in METRICS:
        own = {labels: value for (name, labels), value in page.items() if name == metric.name}
        if own and metric.otel_name.startswith("aeron."):
            assert points(found[metric.otel_name]) == own
    assert points(found["aeron.driver.loop_lag.count"]) == {frozenset(): 780}
    assert points(found["aeron.driver.loop_lag.sum"]) == {frozenset(): 2e-06}


@pytest.mark.parametrize(
    ("name", "operation", "count"),
    [
        ("messaging.client.sent.messages", "send", 50),
        ("messaging.client.consumed.messages", "receive", 40),
    ],
)
def test_messages_have_the_attributes_of_the_conventions(
    name: str, operation: str, count: int
) -> None:
    attributes = {
        "messaging.system": "aeron",
        "messaging.operation.name": operation,
        "messaging.destination.name": f"{CHANNEL}/1001",
    }
    assert points(Reader(everything).read()[name]) == {frozenset(attributes.items()): count}


def test_the_alias_of_a_channel_is_an_attribute() -> None:
    row = publication(1, channel="aeron:ipc?alias=prices")
    found = Reader(lambda: snapshot([row])).read()
    (attributes,) = points(found["messaging.client.sent.messages"])
    assert ("alias", "prices") in attributes


def test_a_collection_takes_one_snapshot() -> None:
    taken = []

    def take() -> Stats:
        taken.append(1)
        return snapshot([publication(1, 100 * len(taken))], at_s=len(taken))

    reader = Reader(take)
    sent = [points(reader.read()["aeron.publication.sent"]) for _ in range(3)]
    assert len(taken) == 3
    assert [list(each.values()) for each in sent] == [[0], [100], [200]]


def test_series_are_limited() -> None:
    rows = [publication(each) for each in range(5)]
    found = Reader(lambda: snapshot(rows), max_series=2).read()
    streams = {dict(labels)["stream"] for labels in points(found["aeron.publications"])}
    assert streams == {"0", "1", "other"}
    assert list(points(found["aeron.series.dropped"]).values()) == [16]


def test_before_the_first_snapshot_there_is_nothing() -> None:
    assert Reader(lambda: None).read() == {}
