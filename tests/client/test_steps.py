"""An offer, and a wait for a message, are coroutines to their caller, in Python and compiled."""

from __future__ import annotations

import asyncio
import gc
import inspect
import pickle
import warnings
from typing import TYPE_CHECKING, Any

import anyio
import pytest

import aeron_async as aa
from aeron_async import _speedups
from tests.drivers import LOOP, embedded_only
from tests.twins import compiled_twins, needs_compiled, pure_twins

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

STREAM = 7


@pytest.fixture
async def pair() -> AsyncIterator[tuple[aa.Publication, aa.Subscription]]:
    async with aa.Aeron.connect() as aeron:
        subscription = await aeron.add_subscription("aeron:ipc", stream_id=STREAM)
        publication = await aeron.add_publication("aeron:ipc?term-length=64k", stream_id=STREAM)
        await publication.wait_connected(5)
        yield publication, subscription


Pair = tuple[aa.Publication, aa.Subscription]


async def test_nothing_is_offered_before_it_is_awaited(pair: Pair) -> None:
    publication, _ = pair
    offer: Any = publication.offer(b"later")
    assert publication.position == 0
    assert asyncio.iscoroutine(offer)
    assert inspect.isawaitable(offer)
    assert getattr(offer, "__qualname__", "").endswith(".offer")
    assert await offer == publication.position == 64
    with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
        await offer


async def test_an_offer_that_is_never_awaited_is_warned_of(pair: Pair) -> None:
    publication, subscription = pair
    for make in (lambda: publication.offer(b"lost"), subscription.__anext__):
        with pytest.warns(RuntimeWarning, match="never awaited"):
            make()
    assert publication.position == 0


async def test_tasks_groups_and_timeouts_take_an_offer(pair: Pair) -> None:
    publication, subscription = pair
    task = asyncio.ensure_future(publication.offer(b"task"))
    assert "offer" in repr(task)
    assert await task == 64
    assert await asyncio.wait_for(publication.offer(b"timeout"), 5) == 128
    gathered: list[int] = list(await asyncio.gather(publication.offer(b"gather")))
    assert gathered == [192]
    async with anyio.create_task_group() as group:
        group.start_soon(publication.offer, b"anyio")
    assert publication.position == 256
    found = [bytes(await anext(subscription)) for _ in range(4)]
    assert found == [b"task", b"timeout", b"gather", b"anyio"]
    assert await asyncio.wait_for(publication.offer(b"last"), 5) == 320
    assert bytes(await asyncio.wait_for(anext(subscription), 5)) == b"last"


async def test_an_offer_may_be_driven_by_hand(pair: Pair) -> None:
    publication, _ = pair
    offer: Any = publication.offer(b"by hand")
    with pytest.raises(StopIteration) as caught:
        offer.send(None)
    assert caught.value.value == 64
    closed: Any = publication.offer(b"given up")
    closed.close()
    with pytest.raises(RuntimeError, match="cannot reuse"):
        closed.send(None)
    thrown: Any = publication.offer(b"not now")
    with pytest.raises(KeyError):
        thrown.throw(KeyError(3))
    with pytest.raises(RuntimeError, match="cannot reuse"):
        thrown.throw(KeyError(3))
    assert publication.position == 64


async def test_whoever_looks_at_an_offer_sees_a_coroutine(pair: Pair) -> None:
    publication, subscription = pair
    offer: Any = publication.offer(b"seen")
    assert inspect.getcoroutinestate(offer) == inspect.CORO_CREATED
    assert offer.cr_code.co_name.startswith(("offer", "_offer"))
    assert offer.cr_await is None
    assert await offer == 64
    assert inspect.getcoroutinestate(offer) == inspect.CORO_CLOSED
    assert bytes(await anext(subscription)) == b"seen"
    waiting = asyncio.ensure_future(anext(subscription))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    coroutine: Any = waiting.get_coro()
    assert inspect.getcoroutinestate(coroutine) == inspect.CORO_SUSPENDED
    # A compiled wait has no frame to be shown: the stack of its task is empty.
    assert coroutine.cr_await is not None
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_an_offer_that_waits_is_cancelled_whole_and_goes_on_when_there_is_room(
    pair: Pair,
) -> None:
    publication, subscription = pair
    while publication.try_offer(bytes(1_000)) is not aa.OfferOutcome.BACK_PRESSURED:
        pass
    before = publication.position
    cancelled = asyncio.ensure_future(publication.offer(b"cancelled"))
    waiting = asyncio.ensure_future(publication.offer(b"waiting"))
    with anyio.move_on_after(0.001):
        await publication.offer(b"timed out")
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert publication.position == before
    async for message in subscription:
        if len(message) != 1_000:
            break
    assert bytes(message) == b"waiting"
    assert await waiting == message.position


async def test_a_message_that_is_there_is_handed_to_whoever_drives_by_hand(pair: Pair) -> None:
    publication, subscription = pair
    for number in range(3):
        await publication.offer(bytes([number]))
    assert bytes(await anext(subscription)) == b"\0"
    following: Any = subscription.__anext__()
    with pytest.raises(StopIteration) as caught:
        following.send(None)
    assert bytes(caught.value.value) == b"\1"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        abandoned: Any = subscription.__anext__()
        abandoned.close()
        del abandoned
    assert bytes(await anext(subscription)) == b"\2"


@pytest.mark.parametrize("reserved_value", [0, -1, 2**63 - 1, True])
async def test_what_travels_beside_a_message_arrives(pair: Pair, reserved_value: int) -> None:
    publication, subscription = pair
    await publication.offer(b"", reserved_value=reserved_value)
    assert (await anext(subscription)).reserved_value == reserved_value
    with pytest.raises(aa.ConfigurationError, match="64 bits"):
        await publication.offer(b"", reserved_value=2**63)


async def test_room_that_is_what_it_was_before_is_news_to_who_came_meanwhile() -> None:
    async with aa.Aeron.connect() as aeron:
        publication = await aeron.add_publication("aeron:ipc?term-length=64k", STREAM)
        for _ in range(4):
            offer = asyncio.ensure_future(publication.offer(b"hello"))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            async with await aeron.add_subscription("aeron:ipc", STREAM) as subscription:
                async with asyncio.timeout(5):
                    assert bytes(await anext(subscription)) == b"hello"
                    await offer
            while publication.is_connected:
                await asyncio.sleep(0)


async def test_an_offer_that_raised_was_awaited(pair: Pair) -> None:
    publication, subscription = pair
    view = memoryview(b"gone")
    view.release()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match="released"):
            await publication.offer(view)
        subscription.close()
        with pytest.raises(StopAsyncIteration):
            await anext(subscription)


async def test_what_one_task_awaits_another_cannot(pair: Pair) -> None:
    _, subscription = pair
    step: Any = subscription.__anext__()
    first = asyncio.ensure_future(step)
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match=r"being awaited already|already awaited"):
        await step
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first


@embedded_only(LOOP)
def test_an_offer_in_another_loop_of_the_same_thread_is_refused() -> None:
    loop = asyncio.new_event_loop()
    offered: list[aa.Publication] = []

    async def main() -> None:
        aeron = aa.Aeron.connect()
        await aeron.start()
        await aeron.add_subscription("aeron:ipc", STREAM)
        publication = await aeron.add_publication("aeron:ipc?term-length=64k", STREAM)
        await publication.wait_connected(5)
        await publication.offer(b"here")
        offered.append(publication)
        loop.stop()

    async def elsewhere() -> None:
        with pytest.raises(aa.WrongLoopError):
            await offered[0].offer(b"elsewhere")

    task = loop.create_task(main())
    loop.run_forever()
    asyncio.run(elsewhere())
    for each in asyncio.all_tasks(loop):
        each.cancel()
        with pytest.raises(asyncio.CancelledError):
            loop.run_until_complete(each)
    assert task.done()
    loop.close()


async def test_what_was_read_outlives_its_image(pair: Pair) -> None:
    publication, subscription = pair
    for number in range(5):
        await publication.offer(bytes([number]))
    assert (await anext(subscription)).data == b"\0"
    (image,) = subscription.images
    subscription._remove_image(image.image_id)
    # As a publisher would whom this subscription holds up no more.
    image._log.terms[0][:1_024] = bytes(1_024)
    assert [(await anext(subscription)).data for _ in range(4)] == [b"\1", b"\2", b"\3", b"\4"]


def test_offering_says_how_it_is_called() -> None:
    signature = inspect.signature(aa.Publication.offer)
    assert list(signature.parameters) == ["self", "data", "reserved_value", "timeout"]
    assert signature.parameters["reserved_value"].default == 0
    assert (aa.Publication.offer.__doc__ or "").startswith("Append one message")


@needs_compiled
def test_the_compiled_offer_says_what_its_twin_says() -> None:
    said = [
        inspect.cleandoc(twins.Offering.offer.__doc__) for twins in (pure_twins(), compiled_twins())
    ]
    assert said[0] == said[1]


async def test_dropping_an_offer_leaves_an_error_on_its_way_alone(pair: Pair) -> None:
    publication, _ = pair

    def fail() -> None:
        offer = publication.offer(b"dropped")
        assert asyncio.iscoroutine(offer)
        message = "the one that counts"
        raise KeyError(message)

    with (
        pytest.warns(RuntimeWarning, match="never awaited"),
        pytest.raises(KeyError, match="counts"),
    ):
        fail()


async def test_more_offers_at_once_than_are_kept_ready(pair: Pair) -> None:
    publication, _ = pair
    for _ in range(3):
        offers = [publication.offer(bytes([number])) for number in range(40)]
        positions = [await offer for offer in offers]
        assert positions == sorted(positions)
        assert publication.position == positions[-1]
        assert await asyncio.gather(*(publication.offer(b"g") for _ in range(40)))


@pytest.mark.parametrize("kept_count", [1, 50, 300])
async def test_the_collector_may_close_what_is_being_read(pair: Pair, kept_count: int) -> None:
    publication, subscription = pair
    for number in range(400):
        await publication.offer(bytes([number % 251]))
    kept: list[aa.Message] = []
    before = gc.get_threshold()

    def close(phase: str, info: dict[str, int]) -> None:
        """Close as a finaliser would, in the middle of what allocates."""
        del phase, info
        if len(kept) >= kept_count:
            subscription.close()

    # What was there before is left alone: there is much of it.
    gc.freeze()
    gc.enable()
    gc.set_threshold(1, 1, 1)
    gc.callbacks.append(close)
    try:
        async with asyncio.timeout(20):
            async for message in subscription:
                kept.append(message)  # noqa: PERF401 - `close` counts them meanwhile
    finally:
        gc.callbacks.remove(close)
        gc.set_threshold(*before)
        gc.unfreeze()
    assert subscription.is_closed
    assert kept_count <= len(kept) < 400
    assert [each.data for each in kept] == [bytes([n % 251]) for n in range(len(kept))]


async def test_what_is_read_ahead_is_bounded_in_bytes(pair: Pair) -> None:
    del pair
    async with aa.Aeron.connect() as aeron:
        subscription = await aeron.add_subscription("aeron:ipc", stream_id=STREAM)
        publication = await aeron.add_publication("aeron:ipc?term-length=16m", stream_id=STREAM)
        sizes = [10_000] * 100 + [1_000_000] + [10_000] * 100
        for number, size in enumerate(sizes):
            await publication.offer(bytes([number % 251]) * size)
        longest = 0
        for number, size in enumerate(sizes):
            data = bytes(await anext(subscription))
            assert data == bytes([number % 251]) * size
            left = subscription._batch.left
            longest = max(longest, sum(sizes[number + 1 : number + 1 + left]))
        assert longest <= 256 * 1024 + 1_000_000


@pytest.mark.skipif(_speedups.WHY_PURE is not None, reason="the twin in Python has coroutines")
async def test_a_step_is_made_by_those_who_know_how(pair: Pair) -> None:
    publication, _ = pair
    offer: Any = publication.offer(b"")
    kind: Any = type(offer)
    with pytest.raises(TypeError, match="steps are made by"):
        kind()
    hollow: Any = kind.__new__(kind)
    with pytest.raises(RuntimeError, match="cannot reuse"):
        hollow.send(None)
    hollow.close()
    with pytest.raises(TypeError):
        pickle.dumps(offer)
    await offer


def waiting_on(subscription: aa.Subscription) -> tuple[int, bool]:
    """Return how many tasks wait for progress, and whether the subscription is held for one."""
    return len(subscription._progress._waiters), subscription._is_waiting


@pytest.mark.parametrize("how", ["closed", "dropped", "collected", "thrown into"])
async def test_a_wait_that_is_given_up_leaves_nothing_behind(pair: Pair, how: str) -> None:
    publication, subscription = pair
    # More than once: memory that was used before is used again. A collection takes a second where
    # thousands of tests have left something.
    for _ in range(3 if how == "collected" else 20):
        step: Any = anext(subscription)
        assert asyncio.isfuture(step.send(None))
        assert waiting_on(subscription) == (1, True)
        if how == "closed":
            step.close()
        elif how == "thrown into":
            with pytest.raises(KeyError):
                step.throw(KeyError("enough"))
        elif how == "collected":
            cycle = [step]
            cycle.append(cycle)
            del cycle
        del step
        if how == "collected":
            gc.collect()
        assert waiting_on(subscription) == (0, False)
    await publication.offer(b"for the next reader")
    assert bytes(await anext(subscription)) == b"for the next reader"


async def test_a_wait_that_ends_without_a_message_goes_on(pair: Pair) -> None:
    publication, subscription = pair
    waiting = asyncio.ensure_future(anext(subscription))
    for _ in range(3):
        await asyncio.sleep(0)
        subscription._progress.notify()
        await asyncio.sleep(0)
        assert waiting_on(subscription) == (1, True)
    await publication.offer(b"at last")
    assert bytes(await waiting) == b"at last"
    assert waiting_on(subscription) == (0, False)


async def test_a_wait_over_several_images_takes_from_each() -> None:
    async with aa.Aeron.connect() as aeron:
        subscription = await aeron.add_subscription("aeron:ipc", STREAM)
        both = [await aeron.add_exclusive_publication("aeron:ipc", STREAM) for _ in range(2)]
        for number in range(20):
            for publication in both[:: 1 if number % 2 else -1]:
                waiting = asyncio.ensure_future(anext(subscription))
                await asyncio.sleep(0)
                await publication.offer(b"%d" % number)
                assert bytes(await waiting) == b"%d" % number
