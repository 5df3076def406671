"""Offers of many messages in one step: what is appended, and how far it came."""

from __future__ import annotations

import asyncio
from array import array
from typing import TYPE_CHECKING, Any

import pytest

import aeron_async as aa
from aeron_async._speedups import WHY_PURE
from aeron_async.logbuffer.metadata import LogType
from tests.client.local import IPC, STREAM_ID, take
from tests.drivers import both_drivers, embedded_only
from tests.logbuffer.logs import make_log
from tests.twins import compiled_twins, needs_compiled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

KIB = 1_024


@pytest.fixture(params=["add_publication", "add_exclusive_publication"])
async def offering(
    request: pytest.FixtureRequest, aeron: aa.Aeron, subscription: aa.Subscription, channel: str
) -> aa.Publication:
    publication: aa.Publication = await getattr(aeron, request.param)(channel, STREAM_ID)
    await publication.wait_connected(timeout=5)
    return publication


def message_of(number: int) -> bytes:
    return b"%d:" % number + bytes(number * 37 % 1_300)


@both_drivers
@pytest.mark.parametrize("kind", [list, tuple, iter])
async def test_all_kinds_of_messages_arrive_in_order(
    kind: Callable[[Any], Iterable[Any]], offering: aa.Publication, subscription: aa.Subscription
) -> None:
    given: list[tuple[Any, bytes]] = []
    for number in range(0, 1_500, 5):
        data = message_of(number)
        given += [
            (data, data),
            (b"", b""),
            (bytearray(data), data),
            ([data, b"end"], data + b"end"),
            (memoryview(data) if number % 100 else data * 5, data if number % 100 else data * 5),
        ]
    messages = kind([each for each, _ in given])
    sending = asyncio.create_task(offering.offer_many(messages, timeout=5))
    assert await take(subscription, len(given)) == [data for _, data in given]
    assert await sending == offering.position > 3 * offering.term_length


@pytest.mark.parametrize("kind", [list, iter])
async def test_an_error_says_at_which_message_it_came(
    kind: Callable[[Any], Iterable[Any]], offering: aa.Publication, subscription: aa.Subscription
) -> None:
    with pytest.raises(TypeError) as caught:
        await offering.offer_many(kind([b"a", b"b", "c", b"d"]))
    assert caught.value.__notes__ == ["at message 2: those before it were appended"]
    assert await take(subscription, 2) == [b"a", b"b"]


async def test_it_says_where_the_last_message_ends(
    offering: aa.Publication, subscription: aa.Subscription
) -> None:
    batch = aa.BatchOffer(offering, [b"a" * 100] * 10)
    assert (batch.accepted, batch.position) == (0, 0)
    assert await batch == batch.position == 10 * 160
    assert batch.accepted == 10
    assert await offering.offer_many([]) == 10 * 160
    found = [await anext(subscription) for _ in range(10)]
    assert [each.position for each in found] == [160 * (each + 1) for each in range(10)]
    assert {each.reserved_value for each in found} == {0}


@pytest.mark.parametrize(
    "message", [b"abc", "abc", array("B", b"abc"), memoryview(b"abc").cast("c"), 3, None]
)
async def test_one_message_is_not_several(message: Any, offering: aa.Publication) -> None:
    with pytest.raises(aa.ConfigurationError, match=r"one alone goes to offer\(\)"):
        await offering.offer_many(message)
    assert offering.position == 0


@pytest.mark.parametrize("timeout", [-1, "1", True])
async def test_a_bad_timeout_appends_nothing(timeout: Any, offering: aa.Publication) -> None:
    with pytest.raises(aa.ConfigurationError, match="timeout"):
        await offering.offer_many([b"a"], timeout=timeout)
    assert offering.position == 0


async def test_a_batch_is_offered_once(offering: aa.Publication) -> None:
    batch = aa.BatchOffer(offering, [b"a"])
    await batch
    with pytest.raises(RuntimeError, match="make another"):
        await batch


@both_drivers
async def test_a_timeout_says_how_many_were_appended(
    offering: aa.Publication, subscription: aa.Subscription
) -> None:
    messages = [message_of(number) for number in range(1_000)]
    with pytest.raises(aa.OfferTimeoutError) as caught:
        await offering.offer_many(messages, timeout=0.05)
    accepted = caught.value.accepted
    assert 0 < accepted < len(messages)
    sending = asyncio.create_task(offering.offer_many(messages[accepted:], timeout=5))
    assert await take(subscription, len(messages)) == messages
    await sending


@pytest.mark.parametrize("kind", [list, iter])
async def test_after_a_cancel_it_knows_how_many_were_appended(
    kind: Callable[[Any], Iterable[Any]], offering: aa.Publication, subscription: aa.Subscription
) -> None:
    messages = [message_of(number) for number in range(1_000)]
    batch = aa.BatchOffer(offering, kind(messages))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await batch
    assert 0 < batch.accepted < len(messages)
    assert batch.position == offering.position
    sending = asyncio.create_task(offering.offer_many(messages[batch.accepted :], timeout=5))
    assert await take(subscription, len(messages)) == messages
    await sending


async def test_a_list_that_changes_meanwhile_is_sent_as_it_was(
    offering: aa.Publication, subscription: aa.Subscription
) -> None:
    messages = [message_of(number) for number in range(1_000)]
    expected = list(messages)
    sending = asyncio.create_task(offering.offer_many(messages, timeout=5))
    await asyncio.sleep(0)
    messages.clear()
    assert await take(subscription, len(expected)) == expected
    await sending


async def test_a_bad_message_ends_it_and_those_before_are_appended(
    offering: aa.Publication, subscription: aa.Subscription
) -> None:
    messages: list[Any] = [b"one", b"two", "text", b"three"]
    batch = aa.BatchOffer(offering, messages)
    with pytest.raises(TypeError):
        await batch
    assert batch.accepted == 2
    assert await take(subscription, 2) == [b"one", b"two"]
    too_long = [b"four", bytes(offering.max_message_length + 1)]
    with pytest.raises(aa.MessageTooLongError):
        await offering.offer_many(too_long)
    assert await take(subscription, 1) == [b"four"]


def arrow_arrays() -> dict[str, Any]:
    pa = pytest.importorskip("pyarrow", reason="pip install 'aeron-async[arrow]'")
    data = [message_of(number) for number in range(120)]
    long = [b"", bytes(5_000), b"x", bytes(8_000)]
    # The buffer of the bounds is longer than they are, by less than one of them.
    bounds = pa.py_buffer(array("i", [0, 2, 5, 6]).tobytes() + b"!")
    return {
        "binary": pa.array(data, pa.binary()),
        "large": pa.array(data, pa.large_binary()),
        "sliced": pa.array(data, pa.large_binary())[7:100],
        "text": pa.array([f"text {number}" for number in range(50)]),
        "chunks": pa.chunked_array([data[:20], [], data[30:90]], pa.binary()),
        "long": pa.array(long, pa.binary()),
        "empty": pa.array([], pa.binary()),
        "of empty": pa.array([b"", b""], pa.large_binary()),
        "odd bounds": pa.Array.from_buffers(
            pa.binary(), 3, [None, bounds, pa.py_buffer(b"abcdef")]
        ),
    }


ARRAYS = ["binary", "large", "sliced", "text", "chunks", "long", "empty", "of empty", "odd bounds"]


@both_drivers
@pytest.mark.parametrize("name", ARRAYS)
async def test_an_arrow_array_is_offered_as_its_items_are(
    name: str, offering: aa.Publication, subscription: aa.Subscription
) -> None:
    given = arrow_arrays()[name]
    expected = [each.encode() if isinstance(each, str) else each for each in given.to_pylist()]
    sending = asyncio.create_task(offering.offer_arrow(given, timeout=5))
    assert await take(subscription, len(expected)) == expected
    assert await sending == offering.position
    again = aa.BatchOffer(offering, given, timeout=5)
    sending = asyncio.create_task(offered(again))
    assert await take(subscription, len(expected)) == expected
    assert await sending == again.position
    assert again.accepted == len(expected)


async def offered(batch: aa.BatchOffer) -> int:
    return await batch


async def test_a_damaged_arrow_array_is_refused_where_it_is_damaged(
    offering: aa.Publication,
) -> None:
    pa = pytest.importorskip("pyarrow", reason="pip install 'aeron-async[arrow]'")
    numbers = pa.py_buffer(array("i", [0, 3, 1]))
    damaged = pa.Array.from_buffers(pa.binary(), 2, [None, numbers, pa.py_buffer(b"abcd")])
    batch = aa.BatchOffer(offering, damaged)
    with pytest.raises(aa.ConfigurationError, match="the array is damaged"):
        await batch
    assert batch.accepted == 1


async def test_an_arrow_array_that_holds_no_messages_is_refused(offering: aa.Publication) -> None:
    pa = pytest.importorskip("pyarrow", reason="pip install 'aeron-async[arrow]'")
    for given, says in (
        (pa.array([1, 2]), "not an array of int64: cast"),
        (pa.array([b"ab", b"cd"], pa.binary(2)), r"not an array of fixed_size_binary\[2\]"),
        (pa.array([b"a", None, b"b"]), "1 of 3 are null"),
        (pa.chunked_array([[b"a"], [None]], pa.binary()), "1 of 2 are null"),
        ([b"a"], r"not a list: .* give a list to offer_many"),
        (pa.scalar(b"a"), "not a BinaryScalar"),
        (pa.table({"a": [b"a"]}), "not a Table"),
    ):
        with pytest.raises(aa.ConfigurationError, match=says):
            await offering.offer_arrow(given)
    assert offering.position == 0


async def test_it_stands_in_line_behind_those_who_wait(
    aeron: aa.Aeron,
) -> None:
    publication = await aeron.add_exclusive_publication(IPC, STREAM_ID)
    first = asyncio.create_task(publication.offer(b"first"))
    await asyncio.sleep(0)
    second = asyncio.create_task(publication.offer_many([b"second", b"third"]))
    await asyncio.sleep(0)
    subscription = await aeron.add_subscription(IPC, STREAM_ID)
    assert await take(subscription, 3) == [b"first", b"second", b"third"]
    assert await first < await second


@embedded_only("in a log to which other processes append, a claim is shorter")
@pytest.mark.skipif(WHY_PURE is not None, reason="in Python no messages are claimed together")
@pytest.mark.parametrize(("term", "most"), [("4m", 256 * KIB), ("64k", 16 * KIB)])
async def test_a_claim_for_a_list_is_short_beside_a_term(
    term: str, most: int, aeron: aa.Aeron
) -> None:
    channel = f"{IPC}?term-length={term}"
    subscription = await aeron.add_subscription(channel, STREAM_ID)
    publication = await aeron.add_publication(channel, STREAM_ID)
    await publication.offer(b"first", timeout=5)
    begin = publication.position
    count, position = publication._offer_list([bytes(992)] * 300, 0)
    assert position - begin == count * KIB == most
    assert len(await take(subscription, count + 1)) == count + 1


@needs_compiled
@pytest.mark.parametrize(("term_length", "most"), [(1024 * KIB, 64 * KIB), (64 * KIB, 8 * KIB)])
def test_a_claim_is_shorter_where_others_claim_too(term_length: int, most: int) -> None:
    """Publishers of other processes may all begin just before the limit, and pass it by a claim."""
    log = make_log(log_type=LogType.CONCURRENT_PUBLICATION, term_length=term_length)
    lengths = {"max_payload_length": 256 * KIB, "max_message_length": 256 * KIB}
    messages = [bytes(992)] * 300
    for is_shared, longest in ((True, most), (False, min(256 * KIB, term_length // 4))):
        writer: Any = compiled_twins().FrameWriter(log, is_shared=is_shared, **lengths)
        count, _ = writer.offer_list(messages, 0, term_length)
        assert count * KIB == longest
        # No message begins beyond the limit.
        limit = writer.offer_list(messages[:1], 0, term_length)[1] + 1
        assert writer.offer_list(messages, 0, limit) == (1, limit - 1 + KIB)
        # A longer message goes alone.
        assert writer.offer_list([bytes(longest)] * 2, 0, term_length)[0] == 1
        writer.detach()


async def test_a_list_leaves_the_loop_to_others(
    offering: aa.Publication, subscription: aa.Subscription
) -> None:
    messages = [b"x" * 100] * 20_000
    reading = asyncio.create_task(take(subscription, len(messages)))
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while not reading.done():
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_turns())
    await offering.offer_many(messages, timeout=5)
    assert await reading == messages
    await counting
    assert turns > 20
