"""Round trips by functions: `on_message` at both ends, so that no task is woken for a message."""

from __future__ import annotations

import asyncio
import time
from array import array
from typing import TYPE_CHECKING, Any, Final

import aeron_async as aa
from aeron_async.cli.bench_child import (
    ANSWER_TIMEOUT_S,
    CONNECT_TIMEOUT_S,
    PING_STREAM_ID,
    PONG_STREAM_ID,
    RoundTripPlan,
    figures_of,
    ready,
)
from aeron_async.cli.bench_processes import BenchError
from aeron_async.cli.ping import TIMESTAMP, sleep_until
from aeron_async.clock import NS_PER_SECOND

if TYPE_CHECKING:
    from aeron_async.cli.bench_child import Role

__all__ = ["ROLES"]


async def pong(raw: dict[str, Any]) -> dict[str, float]:
    """Send every ping back from the function that gets it; return their number."""
    plan = RoundTripPlan(**raw)
    due, count = sum(plan.counts()), 0
    async with aa.Aeron.connect() as aeron:
        subscription = await aeron.add_subscription(plan.there, PING_STREAM_ID)
        publication = await aeron.add_exclusive_publication(plan.back, PONG_STREAM_ID)
        done = asyncio.get_running_loop().create_future()

        def answer(message: aa.Message) -> None:
            nonlocal count
            publication.try_offer(message.data)
            count += 1
            if count == due:
                done.set_result(None)

        subscription.on_message(answer)
        ready()
        await done
        await publication.drain(CONNECT_TIMEOUT_S)
    return {"echoed": count}


async def ping(raw: dict[str, Any]) -> dict[str, float]:
    """Send pings, and return percentiles of the round trips, each from when it was due.

    Raises:
        BenchError: Some did not come back.
    """
    plan = RoundTripPlan(**raw)
    warm_up_count, count = plan.counts()
    latencies_ns: array[int] = array("q")
    async with aa.Aeron.connect() as aeron:
        subscription = await aeron.add_subscription(plan.back, PONG_STREAM_ID)
        publication = await aeron.add_exclusive_publication(plan.there, PING_STREAM_ID)
        await publication.wait_connected(CONNECT_TIMEOUT_S)
        await subscription.wait_connected(CONNECT_TIMEOUT_S)
        done = asyncio.get_running_loop().create_future()

        def take(message: aa.Message) -> None:
            latencies_ns.append(time.monotonic_ns() - TIMESTAMP.unpack_from(message.data)[0])
            if len(latencies_ns) == warm_up_count + count:
                done.set_result(None)

        subscription.on_message(take)
        ball, interval_ns = bytearray(plan.length), NS_PER_SECOND / plan.rate
        started_ns = time.monotonic_ns()
        for number in range(warm_up_count + count):
            due_ns = started_ns + int(number * interval_ns)
            await sleep_until(due_ns)
            TIMESTAMP.pack_into(ball, 0, due_ns)
            await publication.offer(ball)
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                await done
        except TimeoutError:
            message = f"{warm_up_count + count - len(latencies_ns)} pings did not come back"
            raise BenchError(message) from None
    return figures_of(latencies_ns[warm_up_count:])


ROLES: Final[dict[str, Role]] = {"called_ping": ping, "called_pong": pong}
