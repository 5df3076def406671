"""Clients of a driver in another process: streams one by one and in lists, round trips, silence.

Each is given the Aeron directory; without one it embeds its own driver, to compare. A stream is
counted, and not compared byte by byte unless the plan asks for it: over shared memory, comparing a
message takes as long as receiving it. A count that differs from what was offered is an error.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from functools import partial
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any, Final

import attrs

import aeron_async as aa
from aeron_async.cli.bench_child import (
    CONNECT_TIMEOUT_S,
    PING_STREAM_ID,
    PONG_STREAM_ID,
    STREAM_ID,
    StreamPlan,
    figures_of,
    offer_parts,
    ready,
    receive_part,
    say,
    take_parts,
)
from aeron_async.cli.bench_processes import (
    MARK,
    NUMBER,
    BenchError,
    check_mark,
    make_mark,
    make_messages,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from aeron_async.cli.bench_child import Role

__all__ = ["ROLES"]

LIST_BYTES_MAX: Final = 1024 * 1024
PAUSE_AFTER_MARK_S: Final = 0.2
"""Long enough for a reader to take everything up to a mark: the mark is then the last of a list."""


@attrs.frozen(kw_only=True)
class SharedPlan(StreamPlan):
    """Plan of a stream between clients of one driver, or of two.

    Attributes:
        directory: Aeron directory of this end's driver; empty for a driver of its own.
        is_exclusive: Whether the publication is exclusive.
        is_checked: Whether every byte of a message is compared, in a list as well.
        list_length: Messages in a list; 0 for one by one.
        is_read: Whether the bytes of the messages in a list are looked at.
        is_arrow: Whether lists are Arrow arrays at both ends.
    """

    directory: str = ""
    is_exclusive: bool = True
    is_checked: bool = False
    list_length: int = 0
    is_read: bool = True
    is_arrow: bool = False


def client(directory: str, idle_strategy: str | None = None) -> aa.Aeron:
    """Return a client of the driver in a directory, or of one of its own."""
    if not directory:
        return aa.Aeron.connect()
    return aa.Aeron.connect(directory=directory, idle_strategy=idle_strategy)


async def publish(raw: dict[str, Any]) -> dict[str, float]:
    """Offer messages, one by one or in lists, and return the figures of the part that counts."""
    plan = SharedPlan(**raw)
    async with client(plan.directory) as aeron:
        return await publish_by(aeron, plan)


async def publish_by(aeron: aa.Aeron, plan: SharedPlan) -> dict[str, float]:
    """Do so by a client that is there."""
    add = aeron.add_exclusive_publication if plan.is_exclusive else aeron.add_publication
    publication = await add(plan.channel, STREAM_ID)
    await publication.wait_connected(CONNECT_TIMEOUT_S)
    if plan.list_length:
        figures = await offer_lists(publication, plan)
    else:
        figures = await offer_parts(publication.offer, plan)
    await publication.drain(CONNECT_TIMEOUT_S)
    return figures


def messages_of(plan: SharedPlan) -> list[bytes]:
    """Return the messages of one list."""
    return list(islice(cycle(make_messages(plan.length)), plan.list_length))


async def offer_lists(publication: aa.Publication, plan: SharedPlan) -> dict[str, float]:
    """Offer both parts in lists, each with its mark, and return the figures of the second."""
    messages = messages_of(plan)
    offer = partial(publication.offer_many, messages)
    if plan.is_arrow:
        import pyarrow as pa  # noqa: PLC0415 - it is an extra

        offer = partial(publication.offer_arrow, pa.array(messages, pa.large_binary()))
    figures: dict[str, float] = {}
    for seconds in (plan.warm_up_s, plan.seconds):
        count, started_s, started_cpu_s = 0, time.perf_counter(), time.process_time()
        end_s = started_s + seconds
        while time.perf_counter() < end_s:
            await offer()
            count += len(messages)
        await publication.offer(make_mark(count))
        share = (time.process_time() - started_cpu_s) / (time.perf_counter() - started_s)
        figures = {"offered": count, "publisher_share": share}
        await asyncio.sleep(PAUSE_AFTER_MARK_S)
    return figures


async def subscribe(raw: dict[str, Any]) -> dict[str, float]:
    """Count messages, and return the rate in the part that counts."""
    plan = SharedPlan(**raw)
    async with client(plan.directory) as aeron:
        return await subscribe_by(aeron, plan, ready=ready)


async def subscribe_by(
    aeron: aa.Aeron, plan: SharedPlan, *, ready: Callable[[], None]
) -> dict[str, float]:
    """Do so by a client that is there."""
    assert plan.length != MARK.size, "a mark differs by its length"
    subscription = await aeron.add_subscription(plan.channel, STREAM_ID)
    ready()
    if plan.list_length:
        return await take_lists(subscription, plan)
    if plan.is_checked:
        return await take_parts(partial(receive_part, subscription), plan)
    return await take_parts(partial(count_part, subscription, plan.length), plan)


async def exchange(raw: dict[str, Any]) -> dict[str, float]:
    """Do both in one event loop, and return the figures of both."""
    plan, is_there = SharedPlan(**raw), asyncio.Event()
    async with client(plan.directory) as aeron, asyncio.TaskGroup() as group:
        subscribing = group.create_task(subscribe_by(aeron, plan, ready=is_there.set))
        await is_there.wait()
        publishing = group.create_task(publish_by(aeron, plan))
    return publishing.result() | subscribing.result()


async def count_part(subscription: aa.Subscription, length: int, _wanted: Iterator[bytes]) -> int:
    """Take the bytes of messages up to the next mark, and return their number.

    Raises:
        BenchError: Messages are missing or doubled.
    """
    count = 0
    async for message in subscription:
        if len(message.data) != length:
            check_mark(message.data, count)
            break
        count += 1
    return count


async def take_lists(subscription: aa.Subscription, plan: SharedPlan) -> dict[str, float]:
    """Take lists of messages up to the second mark, and return the rate of the second part.

    Raises:
        BenchError: Messages are missing or doubled.
    """
    count, part, list_count, started_s, started_cpu_s = 0, 0, 0, 0.0, 0.0
    last_of = taker(plan)
    async for messages in subscription.batches(plan.list_length, max_bytes=LIST_BYTES_MAX):
        if not count:
            list_count, started_s, started_cpu_s = 0, time.perf_counter(), time.process_time()
        list_count += 1
        last = last_of(messages, count)
        count += len(messages)
        if len(last) == plan.length:
            continue
        elapsed_s = time.perf_counter() - started_s
        check_mark(last, count - 1)
        part += 1
        if part == len((plan.warm_up_s, plan.seconds)):
            return {
                "messages": count - 1,
                "messages_per_s": (count - 1) / elapsed_s,
                "mb_per_s": (count - 1) * plan.length / elapsed_s / 1e6,
                "subscriber_share": (time.process_time() - started_cpu_s) / elapsed_s,
                "messages_per_list": count / list_count,
            }
        count = 0
    message = "the subscription was closed before the last mark"
    raise BenchError(message)


def taker(plan: SharedPlan) -> Callable[[aa.MessageBatch, int], bytes]:
    """Return what takes a list as the plan asks for it, and returns its last message.

    It gets the number of messages before the list. That of a plan that is checked raises BenchError
    if a message but the last, which may be a mark, is not the one that comes next.
    """
    # A list may begin anywhere in a round.
    expected = messages_of(plan) * 2

    def take(messages: aa.MessageBatch, count: int) -> bytes:
        if not plan.is_read:
            return messages[-1].data
        payloads = messages.payloads()
        if plan.is_checked:
            begin = count % plan.list_length
            check(payloads[:-1] == expected[begin : begin + len(payloads) - 1], count)
        return payloads[-1]

    return take_arrays(plan, expected) if plan.is_arrow else take


def take_arrays(plan: SharedPlan, messages: list[bytes]) -> Callable[[aa.MessageBatch, int], bytes]:
    """Return the same for lists that are taken as Arrow arrays."""
    import pyarrow as pa  # noqa: PLC0415 - it is an extra

    expected = pa.array(messages, pa.large_binary())

    def take(batch: aa.MessageBatch, count: int) -> bytes:
        payloads = batch.to_arrow().column("payload")
        if plan.is_checked:
            begin, length = count % plan.list_length, len(payloads) - 1
            check(payloads.slice(0, length).equals(expected.slice(begin, length)), count)
        last = payloads[-1].as_py()
        assert isinstance(last, bytes)
        return last

    return take


def check(is_expected: bool, count: int) -> None:  # noqa: FBT001 - the result of a comparison
    """Check that a list is what comes after so many messages.

    Raises:
        BenchError: It is not.
    """
    if not is_expected:
        message = f"a list after {count:,} messages is not what was published"
        raise BenchError(message)


@attrs.frozen(kw_only=True)
class SharedRoundTripPlan:
    """Plan of round trips between clients of one driver.

    Attributes:
        directory: Its Aeron directory.
        channel: Channel of both directions.
        idle_strategy: Of the client; None for its default.
        length: Length of a message, in bytes.
        pause_s: Silence between an answer and the next ping; 0 for none.
        seconds: Duration of the part that counts.
        least_count: Least round trips, whatever that takes.
        warm_up_s: Duration of the warm-up, without pauses.
    """

    directory: str
    channel: str
    idle_strategy: str | None = None
    length: int = 100
    pause_s: float = 0.0
    seconds: float = 2.0
    least_count: int = 50
    warm_up_s: float = 0.3


async def pong(raw: dict[str, Any]) -> dict[str, float]:
    """Send every message back until the process is ended."""
    plan = SharedRoundTripPlan(**raw)
    async with client(plan.directory, plan.idle_strategy) as aeron:
        subscription = await aeron.add_subscription(plan.channel, PING_STREAM_ID)
        publication = await aeron.add_exclusive_publication(plan.channel, PONG_STREAM_ID)
        ready()
        async for message in subscription:
            await publication.offer(message.data)
    return {}


async def ping(raw: dict[str, Any]) -> dict[str, float]:
    """Send messages one at a time, each after the answer to the last, and return percentiles."""
    plan = SharedRoundTripPlan(**raw)
    async with client(plan.directory, plan.idle_strategy) as aeron:
        subscription = await aeron.add_subscription(plan.channel, PONG_STREAM_ID)
        publication = await aeron.add_exclusive_publication(plan.channel, PING_STREAM_ID)
        await publication.wait_connected(CONNECT_TIMEOUT_S)
        await subscription.wait_connected(CONNECT_TIMEOUT_S)
        await round_trips(
            publication,
            subscription,
            attrs.evolve(plan, seconds=plan.warm_up_s, pause_s=0.0, least_count=1),
        )
        return figures_of(await round_trips(publication, subscription, plan))


async def round_trips(
    publication: aa.Publication, subscription: aa.Subscription, plan: SharedRoundTripPlan
) -> array[int]:
    """Return how long each round trip took, in nanoseconds.

    Raises:
        BenchError: An answer is not the message, or does not come.
    """
    found: array[int] = array("q")
    message = bytearray(plan.length)
    end_s = time.perf_counter() + plan.seconds
    while time.perf_counter() < end_s or len(found) < plan.least_count:
        if plan.pause_s:
            await asyncio.sleep(plan.pause_s)
        NUMBER.pack_into(message, 0, len(found))
        started_ns = time.monotonic_ns()
        await publication.offer(message)
        try:
            answer = await anext(subscription)
        except StopAsyncIteration:
            text = "the subscription was closed before an answer came"
            raise BenchError(text) from None
        found.append(time.monotonic_ns() - started_ns)
        if answer.data != message:
            text = f"the answer to message {len(found)} is another one"
            raise BenchError(text)
    return found


async def rest(raw: dict[str, Any]) -> dict[str, float]:
    """Publish one stream and read another, in both of which nothing is said, until it is ended.

    It reports when both are connected.
    """
    channel = raw["channel"]
    async with client(raw["directory"]) as aeron:
        subscription = await aeron.add_subscription(channel, raw["hears"])
        publication = await aeron.add_publication(channel, raw["says"])
        ready()
        await publication.wait_connected(CONNECT_TIMEOUT_S)
        await subscription.wait_connected(CONNECT_TIMEOUT_S)
        say(connected=True)
        await anext(subscription)
    message = "somebody has said something"
    raise BenchError(message)


ROLES: Final[Mapping[str, Role]] = {
    "shared_exchange": exchange,
    "shared_publish": publish,
    "shared_subscribe": subscribe,
    "shared_ping": ping,
    "shared_pong": pong,
    "shared_rest": rest,
}
