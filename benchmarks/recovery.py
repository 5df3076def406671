"""Question: what does loss cost, and what would the protocol itself make it cost?

`python -m benchmarks.recovery` runs one stream in virtual time for each round trip and each rate of
loss, the same in both directions, with the default window (128 KiB) and MTU (1408). Throughput is
that of 1 kB messages offered as fast as they are taken; delay is that of 100-byte messages offered
a thousand times a second. The last lines compare the goodput at 30 % loss with the limits that
guard against hostile peers and without them.

What the protocol allows is played beside it, without timers and without code: gaps repaired one
after the other, a round trip for each try.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
from random import Random
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

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
SMALL_DATAGRAM_LENGTH = 160
HEARTBEAT_S = 0.1
IDEAL_COUNT = 10_000
RATE = 1_000
UNGUARDED = DriverContext(
    max_retransmit_burst_length=2**30,
    max_retransmit_percent=100,
    max_retransmit_base_count=2**20,
    max_naks_per_second=10**6,
)


class Delivery(NamedTuple):
    """When a message was sent, and when it was delivered, in seconds."""

    sent_s: float
    delivered_s: float


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


def ideal(loss: float, round_trip_s: float, interval_s: float, window: int) -> list[Delivery]:
    """Play the protocol as it would be without timers, code or queues, and return what it delivers.

    A gap is noticed when something behind it arrives, or by a heartbeat where the window is used
    up. Gaps are repaired one after the other, each try takes a round trip, and a try fails when
    either the NAK or the repair is lost; then the next one follows at once.
    """
    random = Random(2)
    one_way_s = round_trip_s / 2
    sent: list[float] = []
    delivered: list[float] = []
    repaired_s = 0.0
    for number in range(IDEAL_COUNT):
        send_s = max(number * interval_s, sent[-1] if sent else 0.0)
        if number >= window:
            if number - window >= len(delivered):
                # The window is used up: only a heartbeat shows that the last datagrams were lost.
                noticed_s = sent[-1] + HEARTBEAT_S + one_way_s
                repaired_s = repair(max(noticed_s, repaired_s), loss, round_trip_s, random)
                delivered += [repaired_s] * (len(sent) - len(delivered))
            send_s = max(send_s, delivered[number - window] + one_way_s)
        sent.append(send_s)
        if random.random() < loss:
            continue
        arrived_s = send_s + one_way_s
        if len(delivered) < number:
            repaired_s = repair(max(arrived_s, repaired_s), loss, round_trip_s, random)
            delivered += [repaired_s] * (number - len(delivered))
        delivered.append(max(arrived_s, repaired_s))
    return [Delivery(*each) for each in zip(sent, delivered, strict=False)]


def repair(start_s: float, loss: float, round_trip_s: float, random: Random) -> float:
    """Return when a gap is filled that is asked for from `start_s` on."""
    while True:
        start_s += round_trip_s
        if random.random() < (1 - loss) ** 2:
            return start_s


def ideal_throughput(loss: float, round_trip_s: float) -> float:
    """Return bytes of messages a second, offered as fast as they are taken."""
    window = WINDOW_LENGTH // DATAGRAM_LENGTH
    last = ideal(loss, round_trip_s, 0.0, window)[-1]
    return IDEAL_COUNT * len(MESSAGE) / last.delivered_s


def ideal_p99_ms(loss: float, round_trip_s: float) -> float:
    """Return the delay in milliseconds that one message in a hundred exceeds."""
    window = WINDOW_LENGTH // SMALL_DATAGRAM_LENGTH
    deliveries = ideal(loss, round_trip_s, 1 / RATE, window)
    delays = sorted(each.delivered_s - n / RATE for n, each in enumerate(deliveries))
    return delays[len(delays) * 99 // 100] * 1_000


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
        "ideal_mb_per_s": ideal_throughput(loss, round_trip_ms / 1_000) / 1e6,
        "p50_ms": delays[len(delays) // 2] / NS_PER_MS,
        "p99_ms": delays[len(delays) * 99 // 100] / NS_PER_MS,
        "ideal_p99_ms": ideal_p99_ms(loss, round_trip_ms / 1_000),
    }


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    logging.getLogger("aeron_async").setLevel(logging.CRITICAL)
    if not options.json:
        print("| RTT ms | loss % | MB/s | ideal | p50 ms | p99 ms | ideal |")
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
