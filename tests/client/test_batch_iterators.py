"""How an iterator over batches ends early: what was not taken comes again, for any task."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import pytest

import aeron_async as aa
from tests.client.local import IPC, STREAM_ID, until
from tests.drivers import both_drivers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

MESSAGES = [b"%d" % number for number in range(6)]
LONG_NS = 60 * 10**9


async def filled(aeron: aa.Aeron) -> aa.Subscription:
    """Return a subscription whose messages have been offered."""
    subscription = await aeron.add_subscription(IPC, STREAM_ID)
    publication = await aeron.add_publication(IPC, STREAM_ID)
    await publication.offer_many(MESSAGES, timeout=5)
    return subscription


async def elsewhere(call: Callable[[], Awaitable[Any]]) -> Any:
    """Call in another task, while this one lives on."""

    async def called() -> Any:
        return await call()

    return await asyncio.create_task(called())


@both_drivers
@pytest.mark.parametrize("how", ["aclose", "aclosing", "async with"])
async def test_what_was_not_taken_comes_again_in_another_task(aeron: aa.Aeron, how: str) -> None:
    subscription = await filled(aeron)
    batches = subscription.batches(2)
    if how == "aclosing":
        async with aclosing(batches):
            taken = [(await anext(batches)).payloads() for _ in range(2)]
    elif how == "async with":
        async with batches as entered:
            assert entered is batches
            taken = [(await anext(batches)).payloads() for _ in range(2)]
    else:
        taken = [(await anext(batches)).payloads() for _ in range(2)]
        with pytest.raises(aa.BusyError):
            await elsewhere(subscription.batches(2).__anext__)
        await batches.aclose()
    assert taken == [MESSAGES[:2], MESSAGES[2:4]]
    assert (await elsewhere(subscription.__anext__)).data == MESSAGES[2]


@both_drivers
async def test_a_closed_one_is_over_and_its_last_batch_refuses(aeron: aa.Aeron) -> None:
    subscription = await filled(aeron)
    batches = subscription.batches(4)
    last = await anext(batches)
    for _ in range(2):
        await batches.aclose()
        with pytest.raises(StopAsyncIteration, match="closed by its aclose"):
            await anext(batches)
    assert [each async for each in batches] == []
    with pytest.raises(aa.ClosedError):
        last.payloads()
    assert subscription.images[0].position == 0
    assert (await anext(subscription.batches())).payloads() == MESSAGES


@both_drivers
async def test_a_last_batch_that_is_taken_does_not_come_again(aeron: aa.Aeron) -> None:
    subscription = await filled(aeron)
    async with subscription.batches(2) as batches:
        async for batch in batches:
            if batch.payloads() == MESSAGES[2:4]:
                batches.take()
                batches.take()
                break
    assert len(batch) == 2
    with pytest.raises(aa.ClosedError):
        batch.payloads()
    assert subscription.images[0].position == 4 * 64
    assert (await elsewhere(subscription.__anext__)).data == MESSAGES[4]


@both_drivers
async def test_an_iteration_goes_on_behind_a_batch_that_was_taken(aeron: aa.Aeron) -> None:
    subscription = await filled(aeron)
    batches, read = subscription.batches(2), list[bytes]()
    batches.take()
    for _ in range(3):
        read += (await anext(batches)).payloads()
        batches.take()
    assert read == MESSAGES


async def test_a_batch_of_another_iterator_is_not_taken(aeron: aa.Aeron) -> None:
    subscription = await filled(aeron)
    first, second = subscription.batches(2), subscription.batches(3)
    await anext(first)
    held = await anext(second)
    first.take()
    assert held.payloads() == MESSAGES[:3]


async def test_one_that_never_began_can_be_closed(aeron: aa.Aeron) -> None:
    subscription = await filled(aeron)
    async with subscription.batches() as batches:
        pass
    assert [each async for each in batches] == []
    assert (await anext(subscription)).data == MESSAGES[0]


async def test_it_leaves_alone_what_another_iterator_has_delivered(aeron: aa.Aeron) -> None:
    subscription = await filled(aeron)
    first, second = subscription.batches(2), subscription.batches(3)
    await anext(first)
    held = await anext(second)
    await first.aclose()
    assert held.payloads() == MESSAGES[:3]
    assert (await anext(second)).payloads() == MESSAGES[3:]


@pytest.mark.parametrize("linger_ns", [0, LONG_NS])
async def test_while_a_task_waits_in_it_it_is_not_closed(aeron: aa.Aeron, linger_ns: int) -> None:
    subscription = await filled(aeron)
    batches = subscription.batches(8, linger_ns=linger_ns)
    if not linger_ns:
        await anext(batches)
    waiting = asyncio.ensure_future(anext(batches))
    await until(lambda: subscription._is_waiting)
    with pytest.raises(aa.BusyError, match="cancel it"):
        await batches.aclose()
    # Another one that is refused changes nothing of that.
    with pytest.raises(aa.BusyError):
        await elsewhere(batches.__anext__)
    with pytest.raises(aa.BusyError):
        await batches.aclose()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await batches.aclose()
    assert subscription._lent is None


@both_drivers
async def test_what_a_cancelled_wait_has_read_is_free_for_another_task(aeron: aa.Aeron) -> None:
    subscription = await filled(aeron)
    batches = subscription.batches(8, linger_ns=LONG_NS)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await anext(batches)
    assert (await elsewhere(subscription.batches().__anext__)).payloads() == MESSAGES


async def test_after_its_subscription_it_closes_without_a_word(aeron: aa.Aeron) -> None:
    subscription = await filled(aeron)
    async with subscription.batches(2) as batches:
        kept = await anext(batches)
        subscription.close()
    assert kept.payloads() == MESSAGES[:2]


def test_in_another_loop_it_is_refused() -> None:
    held: list[Any] = []

    async def begin() -> None:
        async with aa.Aeron.connect() as client:
            subscription = await filled(client)
            batches = subscription.batches(2)
            await anext(batches)
            held.append(batches)
            with pytest.raises(aa.WrongLoopError):
                await asyncio.to_thread(asyncio.run, batches.aclose())

    asyncio.run(begin())
    with pytest.raises(aa.WrongLoopError):
        held[0].take()
    with pytest.raises(aa.WrongLoopError):
        asyncio.run(held[0].aclose())
