"""The collector for a registry of prometheus_client."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("prometheus_client", reason="pip install 'aeron-async[prometheus]'")

import prometheus_client

from aeron_async.errors import ConfigurationError
from aeron_async.metrics import prometheus
from aeron_async.metrics.latest import LatestStats
from aeron_async.metrics.text import MetricsText
from tests.metrics.snapshots import SECOND_NS, everything, publication, samples, snapshot

if TYPE_CHECKING:
    from aeron_async.stats import Stats

AGE = "aeron_snapshot_age_seconds", frozenset[tuple[str, str]]()


def page_of(collector: prometheus.StatsCollector) -> str:
    registry = prometheus_client.CollectorRegistry(auto_describe=False)
    registry.register(collector)
    return str(prometheus_client.generate_latest(registry).decode())


def test_its_names_labels_and_values_are_those_of_the_text() -> None:
    collector = prometheus.StatsCollector(everything, info={"kernel": "6.18"})
    found = samples(page_of(collector))
    assert found.pop(AGE) >= 0
    assert found == samples(MetricsText(info={"kernel": "6.18"}).render(everything()))


def test_a_snapshot_is_no_function_that_takes_one() -> None:
    taken: Any = everything()
    with pytest.raises(ConfigurationError, match=r"^take_latest=.{0,130} must be a function"):
        prometheus.StatsCollector(taken)


def test_types_and_helps_are_those_of_the_text() -> None:
    page = page_of(prometheus.StatsCollector(everything))
    text = MetricsText().render(everything(), now_ns=SECOND_NS)

    def comments(text: str) -> set[str]:
        return {line for line in text.splitlines() if line.startswith("#")}

    assert comments(page) == comments(text)


def test_registering_takes_no_snapshot() -> None:
    def take() -> None:
        pytest.fail("a snapshot was taken")

    prometheus_client.CollectorRegistry(auto_describe=True).register(
        prometheus.StatsCollector(take)
    )


def test_before_the_first_snapshot_the_page_is_empty() -> None:
    assert page_of(prometheus.StatsCollector(lambda: None)) == ""


def test_the_page_is_that_of_the_loop_asked_from_another_thread() -> None:
    asked_in = set[int]()

    async def scrape() -> str:
        def take() -> object:
            asked_in.add(threading.get_ident())
            return snapshot([publication(1, 0)])

        latest = LatestStats(take, timeout_s=60)  # type: ignore[arg-type]
        return await asyncio.to_thread(page_of, prometheus.StatsCollector(latest))

    page = asyncio.run(scrape())
    assert 'aeron_publications{channel="aeron:udp?endpoint=127.0.0.1:20121",stream="1"} 1' in page
    assert asked_in == {threading.get_ident()}


def test_no_snapshot_is_taken_while_another_one_is_counted() -> None:
    locked = []

    def take() -> Stats:
        locked.append(collector._lock.locked())
        return everything()

    collector = prometheus.StatsCollector(take)
    page_of(collector)
    assert locked == [True]


def test_scrapes_in_many_threads_at_once_never_see_a_counter_fall() -> None:
    steps = iter(range(1_000))
    collector = prometheus.StatsCollector(
        lambda: snapshot([publication(1, step := next(steps))], at_s=step)
    )
    registry = prometheus_client.CollectorRegistry(auto_describe=False)
    registry.register(collector)
    labels = {"stream": "1", "channel": "aeron:udp?endpoint=127.0.0.1:20121"}

    def scrape(_number: int) -> float:
        value = registry.get_sample_value("aeron_publication_sent_bytes_total", labels)
        assert value is not None
        return value

    with ThreadPoolExecutor(4) as threads:
        values = list(threads.map(scrape, range(40)))
    # Each scrape had a snapshot of its own, and counted one byte more.
    assert sorted(values) == list(range(40))
