"""Question: how late does a slow reader see a price, and whom does it hold back?

    python -m benchmarks.conflation --rate 500000 --keys 10000 --slowness 10

One process publishes so many prices a second of so many keys, over UDP; with `--way ipc` by shared
memory, through a driver in that process. Another process has two readers of the stream in one event
loop, which share one endpoint, and so one image: a fast one, which counts all messages, and a slow
one, which takes `--slowness` times as long for a price as prices come, and reads by `latest`. Each
millisecond or two the slow one takes as many prices as it could have worked off since, and notes
when they were published and how long ago it saw that key: in columns, so that this costs little.
The publisher makes its prices in columns, too.

`age_ms` is how long ago a price was published when it is seen. That is bounded by the time between
two looks at a key, `looks_ms`, which cannot be less than `keys * slowness / rate`, told beside it.
`held_back_ms` is how late the publisher was at most: as long as that is short, nobody holds it
back; `sent_per_second` is what it came to. `processor_us` is what one price takes of the process of
both readers. With `--slowness 0` there is no slow reader, and the same figures are what they are
without it. With a rate that is out of reach, `sent_per_second` is the most that publisher and
readers do.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from typing import Any, Final

import numpy as np
import pyarrow as pa
import uvloop

import aeron_async as aa

__all__ = ["main"]

STREAM_ID: Final = 1001
BATCH: Final = 512
PRICE: Final = np.dtype(
    [("key", "<u4"), ("published_ns", "<i8"), ("price", "<f8"), ("size", "<i4")]
)
"""The payload of a message; the time is that of the clock that all processes of a host share."""
KEY: Final = slice(0, 4)
NS_PER_MS: Final = 1_000_000
CHANNEL: Final = (
    "aeron:udp?control=127.0.0.1:{port}|control-mode=dynamic|fc=min|term-length=16m|mtu=8k"
)
IPC: Final = "aeron:ipc?term-length=16m"
JOIN: Final = "aeron:udp?endpoint=127.0.0.1:{own}|control=127.0.0.1:{port}|rcv-wnd=4m"
BUFFER: Final = 4_194_304
SETTLE_S: Final = 1.0
SLICE_S: Final = 0.001
"""How long the slow reader waits before it takes what it could have worked off since."""


def context(directory: str | None = None) -> aa.DriverContext:
    """Return a context with room for some milliseconds at such a rate."""
    return aa.DriverContext(
        socket_sndbuf_length=BUFFER, socket_rcvbuf_length=BUFFER, aeron_directory=directory
    )


def reader_of(given: argparse.Namespace) -> aa.Aeron:
    """Return the client of the readers."""
    if given.directory:
        return aa.Aeron.connect(directory=given.directory)
    return aa.Aeron.connect(context=context())


class Prices:
    """Prices of random keys, a batch at a time.

    Args:
        key_count: How many keys there are.
    """

    def __init__(self, key_count: int) -> None:
        keys = np.random.default_rng(1).integers(key_count, size=(1 << 10) * BATCH)
        self.table = np.zeros(len(keys), PRICE)
        self.table["key"] = keys
        self._bounds = pa.py_buffer(np.arange(BATCH + 1, dtype="<i4") * PRICE.itemsize)
        self._begin = 0

    def following(self) -> pa.Array:
        """Return the next prices, published now."""
        batch = self.table[self._begin : self._begin + BATCH]
        batch["published_ns"] = time.monotonic_ns()
        self._begin = (self._begin + BATCH) % len(self.table)
        data = pa.py_buffer(batch.view(np.uint8))
        return pa.Array.from_buffers(pa.binary(), BATCH, [None, self._bounds, data])


async def publish(given: argparse.Namespace) -> dict[str, float]:
    """Publish at the rate, or as near to it as flow control lets; return how late it was."""
    prices = Prices(given.keys)
    channel = IPC if given.directory else CHANNEL.format(port=given.port)
    async with aa.Aeron.connect(context=context(given.directory or None)) as aeron:
        publication = await aeron.add_publication(channel, STREAM_ID)
        await publication.wait_connected(timeout=30)
        await asyncio.sleep(SETTLE_S)
        sent = 0
        behind_s = used_s = 0.0
        began, used_before_s = time.perf_counter(), time.process_time()
        while (elapsed := time.perf_counter() - began) < given.seconds:
            due = int(elapsed * given.rate) - sent
            if due < BATCH:
                await asyncio.sleep((BATCH - due) / given.rate)
                continue
            await publication.offer_arrow(prices.following())
            sent += BATCH
            behind_s = max(behind_s, due / given.rate)
        used_s = time.process_time() - used_before_s
        return {
            "rate": given.rate,
            "sent": sent,
            "sent_per_second": round(sent / elapsed),
            "held_back_ms": behind_s * 1e3,
            "publisher_us": used_s / sent * 1e6,
        }


async def count(subscription: aa.Subscription, found: dict[str, float]) -> None:
    """Read everything as fast as it comes."""
    found["fast_reader"] = 0
    async for batch in subscription.batches():
        found["fast_reader"] += len(batch)


async def read_slowly(
    subscription: aa.Subscription, given: argparse.Namespace, found: dict[str, Any]
) -> None:
    """Read the newest price of each key, and note the time between two looks at one."""
    price_s = given.slowness / given.rate
    looked = np.zeros(given.keys, np.int64)
    waits, ages = [], []
    async with subscription.latest(KEY) as latest:
        await latest.take(1)
        worked_off = time.perf_counter()
        warm_ns = time.monotonic_ns() + int(SETTLE_S * 1e9)
        end_ns = warm_ns + int((given.seconds - 1.5 * SETTLE_S) * 1e9)
        while True:
            await asyncio.sleep(SLICE_S)
            due = int((time.perf_counter() - worked_off) / price_s)
            messages = await latest.take(max(due, 1))
            now_ns = time.monotonic_ns()
            worked_off += len(messages) * price_s
            if len(messages) < due:
                # It had nothing to do in that time.
                worked_off = time.perf_counter()
            prices = np.frombuffer(b"".join([each.data for each in messages]), PRICE)
            before_ns = looked[prices["key"]]
            looked[prices["key"]] = now_ns
            if now_ns > end_ns or not messages:
                break
            is_warm = before_ns > warm_ns
            waits.append(now_ns - before_ns[is_warm])
            ages.append(now_ns - prices["published_ns"][is_warm])
        found |= {"slow_reader": sum(map(len, waits)), "skipped": latest.skipped}
    # Nobody reads it any more, and it would hold the publisher back.
    await subscription.aclose()
    found["age_ms"] = percentiles(ages)
    found["looks_ms"] = percentiles(waits) | {"least_possible": given.keys * price_s * 1e3}


def percentiles(times_ns: list[np.ndarray]) -> dict[str, float]:
    """Return median, 99th percentile and longest, in milliseconds."""
    parts = np.quantile(np.concatenate(times_ns), (0.5, 0.99, 1)) / NS_PER_MS
    return dict(zip(("p50", "p99", "longest"), map(float, parts), strict=True))


async def read(given: argparse.Namespace) -> dict[str, Any]:
    """Run both readers until the publisher is gone."""
    found: dict[str, Any] = {}
    async with reader_of(given) as aeron:
        channel = IPC if given.directory else JOIN.format(port=given.port, own=given.port + 1)
        fast = await aeron.add_subscription(channel, STREAM_ID)
        async with asyncio.TaskGroup() as group:
            counting = group.create_task(count(fast, found))
            if given.slowness:
                slow = await aeron.add_subscription(channel, STREAM_ID)
                group.create_task(read_slowly(slow, given, found))
            used_before_s = time.process_time()
            async with fast.image_events() as events:
                async for event in events:
                    if event.kind is aa.ImageEventKind.UNAVAILABLE:
                        break
            counting.cancel()
        used_s = time.process_time() - used_before_s
        found["processor_us"] = used_s / max(found["fast_reader"], 1) * 1e6
    return found


async def both(given: argparse.Namespace) -> dict[str, Any]:
    """Run the readers in a process of their own, and publish in this one."""
    with tempfile.TemporaryDirectory(prefix="conflation-") as directory:
        if given.way == "ipc":
            given.directory = f"{directory}/driver"
        arguments = [f"--{name}={value}" for name, value in vars(given).items() if name != "reader"]
        program = (sys.executable, "-m", "benchmarks.conflation", "--reader", *arguments)
        reader = await asyncio.create_subprocess_exec(*program, stdout=asyncio.subprocess.PIPE)
        try:
            sent = await publish(given)
        except BaseException:
            reader.terminate()
            raise
        printed, _ = await reader.communicate()
    read_there: dict[str, Any] = json.loads(printed)
    return sent | read_there


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rate", type=int, default=500_000)
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--slowness", type=float, default=10.0)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--port", type=int, default=int(os.environ.get("PORT", "20671")))
    parser.add_argument("--way", choices=("udp", "ipc"), default="udp")
    parser.add_argument("--directory", default="", help=argparse.SUPPRESS)
    parser.add_argument("--reader", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    print(json.dumps(uvloop.run(read(given) if given.reader else both(given)), indent=1))


if __name__ == "__main__":
    main()
