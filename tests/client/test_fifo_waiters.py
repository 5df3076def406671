"""Offers that wait are served in their order, one wake-up at a time."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

import aeron_async as aa
from aeron_async.client.waiters import FifoWaiters, Notify

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

STREAM_ID = 1001


async def fill(publication: aa.Publication) -> None:
    while publication.position < 64 * 1024 - 1056 or publication.available_window > 0:
        publication.try_offer(bytes(1000))
        await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def reading(subscription: aa.Subscription) -> AsyncIterator[list[bytes]]:
    """Collect what is not filling."""
    found: list[bytes] = []

    async def read() -> None:
        async for message in subscription:
            found.extend([message.data] * (message.data != bytes(1000)))

    task = asyncio.create_task(read())
    try:
        yield found
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_offers_and_claims_are_served_in_the_order_in_which_they_came(
    publication: aa.Publication, subscription: aa.Subscription
) -> None:
    async def claim(data: bytes) -> int:
        with await publication.claim(len(data)) as claim:
            claim.data[:] = data
        return claim.position

    await fill(publication)
    waiting = []
    for number in range(200):
        data = b"%d" % number
        waiting.append(asyncio.create_task(claim(data) if number % 3 else publication.offer(data)))
        await asyncio.sleep(0)
    async with asyncio.timeout(5), reading(subscription) as found:
        positions = await asyncio.gather(*waiting)
        # What comes now finds nobody before it, and need not wait.
        await publication.offer(b"last")
        while not found or found[-1] != b"last":
            await asyncio.sleep(0)
    assert positions == sorted(positions)
    assert found == [*(b"%d" % number for number in range(200)), b"last"]


async def test_an_offer_does_not_overtake_those_that_wait(
    publication: aa.Publication, subscription: aa.Subscription
) -> None:
    await fill(publication)
    first = asyncio.create_task(publication.offer(b"first"))
    await asyncio.sleep(0)
    # There is room at once, and the first has not yet had its turn to use it.
    publication._limit.set(publication.position + 10_000)
    publication._on_window_changed()
    async with asyncio.timeout(5):
        second = await publication.offer(b"second")
        assert first.done()
        assert second > await first
        third = asyncio.create_task(publication.offer(b"third"))
        publication._limit.set(publication.position)
        await asyncio.sleep(0)
        publication._limit.set(publication.position + 10_000)
        publication._on_window_changed()
        (await publication.claim(5)).abort()
        assert third.done()


async def test_news_that_helps_nobody_costs_one_attempt_however_many_wait(
    publication: aa.Publication, subscription: aa.Subscription, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(publication)
    waiting = [asyncio.create_task(publication.offer(b"x")) for _ in range(100)]
    for _ in range(3):
        await asyncio.sleep(0)
    attempts = 0
    offer = type(publication)._offer

    def counted(self: aa.Publication, data: bytes, reserved_value: int) -> int:
        nonlocal attempts
        attempts += 1
        return offer(self, data, reserved_value)

    monkeypatch.setattr(type(publication), "_offer", counted)
    publication._on_window_changed()
    for _ in range(5):
        await asyncio.sleep(0)
    assert attempts == 0, "nothing has changed"
    limit = publication._limit
    limit.set(limit.get() - 32)
    publication._on_window_changed()
    for _ in range(5):
        await asyncio.sleep(0)
    assert attempts == 1
    publication.close()
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(result, aa.ClosedError) for result in results)
    with pytest.raises(aa.ClosedError):
        await publication.offer(b"x")


async def test_a_wake_up_is_not_lost_with_the_offer_that_got_it(
    publication: aa.Publication, subscription: aa.Subscription
) -> None:
    await fill(publication)
    first, second, third = (asyncio.create_task(publication.offer(b"x")) for _ in range(3))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.wait([second])
    publication._limit.set(publication.position + 10_000)
    publication._on_window_changed()
    first.cancel()
    async with asyncio.timeout(5):
        await third
    assert first.cancelled()
    assert len(publication._line) == 0


async def test_an_offer_in_line_keeps_its_timeout_and_leaves_the_line_in_order(
    publication: aa.Publication, subscription: aa.Subscription
) -> None:
    await fill(publication)
    patient = asyncio.create_task(publication.offer(b"patient"))
    await asyncio.sleep(0)
    with pytest.raises(aa.OfferTimeoutError, match="back pressure"):
        await publication.offer(b"in a hurry", timeout=0.01)
    async with asyncio.timeout(5), reading(subscription) as found:
        await patient
        while not found:
            await asyncio.sleep(0)
    assert found == [b"patient"]


async def test_ringing_twice_wakes_once() -> None:
    line = FifoWaiters()
    line.wake_first()
    place = line.join()
    line.wake_first()
    line.wake_all()
    waiting = asyncio.create_task(line.wait(place))
    await asyncio.sleep(0)
    line.wake_first()
    line.wake_first()
    await waiting
    line.leave(place)
    assert len(line) == 0


async def test_a_failure_reaches_also_who_was_woken_in_the_same_turn() -> None:
    line, changed = FifoWaiters(), Notify()
    place = line.join()
    waiting = [asyncio.create_task(line.wait(place)), asyncio.create_task(changed.wait())]
    await asyncio.sleep(0)
    line.wake_first()
    changed.notify()
    line.fail(KeyError)
    changed.fail(KeyError)
    for each in waiting:
        with pytest.raises(KeyError):
            await each
    again = [asyncio.create_task(line.wait(place)), asyncio.create_task(changed.wait())]
    await asyncio.sleep(0)
    line.wake_first()
    changed.notify()
    assert await asyncio.gather(*again) == [None, None]
