r"""What connected streams cost while nothing is said.

Prints the share of one core that this process used, how often it woke, and its memory, by /proc, as
JSON. Both ends in one process, or each in its own:

    python -m benchmarks.idle --seconds 10 --loop uvloop
    python -m benchmarks.idle --streams 1000 \
        --channel "aeron:udp?endpoint=127.0.0.1:20121|term-length=64k"
    python -m benchmarks.idle --side subscriber --channel aeron:udp?endpoint=127.0.0.1:20121
    python -m benchmarks.idle --side publisher --channel aeron:udp?endpoint=127.0.0.1:20121
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import time
from contextlib import AsyncExitStack
from pathlib import Path

import psutil
import uvloop

import aeron_async as aa

STREAM_ID = 1001
CHANNEL = "aeron:udp?endpoint=127.0.0.1:20121"
UTIME_FIELD, STIME_FIELD = 11, 12
CONNECT_TIMEOUT_S = 30
SENT = ("Heartbeats sent", "Status Messages sent")


def cpu_seconds() -> float:
    """Return user and system time of this process so far, from /proc/self/stat."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[UTIME_FIELD]) + int(fields[STIME_FIELD])
    return ticks / os.sysconf("SC_CLK_TCK")


def wakeups() -> int:
    """Return how often this process has slept and been woken so far, from /proc/self/status."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("voluntary_ctxt_switches:"):
            return int(line.split()[1])
    return 0


def resident_mb() -> float:
    """Return the resident memory of this process, in millions of bytes."""
    return psutil.Process().memory_info().rss / 1e6


def frames_sent(aeron: aa.Aeron) -> int:
    """Return how many heartbeats and status messages this process has sent so far."""
    return sum(each.value for each in aeron.counters if each.label.startswith(SENT))


async def measure(side: str, channel: str, seconds: float, count: int) -> dict[str, float]:
    """Return the share of one core used over `seconds`, with `count` streams, all silent."""
    stream_ids = range(STREAM_ID, STREAM_ID + count)
    async with AsyncExitStack() as stack:
        aeron = await stack.enter_async_context(aa.Aeron.connect())
        before = resident_mb()
        subscribed = stream_ids if side != "publisher" else ()
        published = stream_ids if side != "subscriber" else ()
        subscriptions = [await aeron.add_subscription(channel, each) for each in subscribed]
        readings = [asyncio.ensure_future(anext(each)) for each in subscriptions]
        for reading in readings:
            stack.callback(reading.cancel)
        publications = [await aeron.add_publication(channel, each) for each in published]
        for publication in publications:
            await publication.wait_connected(timeout=CONNECT_TIMEOUT_S)
        for subscription in subscriptions:
            await subscription.wait_connected(timeout=CONNECT_TIMEOUT_S)
        # What connecting was needed for is over.
        await asyncio.sleep(1)
        gc.collect()
        started, started_cpu, started_wakeups = time.monotonic(), cpu_seconds(), wakeups()
        started_frames = frames_sent(aeron)
        await asyncio.sleep(seconds)
        used, elapsed = cpu_seconds() - started_cpu, time.monotonic() - started
        woken, frames = wakeups() - started_wakeups, frames_sent(aeron) - started_frames
        # The other end has measured as long and may be leaving: connected is for this end's half.
        assert not any(each.done() for each in readings)
        resident = resident_mb()
    return {
        "resident_mb": resident,
        "resident_mb_without_streams": before,
        "seconds": elapsed,
        "cpu_seconds": used,
        "share_of_core": used / elapsed,
        "wakeups_per_second": woken / elapsed,
        "wakeups": woken,
        "frames_sent": frames,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--loop", choices=("asyncio", "uvloop"), default="uvloop")
    parser.add_argument("--side", choices=("both", "publisher", "subscriber"), default="both")
    parser.add_argument("--streams", type=int, default=1)
    parser.add_argument("--channel", default=CHANNEL)
    arguments = parser.parse_args()
    run = uvloop.run if arguments.loop == "uvloop" else asyncio.run
    how = arguments.side, arguments.channel, arguments.seconds, arguments.streams
    figures = run(measure(*how))
    print(json.dumps({"loop": arguments.loop, "side": arguments.side, **figures}))


if __name__ == "__main__":
    main()
