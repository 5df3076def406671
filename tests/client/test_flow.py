"""Back pressure end to end, fairness, and what an offer does when it must wait."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

import aeron_async as aa
from aeron_async.client.waiters import watched_wait
from tests.drivers import REASON, WATCHING, embedded_only

STREAM_ID = 1001


WINDOW = 32 * 1024
"""Half a term of 64 KiB: what a receiver grants, and what a publisher may be ahead of that."""


async def fill(publication: aa.Publication) -> int:
    """Offer until both windows are full, and return how many messages that took."""
    count = 0
    while publication.position < 2 * WINDOW - 1056 or publication.available_window > 0:
        outcome = publication.try_offer(bytes(1000))
        count += isinstance(outcome, int)
        await asyncio.sleep(0)
    return count


async def test_without_a_subscriber_an_offer_waits_or_says_so(
    aeron: aa.Aeron, channel: str
) -> None:
    publication = await aeron.add_publication(channel, STREAM_ID)
    assert not publication.is_connected
    assert publication.try_offer(b"x") is aa.OfferOutcome.NOT_CONNECTED
    assert publication.try_claim(1) is aa.OfferOutcome.NOT_CONNECTED
    with pytest.raises(aa.OfferTimeoutError, match="no subscriber connected") as caught:
        await publication.offer(b"x", timeout=0.01)
    assert caught.value.position == caught.value.position_limit == 0
    assert caught.value.waited_ns >= 9_000_000
    assert not caught.value.is_connected
    assert caught.value.slowest_receiver is None
    waiting = asyncio.create_task(publication.offer(b"x"))
    subscription = await aeron.add_subscription(channel, STREAM_ID)
    assert await asyncio.wait_for(waiting, 5) == 64
    assert (await anext(subscription)).data == b"x"


async def test_a_publication_may_refuse_to_wait_for_a_subscriber(
    aeron: aa.Aeron, channel: str
) -> None:
    publication = await aeron.add_publication(channel, STREAM_ID, on_disconnected="raise")
    with pytest.raises(aa.NotConnectedError, match="call wait_connected first, or leave out"):
        await publication.offer(b"x")


@embedded_only(REASON)
async def test_a_subscriber_that_does_not_read_stops_the_publisher(
    publication: aa.Publication, subscription: aa.Subscription
) -> None:
    offered = await fill(publication)
    assert publication.available_window <= 0
    with pytest.raises(aa.OfferTimeoutError, match=r"back pressure.*slowest receiver") as caught:
        await publication.offer(bytes(1000), timeout=0.01)
    assert caught.value.is_connected
    assert caught.value.slowest_receiver is not None
    assert caught.value.position == publication.position
    waiting = asyncio.create_task(publication.offer(b"the last"))
    received = 0
    async for message in subscription:
        if message.data == b"the last":
            break
        assert message.data == bytes(1000)
        received += 1
    assert received == offered
    assert await waiting == publication.position


async def test_the_slowest_of_several_subscriptions_sets_the_pace(
    aeron: aa.Aeron, channel: str, publication: aa.Publication, subscription: aa.Subscription
) -> None:
    slow = await aeron.add_subscription(channel, STREAM_ID)
    await slow.wait_connected(timeout=5)
    (fast_image,), (slow_image,) = subscription.images, slow.images
    assert fast_image.session_id == slow_image.session_id
    seen = 0

    async def read_fast() -> None:
        nonlocal seen
        async for _ in subscription:
            seen += 1

    reading = asyncio.create_task(read_fast())
    offered = await fill(publication)
    assert publication.available_window <= 0
    assert slow_image.position == 0
    while fast_image.position == 0:
        await asyncio.sleep(0)
    held = 0
    async for message in slow:
        assert message.data == bytes(1000)
        held += 1
        if held == offered:
            break
    await publication.offer(b"flows again", timeout=5)
    while seen <= offered:
        await asyncio.sleep(0)
    reading.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await reading
    assert seen == offered + 1


async def test_a_late_subscription_joins_where_the_image_is(
    aeron: aa.Aeron, channel: str, publication: aa.Publication, subscription: aa.Subscription
) -> None:
    await publication.offer_many([b"a", b"b"])
    assert (await anext(subscription)).data == b"a"
    assert (await anext(subscription)).data == b"b"
    assert subscription.poll(print) == 0
    late = await aeron.add_subscription(channel, STREAM_ID)
    (image,) = late.images
    assert image.join_position == 128
    await publication.offer(b"c")
    assert (await anext(late)).data == b"c"
    assert (await anext(subscription)).data == b"c"


async def test_a_flood_does_not_starve_the_loop(
    publication: aa.Publication, subscription: aa.Subscription
) -> None:
    turns = 0

    def count_turn() -> None:
        nonlocal turns
        turns += 1
        asyncio.get_running_loop().call_soon(count_turn)

    count_turn()
    sending = asyncio.create_task(publication.offer_many([bytes(32)] * 5_000))
    received = 0
    async for _ in subscription:
        received += 1
        if received == 5_000:
            break
    await sending
    # Messages are given out by the batch, and between two batches everybody has a turn.
    assert turns > 2 * 5_000 // 1_024


async def test_a_cancelled_offer_has_appended_nothing_and_leaves_nothing_behind(
    publication: aa.Publication, subscription: aa.Subscription
) -> None:
    offered = await fill(publication)
    position = publication.position
    waiting = [asyncio.create_task(publication.offer(b"never")) for _ in range(10)]
    await asyncio.sleep(0)
    for task in waiting:
        task.cancel()
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(result, asyncio.CancelledError) for result in results)
    assert publication.position == position
    asyncio.get_running_loop().call_soon(publication.close)
    count = 0
    (image,) = subscription.images
    async for message in image:
        assert message.data == bytes(1000)
        count += 1
    assert count == offered


async def test_only_one_task_consumes_and_a_second_is_told(
    publication: aa.Publication, subscription: aa.Subscription
) -> None:
    waiting = asyncio.ensure_future(anext(subscription))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    with pytest.raises(aa.BusyError):
        await anext(subscription)
    with pytest.raises(aa.BusyError):
        subscription.poll(print)
    with pytest.raises(aa.BusyError):
        await anext(subscription.images[0])
    await publication.offer(b"for the first")
    assert (await waiting).data == b"for the first"
    await publication.offer(b"next")
    assert (await anext(subscription)).data == b"next"


async def test_a_cancelled_wait_for_a_message_loses_none(
    publication: aa.Publication, subscription: aa.Subscription
) -> None:
    for number in range(20):
        waiting = asyncio.ensure_future(anext(subscription))
        for _ in range(number % 5):
            await asyncio.sleep(0)
        position = publication.try_offer(b"%d" % number)
        assert isinstance(position, int)
        for _ in range(number % 7):
            await asyncio.sleep(0)
        waiting.cancel()
        try:
            message = await waiting
        except asyncio.CancelledError:
            message = await anext(subscription)
        assert message.data == b"%d" % number


async def test_the_end_of_positions_is_an_error_that_names_the_remedy(
    aeron: aa.Aeron, channel: str, subscription: aa.Subscription
) -> None:
    last_term = "|init-term-id=0|term-id=2147483647|term-offset=65408|term-length=64k"
    publication = await aeron.add_exclusive_publication(channel + last_term, STREAM_ID)
    await publication.offer(b"fits", timeout=5)
    with pytest.raises(aa.MaxPositionExceededError, match="term-length"):
        await publication.offer(bytes(1000))
    assert (await anext(subscription)).data == b"fits"


@embedded_only(WATCHING)
async def test_a_wait_looks_once_more_when_its_time_is_over(
    publication: aa.Publication, subscription: aa.Subscription
) -> None:
    """A driver in another process does not wake a publisher for each piece of room."""
    del subscription
    assert await fill(publication)
    alone = asyncio.create_task(publication.offer(b"alone", timeout=0.01))
    await asyncio.sleep(0)
    publication._limit.set(publication.position + 1)
    assert await alone == publication.position
    assert publication.available_window <= 0
    first = asyncio.create_task(publication.offer(b"first", timeout=5))
    await asyncio.sleep(0)
    second = asyncio.create_task(publication.offer(b"second", timeout=0.01))
    await asyncio.sleep(0)
    publication._limit.set(publication.position + 1)
    with pytest.raises(aa.OfferTimeoutError):
        # Another one waits before it, and is the one to look.
        await second
    assert await first == publication.position
    is_sent = False
    waiting = asyncio.create_task(
        watched_wait(publication, publication._changed, lambda: is_sent, "drain", 0.01)
    )
    await asyncio.sleep(0)
    is_sent = True
    await waiting


async def test_what_is_offered_after_drain_was_called_is_not_waited_for(
    aeron: aa.Aeron, channel: str
) -> None:
    await aeron.add_subscription(f"{channel}|rcv-wnd=8k", STREAM_ID)
    publication = await aeron.add_publication(f"{channel}|mtu=1408", STREAM_ID)
    await publication.wait_connected(timeout=5)

    def append() -> None:
        """Append without a word to the driver, as another process would."""
        assert publication._appender.offer(bytes(1000), limit=1 << 40) > 0

    append()
    draining = asyncio.create_task(publication.drain(timeout=5))
    await asyncio.sleep(0)
    for _ in range(20):
        append()
    assert not draining.done()
    publication._wake_sender()
    await draining
    with pytest.raises(aa.AeronTimeoutError, match="drain waited"):
        await publication.drain(timeout=0.01)
