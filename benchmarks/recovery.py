"""Question: what does loss cost, and what would the protocol itself make it cost?

`python -m benchmarks.recovery` runs one stream in virtual time for each round trip and each rate of
loss, the same in both directions, with the default window (128 KiB) and MTU (1408). Throughput is
that of 1 kB messages offered as fast as they are taken; delay is that of 100-byte messages offered
a thousand times a second. The last lines compare the goodput at 30 % loss with the limits that
guard against hostile peers and without them.

What the protocol allows, by arithmetic: a window travels in a round trip, and each loss in it costs
one more, because gaps are repaired one after the other; a repair that is lost itself costs again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
from struct import Struct
from typing import TYPE_CHECKING

from aeron_async.clock import NS_PER_MS, NS_PER_SECOND
from aeron_async.driver.core.context import DriverContext
from aeron_async.testing.fates import Conditions
from aeron_async.testing.world import simulate

if TYPE_CHECKING:
    from aeron_async.testing.world import World

LOSSES = (0.0, 0.001, 0.01, 0.05, 0.2)
ROUND_TRIPS_MS = (1, 10, 100)
CHANNEL = "aeron:udp?endpoint=bob:20121|term-length=1m"
WINDOW_LENGTH = 128 * 1024
DATAGRAM_LENGTH = 1_088
"""What a datagram carries of 1 kB messages: one of them."""
MESSAGE = bytes(1_024)
STAMP = Struct("<q92x")
RATE = 1_000
UNGUARDED = DriverContext(
    max_retransmit_burst_length=2**30,
    max_retransmit_percent=100,
    max_retransmit_base_count=2**20,
    max_naks_per_second=10**6,
)


def measure_throughput(conditions: Conditions, seconds: float, context: DriverContext) -> float:
    """Return the bytes of messages received in a second."""

    async def story(world: World) -> float:
        async with world.host("alice").aeron(context) as a, world.host("bob").aeron(context) as b:
            subscription = await b.add_subscription(CHANNEL, 1)
            publication = await a.add_publication(CHANNEL, 1)
            await publication.wait_connected()

            async def offer() -> None:
                while True:
                    await publication.offer(MESSAGE)

            offering = asyncio.create_task(offer())
            received = 0
            started_ns = world.now_ns
            async for message in subscription:
                received += len(message)
                if world.now_ns - started_ns > seconds * NS_PER_SECOND:
                    break
            took_ns = world.now_ns - started_ns
            offering.cancel()
            await asyncio.wait([offering])
            return received * NS_PER_SECOND / took_ns

    result: float = simulate(story, seed=1, conditions=conditions, limit_s=1e6)
    return result


def measure_delay(conditions: Conditions, count: int) -> list[int]:
    """Return the delay of each message from its offer to its delivery, sorted, in nanoseconds."""

    async def story(world: World) -> list[int]:
        async with world.host("alice").aeron() as a, world.host("bob").aeron() as b:
            subscription = await b.add_subscription(CHANNEL, 1)
            publication = await a.add_publication(CHANNEL, 1)
            await publication.wait_connected()

            async def offer() -> None:
                started_ns = world.now_ns
                for number in range(count):
                    due_ns = started_ns + number * NS_PER_SECOND // RATE
                    await asyncio.sleep(max(0, due_ns - world.now_ns) / NS_PER_SECOND)
                    # The time it should have been offered, so that waiting for room counts too.
                    await publication.offer(STAMP.pack(due_ns))

            offering = asyncio.create_task(offer())
            delays = []
            async for message in subscription:
                delays.append(world.now_ns - STAMP.unpack(message.data)[0])
                if len(delays) == count:
                    break
            await offering
            return sorted(delays)

    result: list[int] = simulate(story, seed=1, conditions=conditions, limit_s=1e6)
    return result


def allowed_throughput(loss: float, round_trip_s: float) -> float:
    """Return bytes a second: a window in a round trip, and one more for each repair in it."""
    repairs = WINDOW_LENGTH / DATAGRAM_LENGTH * loss / ((1 - loss) ** 2)
    return WINDOW_LENGTH * len(MESSAGE) / DATAGRAM_LENGTH / (round_trip_s * (1 + repairs))


def allowed_delay_ns(loss: float, round_trip_ns: int) -> int:
    """Return the delay that all but one message in a hundred stay within.

    A message waits for every loss of the round trip before it. The least number of tries is taken
    that repairs all of those for all but one in a hundred.
    """
    tries = 0
    behind = max(1.0, RATE * round_trip_ns / NS_PER_SECOND)
    fails_twice = 1 - (1 - loss) ** 2
    chance = loss
    while 1 - (1 - chance) ** behind > 0.01:  # noqa: PLR2004 - the hundredth
        tries += 1
        chance *= fails_twice
    noticed_ns = NS_PER_SECOND // RATE if tries else 0
    return round_trip_ns // 2 + noticed_ns + tries * round_trip_ns


def row(loss: float, round_trip_ms: int) -> dict[str, float]:
    """Return the figures of one cell."""
    round_trip_ns = round_trip_ms * NS_PER_MS
    conditions = Conditions(loss=loss, delay_ns=round_trip_ns // 2)
    seconds = max(1.0, round_trip_ms / 10)
    delays = measure_delay(conditions, 10_000)
    return {
        "round_trip_ms": round_trip_ms,
        "loss_percent": loss * 100,
        "mb_per_s": measure_throughput(conditions, seconds, DriverContext()) / 1e6,
        "allowed_mb_per_s": allowed_throughput(loss, round_trip_ms / 1_000) / 1e6,
        "p50_ms": delays[len(delays) // 2] / NS_PER_MS,
        "p99_ms": delays[len(delays) * 99 // 100] / NS_PER_MS,
        "allowed_p99_ms": allowed_delay_ns(loss, round_trip_ns) / NS_PER_MS,
    }


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    logging.getLogger("aeron_async").setLevel(logging.CRITICAL)
    if not options.json:
        print("| RTT ms | loss % | MB/s | by arithmetic | p50 ms | p99 ms | by arithmetic |")
        print("|---|---|---|---|---|---|---|")
    for round_trip_ms in ROUND_TRIPS_MS:
        for loss in LOSSES:
            figures = row(loss, round_trip_ms)
            if options.json:
                print(json.dumps(figures), flush=True)
                continue
            print(
                "| " + " | ".join(f"{value:.4g}" for value in figures.values()) + " |", flush=True
            )
    for round_trip_ms in ROUND_TRIPS_MS[:2]:
        conditions = Conditions(loss=0.3, delay_ns=round_trip_ms * NS_PER_MS // 2)
        guarded = measure_throughput(conditions, 5.0, DriverContext())
        unguarded = measure_throughput(conditions, 5.0, UNGUARDED)
        print(
            f"30 % loss, RTT {round_trip_ms} ms: {guarded / 1e6:.3g} MB/s guarded, "
            f"{unguarded / 1e6:.3g} MB/s unguarded, ratio {guarded / unguarded:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
