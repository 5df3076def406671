"""What is done in an agent's stead, at once: a lone offer, and what a socket has just brought."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from aeron_async.driver.core.image_state import ImageState
from aeron_async.driver.core.loss_detector import NEVER_NS
from aeron_async.driver.core.publication_state import PublicationState
from aeron_async.driver.core.system_counters import SystemCounterId
from aeron_async.driver.receiver import Receiver
from aeron_async.driver.sender import AFTER_BURST_NS, BEATS_PER_CYCLE, QUIET_NS, Sender
from tests.driver.fakes import CONTEXT, Counts

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aeron_async.driver.agent import Agent

SECOND = 1_000_000_000


class SetClock:
    """A clock that stands where it was set."""

    def __init__(self) -> None:
        self.ns = SECOND

    def now_ns(self) -> int:
        return self.ns

    def epoch_ms(self) -> int:
        return 0

    def epoch_ns(self) -> int:
        return 0


class Stream:
    """A publication or an image that is polled, and then sleeps."""

    def __init__(self, state: PublicationState | ImageState, sleep_ns: int = SECOND // 10) -> None:
        self.state = state
        self.sleep_ns = sleep_ns
        self.polled_ns = 0
        self.has_sent_burst = False
        self.times_ns: list[int] = []
        self.on_poll: Any = None
        self.is_calm = False
        self.calm_times_ns: list[int] = []
        self.beat_times_ns: list[int] = []
        self.quiet = self
        self.channel, self.session_id, self.stream_id = "aeron:udp", 1, 2
        self.failure: Exception | None = None

    def try_send_alone(self, now_ns: int) -> bool:
        if self.failure is not None:
            raise self.failure
        if self.is_calm:
            self.calm_times_ns.append(now_ns)
        return self.is_calm

    try_show = try_report = try_send_alone

    def try_beat(self, now_ns: int) -> int:
        if self.failure is not None:
            raise self.failure
        if self.is_calm:
            self.beat_times_ns.append(now_ns)
        return now_ns + self.sleep_ns if self.is_calm else 0

    def fail(self, error: Exception) -> None:
        assert error is self.failure
        self.failure = None
        self.state = PublicationState.DONE
        self.sleep_ns = NEVER_NS

    def poll(self, now_ns: int) -> int:
        self.times_ns.append(now_ns)
        if self.on_poll is not None:
            self.on_poll()
        return min(now_ns + self.sleep_ns, NEVER_NS)


class Nobody:
    def on_image_drained(self, image: Any) -> None:
        raise AssertionError(image)

    def on_image_done(self, image: Any) -> None:
        raise AssertionError(image)


@asynccontextmanager
async def running(agent: Agent) -> AsyncIterator[None]:
    """Let an agent run, and wait until it sleeps."""
    task = asyncio.create_task(agent.run())
    for _ in range(3):
        await asyncio.sleep(0)
    yield
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def asleep(clock: SetClock, sender: Sender, stream: Any) -> None:
    """Let a publication be polled once by the agent, and some quiet follow."""
    sender.on_activity(stream)
    for _ in range(3):
        await asyncio.sleep(0)
    assert stream.times_ns == [clock.ns]
    clock.ns += QUIET_NS


async def test_a_lone_offer_is_sent_before_it_returns_and_those_that_follow_together() -> None:
    clock, done = SetClock(), list[Any]()
    sender = Sender(CONTEXT, clock, Counts().system, done.append)
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
    sender = Sender(CONTEXT, clock, Counts().system, print)
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
    sender = Sender(CONTEXT, clock, Counts().system, print)
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
    sender = Sender(CONTEXT, clock, Counts().system, done.append)
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
    sender = Sender(CONTEXT, clock, Counts().system, print)
    stream: Any = Stream(PublicationState.ACTIVE)
    async with running(sender):
        await asleep(clock, sender, stream)
        stream.sleep_ns = sleep_ns
        sender.on_offer(stream)
        assert sender.may_act(clock.ns) is (sleep_ns > SECOND)


async def test_a_lone_offer_that_is_all_there_is_to_do_makes_no_poll() -> None:
    clock = SetClock()
    sender = Sender(CONTEXT, clock, Counts().system, print)
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
    sender = Sender(CONTEXT, clock, Counts().system, print)
    calm: Any = Stream(PublicationState.ACTIVE)
    other: Any = Stream(PublicationState.ACTIVE)
    local: Any = Stream(PublicationState.ACTIVE)
    calm.is_calm, local.quiet = True, None
    for stream in (calm, other, local):
        sender.on_activity(stream)
    await sender.do_work(clock.ns)
    for _ in range(2):
        clock.ns += SECOND // 10
        assert await sender.do_work(clock.ns) == clock.ns + SECOND // 10
    assert calm.times_ns == [SECOND]
    assert calm.beat_times_ns == [clock.ns - SECOND // 10, clock.ns]
    assert other.times_ns == local.times_ns == [SECOND, *calm.beat_times_ns]


async def test_more_heartbeats_than_one_cycle_may_have_leave_in_the_next() -> None:
    clock = SetClock()
    sender = Sender(CONTEXT, clock, Counts().system, print)
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


@pytest.mark.parametrize("is_offered", [True, False])
async def test_one_that_fails_without_a_poll_ends_and_costs_the_others_nothing(
    is_offered: bool,  # noqa: FBT001 - what is tried
) -> None:
    clock, done, counts = SetClock(), list[Any](), Counts()
    sender = Sender(CONTEXT, clock, counts.system, done.append)
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


async def test_what_a_socket_brought_is_shown_without_a_poll_where_that_is_all() -> None:
    clock = SetClock()
    receiver = Receiver(CONTEXT, clock, Counts().system, Nobody())
    calm: Any = Stream(ImageState.ACTIVE)
    other: Any = Stream(ImageState.ACTIVE)
    gone: Any = Stream(ImageState.ACTIVE)
    calm.is_calm = gone.is_calm = True
    async with running(receiver):
        receiver.on_reading(True)
        for image in (calm, other, calm, gone):
            receiver.on_arrival(image)
        receiver.remove(gone)
        receiver.on_reading(False)
        assert calm.calm_times_ns == other.times_ns == [SECOND]
        assert calm.times_ns == gone.calm_times_ns == []
        for _ in range(3):
            await asyncio.sleep(0)
        clock.ns += SECOND // 10 + 1
        receiver.on_reading(True)
        for image in (calm, other):
            receiver.on_arrival(image)
        receiver.on_reading(False)
        assert calm.calm_times_ns == [SECOND, clock.ns], "also when the agent is late"
        assert len(other.times_ns) == 1, "which has to find out first what it has missed"
        for _ in range(3):
            await asyncio.sleep(0)
        assert other.times_ns == [SECOND, clock.ns]
        assert calm.times_ns == []
        receiver.on_arrival(calm)
        for _ in range(3):
            await asyncio.sleep(0)
        assert calm.times_ns == [clock.ns], "what comes by itself waits for a turn"


async def test_what_a_socket_brought_is_polled_when_it_was_read() -> None:
    clock, counts = SetClock(), Counts()
    receiver = Receiver(CONTEXT, clock, counts.system, Nobody())
    image: Any = Stream(ImageState.ACTIVE)
    async with running(receiver):
        receiver.on_activity(image)
        for _ in range(3):
            await asyncio.sleep(0)
        assert image.times_ns == [SECOND]
        receiver.on_reading(True)
        for length in (100, 28):
            receiver.on_received(length)
            receiver.on_activity(image)
        assert image.times_ns == [SECOND]
        receiver.on_reading(False)
        assert image.times_ns == [SECOND, SECOND]
        assert counts[SystemCounterId.BYTES_RECEIVED] == 128
        assert receiver.may_act(clock.ns), "and it has slept all the while"


async def test_a_receiver_that_is_late_is_woken_and_not_acted_for() -> None:
    clock = SetClock()
    receiver = Receiver(CONTEXT, clock, Counts().system, Nobody())
    image: Any = Stream(ImageState.ACTIVE)
    async with running(receiver):
        receiver.on_activity(image)
        for _ in range(3):
            await asyncio.sleep(0)
        clock.ns += SECOND
        receiver.on_reading(True)
        receiver.on_activity(image)
        receiver.on_reading(False)
        assert len(image.times_ns) == 1
        assert not receiver.may_act(clock.ns)


async def test_whom_a_socket_was_about_is_polled_when_it_was_read_and_once() -> None:
    clock = SetClock()
    sender = Sender(CONTEXT, clock, Counts().system, print)
    stream: Any = Stream(PublicationState.ACTIVE)
    other: Any = Stream(PublicationState.ACTIVE)
    async with running(sender):
        sender.on_activity(stream)
        for _ in range(3):
            await asyncio.sleep(0)
        sender.on_reading(True)
        for publication in (stream, other, stream):
            sender.on_activity(publication)
        assert stream.times_ns == [SECOND]
        sender.on_reading(False)
        assert stream.times_ns == [SECOND, SECOND]
        assert other.times_ns == [SECOND]
        assert sender.may_act(clock.ns), "and it has slept all the while"
        sender.on_reading(True)
        sender.on_reading(False)
        assert len(stream.times_ns) == 2, "what was for nobody costs nobody a poll"
        clock.ns += SECOND // 10 + 1
        sender.on_reading(True)
        sender.on_activity(stream)
        sender.on_reading(False)
        assert len(stream.times_ns) == 2, "late, it has to find out first what it has missed"
        for _ in range(3):
            await asyncio.sleep(0)
        assert stream.times_ns[2:] == [clock.ns]


async def test_publications_that_have_more_to_send_when_a_socket_was_read_go_on_next_turn() -> None:
    clock = SetClock()
    sender = Sender(CONTEXT, clock, Counts().system, print)
    stream: Any = Stream(PublicationState.ACTIVE)
    async with running(sender):
        await asleep(clock, sender, stream)
        stream.sleep_ns = 0
        sender.on_reading(True)
        sender.on_activity(stream)
        sender.on_reading(False)
        count = len(stream.times_ns)
        assert 2 <= count <= 10, "a few rounds, and then the others have theirs"
        stream.sleep_ns = SECOND // 10
        for _ in range(3):
            await asyncio.sleep(0)
        assert len(stream.times_ns) == count + 1


async def test_what_was_read_is_reported_at_once_or_by_a_poll() -> None:
    clock = SetClock()
    receiver = Receiver(CONTEXT, clock, Counts().system, Nobody())
    image: Any = Stream(ImageState.ACTIVE)
    image.is_calm = True
    async with running(receiver):
        receiver.on_activity(image)
        for _ in range(3):
            await asyncio.sleep(0)
        receiver.on_consumed(image)
        assert image.calm_times_ns == [SECOND]
        assert receiver.may_act(clock.ns), "nobody was woken for it"
        image.is_calm = False
        receiver.on_consumed(image)
        assert not receiver.may_act(clock.ns)
        for _ in range(3):
            await asyncio.sleep(0)
        assert image.times_ns == [SECOND, SECOND]
        image.is_calm = True
        clock.ns += SECOND
        receiver.on_consumed(image)
        assert len(image.calm_times_ns) == 1, "late, it has to find out first what it has missed"


async def test_work_that_was_done_when_a_socket_was_read_counts_as_a_cycle() -> None:
    def work() -> None:
        clock.ns += SECOND // 20

    clock, counts = SetClock(), Counts()
    publication: Any = Stream(PublicationState.ACTIVE)
    image: Any = Stream(ImageState.ACTIVE)
    publication.on_poll = image.on_poll = work
    sender = Sender(CONTEXT, clock, counts.system, print)
    receiver = Receiver(CONTEXT, clock, counts.system, Nobody())
    async with running(sender), running(receiver):
        sender.on_reading(True)
        sender.on_activity(publication)
        sender.on_reading(False)
        assert counts[SystemCounterId.SENDER_MAX_CYCLE_TIME] == SECOND // 20
        assert counts[SystemCounterId.RECEIVER_MAX_CYCLE_TIME] == 0
        receiver.on_reading(True)
        receiver.on_activity(image)
        receiver.on_reading(False)
        assert counts[SystemCounterId.RECEIVER_MAX_CYCLE_TIME] == SECOND // 20
