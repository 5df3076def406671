"""A Prometheus that scrapes a driver at work sees its counters, and all that the dashboard asks.

`AERON_ASYNC_PROMETHEUS_SECONDS=600` lets it watch for that long; without it the test is skipped. It
needs `prometheus` on PATH, which listens at a port of the loopback address.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import pytest

from aeron_async import Aeron, MediaDriver
from aeron_async.clock import NS_PER_SECOND
from aeron_async.driver.core.context import DriverContext
from aeron_async.metrics import serve_metrics
from aeron_async.metrics.__main__ import shipped
from aeron_async.stats import BLOCKED_BY
from aeron_async.tasks import TaskOwner
from tests.metrics.shipped import expressions, filled

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from pathlib import Path

    from aeron_async.client.publication import Publication
    from aeron_async.client.subscription import Subscription
    from aeron_async.stats import Stats

SECONDS: Final = float(os.environ.get("AERON_ASYNC_PROMETHEUS_SECONDS", "0"))
ALERTS_AFTER_S: Final = 60.0
"""After this long, what is wrong from the beginning must have fired."""
LOOK_INTERVAL_S: Final = 5.0
PATIENCE_S: Final = 30.0
BESIDE: Final = ("by", "cause", "agent", "reason")
PAYLOAD: Final = bytes(200)
REPAIRED, SLOW, UNHEARD, LOCAL, UNRELIABLE = 1001, 1002, 1003, 1004, 1005
CONFIG: Final = """
global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}
rule_files: [alerts.yml]
scrape_configs:
  - job_name: feed
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""

pytestmark = [pytest.mark.slow, pytest.mark.processes]

Sample = tuple[str, str, str]
"""The name of a metric, its stream, and its label of `BESIDE`."""


def counters_of(stats: Stats) -> dict[Sample, float]:
    """Return what the counters of a driver are, by the names that Prometheus has them by."""
    found: dict[Sample, float] = {}
    for row in stats.publications:
        stream = str(row.stream_id)
        sent = row.position if row.sender_position is None else row.sender_position
        found["aeron_publication_sent_bytes_total", stream, ""] = sent
        found["aeron_publication_messages_total", stream, ""] = row.message_count or 0
        found["aeron_publication_naks_received_total", stream, ""] = row.nak_count or 0
        found["aeron_publication_retransmitted_bytes_total", stream, ""] = (
            row.retransmitted_bytes or 0
        )
        for by in BLOCKED_BY:
            found["aeron_publication_blocked_seconds_total", stream, by] = (
                getattr(row, f"blocked_{by}_ns") / NS_PER_SECOND
            )
    for image in stats.images:
        stream = str(image.stream_id)
        found["aeron_image_received_bytes_total", stream, ""] = image.received_bytes or 0
        found["aeron_image_naks_sent_total", stream, ""] = image.nak_count or 0
        found["aeron_image_status_messages_sent_total", stream, ""] = (
            image.status_message_count or 0
        )
        for loss in image.losses:
            found["aeron_image_loss_events_total", stream, loss.cause] = loss.count
            found["aeron_image_lost_bytes_total", stream, loss.cause] = loss.bytes
    for each in stats.subscriptions:
        found["aeron_subscription_messages_total", str(each.stream_id), ""] = (
            each.message_count or 0
        )
    for cycle in stats.driver.cycles:
        found["aeron_driver_cycles_exceeded_total", "", cycle.agent] = cycle.exceeded_count
    found["aeron_driver_loop_lag_seconds_count", "", ""] = sum(stats.driver.loop_lags)
    drops = stats.driver.counters["socket_drops"]
    found["aeron_driver_socket_drops_total", "", "socket_full"] = drops
    return found


async def get(port: int, path: str) -> str:
    """Return the body of a page."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        # HTTP/1.0, so that the answer comes in one piece.
        writer.write(f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
        return (await reader.read()).decode().partition("\r\n\r\n")[2]
    finally:
        writer.close()


class PrometheusServer:
    """A Prometheus of this test.

    Args:
        port: Where it listens, at the loopback address.
    """

    def __init__(self, port: int) -> None:
        self._port = port

    async def query(self, expression: str) -> list[Any]:
        answer = json.loads(await get(self._port, f"/api/v1/query?query={quote(expression)}"))
        assert answer["status"] == "success", (expression, answer)
        found: list[Any] = answer["data"]["result"]
        return found

    async def values(self, after_s: float) -> dict[Sample, float]:
        """Return every value of a scrape that began after this time."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                at = await self.query("timestamp(aeron_info)")
                if at and float(at[0]["value"][1]) > after_s:
                    break
                await asyncio.sleep(0.1)
        return {
            (
                labels["__name__"],
                labels.get("stream", ""),
                next((labels[each] for each in BESIDE if each in labels), ""),
            ): float(value)
            for labels, (_, value) in (
                (each["metric"], each["value"])
                for each in await self.query('{__name__=~"aeron_.*"}')
            )
        }


@asynccontextmanager
async def running(folder: Path, target: int) -> AsyncGenerator[PrometheusServer]:
    """Run a Prometheus that scrapes this port, until the block ends."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("prometheus is not on PATH: apt-get install prometheus")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (folder / "alerts.yml").write_text(shipped("alerts"))
    (folder / "prometheus.yml").write_text(CONFIG.format(port=target))
    process = await asyncio.create_subprocess_exec(
        program,
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
    )
    try:
        server = PrometheusServer(port)
        async with asyncio.timeout(PATIENCE_S):
            while True:
                with suppress(OSError, ValueError):
                    if await server.query("aeron_info"):
                        break
                assert process.returncode is None
                await asyncio.sleep(0.1)
        yield server
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def publish(publication: Publication, is_over: asyncio.Event) -> None:
    while not is_over.is_set():
        for _ in range(20):
            await publication.offer(PAYLOAD)
        await asyncio.sleep(0.05)


async def read(subscription: Subscription, pause_s: float, is_over: asyncio.Event) -> None:
    async for _ in subscription:
        if pause_s and not is_over.is_set():
            await asyncio.sleep(pause_s)


async def settled(take: Callable[[], Stats], *, passed_s: float = 1.0) -> Stats:
    """Return the statistics of a driver whose streams have come to rest."""

    def moving(stats: Stats) -> dict[Sample, float]:
        counters = counters_of(stats)
        return {key: value for key, value in counters.items() if not is_of_time(key[0])}

    async with asyncio.timeout(PATIENCE_S):
        while True:
            before = take()
            await asyncio.sleep(passed_s)
            if moving(before) == moving(take()):
                return before


def is_of_time(name: str) -> bool:
    """Return whether a counter moves while nothing is sent: heartbeats, timers, who waits."""
    return any(each in name for each in ("status_messages", "loop_lag", "blocked", "cycles"))


@pytest.mark.skipif(not SECONDS, reason="set AERON_ASYNC_PROMETHEUS_SECONDS to a number above 0")
async def test_prometheus_has_what_the_driver_counts(
    tmp_path: Path, unused_udp_port_factory: Callable[[], int]
) -> None:
    context = DriverContext(
        udp_channel_incoming_interceptors="loss",
        udp_channel_loss_args="rate=0.02|seed=7|recv-msg-mask=0x2",
    )
    ports = {stream: unused_udp_port_factory() for stream in (REPAIRED, SLOW, UNHEARD, UNRELIABLE)}
    channels = {each: f"aeron:udp?endpoint=127.0.0.1:{port}" for each, port in ports.items()}
    channels[SLOW] += "|term-length=64k"
    channels[LOCAL] = "aeron:ipc"
    is_over = asyncio.Event()
    async with (
        MediaDriver.launch(context) as driver,
        Aeron.connect(driver) as aeron,
        serve_metrics(aeron.gather_stats) as page,
        TaskOwner() as readers,
        TaskOwner() as publishers,
    ):
        publications = {
            each: await aeron.add_publication(channel, stream_id=each)
            for each, channel in channels.items()
        }
        for stream, channel in channels.items():
            if stream != UNHEARD:
                more = "|reliable=false" if stream == UNRELIABLE else ""
                taken = await aeron.add_subscription(channel + more, stream_id=stream)
                pause_s = 0.01 if stream == SLOW else 0.0
                readers.start(read(taken, pause_s, is_over), f"reads-{stream}")
                await publications[stream].wait_connected()
        async with running(tmp_path, page.port) as server:
            # From here on: Prometheus has seen every stream where it begins.
            assert "no /nothing" in await get(page.port, "/nothing")
            for stream, publication in publications.items():
                publishers.start(publish(publication, is_over), f"publishes-{stream}")
            looks = await watch(server, aeron.stats)
            is_over.set()
            assert looks >= SECONDS / LOOK_INTERVAL_S / 2
            await check_at_rest(server, aeron.stats)


async def watch(server: PrometheusServer, take: Callable[[], Stats]) -> int:
    """Look again and again whether what was scraped lies between before and after."""
    loop = asyncio.get_running_loop()
    start_s, looks = loop.time(), 0
    while loop.time() < start_s + SECONDS:
        earlier = take()
        seen = await server.values(earlier.epoch_ns / NS_PER_SECOND)
        least, most = counters_of(earlier), counters_of(take())
        outside = {
            key: (value, seen.get(key), most[key])
            for key, value in least.items()
            if not value - 1e-6 <= seen.get(key, -1.0) <= most[key] + 1e-6
        }
        assert outside == {}
        looks += 1
        await asyncio.sleep(LOOK_INTERVAL_S)
    empty = [each for each in expressions() if not await server.query(filled(each, "10s"))]
    # No limit is reached, every subscription has an image, and there is no archive and no service.
    without = ("limit_reached", "aeron_images", "aeron_archive_", "aeron_call")
    assert [each for each in empty if not any(name in each for name in without)] == []
    if SECONDS > ALERTS_AFTER_S:
        firing = await server.query('ALERTS{alertstate="firing"}')
        pairs = {(each["metric"]["alertname"], each["metric"].get("stream")) for each in firing}
        assert ("AeronNotConnected", str(UNHEARD)) in pairs
        assert ("AeronDataLost", str(UNRELIABLE)) in pairs
    return looks


async def check_at_rest(server: PrometheusServer, take: Callable[[], Stats]) -> None:
    """See that the values are those of the driver where nothing moves."""
    rest = await settled(take)
    seen = await server.values(take().epoch_ns / NS_PER_SECOND)
    expected = {k: v for k, v in counters_of(rest).items() if not is_of_time(k[0])}
    assert {key: seen[key] for key in expected} == expected
    assert any(value for (name, *_), value in expected.items() if "lost_bytes" in name)
