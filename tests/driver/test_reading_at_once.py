"""What is done at once with what a socket has just brought."""

from __future__ import annotations

import asyncio
from typing import Any

from aeron_async.driver.core.image_state import ImageState
from aeron_async.driver.core.publication import PublicationState
from aeron_async.driver.core.system_counters import SystemCounterId
from aeron_async.driver.receiver import Receiver
from aeron_async.driver.sender import Sender
from tests.driver.agents import SECOND, Nobody, SetClock, Stream, asleep, driver_clock, running
from tests.driver.fakes import CONTEXT, Counts


async def test_what_a_socket_brought_is_shown_without_a_poll_where_that_is_all() -> None:
    clock = SetClock()
    receiver = Receiver(CONTEXT, driver_clock(clock), Counts().system, Nobody())
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
    receiver = Receiver(CONTEXT, driver_clock(clock), counts.system, Nobody())
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
    receiver = Receiver(CONTEXT, driver_clock(clock), Counts().system, Nobody())
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
    sender = Sender(CONTEXT, driver_clock(clock), Counts().system, print)
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
    sender = Sender(CONTEXT, driver_clock(clock), Counts().system, print)
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
    receiver = Receiver(CONTEXT, driver_clock(clock), Counts().system, Nobody())
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
    sender = Sender(CONTEXT, driver_clock(clock), counts.system, print)
    receiver = Receiver(CONTEXT, driver_clock(clock), counts.system, Nobody())
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
