"""Conflation: the newest value of each key, in order of first change, and nobody is held back."""

from __future__ import annotations

import asyncio
import gc
from struct import Struct
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import aeron_async as aa
from aeron_async.client.latest import Latest
from aeron_async.client.newest_values import Waiting
from aeron_async.clock import NS_PER_MS
from aeron_async.testing.world import simulate
from tests.drivers import CLOCK, embedded_only

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from aeron_async.testing.world import World

CHANNEL = "aeron:udp?endpoint=bob:20121"
GROUP = "aeron:udp?endpoint=224.20.30.39:20121|interface=10.0.0.0/8"
STREAM_ID = 10
Pair = tuple[str, int]


def key_of(pair: Pair) -> str:
    return pair[0]


def added(before: Pair, after: Pair) -> Pair:
    return before[0], before[1] + after[1]


async def batches_of(*batches: Iterable[Pair]) -> AsyncIterator[Iterable[Pair]]:
    for batch in batches:
        yield batch


class Feed:
    """A source whose batches a test gives one by one."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[list[Pair] | None] = asyncio.Queue()
        self.is_closed = False
        self.taken_count = 0

    def __aiter__(self) -> Feed:
        return self

    async def __anext__(self) -> list[Pair]:
        batch = await self.queue.get()
        if batch is None:
            raise StopAsyncIteration
        return batch

    def take(self) -> None:
        self.taken_count += 1

    async def aclose(self) -> None:
        self.is_closed = True


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_key_keeps_its_place_and_gets_the_newest_value() -> None:
    feed = Feed()
    feed.queue.put_nowait([("a", 1), ("b", 1), ("a", 2)])
    feed.queue.put_nowait([("c", 1), ("a", 3)])
    async with Latest(feed, key=key_of) as latest:
        await turns()
        assert (latest.waiting, latest.skipped, latest.merged) == (3, 2, 0)
        assert [await anext(latest) for _ in range(2)] == [("a", 3), ("b", 1)]
        feed.queue.put_nowait([("a", 4), ("c", 2)])
        await turns()
        # It was delivered, so it is at the end again.
        assert [await anext(latest) for _ in range(2)] == [("c", 2), ("a", 4)]
        assert [latest.skipped_of(key) for key in "abc"] == [2, 0, 1]
        assert feed.taken_count == 3
    assert feed.is_closed
    with pytest.raises(StopAsyncIteration):
        await anext(latest)


async def test_the_values_that_wait_are_delivered_when_the_source_has_ended() -> None:
    source = batches_of([("a", 1)], (pair for pair in [("b", 1), ("a", 2)]))
    async with Latest(source, key=key_of) as latest:
        await turns()
        assert [pair async for pair in latest] == [("a", 2), ("b", 1)]


async def test_merged_values_are_not_lost() -> None:
    latest = Latest(batches_of([("a", 1), ("b", 5), ("a", 2)], [("a", 4)]), key=key_of, merge=added)
    async with latest:
        await turns()
        assert latest.take_all() == [("a", 7), ("b", 5)]
        assert (latest.skipped, latest.merged, latest.dropped) == (2, 2, 0)
        assert latest.take_all() == []


async def test_one_key_too_many_ends_the_iteration() -> None:
    latest = Latest(batches_of([("a", 1), ("b", 1), ("a", 2), ("c", 1)]), key=key_of, max_keys=2)
    with pytest.raises(aa.TooManyKeysError, match="max_keys"):
        await anext(latest)
    with pytest.raises(StopAsyncIteration):
        await anext(latest)


async def test_the_oldest_key_makes_room() -> None:
    source = batches_of([("a", 1), ("b", 1), ("a", 2), ("c", 1), ("d", 1)])
    latest = Latest(source, key=key_of, max_keys=2, on_full="oldest")
    assert [pair async for pair in latest] == [("c", 1), ("d", 1)]
    assert (latest.skipped, latest.dropped) == (3, 2)
    # Counts are kept of as many keys as may wait.
    assert [latest.skipped_of(key) for key in "abcd"] == [2, 1, None, None]


async def test_errors_of_key_and_merge_reach_the_reader() -> None:
    def fail(*_: object) -> Any:
        raise LookupError

    for latest in (
        Latest(batches_of([("a", 1)]), key=fail),
        Latest(batches_of([("a", 1), ("a", 2)]), key=key_of, merge=fail),
    ):
        with pytest.raises(LookupError):
            await anext(latest)
        with pytest.raises(StopAsyncIteration):
            await anext(latest)
    with pytest.raises(TypeError):
        await anext(Latest(batches_of([("a", 1)]), key=list))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong",
    [
        {"key": 1},
        {"key": slice(4)},
        {"key": slice(4, None)},
        {"key": slice(4, 4)},
        {"key": slice(-4, 4)},
        {"key": slice(0, 4, 2)},
        {"merge": 1},
        {"max_keys": 0},
        {"max_keys": 1 << 63},
        {"on_full": "newest"},
    ],
    ids=str,
)
def test_wrong_arguments_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(aa.ConfigurationError, match=next(iter(wrong))):
        Latest(batches_of(), **({"key": key_of} | wrong))


async def test_only_one_task_waits() -> None:
    async with Latest(Feed(), key=key_of) as latest:
        first = asyncio.ensure_future(anext(latest))
        await turns()
        with pytest.raises(aa.BusyError):
            await anext(latest)
        await latest.aclose()
        with pytest.raises(StopAsyncIteration):
            await first


async def test_a_cancelled_reader_loses_no_value() -> None:
    feed = Feed()
    async with Latest(feed, key=key_of) as latest:
        waiting = asyncio.ensure_future(anext(latest))
        await turns()
        feed.queue.put_nowait([("a", 1)])
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await anext(latest) == ("a", 1)


async def test_many_values_are_taken_at_once_and_the_end_is_an_empty_list() -> None:
    feed = Feed()
    async with Latest(feed, key=key_of) as latest:
        first = asyncio.ensure_future(latest.take(2))
        await turns()
        assert not first.done()
        feed.queue.put_nowait([("a", 1), ("b", 1), ("c", 1), ("b", 2)])
        assert await first == [("a", 1), ("b", 2)]
        assert await latest.take(9) == [("c", 1)]
        feed.queue.put_nowait([("d", 1)])
        feed.queue.put_nowait(None)
        await turns()
        assert await latest.take(9) == [("d", 1)]
        assert await latest.take(9) == []
        for limit in (0, -1, 1.5, "1"):
            with pytest.raises(aa.ConfigurationError, match="limit"):
                await latest.take(limit)  # type: ignore[arg-type]


async def test_only_one_task_waits_to_take_values() -> None:
    async with Latest(Feed(), key=key_of) as latest:
        first = asyncio.ensure_future(latest.take(5))
        await turns()
        for other in (latest.take(5), latest.__anext__()):
            with pytest.raises(aa.BusyError):
                await other
        await latest.aclose()
        assert await first == []


async def test_a_reader_of_many_that_is_cancelled_loses_no_value() -> None:
    feed = Feed()
    async with Latest(feed, key=key_of) as latest:
        waiting = asyncio.ensure_future(latest.take(5))
        await turns()
        feed.queue.put_nowait([("a", 1), ("b", 1)])
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await latest.take(1 << 80) == [("a", 1), ("b", 1)]


async def test_a_failure_reaches_the_reader_of_many_once() -> None:
    latest = Latest(batches_of([("a", 1), ("b", 1), ("c", 1)]), key=key_of, max_keys=2)
    with pytest.raises(aa.TooManyKeysError):
        await latest.take(5)
    assert await latest.take(5) == []


async def test_a_reader_that_is_forgotten_ends_its_task() -> None:
    feed = Feed()
    feed.queue.put_nowait([("a", 1)])
    async for pair in Latest(feed, key=key_of):
        assert pair == ("a", 1)
        break
    gc.collect()
    await turns()
    assert feed.is_closed


@given(
    st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 9)) | st.just(None), max_size=60),
    st.integers(1, 6),
)
def test_any_mixture_of_changes_and_reads_agrees_with_the_obvious(
    steps: list[Pair | None], max_keys: int
) -> None:
    """A list of pairs that is searched is the obvious way; None reads."""
    waiting: Waiting[Pair] = Waiting(key_of, None, max_keys=max_keys, drops_oldest=True)
    obvious: list[Pair] = []
    put = delivered = 0
    for step in steps:
        if step is None:
            if obvious:
                assert waiting.take_first() == obvious.pop(0)
                delivered += 1
            continue
        put += 1
        waiting.put_all([step])
        place = next((at for at, pair in enumerate(obvious) if pair[0] == step[0]), None)
        if place is None:
            obvious = (
                [*obvious[len(obvious) - max_keys + 1 :], step]
                if (len(obvious) >= max_keys)
                else [*obvious, step]
            )
        else:
            obvious[place] = step
    assert waiting.take_all() == obvious
    assert waiting.skipped == put - delivered - len(obvious)


@embedded_only(CLOCK)
@pytest.mark.parametrize("key", [lambda message: message.data[:1], slice(0, 1)])
def test_a_subscription_is_read_while_the_reader_sleeps_and_free_afterwards(key: Any) -> None:
    async def story(world: World) -> None:
        async with world.host("bob").aeron() as bob, world.host("alice").aeron() as alice:
            subscription = await bob.add_subscription(CHANNEL, STREAM_ID)
            publication = await alice.add_publication(CHANNEL, STREAM_ID)
            async with subscription.latest(key) as latest:
                # More than the window of the receiver: nobody waits for the reader.
                for number in range(300):
                    await publication.offer(b"%d" % (number % 2) + b"%04d" % number + bytes(1000))
                await world.sleep(1)
                with pytest.raises(aa.BusyError):
                    subscription.poll(lambda *_: None)
                assert [(await anext(latest)).data[1:5] for _ in range(2)] == [b"0298", b"0299"]
                assert latest.skipped == 298
                assert latest.skipped_of(b"0") == 149
            await publication.offer(b"after")
            assert (await anext(subscription)).data == b"after"

    simulate(story)


@embedded_only(CLOCK)
def test_a_slice_is_the_key_of_messages_of_any_length_and_image() -> None:
    async def story(world: World) -> None:
        async with world.host("bob").aeron() as bob, world.host("alice").aeron() as alice:
            subscription = await bob.add_subscription(CHANNEL, STREAM_ID)
            publications = [
                await alice.add_exclusive_publication(CHANNEL, STREAM_ID) for _ in range(2)
            ]
            async with subscription.latest(slice(0, 2)) as latest:
                for number in range(40):
                    for publication in publications:
                        # The shortest have no whole key, the longest take several frames.
                        for data in (b"", b"a", b"ab", b"ab%d" % number, b"cd" + bytes(9_000)):
                            await publication.offer(data, reserved_value=number)
                await publications[0].offer(b"one")
                await publications[1].offer(b"two")
                await world.sleep(1)
                found = await latest.take(100)
                newest = {message.data[:2]: message for message in found}
                assert len(newest) == len(found) == 6
                assert latest.skipped == 40 * 2 * 5 + 2 - len(found)
                assert len(newest[b"cd"].data) == 9_002
                assert newest[b"ab"].data == b"ab39"
                assert newest[b""].data == b""
                assert newest[b"cd"].reserved_value == newest[b"ab"].reserved_value == 39
                images = {image.session_id: image for image in subscription.images}
                for publication, key in zip(publications, (b"on", b"tw"), strict=True):
                    image = images[publication.session_id]
                    assert newest[key].image is image
                    assert newest[key].position == publication.position == image.position

    simulate(story)


@embedded_only(CLOCK)
def test_a_closed_subscription_ends_the_iteration() -> None:
    async def story(world: World) -> None:
        async with world.host("bob").aeron() as bob, world.host("alice").aeron() as alice:
            subscription = await bob.add_subscription(CHANNEL, STREAM_ID)
            publication = await alice.add_publication(CHANNEL, STREAM_ID)
            await publication.offer(b"a")
            seen = []
            async for message in subscription.latest(lambda message: message.data):
                seen.append(message.data)
                subscription.close()
            assert seen == [b"a"]

    simulate(story)


KEYS = 10_000
BURST = 1_000
BURST_NS = 480_000
ROUNDS = 12
READS_PER_SLEEP = 20
TIMER_S = 10e-6
"""What a timer of a virtual loop adds to the time it was set for."""
FIELDS = Struct("<ii")


@embedded_only(CLOCK)
def test_a_reader_ten_times_too_slow_sees_each_of_ten_thousand_keys_within_50_ms() -> None:
    """Two million messages a second, and a reader that takes 4.8 microseconds for each.

    The publisher waits for the slowest receiver, and another receiver reads everything.
    """

    async def publish(world: World, publication: aa.Publication, began_ns: int) -> int:
        latest_ns = 0
        for burst in range(ROUNDS * KEYS // BURST):
            at_ns = began_ns + burst * BURST_NS
            await world.sleep(max(0, at_ns - world.now_ns) / 1e9)
            turn, first = divmod(burst * BURST, KEYS)
            await publication.offer_many(
                [FIELDS.pack(key, turn) for key in range(first, first + BURST)]
            )
            latest_ns = max(latest_ns, world.now_ns - at_ns)
        return latest_ns

    async def count_all(subscription: aa.Subscription) -> int:
        count = 0
        async for batch in subscription.batches():
            count += len(batch)
            if count == ROUNDS * KEYS:
                break
        return count

    async def story(world: World) -> None:
        hosts = [world.host(name) for name in ("exchange", "slow", "quick")]
        exchange, slow, quick = (host.aeron() for host in hosts)
        async with exchange, slow, quick:
            conflated = await slow.add_subscription(f"{GROUP}|so-rcvbuf=2m|rcv-wnd=1m", STREAM_ID)
            every = await quick.add_subscription(f"{GROUP}|so-rcvbuf=2m|rcv-wnd=1m", STREAM_ID)
            publication = await exchange.add_publication(f"{GROUP}|fc=min", STREAM_ID)
            await conflated.wait_connected(5)
            await every.wait_connected(5)
            began_ns = world.now_ns
            publishing = hosts[0].spawn(publish(world, publication, began_ns))
            counting = hosts[2].spawn(count_all(every))
            newest = [-1] * KEYS
            longest_ns = count = 0
            async with conflated.latest(slice(0, 4)) as latest:
                async for message in latest:
                    key, turn = FIELDS.unpack(message.data)
                    # The first value that the reader has not seen has waited since then.
                    burst = ((newest[key] + 1) * KEYS + key) // BURST
                    waited_ns = world.now_ns - began_ns - burst * BURST_NS
                    longest_ns = max(longest_ns, waited_ns)
                    newest[key] = turn
                    count += 1
                    if count % READS_PER_SLEEP == 0:
                        await world.sleep(READS_PER_SLEEP * 4.8e-6 - TIMER_S)
                    if publishing.done() and min(newest) == ROUNDS - 1:
                        break
                assert count + latest.skipped == ROUNDS * KEYS
                assert latest.skipped > count
            assert longest_ns <= 50 * NS_PER_MS
            assert await publishing < BURST_NS
            assert await counting == ROUNDS * KEYS

    simulate(story)
