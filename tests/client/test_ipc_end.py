"""How IPC streams end: closed, revoked, left, or stopped, in any order; and nothing is left."""

from __future__ import annotations

import asyncio
import itertools

import pytest

import aeron_async as aa
from aeron_async.client.image import ImageEventKind
from tests.client.local import IPC, STREAM_ID, publications, take, until
from tests.drivers import ERROR, caught_up, embedded_only, stream_counter_count
from tests.logs import captured_logs


@pytest.fixture
async def subscription(aeron: aa.Aeron) -> aa.Subscription:
    return await aeron.add_subscription(IPC, STREAM_ID)


@pytest.fixture
async def publication(aeron: aa.Aeron, subscription: aa.Subscription) -> aa.Publication:
    return await aeron.add_publication(IPC, STREAM_ID)


async def test_a_closed_publication_drains_and_its_image_goes(
    aeron: aa.Aeron, publication: aa.Publication, subscription: aa.Subscription
) -> None:
    events = subscription.image_events()
    assert (await anext(events)).kind is ImageEventKind.AVAILABLE
    await publication.offer(b"last words", timeout=5)
    await publication.aclose()
    await caught_up(aeron)
    (image,) = subscription.images
    assert image.end_of_stream_position == 64
    assert len(publications(aeron)) == 1
    assert await take(subscription, 1) == [b"last words"]
    assert (await anext(events)).kind is ImageEventKind.UNAVAILABLE
    assert image.is_end_of_stream
    assert image.is_closed
    await until(lambda: not publications(aeron))


async def test_who_comes_while_a_publication_drains_still_gets_what_is_left(
    aeron: aa.Aeron, publication: aa.Publication, subscription: aa.Subscription
) -> None:
    await publication.offer(b"left", timeout=5)
    await publication.aclose()
    late = await aeron.add_subscription(IPC, STREAM_ID)
    assert await take(late, 1) == [b"left"]
    assert await take(subscription, 1) == [b"left"]
    await until(lambda: not publications(aeron))
    await until(lambda: late.images == subscription.images == ())


async def test_a_revoked_publication_takes_its_images_along_at_once(
    aeron: aa.Aeron, subscription: aa.Subscription
) -> None:
    publication = await aeron.add_exclusive_publication(IPC, STREAM_ID)
    await publication.offer(b"never read", timeout=5)
    (image,) = subscription.images
    await publication.aclose(revoke=True)
    await caught_up(aeron)
    assert image.is_closed
    assert subscription.images == ()
    await until(lambda: not publications(aeron))


async def test_a_client_that_goes_takes_its_publications_and_subscriptions_along(
    driver: aa.MediaDriver, aeron: aa.Aeron
) -> None:
    before = len(list(aeron.counters))
    async with aa.Aeron.connect(driver) as other:
        publication = await other.add_publication(IPC, STREAM_ID)
        subscription = await aeron.add_subscription(IPC, STREAM_ID)
        await other.add_subscription(IPC, STREAM_ID)
        await publication.offer(b"from the other", timeout=5)
    assert await take(subscription, 1) == [b"from the other"]
    await until(lambda: not publications(aeron))
    assert len(list(aeron.counters)) == before


async def test_a_driver_that_closes_does_not_wait_for_readers_that_have_gone(
    context: aa.DriverContext,
) -> None:
    driver = aa.MediaDriver.launch(context)
    async with asyncio.timeout(5), driver, aa.Aeron.connect(driver) as aeron:
        await aeron.add_subscription(IPC, STREAM_ID)
        publication = await aeron.add_publication(IPC, STREAM_ID)
        await publication.offer(b"never read", timeout=5)
    assert driver.is_closed


async def test_a_driver_that_is_stopped_leaves_no_counters_of_streams(
    context: aa.DriverContext,
) -> None:
    driver = aa.MediaDriver.launch(context)
    await driver.start()
    before = stream_counter_count(driver)
    aeron = aa.Aeron.connect(driver)
    await aeron.start()
    subscription = await aeron.add_subscription(IPC, STREAM_ID)
    publication = await aeron.add_publication(IPC, STREAM_ID)
    await publication.offer(b"never read", timeout=5)
    await driver.abort()
    assert publication.is_closed
    assert subscription.is_closed
    assert stream_counter_count(driver) == before
    await aeron.aclose()


@embedded_only(ERROR)
async def test_a_driver_that_fails_to_let_its_clients_go_frees_their_positions_all_the_same(
    context: aa.DriverContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = aa.MediaDriver.launch(context)
    await driver.start()
    before = stream_counter_count(driver)
    aeron = aa.Aeron.connect(driver)
    await aeron.start()
    await aeron.add_subscription(IPC, STREAM_ID)
    await aeron.add_publication(IPC, STREAM_ID)

    def fail(error: Exception | None) -> None:
        raise OSError(error)

    monkeypatch.setattr(driver.conductor, "release_clients", fail)
    with captured_logs() as lines:
        await driver.abort()
    assert [line["event"] for line in lines if line["log_level"] == "error"] == ["closing_failed"]
    assert stream_counter_count(driver) == before


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
async def test_anything_may_be_closed_in_any_order_while_all_of_it_waits(
    order: tuple[int, ...], context: aa.DriverContext
) -> None:
    before_tasks = asyncio.all_tasks()
    driver = aa.MediaDriver.launch(context)
    await driver.start()
    before = stream_counter_count(driver)
    aeron = aa.Aeron.connect(driver)
    await aeron.start()
    subscription = await aeron.add_subscription(IPC, STREAM_ID)
    publication = await aeron.add_publication(IPC, STREAM_ID)

    async def offer_for_ever() -> None:
        while True:
            await publication.offer(bytes(1_000))

    async def read_on() -> int:
        return len([message async for message in subscription])

    offering, reading = asyncio.create_task(offer_for_ever()), asyncio.create_task(read_on())
    await until(lambda: subscription.images[0].position > 100_000)
    closers = (publication.aclose, subscription.aclose, aeron.aclose, driver.aclose)
    for index in order:
        async with asyncio.timeout(5):
            await closers[index]()
            await closers[index]()
    with pytest.raises(aa.ClosedError):
        await offering
    assert await reading > 90
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before_tasks
    assert stream_counter_count(driver) == before
