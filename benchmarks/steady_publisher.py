"""Publishes numbered messages at a steady rate: the other process of `benchmarks.live_pipeline`.

Each message tells when it was offered: its number, then nanoseconds since 1970, and nothing more.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from struct import Struct
from typing import Any, Final

from structlog.testing import capture_logs

from aeron_async import Aeron
from aeron_async.cli.runner import loop_factory

__all__ = ["STAMPED", "publish"]

STAMPED: Final = Struct("<qq")
TICK_S: Final = 0.002
NS_PER_SECOND: Final = 1_000_000_000


async def publish(
    channel: str, stream_id: int, *, rate: int, length: int, seconds: float
) -> dict[str, Any]:
    """Offer messages when they are due, and return how that went.

    Args:
        channel: Where to.
        stream_id: Within the channel.
        rate: Messages a second.
        length: Of each, in bytes.
        seconds: How long.
    """
    rest = bytes(length - STAMPED.size)
    count = round(rate * seconds)
    late_s = 0.0
    async with Aeron.connect() as aeron:
        publication = await aeron.add_exclusive_publication(channel, stream_id)
        await publication.wait_connected(60)
        began = time.perf_counter()
        number = 0
        while number < count:
            elapsed = time.perf_counter() - began
            due = min(int(elapsed * rate), count)
            late_s = max(late_s, elapsed - number / rate)
            while number < due:
                await publication.offer(STAMPED.pack(number, time.time_ns()) + rest)
                number += 1
            await asyncio.sleep(TICK_S)
        took = time.perf_counter() - began
        await publication.drain(timeout=60)
    return {"sent": count, "seconds": took, "latest_ms": round(1_000 * late_s, 1)}


def main() -> None:
    """Publish, and print one line of JSON, with the warnings that there were."""
    parser = argparse.ArgumentParser()
    parser.add_argument("channel")
    parser.add_argument("stream_id", type=int)
    parser.add_argument("--rate", type=int, required=True)
    parser.add_argument("--length", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    given = parser.parse_args()
    with capture_logs() as lines, asyncio.Runner(loop_factory=loop_factory(None)) as runner:
        shape = {"rate": given.rate, "length": given.length, "seconds": given.seconds}
        found = runner.run(publish(given.channel, given.stream_id, **shape))
    events = [each["event"] for each in lines if each["log_level"] in {"warning", "error"}]
    found["warnings"] = {each: events.count(each) for each in sorted(set(events))}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
