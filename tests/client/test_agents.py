"""The agents: they sleep until there is something to do, notice a blocked loop, and recover."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

import aeron_async as aa
from aeron_async.clock import NEVER_NS, NS_PER_MS, NS_PER_SECOND
from aeron_async.counters import CountersManager
from aeron_async.driver.agent import Agent
from aeron_async.driver.core.system_counters import (
    DRIVER_COUNTER_TYPE_ID,
    DriverCounterId,
    SystemCounterId,
    SystemCounters,
)
from aeron_async.driver.stall_clock import StallClock, StallLog

STREAM_ID = 1001
ORDINARY_NS = 100 * NS_PER_MS
"""How late a timer may be, and be no stall."""


class JumpingClock(aa.SystemClock):
    """The machine's clock, with a leap that the test decides on: a loop that stood still."""

    def __init__(self) -> None:
        self.leap_ns = 0

    def now_ns(self) -> int:
        return aa.SystemClock.now_ns() + self.leap_ns


class CountingAgent(Agent):
    role_name = "counting"

    def __init__(self, clock: JumpingClock, counters: SystemCounters) -> None:
        self.jumping = clock
        time = StallClock(clock, threshold_ns=ORDINARY_NS)
        time.stall_log = StallLog(counters, threshold_ns=ORDINARY_NS)
        super().__init__(
            clock=time,
            system_counters=counters,
            max_cycle_time=SystemCounterId.CONDUCTOR_MAX_CYCLE_TIME,
            threshold_exceeded=SystemCounterId.CONDUCTOR_CYCLE_TIME_THRESHOLD_EXCEEDED,
            cycle_threshold_ns=100 * NS_PER_MS,
        )
        self.deadlines: list[int] = []
        self.work_ns = 0
        self.worked = asyncio.Event()
        self.count = 0

    @property
    def stalled_ns(self) -> int:
        return self._clock.stalled_ns

    async def do_work(self, now_ns: int) -> int:
        self.count += 1
        self.worked.set()
        self.jumping.leap_ns += self.work_ns
        self.work_ns = 0
        return now_ns + self.deadlines.pop(0) if self.deadlines else NEVER_NS


@pytest.fixture
def clock() -> JumpingClock:
    return JumpingClock()


@pytest.fixture
def counters(clock: JumpingClock) -> SystemCounters:
    manager = CountersManager.in_memory(free_to_reuse_timeout_ms=0, epoch_ms=clock.epoch_ms)
    return SystemCounters(manager, aa.DriverContext())


async def test_an_agent_sleeps_until_its_deadline_or_until_woken(
    clock: JumpingClock, counters: SystemCounters
) -> None:
    agent = CountingAgent(clock, counters)
    agent.deadlines = [0, 10_000, 2 * NS_PER_MS]
    task = asyncio.create_task(agent.run())
    # A deadline that has come, one of the next turn, one by timer; then none any more.
    while agent.count < 4:
        agent.worked.clear()
        await asyncio.wait_for(agent.worked.wait(), 5)
    assert agent.deadlines == []
    agent.worked.clear()
    agent.wake()
    agent.wake()
    await asyncio.wait_for(agent.worked.wait(), 5)
    assert agent.count == 5
    for _ in range(5):
        await asyncio.sleep(0)
    assert agent.count == 5
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_timer_that_comes_late_is_counted_logged_and_answered_with_patience(
    clock: JumpingClock, counters: SystemCounters
) -> None:
    agent = CountingAgent(clock, counters)
    agent.deadlines = [5 * NS_PER_MS]
    with capture_logs() as lines:
        task = asyncio.create_task(agent.run())
        await agent.worked.wait()
        agent.worked.clear()
        clock.leap_ns += 3 * NS_PER_SECOND
        await asyncio.wait_for(agent.worked.wait(), 5)
    task.cancel()
    assert counters[DriverCounterId.LOOP_LAG_COUNT].get() == 1
    late_ns = counters[DriverCounterId.LOOP_LAG_MAX_NS].get()
    assert late_ns > 2.9 * NS_PER_SECOND
    (line,) = [line for line in lines if line["event"] == "event_loop_lagged"]
    assert line["agent"] == "counting"
    assert line["late_ms"] >= 2_900
    assert "asyncio.to_thread" in line["remedy"]
    assert agent.stalled_ns == late_ns - ORDINARY_NS


async def test_work_that_takes_longer_than_its_retry_delay_still_sleeps(
    clock: JumpingClock, counters: SystemCounters
) -> None:
    class BusyAgent(CountingAgent):
        async def do_work(self, now_ns: int) -> int:
            self.work_ns = 300_000
            return await super().do_work(now_ns)

        async def _wait(self, delay_ns: int | None) -> None:
            waits.append(delay_ns)
            await asyncio.get_running_loop().create_future()

    waits: list[int | None] = []
    agent = BusyAgent(clock, counters)
    agent.deadlines = [100_000] * 1_000
    task = asyncio.create_task(agent.run())
    await agent.worked.wait()
    for _ in range(10):
        await asyncio.sleep(0)
    assert agent.count == 1
    assert waits == [NS_PER_MS]
    task.cancel()


async def test_a_cycle_that_takes_long_is_counted(
    clock: JumpingClock, counters: SystemCounters
) -> None:
    agent = CountingAgent(clock, counters)
    agent.work_ns = 200 * NS_PER_MS
    task = asyncio.create_task(agent.run())
    await agent.worked.wait()
    await asyncio.sleep(0)
    task.cancel()
    assert counters[SystemCounterId.CONDUCTOR_CYCLE_TIME_THRESHOLD_EXCEEDED].get() == 1
    longest_ns = counters[SystemCounterId.CONDUCTOR_MAX_CYCLE_TIME].get()
    assert 200 * NS_PER_MS <= longest_ns < NS_PER_SECOND
    assert 100 * NS_PER_MS <= agent.stalled_ns < NS_PER_SECOND, "what arrived is not yet read"


async def test_a_clock_that_goes_back_a_second_is_no_stall_and_stops_nothing(
    clock: JumpingClock, counters: SystemCounters
) -> None:
    agent = CountingAgent(clock, counters)
    agent.deadlines = [2 * NS_PER_MS, 2 * NS_PER_MS]
    task = asyncio.create_task(agent.run())
    await agent.worked.wait()
    agent.worked.clear()
    clock.leap_ns -= NS_PER_SECOND
    await asyncio.wait_for(agent.worked.wait(), 5)
    task.cancel()
    assert agent.stalled_ns == 0
    assert counters[DriverCounterId.LOOP_LAG_COUNT].get() == 0


@pytest.mark.parametrize("stall_s", [-1, 4, 12, 3_600])
async def test_a_stream_survives_a_loop_that_stood_still(
    channel: str, clock: JumpingClock, stall_s: int
) -> None:
    context = aa.DriverContext(status_message_timeout_ns=5 * NS_PER_MS)
    driver = aa.MediaDriver.launch(context, clock=clock)
    async with driver, aa.Aeron.connect(driver) as aeron:
        subscription = await aeron.add_subscription(channel, STREAM_ID)
        publication = await aeron.add_publication(channel, STREAM_ID)
        await publication.offer(b"before", timeout=5)
        assert (await anext(subscription)).data == b"before"
        (image,) = subscription.images
        clock.leap_ns += stall_s * NS_PER_SECOND
        async with asyncio.timeout(5):
            while stall_s > 0 and counted(driver, DriverCounterId.LOOP_LAG_COUNT) < 1:
                await asyncio.sleep(0)
            for number in range(20):
                await publication.offer(b"%d" % number)
                assert (await anext(subscription)).data == b"%d" % number
        assert subscription.images == (image,)
        assert not image.is_closed
        assert publication.is_connected


def counted(driver: aa.MediaDriver, counter: DriverCounterId) -> int:
    record = driver.counters.find(type_id=DRIVER_COUNTER_TYPE_ID, registration_id=counter)
    assert record is not None
    return record.value
