"""Close in any order, from any task, twice, mid-offer and mid-iteration; and nothing is left."""

from __future__ import annotations

import asyncio
import gc
import itertools
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

import aeron_async as aa
from tests.drivers import ERROR, STARTING, caught_up, embedded_only

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

STREAM_ID = 1001


def sockets() -> set[str]:
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            found.add(str(entry.readlink()))
        except OSError:
            continue
    return {name for name in found if name.startswith("socket:")}


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
async def test_anything_may_be_closed_in_any_order_while_all_of_it_waits(
    order: tuple[int, ...], context: aa.DriverContext, channel: str
) -> None:
    before_tasks, before_sockets = asyncio.all_tasks(), sockets()
    driver = aa.MediaDriver.launch(context)
    await driver.start()
    aeron = aa.Aeron.connect(driver)
    await aeron.start()
    subscription = await aeron.add_subscription(channel, STREAM_ID)
    publication = await aeron.add_publication(channel, STREAM_ID)
    await publication.wait_connected(timeout=5)
    await subscription.wait_connected(timeout=5)

    async def offer_for_ever() -> None:
        while True:
            await publication.offer(bytes(1000))

    async def read_one_and_stop() -> int:
        count = 0
        async for _ in subscription:
            count += 1
        return count

    offering = asyncio.create_task(offer_for_ever())
    reading = asyncio.create_task(read_one_and_stop())
    events = asyncio.create_task(anext_until_end(subscription))
    while subscription.images[0].position < 10_000:
        await asyncio.sleep(0)
    closers: list[Callable[[], Awaitable[None]]] = [
        publication.aclose,
        subscription.aclose,
        aeron.aclose,
        driver.aclose,
    ]
    for index in order:
        await asyncio.create_task(closers[index]())  # type: ignore[arg-type]
        await closers[index]()
    with pytest.raises(aa.ClosedError):
        await offering
    assert await reading > 0
    assert await events >= 1
    for closer in closers:
        await closer()
    assert publication.is_closed
    assert subscription.is_closed
    assert aeron.is_closed
    assert driver.is_closed
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before_tasks
    assert sockets() == before_sockets


async def anext_until_end(subscription: aa.Subscription) -> int:
    return len([event async for event in subscription.image_events()])


async def test_late_calls_say_that_it_is_closed(
    aeron: aa.Aeron, publication: aa.Publication, subscription: aa.Subscription, channel: str
) -> None:
    claim = publication.try_claim(10)
    assert isinstance(claim, aa.BufferClaim)
    publication.close()
    subscription.close()
    with pytest.raises(aa.ClosedError, match="before its claim was finished"):
        claim.commit()
    with pytest.raises(aa.ClosedError):
        await publication.offer(b"x")
    with pytest.raises(aa.ClosedError):
        publication.try_offer(b"x")
    with pytest.raises(aa.ClosedError):
        publication.try_claim(1)
    with pytest.raises(aa.ClosedError):
        await publication.wait_connected()
    with pytest.raises(aa.ClosedError):
        _ = publication.position
    with pytest.raises(aa.ClosedError):
        _ = publication.position_limit
    assert not publication.is_connected
    with pytest.raises(aa.ClosedError):
        subscription.poll(print)
    with pytest.raises(aa.ClosedError):
        await subscription.wait_connected()
    with pytest.raises(StopAsyncIteration):
        await anext(subscription)
    assert [event async for event in subscription.image_events()] == []
    assert "closed" in repr(publication)
    assert "closed" in repr(subscription)
    await aeron.aclose()
    with pytest.raises(aa.ClosedError):
        await aeron.add_publication(channel, STREAM_ID)
    with pytest.raises(aa.ClosedError):
        await aeron.start()


async def test_an_image_outlives_nothing_but_its_last_words(
    publication: aa.Publication, subscription: aa.Subscription
) -> None:
    await publication.offer(b"last words")
    assert (await anext(subscription)).data == b"last words"
    (image,) = subscription.images
    subscription.close()
    assert image.is_closed
    assert image.poll(print) == 0
    assert image._read(1) is None
    assert image.position <= 64
    assert not image.is_end_of_stream
    assert "closed" in repr(image)
    with pytest.raises(StopAsyncIteration):
        await anext(image)


async def test_what_was_offered_before_closing_is_delivered(
    context: aa.DriverContext, channel: str
) -> None:
    async with aa.Aeron.connect(context=context) as receiving:
        subscription = await receiving.add_subscription(channel, STREAM_ID)
        async with aa.Aeron.connect(context=context) as sending:
            publication = await sending.add_publication(channel, STREAM_ID)
            await publication.offer_many([b"%d" % number for number in range(100)])
            collecting = asyncio.create_task(collect(subscription, 100))
        assert await collecting == [b"%d" % number for number in range(100)]


async def collect(subscription: aa.Subscription, count: int) -> list[bytes]:
    found: list[bytes] = []
    async for message in subscription:
        found.append(message.data)
        if len(found) == count:
            break
    return found


async def test_closing_does_not_wait_for_ever_for_a_subscriber_that_does_not_read(
    channel: str,
) -> None:
    context = aa.DriverContext(term_buffer_length=64 * 1024, close_linger_timeout_ns=50_000_000)
    async with aa.Aeron.connect(context=context) as receiving:
        await receiving.add_subscription(channel, STREAM_ID)
        sending = aa.Aeron.connect(context=context)
        await sending.start()
        publication = await sending.add_publication(channel, STREAM_ID)
        while publication.try_offer(bytes(1000)) is not aa.OfferOutcome.BACK_PRESSURED:
            await asyncio.sleep(0)
        with capture_logs() as lines:
            await sending.aclose()
        assert sending.driver.is_closed
    (line,) = [each for each in lines if each["event"] == "driver_closed_before_drained"]
    assert line["publication_count"] == 1
    assert line["publications"] == f"{channel} stream {STREAM_ID}"


async def test_entering_and_leaving_in_different_tasks_works(channel: str) -> None:
    driver = aa.MediaDriver.launch()
    aeron = await asyncio.create_task(enter(driver))
    publication = await asyncio.create_task(add(aeron, channel))
    await asyncio.create_task(publication.aclose())
    await asyncio.create_task(aeron.aclose())
    await asyncio.create_task(driver.aclose())


async def enter(driver: aa.MediaDriver) -> aa.Aeron:
    await driver.__aenter__()
    return await aa.Aeron.connect(driver).__aenter__()


async def add(aeron: aa.Aeron, channel: str) -> aa.Publication:
    return await aeron.add_publication(channel, STREAM_ID)


@embedded_only(ERROR)
@pytest.mark.parametrize("agent", ["sender", "receiver", "conductor"])
async def test_a_failed_agent_closes_the_driver_and_tells_everybody_why(
    channel: str, agent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(now_ns: int) -> int:
        raise ZeroDivisionError

    def worse(publication: object) -> None:
        raise ZeroDivisionError

    driver = aa.MediaDriver.launch()
    await driver.start()
    aeron = aa.Aeron.connect(driver)
    await aeron.start()
    subscription = await aeron.add_subscription(channel, STREAM_ID)
    publication = await aeron.add_publication(channel, STREAM_ID + 1)
    waiting = asyncio.ensure_future(anext(subscription))
    offering = asyncio.create_task(publication.offer(b"x" * 1000))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    conductor = driver.conductor
    failing = conductor if agent == "conductor" else getattr(conductor, agent)
    monkeypatch.setattr(failing, "do_work", broken)
    # Whatever else fails on the way down, everybody hears of it.
    monkeypatch.setattr(conductor.sender, "on_activity", worse)
    failing.wake()
    with pytest.raises(aa.ClosedError) as caught:
        await waiting
    assert isinstance(caught.value.__cause__, aa.DriverError)
    assert isinstance(caught.value.__cause__.__cause__, ZeroDivisionError)
    with pytest.raises(aa.ClosedError) as caught:
        await offering
    assert isinstance(caught.value.__cause__, aa.DriverError)
    with pytest.raises(aa.ClosedError, match="ZeroDivisionError"):
        _ = driver.conductor
    assert aeron.is_closed
    with pytest.raises(aa.DriverError, match=f"aeron-{agent} failed"):
        await driver.__aexit__(None, None, None)


@embedded_only(STARTING)
async def test_a_driver_starts_once_and_serves_only_while_it_runs(channel: str) -> None:
    driver = aa.MediaDriver.launch()
    with pytest.raises(aa.ClosedError, match="has not been started"):
        await aa.Aeron.connect(driver).start()
    with pytest.raises(aa.ClosedError, match="before it is started"):
        _ = driver.counters
    await driver.start()
    with pytest.raises(aa.ClosedError, match="starts once"):
        await driver.start()
    await driver.aclose()
    await driver.aclose()
    with pytest.raises(aa.ClosedError):
        await aa.Aeron.connect(driver).start()
    unused = aa.MediaDriver.launch()
    await unused.aclose()
    assert unused.is_closed
    with pytest.raises(aa.ClosedError, match="starts once"):
        await unused.start()


async def test_a_context_and_a_driver_exclude_each_other(driver: aa.MediaDriver) -> None:
    with pytest.raises(aa.ConfigurationError, match=r"MediaDriver\.launch"):
        aa.Aeron.connect(driver, context=driver.context)


def test_another_event_loop_is_told_so() -> None:
    claims: list[aa.BufferClaim] = []

    async def make() -> tuple[aa.Aeron, aa.Publication, aa.Subscription]:
        aeron = aa.Aeron.connect()
        await aeron.start()
        channel = "aeron:udp?endpoint=127.0.0.1:0"
        subscription = await aeron.add_subscription(channel, STREAM_ID)
        publication = await aeron.add_publication(
            f"aeron:udp?endpoint={subscription.local_address}", STREAM_ID
        )
        await publication.wait_connected(timeout=5)
        claims.append(await publication.claim(5))
        return aeron, publication, subscription

    async def finish() -> None:
        claims[0].data[:] = b"later"
        assert claims[0].commit() > 0

    async def misuse(
        aeron: aa.Aeron, publication: aa.Publication, subscription: aa.Subscription
    ) -> None:
        for finish in (claims[0].commit, claims[0].abort):
            with pytest.raises(aa.WrongLoopError):
                finish()
        with pytest.raises(aa.WrongLoopError):
            await publication.offer(b"x")
        with pytest.raises(aa.WrongLoopError):
            await anext(subscription)
        with pytest.raises(aa.WrongLoopError):
            await aeron.add_publication("aeron:udp?endpoint=127.0.0.1:9", STREAM_ID)
        with pytest.raises(aa.WrongLoopError):
            subscription.poll(print)
        with pytest.raises(aa.WrongLoopError):
            aiter(subscription)
        for closable in (aeron, publication, subscription):
            with pytest.raises(aa.WrongLoopError, match="another event loop"):
                await closable.aclose()

    first, second = asyncio.new_event_loop(), asyncio.new_event_loop()
    try:
        made = first.run_until_complete(make())
        second.run_until_complete(misuse(*made))
        first.run_until_complete(finish())
        # With no loop running, the sender could not be told either.
        for added in made[1:]:
            with pytest.raises(aa.WrongLoopError):
                added.close()
        assert not any(each.is_closed for each in made)
        first.run_until_complete(made[0].aclose())
        assert all(each.is_closed for each in made)
        for added in made[1:]:
            added.close()
    finally:
        first.close()
        second.close()


def test_a_loop_that_ends_without_closing_leaves_no_socket() -> None:
    async def forget_everything() -> None:
        aeron = await aa.Aeron.connect()
        subscription = await aeron.add_subscription("aeron:udp?endpoint=127.0.0.1:0", STREAM_ID)
        await aeron.add_publication(f"aeron:udp?endpoint={subscription.local_address}", STREAM_ID)

    before = sockets()
    with pytest.warns(ResourceWarning, match="unclosed"):
        asyncio.run(forget_everything())
    gc.collect()
    assert sockets() == before


async def test_a_cancelled_add_leaves_nothing_registered(
    aeron: aa.Aeron, driver: aa.MediaDriver, channel: str
) -> None:
    before = sockets()
    for turns in range(12):
        adding = asyncio.create_task(aeron.add_subscription(channel, STREAM_ID))
        for _ in range(turns):
            await asyncio.sleep(0)
        adding.cancel()
        try:
            subscription = await adding
        except asyncio.CancelledError:
            pass
        else:
            await subscription.aclose()
        adding_publication = asyncio.create_task(aeron.add_publication(channel, STREAM_ID))
        for _ in range(turns):
            await asyncio.sleep(0)
        adding_publication.cancel()
        try:
            publication = await adding_publication
        except asyncio.CancelledError:
            pass
        else:
            await publication.aclose()
    while sockets() - before:
        await driver.conductor.drain()
        await asyncio.sleep(0)
    labels = [record.label for record in driver.counters.snapshot()]
    assert not [label for label in labels if label.startswith(("pub-lmt", "rcv-channel"))]


async def test_closing_the_driver_answers_requests_under_way(channel: str) -> None:
    driver = aa.MediaDriver.launch()
    await driver.start()
    aeron = aa.Aeron.connect(driver)
    await aeron.start()
    adding = [
        asyncio.create_task(aeron.add_subscription(channel, stream_id)) for stream_id in range(5)
    ]
    await asyncio.sleep(0)
    await driver.aclose()
    results = await asyncio.gather(*adding, return_exceptions=True)
    assert all(isinstance(result, aa.ClosedError) for result in results)


async def test_closing_the_client_answers_requests_under_way(
    driver: aa.MediaDriver, channel: str
) -> None:
    aeron = aa.Aeron.connect(driver)
    await aeron.start()
    adding = [
        asyncio.create_task(aeron.add_publication(channel, stream_id)) for stream_id in range(5)
    ]
    await asyncio.sleep(0)
    await aeron.aclose()
    results = await asyncio.gather(*adding, return_exceptions=True)
    assert all(isinstance(result, aa.ClosedError) for result in results)


@pytest.mark.parametrize("turns", range(6))
async def test_a_driver_that_closes_while_streams_are_added_refuses_or_adds_each(
    turns: int, unused_udp_port: int
) -> None:
    async def waited(opening: Awaitable[object]) -> object:
        return await opening

    driver = aa.MediaDriver.launch()
    async with driver, aa.Aeron.connect(driver) as aeron:
        channel = f"aeron:udp?endpoint=127.0.0.1:{unused_udp_port}"
        adding = [
            asyncio.create_task(waited(each))
            for each in (
                aeron.add_publication(channel, 1),
                aeron.add_exclusive_publication(channel, 1),
                aeron.add_subscription(channel, 1),
            )
        ]
        for _ in range(turns):
            await asyncio.sleep(0)
        await driver.abort()
        results = await asyncio.gather(*adding, return_exceptions=True)
    wanted = (aa.Publication, aa.ExclusivePublication, aa.Subscription)
    for result, kind in zip(results, wanted, strict=True):
        assert isinstance(result, (kind, aa.ClosedError))


PUBLICATION_CLOSED = "the publication on .* stream 1001 is closed: "
SUBSCRIPTION_CLOSED = "the subscription on .* stream 1001 is closed: "


async def test_the_error_says_that_this_program_closed_it(
    publication: aa.Publication, subscription: aa.Subscription
) -> None:
    claim = publication.try_claim(10)
    assert isinstance(claim, aa.BufferClaim)
    publication.close()
    subscription.close()
    with pytest.raises(aa.ClosedError, match=PUBLICATION_CLOSED + "this program closed it"):
        await publication.offer(b"x")
    with pytest.raises(aa.ClosedError, match=SUBSCRIPTION_CLOSED + "this program closed it"):
        subscription.poll(print)
    with pytest.raises(aa.ClosedError, match="claim was finished: this program closed it"):
        claim.commit()


async def test_the_error_says_that_the_client_was_closed(
    aeron: aa.Aeron, publication: aa.Publication, subscription: aa.Subscription
) -> None:
    await aeron.aclose()
    with pytest.raises(aa.ClosedError, match=PUBLICATION_CLOSED + "its client was closed"):
        publication.try_offer(b"x")
    with pytest.raises(aa.ClosedError, match=SUBSCRIPTION_CLOSED + "its client was closed"):
        await subscription.wait_connected()
    with pytest.raises(aa.ClosedError, match="the client is closed: this program closed it"):
        _ = aeron.client_id


async def test_the_error_says_that_the_driver_was_closed(
    context: aa.DriverContext, channel: str
) -> None:
    driver = await aa.MediaDriver.launch(context)
    aeron = await aa.Aeron.connect(driver)
    publication = await aeron.add_publication(channel, STREAM_ID)
    subscription = await aeron.add_subscription(channel, STREAM_ID)
    await driver.aclose()
    with pytest.raises(aa.ClosedError, match=PUBLICATION_CLOSED + "its media driver was closed"):
        publication.try_offer(b"x")
    with pytest.raises(aa.ClosedError, match=SUBSCRIPTION_CLOSED + "its media driver was closed"):
        subscription.poll(print)
    with pytest.raises(aa.ClosedError, match="the client is closed: its media driver was closed"):
        _ = aeron.client_id


async def test_an_iteration_ends_if_its_subscription_is_closed_and_says_by_whom(
    aeron: aa.Aeron, publication: aa.Publication, subscription: aa.Subscription
) -> None:
    await publication.offer(b"last words")
    assert (await anext(subscription)).data == b"last words"
    (image,) = subscription.images
    await aeron.aclose()
    assert [message async for message in subscription] == []
    assert [messages async for messages in subscription.batches()] == []
    assert await anext(subscription, None) is None
    with pytest.raises(StopAsyncIteration, match=r"stream 1001 .* its client was closed"):
        await anext(subscription)
    with pytest.raises(StopAsyncIteration, match="the subscription is closed; its client was"):
        await anext(image)


async def test_an_iteration_of_an_image_ends_with_the_stream_and_says_so(
    publication: aa.Publication, subscription: aa.Subscription
) -> None:
    await publication.offer(b"last words")
    assert (await anext(subscription)).data == b"last words"
    (image,) = subscription.images
    publication.close()
    with pytest.raises(StopAsyncIteration, match=f"session {image.session_id}, .* has ended"):
        await anext(image)


async def test_what_is_offered_before_the_goodbye_arrives_reaches_nobody(
    aeron: aa.Aeron, channel: str, publication: aa.Publication, subscription: aa.Subscription
) -> None:
    subscription.close()
    assert await publication.offer(b"to nobody", timeout=5) > 0
    await publication.drain(timeout=5)
    while publication.is_connected:
        await asyncio.sleep(0)
    assert publication.try_offer(b"refused") is aa.OfferOutcome.NOT_CONNECTED
    later = await aeron.add_subscription(channel, STREAM_ID)
    await publication.offer(b"to the next", timeout=5)
    assert (await anext(later)).data == b"to the next"


async def test_over_ipc_the_publication_notices_at_once(aeron: aa.Aeron) -> None:
    subscription = await aeron.add_subscription("aeron:ipc", STREAM_ID)
    publication = await aeron.add_publication("aeron:ipc", STREAM_ID)
    subscription.close()
    await caught_up(aeron)
    assert publication.try_offer(b"refused") is aa.OfferOutcome.NOT_CONNECTED
