"""What is done in the sender's stead, at once, or without a poll."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from aeron_async.driver.core.outbox import HeartbeatBatch
from aeron_async.driver.core.publication import PublicationState
from aeron_async.driver.core.system_counters import SystemCounterId
from aeron_async.driver.sender import (
    AFTER_BURST_NS,
    BEATS_PER_CYCLE,
    EARLY_BEAT_NS,
    QUIET_NS,
    Sender,
)
from tests.driver.agents import SECOND, SetClock, Stream, asleep, driver_clock, running
from tests.driver.fakes import CONTEXT, Counts, Outbox

if TYPE_CHECKING:
    from aeron_async.logbuffer.placing import SegmentTable


async def test_a_lone_offer_is_sent_before_it_returns_and_those_that_follow_together() -> None:
    clock, done = SetClock(), list[Any]()
    sender = Sender(CONTEXT, driver_clock(clock), Counts().system, done.append)
    stream: Any = Stream(PublicationState.ACTIVE)
    async with running(sender):
        await asleep(clock, sender, stream)
        sender.on_offer(stream)
        assert stream.times_ns == [SECOND, SECOND + QUIET_NS]
        clock.ns += QUIET_NS - 1
        sender.on_offer(stream)
        sender.on_offer(stream)
        assert len(stream.times_ns) == 2
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert stream.times_ns[2:] == [SECOND + 2 * QUIET_NS - 1]
        assert done == []


async def test_after_a_burst_an_offer_is_alone_only_after_a_longer_quiet() -> None:
    clock = SetClock()
    sender = Sender(CONTEXT, driver_clock(clock), Counts().system, print)
    stream: Any = Stream(PublicationState.ACTIVE)
    async with running(sender):
        await asleep(clock, sender, stream)
        stream.has_sent_burst = True
        sender.on_offer(stream)
        assert len(stream.times_ns) == 1
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(stream.times_ns) == 2
        await asyncio.sleep(0)
        clock.ns += AFTER_BURST_NS
        sender.on_offer(stream)
        assert len(stream.times_ns) == 3


async def test_a_sender_that_is_late_or_polls_or_is_awake_anyhow_is_left_to_itself() -> None:
    clock = SetClock()
    sender = Sender(CONTEXT, driver_clock(clock), Counts().system, print)
    stream: Any = Stream(PublicationState.ACTIVE)
    other: Any = Stream(PublicationState.ACTIVE)
    async with running(sender):
        await asleep(clock, sender, stream)
        stream.on_poll = lambda: sender.on_offer(other)
        sender.on_offer(stream)
        assert len(stream.times_ns) == 2
        assert other.times_ns == []
        stream.on_poll = None
        sender.on_offer(other)
        assert other.times_ns == [], "it is awake by now, and does all in one go"
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(other.times_ns) == 1
        # Beyond its deadline it has to find out first how long nothing ran.
        clock.ns += SECOND
        sender.on_offer(stream)
        assert len(stream.times_ns) == 2


async def test_what_is_over_after_an_offer_is_seen_to() -> None:
    clock, done = SetClock(), list[Any]()
    sender = Sender(CONTEXT, driver_clock(clock), Counts().system, done.append)
    stream: Any = Stream(PublicationState.ACTIVE)

    def end() -> None:
        stream.state = PublicationState.DONE

    async with running(sender):
        await asleep(clock, sender, stream)
        stream.on_poll = end
        sender.on_offer(stream)
        assert done == [stream]


@pytest.mark.parametrize("sleep_ns", [0, 1_000, 10 * SECOND])
async def test_an_agent_sleeps_no_longer_than_what_was_done_in_its_stead_allows(
    sleep_ns: int,
) -> None:
    clock = SetClock()
    sender = Sender(CONTEXT, driver_clock(clock), Counts().system, print)
    stream: Any = Stream(PublicationState.ACTIVE)
    async with running(sender):
        await asleep(clock, sender, stream)
        stream.sleep_ns = sleep_ns
        sender.on_offer(stream)
        assert sender.may_act(clock.ns) is (sleep_ns > SECOND)


async def test_a_lone_offer_that_is_all_there_is_to_do_makes_no_poll() -> None:
    clock = SetClock()
    sender = Sender(CONTEXT, driver_clock(clock), Counts().system, print)
    stream: Any = Stream(PublicationState.ACTIVE)
    async with running(sender):
        await asleep(clock, sender, stream)
        stream.is_calm = True
        for _ in range(3):
            sender.on_offer(stream)
            clock.ns += QUIET_NS
        assert stream.calm_times_ns == [SECOND + count * QUIET_NS for count in (1, 2, 3)]
        assert stream.times_ns == [SECOND]
        clock.ns -= 1
        sender.on_offer(stream)
        assert len(stream.calm_times_ns) == 3, "one that follows closely waits for the others"


async def test_what_has_nothing_due_but_a_heartbeat_is_not_polled() -> None:
    clock = SetClock()
    sender = Sender(CONTEXT, driver_clock(clock), Counts().system, print)
    calm: Any = Stream(PublicationState.ACTIVE)
    other: Any = Stream(PublicationState.ACTIVE)
    calm.is_calm = True
    for stream in (calm, other):
        sender.on_activity(stream)
    await sender.do_work(clock.ns)
    for _ in range(2):
        clock.ns += SECOND // 10
        assert await sender.do_work(clock.ns) == clock.ns + SECOND // 10
    assert calm.times_ns == [SECOND]
    assert calm.beat_times_ns == [clock.ns - SECOND // 10, clock.ns]
    assert other.times_ns == [SECOND, *calm.beat_times_ns]


async def test_more_heartbeats_than_one_cycle_may_have_leave_in_the_next() -> None:
    clock = SetClock()
    sender = Sender(CONTEXT, driver_clock(clock), Counts().system, print)
    streams: list[Any] = [Stream(PublicationState.ACTIVE) for _ in range(BEATS_PER_CYCLE + 1)]
    for stream in streams:
        sender.on_activity(stream)
    while await sender.do_work(clock.ns) < clock.ns:
        pass
    clock.ns += SECOND // 10
    for stream in streams:
        stream.is_calm = True
    assert await sender.do_work(clock.ns) == clock.ns, "at once"
    assert sum(len(stream.beat_times_ns) for stream in streams) == BEATS_PER_CYCLE
    assert await sender.do_work(clock.ns) == clock.ns + SECOND // 10
    assert all(stream.beat_times_ns == [clock.ns] for stream in streams)


class SegmentOutbox(Outbox):
    """Notes how it was called."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[list[int]] = []

    def send_batches(self, data: memoryview, segments: SegmentTable) -> int:
        self.calls.append(list(segments))
        if self.is_broken:
            raise ZeroDivisionError
        return super().send_batches(data, segments)

    is_broken = False


async def beating(counts: Counts, *outboxes: SegmentOutbox) -> list[Any]:
    """Let streams of these outboxes send heartbeats: three of the first, two of the others."""
    clock = SetClock()
    sender = Sender(CONTEXT, driver_clock(clock), counts.system, print)
    streams: list[Any] = []
    for number, outbox in enumerate(outboxes):
        for each in range(3 - min(number, 1)):
            stream: Any = Stream(PublicationState.ACTIVE)
            stream.is_calm, stream.outbox = True, outbox
            stream.beat = bytes([number, each]) * 16
            # One after the other, all within the time in which they may leave together.
            stream.sleep_ns += len(streams) * EARLY_BEAT_NS // 10
            streams.append(stream)
            sender.on_activity(stream)
    await sender.do_work(clock.ns)
    clock.ns += streams[0].sleep_ns
    await sender.do_work(clock.ns)
    assert [each.beat_times_ns for each in streams] == [[clock.ns]] * len(streams)
    return streams


async def test_heartbeats_of_one_endpoint_leave_in_one_batch() -> None:
    counts, first, second = Counts(), SegmentOutbox(), SegmentOutbox()
    streams = await beating(counts, first, second)
    assert (first.calls, second.calls) == ([[96, 32]], [[64, 32]])
    assert first.take() + second.take() == [each.beat for each in streams]
    assert counts[SystemCounterId.SHORT_SENDS] == 0


async def test_heartbeats_that_find_no_room_are_counted_and_come_again() -> None:
    counts, first, second = Counts(), SegmentOutbox(), SegmentOutbox()
    first.is_full = True
    await beating(counts, first, second)
    assert counts[SystemCounterId.SHORT_SENDS] == 3
    assert len(second.take()) == 2


async def test_an_endpoint_that_fails_ends_no_stream_and_holds_up_no_other_endpoint() -> None:
    counts, first, second = Counts(), SegmentOutbox(), SegmentOutbox()
    first.is_broken = True
    with capture_logs() as lines:
        streams = await beating(counts, first, second)
    assert [line["event"] for line in lines] == ["heartbeats_failed"]
    assert counts[SystemCounterId.ERRORS] == 1
    assert counts[SystemCounterId.SHORT_SENDS] == 3
    assert second.take() == [each.beat for each in streams[3:]]
    assert {each.state for each in streams} == {PublicationState.ACTIVE}


async def test_a_heartbeat_that_is_alone_leaves_as_one_datagram() -> None:
    batch, outbox = HeartbeatBatch(), SegmentOutbox()
    batch.add(outbox, bytes(32))
    assert batch.send(print) == 0
    assert (outbox.calls, outbox.take()) == ([], [bytes(32)])
    outbox.is_full = True
    batch.add(outbox, bytes(32))
    assert batch.send(print) == 1
    assert batch.send(print) == 0


@pytest.mark.parametrize("is_offered", [True, False])
async def test_one_that_fails_without_a_poll_ends_and_costs_the_others_nothing(
    is_offered: bool,  # noqa: FBT001 - what is tried
) -> None:
    clock, done, counts = SetClock(), list[Any](), Counts()
    sender = Sender(CONTEXT, driver_clock(clock), counts.system, done.append)
    stream: Any = Stream(PublicationState.ACTIVE)
    async with running(sender):
        await asleep(clock, sender, stream)
        stream.failure = ValueError("boom")
        if is_offered:
            sender.on_offer(stream)
        else:
            clock.ns += SECOND // 10
            await sender.do_work(clock.ns)
        assert done == [stream]
        assert counts[SystemCounterId.ERRORS] == 1
