"""Row A11: a pause of the event loop is told once, and not often."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

import aeron_async as aa
from aeron_async.driver.core.system_counters import DriverCounterId
from aeron_async.driver.stall_log import StallLog
from tests.driver.fakes import MS, SECOND, Counts

if TYPE_CHECKING:
    from collections.abc import Iterator

THRESHOLD_NS = 100 * MS


@pytest.fixture
def counts() -> Counts:
    return Counts()


@pytest.fixture
def stall_log(counts: Counts) -> Iterator[StallLog]:
    stall_log = StallLog(counts.system, threshold_ns=THRESHOLD_NS)
    yield stall_log
    stall_log.close()


def test_a_pause_that_every_agent_notices_is_one(stall_log: StallLog, counts: Counts) -> None:
    with capture_logs() as lines:
        stall_log.on_pause(300 * MS, 10 * SECOND, "sender")
        stall_log.on_pause(350 * MS, 10 * SECOND + 1, "receiver")
        stall_log.on_pause(200 * MS, 10 * SECOND + 2, "conductor")
    assert counts.system[DriverCounterId.LOOP_LAG_COUNT].get() == 1
    assert counts.system[DriverCounterId.LOOP_LAG_MAX_NS].get() == 350 * MS
    (line,) = lines
    assert line["event"] == "event_loop_lagged"
    assert (line["late_ms"], line["pauses"], line["threshold_ms"]) == (300, 1, 100)


def test_there_is_one_line_a_second_with_the_longest_pause_since_the_last(
    stall_log: StallLog, counts: Counts
) -> None:
    logged = []
    for tenth in range(0, 35, 2):
        with capture_logs() as lines:
            late_ns = (101 + tenth) * MS
            stall_log.on_pause(late_ns, 10 * SECOND + tenth * 100 * MS, "sender")
        logged += [(tenth, line["late_ms"], line["pauses"]) for line in lines]
    assert logged == [(0, 101, 1), (10, 111, 5), (20, 121, 5), (30, 131, 5)]
    assert counts.system[DriverCounterId.LOOP_LAG_COUNT].get() == 18


def test_what_ran_is_told_where_the_loop_says_it(stall_log: StallLog) -> None:
    asyncio_log = logging.getLogger("asyncio")
    stall_log.watch_callbacks()
    asyncio_log.warning("Executing %s took %.3f seconds", "<Task quick>", 0.2)
    asyncio_log.warning("Executing %s took %.3f seconds", "<Task slow\x1b>", 0.7)
    asyncio_log.warning("Executing %s took %.3f seconds", "<Task later>", 0.3)
    asyncio_log.warning("something else %s", 3.0)
    with capture_logs() as lines:
        stall_log.on_pause(SECOND, 10 * SECOND, "sender")
        stall_log.on_pause(SECOND, 20 * SECOND, "sender")
    assert lines[0]["ran"] == r"<Task slow\x1b> took 0.700 seconds"
    assert "ran" not in lines[1]
    stall_log.close()
    assert asyncio_log.filters == []


async def test_in_debug_mode_a_driver_names_the_task_that_blocked_its_loop() -> None:
    loop = asyncio.get_running_loop()
    loop.set_debug(True)
    loop.slow_callback_duration = 0.02
    context = aa.DriverContext(loop_lag_threshold_ns=20 * MS)

    async def hog() -> None:
        time.sleep(0.2)  # noqa: ASYNC251 - that is the fault under test

    with capture_logs() as lines:
        async with aa.MediaDriver.launch(context) as driver, aa.Aeron.connect(driver) as aeron:
            # So that the agents have something due, ten times a second.
            subscription = await aeron.add_subscription("aeron:udp?endpoint=127.0.0.1:0", 1)
            channel = f"aeron:udp?endpoint={subscription.local_address}"
            await (await aeron.add_publication(channel, 1)).wait_connected(timeout=5)
            async with asyncio.timeout(10):
                while not any(line["event"] == "event_loop_lagged" for line in lines):
                    await asyncio.create_task(hog())
                    await asyncio.sleep(0)
    loop.set_debug(False)
    line = next(line for line in lines if line["event"] == "event_loop_lagged")
    assert "hog" in line["ran"]
    assert logging.getLogger("asyncio").filters == []
