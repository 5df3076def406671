"""One timer watches the waits of a client: short waits leave nothing, long ones one line."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import attrs
import pytest

import aeron_async as aa
from aeron_async.client.waiters import Wait
from aeron_async.testing import World, simulate
from tests.drivers import CLOCK, embedded_only
from tests.logs import captured_logs

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aeron_async.waits import Why

pytestmark = embedded_only(CLOCK)

HERE = "aeron:udp?endpoint=127.0.0.1:20121"
STREAM_ID = 1001
SMALL = aa.DriverContext(term_buffer_length=64 * 1024, ipc_term_buffer_length=64 * 1024)


def lines_of(story: Callable[[World, aa.Aeron], Awaitable[None]], **settings: Any) -> list[Any]:
    """Return operation, time and cause of the lines that a story of one client has written."""

    async def main(world: World) -> None:
        async with world.host("alice").aeron(attrs.evolve(SMALL, **settings)) as aeron:
            await story(world, aeron)
        assert not aeron._conductor.waits.has_timer

    with captured_logs() as lines:
        simulate(main)
    return [
        (line["operation"], line["seconds"], line["cause"])
        for line in lines
        if line["event"] == "wait_lasted_long"
    ]


async def connected(aeron: aa.Aeron) -> tuple[aa.Publication, aa.Subscription]:
    subscription = await aeron.add_subscription(HERE, STREAM_ID)
    publication = await aeron.add_publication(HERE, STREAM_ID)
    await publication.wait_connected(timeout=1)
    await subscription.wait_connected(timeout=1)
    return publication, subscription


def test_waits_that_end_in_time_leave_no_timer_and_no_line() -> None:
    async def story(world: World, aeron: aa.Aeron) -> None:
        publication, subscription = await connected(aeron)
        for _ in range(300):
            offering = asyncio.create_task(publication.offer_many([bytes(1024)] * 64))
            count = 0
            async for _message in subscription:
                count += 1
                if count == 64:
                    break
            await offering
        await world.sleep(2.1)
        assert not aeron._conductor.waits.has_timer

    assert lines_of(story) == []


def test_iterating_a_stream_that_has_an_image_and_no_data_sets_no_timer() -> None:
    async def story(world: World, aeron: aa.Aeron) -> None:
        _, subscription = await connected(aeron)
        await world.sleep(3)
        waiting = asyncio.ensure_future(anext(subscription))
        await world.sleep(10)
        assert not aeron._conductor.waits.has_timer
        waiting.cancel()

    assert lines_of(story) == []


def test_a_wait_of_ten_minutes_is_one_line() -> None:
    async def story(world: World, aeron: aa.Aeron) -> None:
        publication = await aeron.add_publication(HERE, STREAM_ID)
        tasks = [asyncio.create_task(publication.offer(b"x")) for _ in range(100)]
        await world.sleep(600)
        assert not aeron._conductor.waits.has_timer
        subscription = await aeron.add_subscription(HERE, STREAM_ID)
        for _ in range(100):
            await anext(subscription)
        await asyncio.gather(*tasks)
        await world.sleep(2.1)
        assert not aeron._conductor.waits.has_timer

    assert lines_of(story) == [("offer", 2.0, "no_answer")]


def test_a_second_wait_that_lasts_is_a_second_line() -> None:
    async def story(world: World, aeron: aa.Aeron) -> None:
        publication, subscription = await connected(aeron)
        for _ in range(2):
            filled = publication.position + 80 * 1024
            while publication.position < filled:
                offering = asyncio.ensure_future(publication.offer(bytes(1024)))
                await world.sleep(0.01)
                if not offering.done():
                    await world.sleep(2.5)
                    async for message in subscription:
                        if message.position >= publication.position and offering.done():
                            break
                    await offering

    assert lines_of(story) == [("offer", 2.0, "back_pressured")] * 2


def test_whoever_waits_behind_one_that_was_logged_is_logged_in_turn() -> None:
    """The first is cancelled; the wait of the second began after the line was written."""

    async def story(world: World, aeron: aa.Aeron) -> None:
        publication = await aeron.add_publication(HERE, STREAM_ID)
        first = asyncio.create_task(publication.offer(b"x"))
        await world.sleep(2.5)
        second = asyncio.create_task(publication.offer(b"x"))
        await world.sleep(0.5)
        first.cancel()
        await world.sleep(5)
        second.cancel()

    seconds = [each[1] for each in lines_of(story)]
    assert len(seconds) == 2
    assert seconds[0] == 2.0
    assert 2.0 <= seconds[1] <= 4.0


def test_iterating_without_an_image_is_logged_once_however_often_it_is_woken() -> None:
    async def story(world: World, aeron: aa.Aeron) -> None:
        subscription = await aeron.add_subscription(HERE, STREAM_ID)
        waiting = asyncio.ensure_future(anext(subscription))
        for _ in range(100):
            await world.sleep(0.1)
            subscription._progress.notify()
        waiting.cancel()

    assert lines_of(story) == [("anext", 2.0, "nothing_heard")]


def test_a_server_may_wait_in_silence() -> None:
    async def story(world: World, aeron: aa.Aeron) -> None:
        subscription = await aeron.add_subscription(HERE, STREAM_ID)
        subscription.logs_waits = False
        waiting = asyncio.ensure_future(anext(subscription))
        await world.sleep(10)
        assert not aeron._conductor.waits.has_timer
        waiting.cancel()

    assert lines_of(story) == []


@pytest.mark.parametrize(("hint_ns", "seconds"), [(0, []), (500_000_000, [0.5])])
def test_the_hint_is_a_setting(hint_ns: int, seconds: list[float]) -> None:
    async def story(world: World, aeron: aa.Aeron) -> None:
        publication = await aeron.add_publication(HERE, STREAM_ID)
        waiting = asyncio.create_task(publication.wait_connected())
        await world.sleep(10)
        waiting.cancel()

    found = lines_of(story, waiting_hint_ns=hint_ns)
    assert [each[1] for each in found] == seconds


def test_many_that_wait_at_once_are_counted_beyond_a_few_lines() -> None:
    async def main(world: World) -> None:
        async with world.host("alice").aeron(SMALL) as aeron:
            tasks = []
            for number in range(20):
                publication = await aeron.add_publication(HERE, STREAM_ID + number)
                tasks.append(asyncio.create_task(publication.offer(b"x")))
            await world.sleep(60)
            for task in tasks:
                task.cancel()

    with captured_logs() as lines:
        simulate(main)
    assert sum(line["event"] == "wait_lasted_long" for line in lines) == 8
    (more,) = [line for line in lines if line["event"] == "more_waits_lasted_long"]
    assert more["count"] == 12


def test_closing_the_client_ends_the_watch() -> None:
    async def story(world: World, aeron: aa.Aeron) -> None:
        publication = await aeron.add_publication(HERE, STREAM_ID)
        waiting = asyncio.create_task(publication.offer(b"x"))
        await world.sleep(1)
        await aeron.aclose()
        with pytest.raises(aa.ClosedError):
            await waiting
        await world.sleep(5)

    assert lines_of(story) == []


def test_a_wait_counts_only_since_the_last_image_has_gone() -> None:
    async def story(world: World, aeron: aa.Aeron) -> None:
        subscription = await aeron.add_subscription("aeron:ipc", STREAM_ID)
        reading = asyncio.create_task(anext(subscription))
        await world.sleep(1)
        publication = await aeron.add_publication("aeron:ipc", STREAM_ID)
        await world.sleep(60)
        publication.close()
        await world.sleep(8)
        reading.cancel()

    ((_, seconds, _),) = lines_of(story)
    assert seconds < 8


def test_image_events_without_an_image_are_logged_as_any_other_wait() -> None:
    """They were waited for in silence."""

    async def story(world: World, aeron: aa.Aeron) -> None:
        subscription = await aeron.add_subscription(HERE, STREAM_ID)
        events = subscription.image_events()
        waiting = asyncio.ensure_future(anext(events))
        await world.sleep(10)
        publication = await aeron.add_publication(HERE, STREAM_ID)
        assert (await waiting).kind is aa.ImageEventKind.AVAILABLE
        assert not aeron._conductor.waits.has_timer
        # An image is there, and nothing more to come: that is how it should be.
        waiting = asyncio.ensure_future(anext(events))
        await world.sleep(10)
        await publication.aclose()
        assert (await waiting).kind is aa.ImageEventKind.UNAVAILABLE
        waiting = asyncio.ensure_future(anext(events))
        await world.sleep(1)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)

    assert lines_of(story) == [("image_events", 2.0, "nothing_heard")]


def test_a_wait_that_cannot_be_explained_hides_no_other() -> None:
    """One that raised took the timer of all others with it."""

    class Broken:
        channel, stream_id = "broken", 1

        def _explain(self) -> Why:
            message = "no explanation"
            raise ValueError(message)

    def since() -> int:
        message = "no time"
        raise ValueError(message)

    async def main(world: World) -> None:
        async with world.host("alice").aeron(SMALL) as aeron:
            subscription = await aeron.add_subscription(HERE, STREAM_ID)
            now_ns = aeron._conductor.waits.now_ns()
            for _ in range(3):
                aeron._conductor.waits.begin(Wait(Broken(), "break", lambda: now_ns))
                aeron._conductor.waits.begin(Wait(Broken(), "lose", since))
            with pytest.raises(aa.AeronTimeoutError):
                await subscription.wait_connected(timeout=3)
            assert not aeron._conductor.waits.has_timer

    with captured_logs() as lines:
        simulate(main)
    told = [
        [line["operation"], line["cause"]] for line in lines if line["event"] == "wait_lasted_long"
    ]
    assert told == [["break", "unknown"]] * 3 + [["wait_connected", "nothing_heard"]]
    assert [line["event"] for line in lines].count("wait_not_explained") == 1
