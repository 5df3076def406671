"""How many messages a second go from a publication to a subscription in the same event loop.

Prints, as JSON, messages and payload bytes a second over UDP on loopback and over IPC, each the
median of some rounds, and how many times faster the second is. Counted is what arrived:

    python -m benchmarks.same_loop --count 200000 --length 100 --loop uvloop
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time

import uvloop

import aeron_async as aa

STREAM_ID = 1001
CHANNELS = {"udp": "aeron:udp?endpoint=127.0.0.1:20121", "ipc": "aeron:ipc"}
CONNECT_TIMEOUT_S = 30


async def measure(channel: str, count: int, length: int) -> float:
    """Return how many messages of `length` bytes arrived a second, of `count` offered."""
    async with aa.Aeron.connect() as aeron:
        subscription = await aeron.add_subscription(channel, STREAM_ID)
        publication = await aeron.add_exclusive_publication(channel, STREAM_ID)
        await publication.wait_connected(timeout=CONNECT_TIMEOUT_S)
        message = bytes(length)

        async def offer() -> None:
            for _ in range(count):
                await publication.offer(message)

        async with asyncio.TaskGroup() as group:
            started_s = time.perf_counter()
            group.create_task(offer())
            arrived = 0
            async for received in subscription:
                arrived += len(received) == length
                if arrived == count:
                    break
            taken_s = time.perf_counter() - started_s
    return count / taken_s


def main() -> None:
    """Measure both channels by turns, and print the medians."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--length", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--loop", choices=("asyncio", "uvloop"), default="uvloop")
    options = parser.parse_args()
    factory = uvloop.new_event_loop if options.loop == "uvloop" else asyncio.new_event_loop
    rates: dict[str, list[float]] = {name: [] for name in CHANNELS}
    for _ in range(options.rounds):
        for name, channel in CHANNELS.items():
            with asyncio.Runner(loop_factory=factory) as runner:
                rates[name].append(runner.run(measure(channel, options.count, options.length)))
    medians = {name: statistics.median(each) for name, each in rates.items()}
    found = {
        name: {"messages_per_s": round(rate), "bytes_per_s": round(rate * options.length)}
        for name, rate in medians.items()
    }
    print(json.dumps(vars(options) | found | {"ratio": round(medians["ipc"] / medians["udp"], 2)}))


if __name__ == "__main__":
    main()
