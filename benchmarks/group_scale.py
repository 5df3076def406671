"""Question: how many receivers of a group ask for the same lost datagram?

`python -m benchmarks.group_scale` puts 1, 10, 100 and 1,000 receivers, each with a driver of its
own, behind one simulated link that loses datagrams for all of them alike: the worst case for a
group. Messages are so far apart that every loss is repaired by itself.

What RFC 5401 expects is beside it: each receiver draws its delay from a truncated exponential
distribution, and those ask that draw no later than a round trip after the first, for then its
repair is on the way but not there. The expectation is integrated, not sampled.

Where a repair is lost too, the sender turns a deaf ear to NAKs for its linger of 10 ms, which is as
long as the longest delay: the whole group has asked by then. So each size is played twice, once
with links that lose no repair.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import math
from contextlib import AsyncExitStack
from random import Random
from typing import TYPE_CHECKING

from aeron_async.clock import NS_PER_MS
from aeron_async.driver.core.context import DriverContext
from aeron_async.protocol.datagram import frame_type
from aeron_async.protocol.header import FrameType
from aeron_async.testing.fates import Conditions
from aeron_async.testing.trace import Verdict
from aeron_async.testing.world import simulate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aeron_async.client.aeron import Aeron
    from aeron_async.client.subscription import Subscription
    from aeron_async.driver.media.sockets import SocketAddress
    from aeron_async.testing.fates import Passage
    from aeron_async.testing.world import World

CHANNEL = "aeron:udp?endpoint=224.20.30.39:20121|interface=10.0.0.0/8|term-length=64k"
RECEIVERS = (1, 10, 100, 1_000)
LOSS = 0.05
ONE_WAY_NS = 500_000
INTERVAL_S = 0.1
STEPS = 20_000


def expected_naks(receivers: int, round_trip_ms: float, context: DriverContext) -> float:
    """Return how many of a group ask for one lost datagram, by RFC 5401's distribution."""
    longest_ms = context.nak_multicast_max_backoff_ns / NS_PER_MS
    rate = math.log(context.nak_multicast_group_size) + 1
    whole = math.exp(rate) - 1

    def share_before(delay_ms: float) -> float:
        clipped = min(max(delay_ms, 0.0), longest_ms)
        return (math.exp(rate * clipped / longest_ms) - 1) / whole

    step_ms = longest_ms / STEPS
    total = 0.0
    for number in range(STEPS):
        delay_ms = (number + 0.5) * step_ms
        density = share_before(delay_ms + step_ms / 2) - share_before(delay_ms - step_ms / 2)
        # No other receiver has asked so much earlier that the repair has arrived.
        total += density * (1 - share_before(delay_ms - round_trip_ms)) ** (receivers - 1)
    return receivers * total


class LosesOnce:
    """Loses a share of the data, and nothing that is sent again."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._seen: set[bytes] = set()

    def decide(self, datagram: bytes) -> Sequence[Passage]:
        """Return what arrives in place of a datagram."""
        is_new = frame_type(datagram) == FrameType.DATA and datagram not in self._seen
        self._seen.add(datagram)
        return () if is_new and self._random.random() < LOSS else ((0, datagram),)


def measure(receivers: int, count: int, *, loses_repairs: bool) -> dict[str, float]:
    """Return how many datagrams were lost, and what that brought."""

    async def story(world: World) -> dict[str, float]:
        # Members on one machine hear the same datagram off its one link, or all of them miss it.
        sender, crowd = world.host("sender"), world.host("crowd")
        context = DriverContext(max_naks_per_second=10**6)
        async with AsyncExitStack() as stack:
            publishing = await stack.enter_async_context(sender.aeron(context))
            reading = [
                await stack.enter_async_context(crowd.aeron(context)) for _ in range(receivers)
            ]
            subscriptions = [await each.add_subscription(CHANNEL, 1) for each in reading]
            publication = await publishing.add_publication(f"{CHANNEL}|fc=min", 1)
            await publication.wait_connected()
            for subscription in subscriptions:
                await subscription.wait_connected()
            lost = Losses(world)
            link, quiet = world.link(sender, crowd), Conditions(delay_ns=ONE_WAY_NS)
            if loses_repairs:
                link.set_conditions(Conditions(loss=LOSS, delay_ns=ONE_WAY_NS))
            else:
                link.set_conditions(quiet, LosesOnce(receivers))
            async with asyncio.TaskGroup() as group:
                for subscription in subscriptions:
                    group.create_task(read(subscription, count))
                for number in range(count):
                    await publication.offer(number.to_bytes(4, "little"))
                    await asyncio.sleep(INTERVAL_S)
                link.set_conditions(quiet)
            naks = sum(total(each, "NAKs sent") for each in reading)
            return {
                "lost": lost.count,
                "naks": naks,
                "retransmits": total(publishing, "Retransmits sent"),
                "naks_per_loss": naks / lost.count,
            }

    result: dict[str, float] = simulate(
        story, seed=receivers, conditions=Conditions(delay_ns=ONE_WAY_NS), limit_s=1e6
    )
    return result


async def read(subscription: Subscription, count: int) -> None:
    """Take so many messages, every one of them, in order."""
    for number in range(count):
        message = await anext(subscription)
        assert int.from_bytes(message.data, "little") == number


class Losses:
    """Counts the datagrams of data that the network loses, those sent again included."""

    def __init__(self, world: World) -> None:
        self.count = 0
        world.network.trace.watch(self)

    def __call__(
        self,
        now_ns: int,
        verdict: Verdict,
        source: SocketAddress,
        destination: SocketAddress,
        datagram: bytes,
    ) -> None:
        """Look at a datagram."""
        del now_ns, source, destination
        if verdict is Verdict.LOST and frame_type(datagram) == FrameType.DATA:
            self.count += bool(int.from_bytes(datagram[:4], "little"))


def total(aeron: Aeron, label: str) -> int:
    """Return the value of one of a driver's counters."""
    return sum(each.value for each in aeron.counters if each.label == label)


def main() -> None:
    """Print one line for each size of the group."""
    parser = argparse.ArgumentParser(description="NAKs of a group, by its size.")
    parser.add_argument("--messages", type=int, default=1_000, help="offered to each group")
    parser.add_argument("--receivers", type=int, nargs="*", default=RECEIVERS)
    parser.add_argument("--json", action="store_true", help="one line of JSON instead of a table")
    options = parser.parse_args()
    logging.getLogger("aeron_async").setLevel(logging.CRITICAL)
    context = DriverContext()
    round_trip_ms = 2 * ONE_WAY_NS / NS_PER_MS
    results = []
    for receivers in options.receivers:
        count = max(60, options.messages // receivers)
        once, always = [
            measure(receivers, count, loses_repairs=loses_repairs)
            for loses_repairs in (False, True)
        ]
        expected = expected_naks(receivers, round_trip_ms, context)
        results.append(
            {"receivers": receivers, "expected": expected, "once": once, "always": always}
        )
        if not options.json:
            print(
                f"{receivers:>6} receivers: {once['naks_per_loss']:6.2f} NAKs for each loss, "
                f"expected {expected:6.2f}; {always['naks_per_loss']:6.2f} where repairs are lost "
                f"too ({once['lost']} and {always['lost']} losses)"
            )
    if options.json:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
