"""A driver's time stands still while its loop does; a pause is told once, not often."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, ClassVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from structlog.testing import capture_logs

import aeron_async as aa
from aeron_async.clock import NEVER_NS
from aeron_async.driver.core.system_counters import DriverCounterId
from aeron_async.driver.stall_clock import StallClock, StallLog
from tests.driver.agents import SetClock
from tests.driver.fakes import MS, SECOND, Counts
from tests.twins import TWINS, pure_twins

if TYPE_CHECKING:
    from collections.abc import Iterator

THRESHOLD_NS = 100 * MS
HOUR = 3_600 * SECOND


@pytest.fixture
def counts() -> Counts:
    return Counts()


@pytest.fixture
def stall_log(counts: Counts) -> Iterator[StallLog]:
    stall_log = StallLog(counts.system, threshold_ns=THRESHOLD_NS)
    yield stall_log
    stall_log.close()


class Watched:
    role_name: ClassVar[str] = "watched"
    due_ns = 0


class Another(Watched):
    role_name: ClassVar[str] = "another"


class Paused:
    """A stall clock over one that is set, with two agents."""

    def __init__(self, counts: Counts, twin: type[StallClock] = StallClock) -> None:
        self.true = SetClock()
        self.clock = twin(self.true, threshold_ns=THRESHOLD_NS)
        self.clock.stall_log = StallLog(counts.system, threshold_ns=THRESHOLD_NS)
        self.agents = Watched(), Another()
        for agent in self.agents:
            self.clock.watch(agent)

    def after(self, ns: int) -> int:
        """Return what the clock reads when true time has gone on."""
        self.true.ns += ns
        return self.clock.now_ns()


@pytest.fixture(params=TWINS)
def paused(counts: Counts, request: pytest.FixtureRequest) -> Paused:
    return Paused(counts, request.param().StallClock)


def test_the_time_is_that_of_the_clock_while_no_agent_is_late(paused: Paused) -> None:
    near, far = paused.agents
    begin_ns = paused.clock.now_ns()
    assert paused.after(HOUR) == begin_ns + HOUR, "no agent expects anything"
    paused.clock.expect(near, paused.clock.now_ns() + SECOND)
    paused.clock.expect(far, NEVER_NS)
    now_ns = begin_ns + HOUR + SECOND + THRESHOLD_NS
    assert paused.after(SECOND + THRESHOLD_NS) == now_ns, "as late as is ordinary"
    paused.clock.expect(near, NEVER_NS)
    assert paused.after(HOUR) == now_ns + HOUR
    assert paused.clock.stalled_ns == 0


def test_a_pause_is_left_out_but_for_what_is_ordinary(paused: Paused, counts: Counts) -> None:
    near, far = paused.agents
    due_ns = paused.clock.now_ns() + SECOND
    paused.clock.expect(near, due_ns)
    paused.clock.expect(far, due_ns + 1)
    with capture_logs() as lines:
        assert paused.after(HOUR) == due_ns + THRESHOLD_NS
        assert paused.after(0) == due_ns + THRESHOLD_NS
        assert lines == [], "a reading of the clock logs nothing"
        for _ in paused.agents:
            paused.clock.report()
    late_ns = HOUR - SECOND
    assert paused.clock.stalled_ns == late_ns - THRESHOLD_NS
    assert counts.system[DriverCounterId.LOOP_LAG_COUNT].get() == 1
    assert counts.system[DriverCounterId.LOOP_LAG_MAX_NS].get() == late_ns
    (line,) = lines
    assert line["event"] == "event_loop_lagged"
    assert (line["late_ms"], line["pauses"], line["threshold_ms"]) == (3_599_000, 1, 100)
    assert line["agent"] == "watched"
    assert paused.after(MS) == due_ns + THRESHOLD_NS + MS, "the late agents are not late twice"


def test_a_loop_that_is_blocked_again_and_again_counts_what_is_ordinary_of_each_pause(
    paused: Paused,
) -> None:
    near, _ = paused.agents
    begin_ns = paused.clock.now_ns()
    for count in range(1, 51):
        paused.clock.expect(near, paused.clock.now_ns())
        assert paused.after(SECOND) == begin_ns + count * THRESHOLD_NS
    assert paused.clock.stalled_ns == 50 * (SECOND - THRESHOLD_NS)


def test_an_agent_that_has_ended_is_late_for_nothing(paused: Paused) -> None:
    near, far = paused.agents
    begin_ns = paused.clock.now_ns()
    paused.clock.expect(near, begin_ns)
    paused.clock.forget(near)
    paused.clock.forget(far)
    assert paused.after(HOUR) == begin_ns + HOUR
    assert paused.clock.stalled_ns == 0


def test_what_is_due_later_than_a_clock_can_tell_is_never_due(paused: Paused) -> None:
    begin_ns = paused.clock.now_ns()
    paused.clock.expect(paused.agents[0], NEVER_NS + SECOND)
    assert paused.after(HOUR) == begin_ns + HOUR


def test_wall_clock_time_leaves_nothing_out(paused: Paused) -> None:
    assert paused.clock.epoch_ns == paused.true.epoch_ns
    assert paused.clock.epoch_ms == paused.true.epoch_ms


class ClockMachine(RuleBasedStateMachine):
    """Any pauses and any deadlines: time never goes back, and no agent is ever late by more.

    The twin in Python, and the one at work, read the same.
    """

    def __init__(self) -> None:
        super().__init__()
        self.counts = Counts(), Counts()
        self.paused = Paused(self.counts[0])
        self.twin = Paused(self.counts[1], pure_twins().StallClock)
        self.both = self.paused, self.twin
        self.watched = [True, True]
        self.last_ns = self.paused.clock.now_ns()

    @rule(which=st.integers(0, 1), ahead_ns=st.integers(-SECOND, 20 * SECOND) | st.none())
    def expect(self, which: int, ahead_ns: int | None) -> None:
        due_ns = NEVER_NS if ahead_ns is None else self.last_ns + max(0, ahead_ns)
        for each in self.both:
            each.clock.expect(each.agents[which], due_ns)

    @rule(which=st.integers(0, 1))
    def come_or_go(self, which: int) -> None:
        for each in self.both:
            clock, agent = each.clock, each.agents[which]
            (clock.forget if self.watched[which] else clock.watch)(agent)
        self.watched[which] = not self.watched[which]

    @rule()
    def report(self) -> None:
        with capture_logs():
            for each in self.both:
                each.clock.report()
        for name in (DriverCounterId.LOOP_LAG_COUNT, DriverCounterId.LOOP_LAG_MAX_NS):
            at_work, in_python = (each.system[name].get() for each in self.counts)
            assert at_work == in_python

    @rule(passed_ns=st.integers(0, 2 * SECOND) | st.integers(0, HOUR))
    def pause(self, passed_ns: int) -> None:
        before_ns, stalled_ns = self.paused.clock.now_ns(), self.paused.clock.stalled_ns
        now_ns = self.paused.after(passed_ns)
        assert self.twin.after(passed_ns) == now_ns
        assert now_ns - before_ns + self.paused.clock.stalled_ns - stalled_ns == passed_ns
        # Both, for time stands still at the first that is late.
        assert now_ns <= before_ns + passed_ns
        assert all(
            now_ns <= agent.due_ns + THRESHOLD_NS
            for agent, is_watched in zip(self.paused.agents, self.watched, strict=True)
            if is_watched
        )

    @invariant()
    def time_never_goes_back(self) -> None:
        now_ns = self.paused.clock.now_ns()
        assert now_ns >= self.last_ns
        self.last_ns = now_ns

    @invariant()
    def both_twins_hold_the_same(self) -> None:
        at_work, in_python = self.both
        assert at_work.clock.now_ns() == in_python.clock.now_ns()
        assert at_work.clock.stalled_ns == in_python.clock.stalled_ns
        assert [a.due_ns for a in at_work.agents] == [a.due_ns for a in in_python.agents]


TestClockMachine = pytest.mark.untraced(ClockMachine.TestCase)


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
            # On a busy machine an agent may stand still for longer than the threshold as well, and
            # is then named first.
            async with asyncio.timeout(60):
                while not any("hog" in line.get("ran", "") for line in lines):
                    await asyncio.create_task(hog())
                    await asyncio.sleep(0)
    loop.set_debug(False)
    (named, *_) = (line for line in lines if "hog" in line.get("ran", ""))
    assert named["event"] == "event_loop_lagged"
    assert logging.getLogger("asyncio").filters == []
