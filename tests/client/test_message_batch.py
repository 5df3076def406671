"""What `Subscription.batches` delivers: messages that lie in the log, and copies of them."""

from __future__ import annotations

import asyncio
import gc
import sys
from array import array
from typing import TYPE_CHECKING, Any
from weakref import ref

import pytest

import aeron_async as aa
from aeron_async.client import arrow
from aeron_async.testing.world import simulate
from tests.client.local import IPC, STREAM_ID, until
from tests.drivers import CLOCK, both_drivers, embedded_only

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aeron_async.testing.world import World

MESSAGES = [b"%d:" % number + bytes(number * 37 % 1_300) for number in range(60)]
LONG = bytes(range(200)) * 20
ASKS: dict[str, Callable[[aa.MessageBatch], Any]] = {
    "payloads": aa.MessageBatch.payloads,
    "views": aa.MessageBatch.views,
    "positions": aa.MessageBatch.positions,
    "sessions": aa.MessageBatch.sessions,
    "reserved_values": aa.MessageBatch.reserved_values,
    "a message": lambda batch: batch[0],
    "iter": lambda batch: next(iter(batch)),
}


async def stream(aeron: aa.Aeron) -> tuple[aa.Subscription, aa.Publication]:
    """Return both ends of a stream."""
    subscription = await aeron.add_subscription(IPC, STREAM_ID)
    return subscription, await aeron.add_publication(IPC, STREAM_ID)


async def all_there(aeron: aa.Aeron, messages: list[bytes], **options: int) -> aa.MessageBatch:
    """Return the first batch, once all messages have been offered."""
    subscription, publication = await stream(aeron)
    for number, data in enumerate(messages):
        await publication.offer(data, reserved_value=number - 2, timeout=5)
    batches = subscription.batches(1_000, **options)
    return await anext(batches)


@both_drivers
@pytest.mark.parametrize("messages", [MESSAGES[:20], [LONG]], ids=["frames", "fragments"])
async def test_all_ways_to_ask_say_the_same(aeron: aa.Aeron, messages: list[bytes]) -> None:
    batch = await all_there(aeron, messages)
    made = list(batch)
    assert len(batch) == len(made) == len(messages)
    assert [message.data for message in made] == messages
    assert batch.payloads() == [bytes(view) for view in batch.views()] == messages
    assert list(batch.positions()) == [message.position for message in made]
    assert list(batch.reserved_values()) == [number - 2 for number in range(len(messages))]
    (image,) = {message.image for message in made}
    assert image is batch.image
    assert batch.sessions() == array("i", [image.session_id] * len(messages))
    assert (batch.session_id, batch.stream_id) == (image.session_id, STREAM_ID)
    assert f"of {len(messages)} messages, session {image.session_id}" in repr(batch)


async def test_it_is_a_sequence_of_messages(aeron: aa.Aeron) -> None:
    batch = await all_there(aeron, MESSAGES[:9])
    assert batch[0].data == MESSAGES[0]
    assert batch[-1].data == MESSAGES[8]
    assert [message.data for message in batch[2:4]] == MESSAGES[2:4]
    assert [message.data for message in reversed(batch)] == MESSAGES[8::-1]
    assert batch[3] is batch[3]
    assert batch[3] in batch
    assert batch[1:][2] is batch[3]
    assert [message.data for message in batch[::-3]] == MESSAGES[8::-3]
    for index in (9, -10):
        with pytest.raises(IndexError):
            batch[index]


@both_drivers
@pytest.mark.parametrize("messages", [MESSAGES[:20], [LONG]], ids=["frames", "fragments"])
async def test_only_what_is_asked_for_is_made(aeron: aa.Aeron, messages: list[bytes]) -> None:
    """`batch[-1]` made every message of the batch."""
    batch = await all_there(aeron, messages)
    count = len(messages)
    assert batch[-1].data == messages[-1]
    assert set(batch._made) == {count - 1}
    assert [message.data for message in batch[2:5]] == messages[2:5]
    assert set(batch._made) == {*range(count)[2:5], count - 1}
    assert len(batch._made) <= count
    batch.image.subscription.close()
    assert [message.data for message in batch] == messages
    assert batch[0].data == messages[0]
    assert batch[-1].position == batch.positions()[-1]


@both_drivers
async def test_nobody_writes_to_a_log_by_a_view(aeron: aa.Aeron) -> None:
    batch = await all_there(aeron, MESSAGES[:2])
    assert all(view.readonly for view in batch.views())


async def test_an_iterator_that_has_ended_is_not_kept(aeron: aa.Aeron) -> None:
    batch = await all_there(aeron, MESSAGES[:9])
    assert sum(map(len, batch)) == sum(map(len, MESSAGES[:9]))
    assert next(iter(batch)).data == MESSAGES[0]
    gc.collect()
    assert not batch._handed
    kept = iter(batch)
    next(kept)
    assert len(batch._handed) == 1
    assert len(list(kept)) == 8
    assert not batch._handed


@both_drivers
async def test_once_taken_it_says_what_to_keep(aeron: aa.Aeron) -> None:
    subscription, publication = await stream(aeron)
    await publication.offer_many(MESSAGES[:4], timeout=5)
    batches = subscription.batches(2)
    first = await anext(batches)
    kept = first.payloads()
    assert subscription.images[0].position == 0
    second = await anext(batches)
    assert subscription.images[0].position == first_end(kept)
    for ask in ASKS.values():
        with pytest.raises(aa.ClosedError, match=r"keep payloads\(\) or list"):
            ask(first)
    assert len(first) == 2
    assert "taken" in repr(first)
    assert kept + second.payloads() == MESSAGES[:4]


def first_end(messages: list[bytes]) -> int:
    return sum((len(data) + 63) & -32 for data in messages)


@both_drivers
async def test_what_is_put_back_is_let_go(aeron: aa.Aeron) -> None:
    subscription, publication = await stream(aeron)
    await publication.offer_many(MESSAGES[:4], timeout=5)
    batch = await anext(subscription.batches(2))
    assert (await anext(subscription)).data == MESSAGES[0]
    with pytest.raises(aa.ClosedError):
        batch.payloads()


@both_drivers
@pytest.mark.parametrize("how", ["subscription", "publication", "client"])
async def test_a_batch_outlives_its_stream(aeron: aa.Aeron, how: str) -> None:
    subscription, publication = await stream(aeron)
    await publication.offer_many(MESSAGES[:4], timeout=5)
    batches = subscription.batches(4)
    batch = await anext(batches)
    closed: Any = {"subscription": subscription, "publication": publication, "client": aeron}[how]
    await closed.aclose()
    for _ in range(100):
        await asyncio.sleep(0)
    assert batch.payloads() == [bytes(view) for view in batch.views()] == MESSAGES[:4]
    assert [message.data for message in batch] == MESSAGES[:4]
    assert list(batch.positions())[-1] == first_end(MESSAGES[:4])
    if how != "publication":
        assert [each async for each in batches] == []


@both_drivers
async def test_an_iterator_ends_with_its_batch_and_outlives_its_image(aeron: aa.Aeron) -> None:
    subscription, publication = await stream(aeron)
    await publication.offer_many(MESSAGES[:9], timeout=5)
    batches = subscription.batches(3)
    taken = iter(await anext(batches))
    assert next(taken).data == MESSAGES[0]
    kept = iter(await anext(batches))
    with pytest.raises(aa.ClosedError, match="was taken"):
        next(taken)
    assert next(kept).data == MESSAGES[3]
    subscription.close()
    await publication.aclose()
    for _ in range(100):
        await asyncio.sleep(0)
    assert [message.data for message in kept] == MESSAGES[4:6]


async def test_a_loop_that_was_left_keeps_nothing_alive(driver: aa.MediaDriver) -> None:
    async with aa.Aeron.connect(driver) as client:
        subscription, publication = await stream(client)
        await publication.offer_many(MESSAGES[:4], timeout=5)
        async for _ in subscription.batches():
            break
        watched = ref(subscription), ref(subscription.images[0])
    del subscription, publication, client, _
    await asyncio.sleep(0)
    gc.collect()
    assert [each() for each in watched] == [None, None]


async def test_a_batch_has_a_length_in_bytes(aeron: aa.Aeron) -> None:
    batch = await all_there(aeron, [bytes(100)] * 20, max_bytes=160 * 5 + 31)
    assert len(batch) == 5
    batch.image.subscription.close()
    assert len(await all_there(aeron, [bytes(1_000)], max_bytes=1)) == 1


async def test_a_longer_message_comes_alone(aeron: aa.Aeron) -> None:
    subscription, publication = await stream(aeron)
    await publication.offer_many([LONG, LONG, b"short"], timeout=5)
    lengths = []
    async for batch in subscription.batches(9, max_bytes=100):
        lengths += [[len(data) for data in batch.payloads()]]
        if len(lengths) == 3:
            break
    assert lengths == [[len(LONG)], [len(LONG)], [5]]


@both_drivers
async def test_it_waits_for_more_until_it_is_full(aeron: aa.Aeron) -> None:
    subscription, publication = await stream(aeron)
    await publication.offer(MESSAGES[0], timeout=5)

    async def publish() -> None:
        for data in MESSAGES[1:12]:
            await asyncio.sleep(0.001)
            await publication.offer(data, timeout=5)

    publishing = asyncio.create_task(publish())
    async with asyncio.timeout(5):
        batch = await anext(subscription.batches(12, linger_ns=60 * 10**9))
    assert batch.payloads() == MESSAGES[:12]
    await publishing


@both_drivers
async def test_it_waits_no_longer_than_it_was_told(aeron: aa.Aeron) -> None:
    subscription, publication = await stream(aeron)
    batches = subscription.batches(12, linger_ns=20_000_000)
    found: list[bytes] = []
    for part in (MESSAGES[:3], [LONG, b"x"], MESSAGES[3:5]):
        await publication.offer_many(part, timeout=5)
        async with asyncio.timeout(5):
            while len(found) < len(part):
                found += (await anext(batches)).payloads()
        assert found == part
        found.clear()


@both_drivers
@pytest.mark.parametrize("linger_ns", [0, 1_000_000])
async def test_every_message_comes_once_over_many_terms(aeron: aa.Aeron, linger_ns: int) -> None:
    subscription, publication = await stream(aeron)
    messages = [MESSAGES[number % 60] * (1 + number % 4) for number in range(600)]
    sending = asyncio.create_task(publication.offer_many(messages, timeout=5))
    found: list[bytes] = []
    async with asyncio.timeout(20):
        async for batch in subscription.batches(50, linger_ns=linger_ns, max_bytes=20_000):
            assert len(batch) <= 50
            found += batch.payloads()
            if len(found) == len(messages):
                break
    assert found == messages
    assert await sending > 5 * publication.term_length


async def test_nobody_else_may_read_while_it_waits_for_more(aeron: aa.Aeron) -> None:
    subscription, publication = await stream(aeron)
    await publication.offer(b"first")
    waiting = asyncio.ensure_future(anext(subscription.batches(2, linger_ns=60 * 10**9)))
    await until(lambda: subscription._lent is not None)
    with pytest.raises(aa.BusyError):
        await anext(subscription)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (await anext(subscription)).data == b"first"


@both_drivers
async def test_a_wait_for_more_ends_with_its_subscription(aeron: aa.Aeron) -> None:
    subscription, publication = await stream(aeron)
    await publication.offer(b"first", timeout=5)
    batches = subscription.batches(2, linger_ns=60 * 10**9)
    waiting = asyncio.ensure_future(anext(batches, None))
    await until(lambda: subscription._lent is not None)
    subscription.close()
    assert await waiting is None
    assert [each async for each in batches] == []


async def test_a_wait_for_more_says_that_the_driver_has_failed(driver: aa.MediaDriver) -> None:
    async with aa.Aeron.connect(driver) as client:
        subscription, publication = await stream(client)
        await publication.offer(b"first")
        waiting = asyncio.ensure_future(anext(subscription.batches(2, linger_ns=60 * 10**9)))
        await until(lambda: subscription._lent is not None)
        subscription._on_driver_closed(OSError("the disk is full"))
        with pytest.raises(aa.ClosedError, match="the disk is full"):
            await waiting


async def test_no_limit_is_too_high(aeron: aa.Aeron) -> None:
    subscription, publication = await stream(aeron)
    found = []
    batches = subscription.batches(10**30, max_bytes=10**30)
    for part in range(3):
        await publication.offer_many(MESSAGES[part : part + 2])
        found += (await anext(batches)).payloads()
    assert found == [each for part in range(3) for each in MESSAGES[part : part + 2]]
    for linger_ns in (10**30, 10**400):
        # The last batch was not taken, and is as long as this one may be.
        batch = await anext(subscription.batches(2, linger_ns=linger_ns))
        assert batch.payloads() == MESSAGES[2:4]


@both_drivers
async def test_what_a_cancelled_wait_has_read_comes_again(aeron: aa.Aeron) -> None:
    subscription, publication = await stream(aeron)
    await publication.offer_many(MESSAGES[:3], timeout=5)
    batches = subscription.batches(4, linger_ns=60 * 10**9)
    for _ in range(2):
        waiting = asyncio.ensure_future(anext(batches))
        await until(lambda: subscription._lent is not None)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    await publication.offer(MESSAGES[3])
    assert (await anext(batches)).payloads() == MESSAGES[:4]
    assert subscription.images[0].position == 0


@both_drivers
async def test_two_iterators_of_one_task_take_what_they_have_delivered(aeron: aa.Aeron) -> None:
    subscription, publication = await stream(aeron)
    await publication.offer_many(MESSAGES[:6], timeout=5)
    first, second = subscription.batches(2), subscription.batches(3)
    assert (await anext(first)).payloads() == MESSAGES[:2]
    assert (await anext(first)).payloads() == MESSAGES[2:4]
    # The batch that the first one has not taken comes again, and is not taken by it later.
    assert (await anext(second)).payloads() == MESSAGES[2:5]
    assert (await anext(first)).payloads() == MESSAGES[2:4]
    assert (await anext(second)).payloads() == MESSAGES[2:5]
    assert (await anext(second)).payloads() == MESSAGES[5:6]


async def test_an_iterator_goes_on_after_another_task_has_read(aeron: aa.Aeron) -> None:
    subscription, publication = await stream(aeron)
    await publication.offer_many(MESSAGES[:8], timeout=5)
    batches = subscription.batches(2)

    async def step() -> list[bytes]:
        return (await anext(batches)).payloads()

    # Each task ends with its batch, so that the next one may go on where it has left off.
    found = [each for _ in range(4) for each in await asyncio.create_task(step())]
    assert found == MESSAGES[:8]


@both_drivers
async def test_an_image_of_fragments_gets_as_many_turns_as_others(aeron: aa.Aeron) -> None:
    subscription = await aeron.add_subscription(IPC, STREAM_ID)
    slow, fast = [await aeron.add_exclusive_publication(IPC, STREAM_ID) for _ in range(2)]
    for _ in range(6):
        await slow.offer(LONG, timeout=5)
        await fast.offer_many([b"x"] * 20, timeout=5)
    await until(lambda: len(subscription.images) == 2)
    order = []
    async for batch in subscription.batches(1):
        order.append(batch.session_id)
        if len(order) == 10:
            break
    # The driver that another process would be may show one before the other.
    assert [order.count(each.session_id) for each in (slow, fast)] == [5, 5]
    assert order[2:6] == order[4:8]


def test_a_list_is_not_read_in_another_loop_after_its_task_has_ended(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    held: list[Any] = []

    async def begin() -> None:
        driver = await aa.MediaDriver.launch().__aenter__()
        client = await aa.Aeron.connect(driver).__aenter__()
        subscription, publication = await stream(client)
        await publication.offer_many(MESSAGES[:6], timeout=5)
        batches = subscription.batches(2)
        for _ in range(2):
            await anext(batches)
        held.extend((driver, client, subscription, batches))

    async def go_on() -> None:
        with pytest.raises(aa.WrongLoopError):
            await anext(held[3])

    async def end() -> None:
        driver, client, subscription, batches = held
        assert subscription.images[0].position == first_end(MESSAGES[:2])
        assert (await anext(batches)).payloads() == MESSAGES[4:6]
        await client.aclose()
        await driver.aclose()

    first, second = new_loop(), new_loop()
    first.run_until_complete(begin())
    gc.collect()
    second.run_until_complete(go_on())
    first.run_until_complete(end())


@pytest.fixture
def new_loop() -> Iterator[Callable[[], asyncio.AbstractEventLoop]]:
    loops: list[asyncio.AbstractEventLoop] = []

    def make() -> asyncio.AbstractEventLoop:
        loops.append(asyncio.new_event_loop())
        return loops[-1]

    yield make
    for loop in loops:
        loop.close()


async def test_reading_lists_leaves_the_loop_to_others(aeron: aa.Aeron) -> None:
    subscription, publication = await stream(aeron)
    count, turns = 20_000, 0
    sending = asyncio.create_task(publication.offer_many([b"x" * 100] * count, timeout=5))

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_turns())
    async for batch in subscription.batches(64):
        count -= len(batch)
        if not count:
            break
    counting.cancel()
    await sending
    assert turns > 20


async def test_a_closed_subscription_has_no_more_batches(aeron: aa.Aeron) -> None:
    subscription, publication = await stream(aeron)
    await publication.offer_many(MESSAGES[:2], timeout=5)
    batches = subscription.batches()
    assert (await anext(batches)).payloads() == MESSAGES[:2]
    subscription.close()
    for _ in range(2):
        with pytest.raises(StopAsyncIteration):
            await anext(batches)


@both_drivers
@pytest.mark.parametrize("messages", [MESSAGES[:20], [LONG]], ids=["frames", "fragments"])
async def test_arrow_has_the_same_columns(aeron: aa.Aeron, messages: list[bytes]) -> None:
    pytest.importorskip("pyarrow", reason="pip install 'aeron-async[arrow]'")
    batch = await all_there(aeron, messages)
    made = batch.to_arrow()
    assert made.schema.names == [
        "position", "session_id", "stream_id", "reserved_value", "payload",
    ]  # fmt: skip
    assert made.to_pydict() == {
        "position": list(batch.positions()),
        "session_id": list(batch.sessions()),
        "stream_id": [STREAM_ID] * len(messages),
        "reserved_value": list(batch.reserved_values()),
        "payload": messages,
    }
    made.validate(full=True)


@both_drivers
@pytest.mark.parametrize("messages", [MESSAGES[:20], [LONG]], ids=["frames", "fragments"])
async def test_any_arrow_library_takes_a_batch(aeron: aa.Aeron, messages: list[bytes]) -> None:
    pa = pytest.importorskip("pyarrow", reason="pip install 'aeron-async[arrow]'")
    batch = await all_there(aeron, messages)
    assert pa.record_batch(batch).equals(batch.to_arrow())
    wanted = pa.struct([(field.name, field.type) for field in batch.to_arrow().schema])
    wanted = wanted.field(0).with_type(pa.float64()), *list(wanted)[1:]
    cast = pa.record_batch(batch, schema=pa.schema(wanted))
    assert cast.column("position").to_pylist() == [float(each) for each in batch.positions()]
    batch._take()
    with pytest.raises(aa.ClosedError):
        pa.record_batch(batch)


@pytest.mark.parametrize("count", [1, 2, 3, 1_638, arrow.KEPT_COUNT, arrow.KEPT_COUNT + 1])
def test_a_column_of_one_number_has_as_many_rows_as_the_batch(count: int) -> None:
    pytest.importorskip("pyarrow", reason="pip install 'aeron-async[arrow]'")
    for value in (-(2**31), 0, 2**31 - 1):
        column = arrow.repeated(value, count)
        assert (str(column.type), len(column)) == ("int32", count)
        assert set(column.to_pylist()) == {value}
        assert not column.buffers()[1].is_mutable, "others have it too"


def test_the_columns_that_are_kept_are_few_and_short() -> None:
    pytest.importorskip("pyarrow", reason="pip install 'aeron-async[arrow]'")
    for value in range(2 * arrow.KEPT_COLUMNS):
        arrow.repeated(value, arrow.KEPT_COUNT)
        arrow.repeated(value, arrow.KEPT_COUNT + 1)
    assert arrow._kept.cache_info().currsize == arrow.KEPT_COLUMNS
    assert arrow._kept(0, arrow.KEPT_COUNT).nbytes == 4 * arrow.KEPT_COUNT


async def test_without_arrow_it_says_what_to_install(
    aeron: aa.Aeron, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = await all_there(aeron, MESSAGES[:2])
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(aa.ConfigurationError, match="pip install"):
        batch.to_arrow()


@embedded_only(CLOCK)
def test_a_message_is_whole_again_whose_beginning_was_taken_before_its_end_came() -> None:
    messages = [bytes([number]) * 20_000 for number in range(4)]
    channel = "aeron:udp?endpoint=bob:20121"

    async def story(world: World) -> list[bytes]:
        alice, bob = world.host("alice"), world.host("bob")
        async with alice.aeron() as sending, bob.aeron() as receiving:
            subscription = await receiving.add_subscription(f"{channel}|rcv-wnd=4k", STREAM_ID)
            publication = await sending.add_publication(f"{channel}|term-length=256k", STREAM_ID)
            async with asyncio.TaskGroup() as group:
                group.create_task(publication.offer_many(messages))
                assert (await anext(subscription.batches())).payloads() == messages[:1]
                taken = [(await anext(subscription.batches())).payloads()[0]]
                async for batch in subscription.batches():
                    taken += batch.payloads()
                    if len(taken) > len(messages):
                        # The first message came twice before: each time its batch was left.
                        return taken
        raise AssertionError

    assert simulate(story) == messages[:1] + messages
