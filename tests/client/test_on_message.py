"""Messages that a function gets as they arrive."""

from __future__ import annotations

import asyncio
import contextvars
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pytest

import aeron_async as aa
from aeron_async.client.message_delivery import MESSAGES_PER_TURN, MessageDelivery
from tests.drivers import both_drivers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

pytestmark = both_drivers

PATIENCE_S: Final = 10.0


class Taker:
    """A handler that keeps what it gets, and can be waited for."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []
        self.positions: list[int] = []
        self.then: Callable[[], object] = lambda: None
        self._changed = asyncio.Event()

    def __call__(self, message: aa.Message) -> None:
        self.payloads.append(message.data)
        self.positions.append(message.image.position)
        assert message.image.position >= message.position
        self._changed.set()
        self.then()

    async def until(self, count: int) -> list[bytes]:
        async with asyncio.timeout(PATIENCE_S):
            while len(self.payloads) < count:
                self._changed.clear()
                await self._changed.wait()
        return self.payloads


@pytest.fixture
async def reported() -> AsyncIterator[list[dict[str, Any]]]:
    """Return what goes to the exception handler of the loop."""
    found: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: found.append(context))
    yield found
    loop.set_exception_handler(None)


async def test_each_message_is_delivered_once_and_in_order(
    publication: aa.Publication, subscription: aa.Subscription
) -> None:
    taker = Taker()
    await publication.offer(b"before")
    subscription.on_message(taker)
    expected = [b"before", *(b"%d" % number for number in range(1_000)), bytes(5_000)]
    for each in expected[1:]:
        await publication.offer(each)
    assert await taker.until(len(expected)) == expected
    assert subscription.images[0].position == publication.position
    # Beyond both windows: it takes what it gets.
    await publication.offer_many([bytes(1_000)] * 300)
    await taker.until(len(expected) + 300)


async def test_no_more_than_so_many_are_delivered_before_the_loop_goes_on(
    publication: aa.Publication, subscription: aa.Subscription
) -> None:
    taker, turn, counts = Taker(), 0, Counter[int]()

    def count() -> None:
        counts[turn] += 1

    async def turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    taker.then = count
    subscription.on_message(taker)
    ticking = asyncio.create_task(turns())
    await publication.offer_many([b"x"] * 300)
    await taker.until(300)
    ticking.cancel()
    # The ticking task may run before or after the delivery of a turn.
    assert max(counts.values()) <= 2 * MESSAGES_PER_TURN
    assert len(counts) >= 300 // (2 * MESSAGES_PER_TURN)


async def test_while_a_handler_is_set_no_task_may_read(
    publication: aa.Publication, subscription: aa.Subscription
) -> None:
    taker = Taker()
    subscription.on_message(taker)
    await publication.offer(b"1")
    await taker.until(1)
    attempts: list[Callable[[], object]] = [
        lambda: aiter(subscription),
        lambda: aiter(subscription.images[0]),
        lambda: subscription.poll(print),
    ]
    for attempt in attempts:
        with pytest.raises(aa.BusyError, match=r"on_message\(None\)"):
            attempt()
    with pytest.raises(aa.BusyError, match="a handler consumes"):
        await anext(subscription)
    subscription.on_message(None)
    await publication.offer(b"2")
    assert (await anext(subscription)).data == b"2"
    assert taker.payloads == [b"1"]


async def test_to_take_away_no_handler_changes_nothing_for_a_task(
    publication: aa.Publication, subscription: aa.Subscription
) -> None:
    for data in (b"1", b"2"):
        await publication.offer(data)
    assert (await anext(subscription)).data == b"1"
    subscription.on_message(None)
    # The task has not asked for the next one yet.
    assert subscription.images[0].position == 0
    assert (await anext(subscription)).data == b"2"


async def test_a_task_that_reads_is_not_pushed_aside(
    publication: aa.Publication, subscription: aa.Subscription
) -> None:
    reading = asyncio.ensure_future(anext(subscription))
    await asyncio.sleep(0)
    with pytest.raises(aa.BusyError, match="another task"):
        subscription.on_message(print)
    await publication.offer(b"1")
    assert (await reading).data == b"1"


async def test_another_handler_and_then_a_task_go_on_where_the_one_before_has_stopped(
    publication: aa.Publication, subscription: aa.Subscription
) -> None:
    first, second = Taker(), Taker()
    first.then = lambda: subscription.on_message(second)
    second.then = lambda: subscription.on_message(None)
    await publication.offer_many([b"1", b"2", b"3", b"4"])
    subscription.on_message(first)
    await second.until(1)
    assert (first.payloads, second.payloads) == ([b"1"], [b"2"])
    assert [(await anext(subscription)).data for _ in range(2)] == [b"3", b"4"]


async def test_a_handler_that_fails_misses_nothing_and_is_reported(
    publication: aa.Publication, subscription: aa.Subscription, reported: list[dict[str, Any]]
) -> None:
    taker = Taker()

    def fail() -> None:
        if taker.payloads[-1] == b"2":
            raise ZeroDivisionError

    taker.then = fail
    subscription.on_message(taker)
    await publication.offer_many([b"1", b"2", b"3"])
    assert await taker.until(3) == [b"1", b"2", b"3"]
    (context,) = reported
    assert isinstance(context["exception"], ZeroDivisionError)
    assert "message handler" in context["message"]


async def test_what_nobody_would_await_is_reported(
    publication: aa.Publication, subscription: aa.Subscription, reported: list[dict[str, Any]]
) -> None:
    with pytest.raises(aa.ConfigurationError, match="handler"):
        subscription.on_message(asyncio.sleep)  # type: ignore[arg-type]
    with pytest.raises(aa.ConfigurationError, match="handler"):
        subscription.on_message(7)  # type: ignore[arg-type]
    seen = asyncio.Event()

    def late(message: aa.Message) -> object:
        del message
        seen.set()
        return asyncio.sleep(1)

    subscription.on_message(late)
    await publication.offer(b"1")
    async with asyncio.timeout(PATIENCE_S):
        await seen.wait()
    await asyncio.sleep(0)
    assert [type(each["exception"]) for each in reported] == [aa.ConfigurationError]


async def test_a_handler_may_close_its_subscription(
    publication: aa.Publication, subscription: aa.Subscription
) -> None:
    taker = Taker()
    taker.then = subscription.close
    await publication.offer_many([b"1", b"2"])
    subscription.on_message(taker)
    assert await taker.until(1) == [b"1"]
    await asyncio.sleep(0)
    assert taker.payloads == [b"1"]
    with pytest.raises(aa.ClosedError):
        subscription.on_message(taker)


async def test_a_handler_may_offer(
    aeron: aa.Aeron, publication: aa.Publication, subscription: aa.Subscription
) -> None:
    back = await aeron.add_publication("aeron:ipc", 77)
    answers = await aeron.add_subscription("aeron:ipc", 77)
    await back.wait_connected(PATIENCE_S)
    subscription.on_message(lambda message: back.try_offer(message.data * 2))
    await publication.offer(b"ab")
    assert (await anext(answers)).data == b"abab"


async def test_a_handler_runs_in_the_context_in_which_it_was_set(
    publication: aa.Publication, subscription: aa.Subscription
) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="nobody's")
    seen: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def begin() -> None:
        variable.set("mine")
        subscription.on_message(lambda _: seen.set_result(variable.get()))

    await asyncio.create_task(begin())
    await publication.offer(b"1")
    assert await seen == "mine"


async def test_a_subscription_that_is_closed_lets_go_of_its_handler(
    driver: aa.MediaDriver, aeron: aa.Aeron, reported: list[dict[str, Any]]
) -> None:
    subscription = await aeron.add_subscription("aeron:ipc", 78)
    subscription.on_message(print)
    subscription.on_message(print)
    await asyncio.sleep(0)
    await subscription.aclose()
    await asyncio.sleep(0)
    assert subscription._delivery is None
    assert not subscription._progress._waiters
    assert reported == []


async def test_a_driver_that_fails_is_reported(
    subscription: aa.Subscription, reported: list[dict[str, Any]]
) -> None:
    subscription.on_message(print)
    await asyncio.sleep(0)
    subscription._on_driver_closed(OSError("no socket is left"))
    await asyncio.sleep(0)
    (context,) = reported
    assert isinstance(context["exception"], aa.ClosedError)
    assert "no socket is left" in str(context["exception"])
    assert subscription._delivery is None


async def test_what_stops_the_loop_leaves_the_delivery_as_it_is() -> None:
    messages, seen = [1, 2, 3], []

    def handle(message: int) -> None:
        seen.append(message)
        if message == 1:
            raise KeyboardInterrupt

    delivery = MessageDelivery(
        "a subscription",
        handle,
        check_open=lambda: None,
        take=lambda limit: messages.pop(0) if messages and limit else None,
        hand_out_fast=lambda _, left: ~left,
        watch=lambda: (False, None),
        on_end=lambda _: None,
    )
    delivery.wake()
    with pytest.raises(KeyboardInterrupt):
        delivery.deliver_now()
    assert seen == [1]
    await asyncio.sleep(0)
    assert seen == [1, 2, 3]


async def test_a_wait_for_the_first_image_is_not_silent(aeron: aa.Aeron) -> None:
    subscription = await aeron.add_subscription("aeron:ipc", 79)
    subscription.on_message(print)
    await asyncio.sleep(0)
    assert subscription._waits_since() is not None
    subscription.on_message(None)
    assert subscription._waits_since() is None


async def test_a_handler_that_is_cancelled_is_reported_like_one_that_fails(
    publication: aa.Publication, subscription: aa.Subscription, reported: list[dict[str, Any]]
) -> None:
    taker = Taker()

    def cancel() -> None:
        if taker.payloads == [b"1"]:
            raise asyncio.CancelledError

    taker.then = cancel
    subscription.on_message(taker)
    await publication.offer_many([b"1", b"2"])
    assert await taker.until(2) == [b"1", b"2"]
    assert [type(each["exception"]) for each in reported] == [asyncio.CancelledError]


async def test_the_client_is_checked_before_each_message_is_taken(
    publication: aa.Publication, subscription: aa.Subscription, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that its driver has given up must not store positions into its counters."""
    taker, checks = Taker(), list[int]()
    monkeypatch.setattr(subscription, "_check_served", lambda: checks.append(len(taker.payloads)))
    await publication.offer_many([b"1", b"2", b"3"])
    subscription.on_message(taker)
    await taker.until(3)
    assert {0, 1, 2} <= set(checks)


async def test_what_was_read_is_put_back_when_a_handler_stops_the_loop(
    publication: aa.Publication, subscription: aa.Subscription
) -> None:
    await publication.offer_many([b"1", b"2", b"3"])
    seen = []

    def take_all() -> None:
        message = subscription._next_at_once(64)
        if message is not None:
            seen.append(message.data)

    async with asyncio.timeout(PATIENCE_S):
        while not seen:
            take_all()
            await asyncio.sleep(0)
    assert subscription._next_at_once(0) is None
    assert not subscription._batch.left
    assert [(await anext(subscription)).data for _ in range(2)] == [b"2", b"3"]


@pytest.mark.parametrize("way", ["compiled", "by the long way alone"])
async def test_a_handler_that_is_replaced_within_a_batch_has_the_messages_before(
    publication: aa.Publication,
    subscription: aa.Subscription,
    monkeypatch: pytest.MonkeyPatch,
    way: str,
) -> None:
    """Each of three handlers gives way in the middle of what was read at once."""
    if way != "compiled":
        monkeypatch.setattr(
            subscription, "_hand_out_fast", lambda _call, left: ~left, raising=False
        )
    expected = [b"%d" % number for number in range(30)]
    await publication.offer_many(expected)
    takers = [Taker(), Taker(), Taker()]

    def give_way_to(number: int) -> None:
        if len(takers[number - 1].payloads) == 7:
            subscription.on_message(takers[number])

    takers[0].then = lambda: give_way_to(1)
    takers[1].then = lambda: give_way_to(2)
    subscription.on_message(takers[0])
    await takers[2].until(16)
    assert [each.payloads for each in takers] == [expected[:7], expected[7:14], expected[14:]]
    assert subscription.images[0].position == publication.position
    # What each has taken, and nothing else, was taken while it ran.
    positions = [position for each in takers for position in each.positions]
    assert positions == sorted(set(positions))
