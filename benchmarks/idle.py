"""What a connected publication and subscription cost while nothing is said.

Prints the share of one core that this process used, by /proc/self/stat, as JSON:

    python -m benchmarks.idle --seconds 10 --loop uvloop
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
from pathlib import Path

import structlog
import uvloop

import aeron_async as aa

STREAM_ID = 1001
UTIME_FIELD, STIME_FIELD = 11, 12


def cpu_seconds() -> float:
    """Return user and system time of this process so far, from /proc/self/stat."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[UTIME_FIELD]) + int(fields[STIME_FIELD])
    return ticks / os.sysconf("SC_CLK_TCK")


async def measure(seconds: float) -> dict[str, float]:
    """Return the share of one core used over `seconds`, both ends in this process."""
    async with aa.Aeron.connect() as aeron:
        subscription = await aeron.add_subscription("aeron:udp?endpoint=127.0.0.1:0", STREAM_ID)
        publication = await aeron.add_publication(
            f"aeron:udp?endpoint={subscription.local_address}", STREAM_ID
        )
        await publication.offer(b"connected", timeout=5)
        await anext(subscription)
        reading = asyncio.ensure_future(anext(subscription))
        started, started_cpu = time.monotonic(), cpu_seconds()
        await asyncio.sleep(seconds)
        used, elapsed = cpu_seconds() - started_cpu, time.monotonic() - started
        assert publication.is_connected
        reading.cancel()
    return {"seconds": elapsed, "cpu_seconds": used, "share_of_core": used / elapsed}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--loop", choices=("asyncio", "uvloop"), default="uvloop")
    arguments = parser.parse_args()
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    run = uvloop.run if arguments.loop == "uvloop" else asyncio.run
    print(json.dumps({"loop": arguments.loop, **run(measure(arguments.seconds))}))


if __name__ == "__main__":
    main()
