"""Who may read, what counts as taken, and what happens when a handler ends it all."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING

import pytest

import aeron_async as aa
from tests.drivers import both_drivers

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = both_drivers

STREAM_ID = 1001


async def held(subscription: aa.Subscription, source: str) -> asyncio.Task[None]:
    """Return a task that has been given something and has not finished with it."""
    given = asyncio.Event()

    async def consume() -> None:
        if source == "batches":
            async for _ in subscription.batches():
                given.set()
                await asyncio.Event().wait()
        async for _ in subscription if source == "subscription" else subscription.images[0]:
            given.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(consume())
    await given.wait()
    return task


async def cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


@pytest.mark.parametrize("source", ["subscription", "image", "batches"])
@pytest.mark.parametrize("data", [b"", b"x"])
async def test_while_a_task_works_on_what_it_was_given_no_other_may_read(
    publication: aa.Publication, subscription: aa.Subscription, source: str, data: bytes
) -> None:
    await publication.offer(data)
    task = await held(subscription, source)
    await publication.offer(b"next")
    attempts: list[Callable[[], object]] = [
        lambda: aiter(subscription),
        lambda: aiter(subscription.images[0]),
        lambda: subscription.poll(print),
        lambda: subscription.images[0].poll(print),
    ]
    for attempt in attempts:
        with pytest.raises(aa.BusyError):
            attempt()
    with pytest.raises(aa.BusyError):
        await anext(subscription)
    with pytest.raises(aa.BusyError):
        await anext(subscription.batches())
    await cancel(task)
    expected = data if source == "batches" else b"next"
    assert (await anext(subscription)).data == expected


async def test_single_messages_may_be_asked_for_by_one_task_after_the_other(
    publication: aa.Publication, subscription: aa.Subscription
) -> None:
    await publication.offer_many([b"%d" % number for number in range(4)])
    found = [(await anext(subscription)).data]
    found += [(await asyncio.create_task(anext(subscription))).data for _ in range(2)]
    async for message in subscription:
        found.append(message.data)
        break
    assert found == [b"0", b"1", b"2", b"3"]


async def test_a_task_that_polled_last_holds_nothing(
    publication: aa.Publication, subscription: aa.Subscription
) -> None:
    await publication.offer(b"a")
    async for message in subscription:
        assert message.data == b"a"
        break
    await publication.offer(b"b")
    with pytest.raises(aa.BusyError):
        await asyncio.create_task(anext(subscription))
    subscription._begin_poll()
    assert (await asyncio.create_task(anext(subscription))).data == b"b"
    assert subscription.poll(print) == 0


async def test_a_second_consumer_after_the_end_is_told_of_the_end(
    publication: aa.Publication, subscription: aa.Subscription
) -> None:
    await publication.offer(b"x")
    task = await held(subscription, "subscription")
    subscription.close()
    with pytest.raises(StopAsyncIteration):
        await anext(subscription)
    await cancel(task)


async def test_a_batch_whose_loop_body_fails_comes_again(
    publication: aa.Publication, subscription: aa.Subscription
) -> None:
    await publication.offer_many([b"%d" % number for number in range(5)])

    taken_count = 0

    async def fail_at(data: bytes) -> None:
        nonlocal taken_count
        async for batch in subscription.batches(max_messages=2):
            if data in [message.data for message in batch]:
                raise ZeroDivisionError
            taken_count += len(batch)

    with pytest.raises(ZeroDivisionError):
        await asyncio.create_task(fail_at(b"2"))
    (image,) = subscription.images
    # The first may have come alone, and then the third came in one batch with the second.
    assert taken_count in {1, 2}
    assert image.position == 64 * taken_count
    rest = [(await anext(subscription)).data for _ in range(5 - taken_count)]
    assert rest == [b"%d" % number for number in range(taken_count, 5)]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await anext(subscription)
    assert image.position == publication.position


async def test_a_batch_that_another_read_has_put_back_is_not_taken_with_the_next(
    publication: aa.Publication, subscription: aa.Subscription
) -> None:
    await publication.offer_many([b"a", b"b", b"c"])
    batches = subscription.batches(max_messages=1)
    assert [message.data for message in await anext(batches)] == [b"a"]
    assert (await anext(subscription)).data == b"a"
    assert [message.data for message in await anext(batches)] == [b"b"]
    assert subscription.images[0].position == 64


@pytest.mark.parametrize("source", ["subscription", "image"])
async def test_a_handler_that_closes_the_subscription_is_not_called_again(
    aeron: aa.Aeron,
    channel: str,
    publication: aa.Publication,
    subscription: aa.Subscription,
    source: str,
) -> None:
    other = await aeron.add_exclusive_publication(channel, STREAM_ID)
    for each in (publication, other):
        await each.wait_connected(timeout=5)
        await each.offer_many([b"a", b"b", b"c"])
    while len(subscription.images) < 2:
        await asyncio.sleep(0)
    seen: list[bytes] = []

    def handler(payload: memoryview, header: aa.FragmentHeader) -> None:
        seen.append(bytes(payload))
        if len(seen) == 2:
            subscription.close()

    reader = subscription if source == "subscription" else subscription.images[0]
    images = subscription.images
    while len(seen) < 2:
        assert reader.poll(handler) in (0, 2)
        await asyncio.sleep(0)
    assert seen == [b"a", b"b"]
    assert [image.position for image in images] == [0, 0]


async def test_every_wait_lets_another_image_be_the_first(
    aeron: aa.Aeron, channel: str, subscription: aa.Subscription
) -> None:
    for _ in range(2):
        publication = await aeron.add_exclusive_publication(channel, STREAM_ID)
        await publication.offer_many([b"%d" % publication.session_id] * 4, timeout=5)
    while [r.value for r in aeron.counters if r.label.startswith("rcv-pos")] != [256, 256]:
        await asyncio.sleep(0)
    first: list[int] = []
    async for batch in subscription.batches(max_messages=1):
        first.append(batch[0].session_id)
        if len(first) == 8:
            break
    assert len(set(first[:2])) == 2
    assert first == first[:2] * 4


async def test_events_that_are_dropped_are_kept_by_nobody(subscription: aa.Subscription) -> None:
    for _ in range(10):
        subscription.image_events()
    gc.collect()
    assert len(subscription._events) == 0


async def test_events_may_be_left_before_their_end(
    publication: aa.Publication, subscription: aa.Subscription
) -> None:
    async with subscription.image_events() as events:
        waiting = asyncio.create_task(anext(events))
        assert (await waiting).kind is aa.ImageEventKind.AVAILABLE
    with pytest.raises(StopAsyncIteration):
        await anext(events)
    unread = subscription.image_events()
    await unread.aclose()
    assert [event async for event in unread] == []
    assert len(subscription._events) == 0
