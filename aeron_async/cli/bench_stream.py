"""A stream as fast as it goes: the publisher's half and the subscriber's, each with its figures.

Both have a part to warm up, and one that counts. Counted is what has arrived, from the mark between
the two parts to the mark at the end, and every message is compared with the one that was due.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING

import attrs

from aeron_async.cli.bench_messages import check_mark, make_mark, make_messages

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from aeron_async.client.aeron import Aeron
    from aeron_async.client.subscription import Subscription

__all__ = ["StreamPlan", "exchange", "offer_parts", "publish", "subscribe", "take_parts"]

CONNECT_TIMEOUT_S = 20.0
STREAM_ID = 1001


@attrs.frozen(kw_only=True)
class StreamPlan:
    """What a stream is to be.

    Attributes:
        channel: Of this end.
        length: Of a message, in bytes.
        seconds: How long messages are offered that count.
        warm_up_s: How long messages are offered before.
    """

    channel: str
    length: int = 100
    seconds: float = 2.0
    warm_up_s: float = 0.3


async def publish(aeron: Aeron, plan: StreamPlan) -> dict[str, float]:
    """Offer messages, and return what the part that counts took."""
    publication = await aeron.add_exclusive_publication(plan.channel, STREAM_ID)
    await publication.wait_connected(CONNECT_TIMEOUT_S)
    figures = await offer_parts(publication.offer, plan)
    await publication.drain(CONNECT_TIMEOUT_S)
    return figures


async def offer_parts(
    offer: Callable[[bytes], Awaitable[object]], plan: StreamPlan
) -> dict[str, float]:
    """Offer both parts, each with its mark, and return what the second took."""
    messages = make_messages(plan.length)
    figures: dict[str, float] = {}
    for seconds in (plan.warm_up_s, plan.seconds):
        count, started_s, started_cpu_s = 0, time.perf_counter(), time.process_time()
        end_s = started_s + seconds
        while time.perf_counter() < end_s:
            for message in messages:
                await offer(message)
            count += len(messages)
        await offer(make_mark(count))
        share = (time.process_time() - started_cpu_s) / (time.perf_counter() - started_s)
        figures = {"offered": count, "publisher_share": share}
    return figures


async def subscribe(
    aeron: Aeron, plan: StreamPlan, *, ready: Callable[[], object] = lambda: None
) -> dict[str, float]:
    """Take messages, and return how many came in the part that counts, a second.

    Args:
        aeron: Whose subscription it is.
        plan: What is to come.
        ready: Called when messages may come.

    Raises:
        BenchError: A message is not the one that is due.
    """
    subscription = await aeron.add_subscription(plan.channel, STREAM_ID)
    ready()
    return await take_parts(partial(receive_part, subscription), plan)


async def take_parts(
    receive: Callable[[Iterator[bytes]], Awaitable[int]], plan: StreamPlan
) -> dict[str, float]:
    """Take both parts, and return what the second came to.

    Args:
        receive: Takes messages up to the next mark, and returns how many there were.
        plan: What is to come.
    """
    messages = make_messages(plan.length)
    await receive(cycle(messages))
    started_s, started_cpu_s = time.perf_counter(), time.process_time()
    count = await receive(cycle(messages))
    elapsed_s = time.perf_counter() - started_s
    return {
        "messages": count,
        "messages_per_s": count / elapsed_s,
        "mb_per_s": count * plan.length / elapsed_s / 1e6,
        "subscriber_share": (time.process_time() - started_cpu_s) / elapsed_s,
    }


async def receive_part(subscription: Subscription, wanted: Iterator[bytes]) -> int:
    """Take messages up to the next mark, and return how many there were.

    Raises:
        BenchError: A message is not the one that is due.
    """
    count, due = 0, wanted.__next__
    async for message in subscription:
        if message.data != due():
            check_mark(message.data, count)
            break
        count += 1
    return count


async def exchange(aeron: Aeron, plan: StreamPlan) -> dict[str, float]:
    """Do both halves in one event loop, and return the figures of both."""
    ready = asyncio.Event()
    try:
        async with asyncio.TaskGroup() as group:
            subscribing = group.create_task(subscribe(aeron, plan, ready=ready.set))
            await ready.wait()
            publishing = group.create_task(publish(aeron, plan))
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return publishing.result() | subscribing.result()
