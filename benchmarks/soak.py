"""Question: do weeks of heartbeats, messages and restarts leave anything behind?

`python -m benchmarks.soak --days 35` runs a publisher and a subscriber in virtual time, over a link
that loses one datagram in a hundred. A message is sent every ten seconds; every hour one of the two
hosts restarts, by turns in good order and without a goodbye. Every message is checked byte by byte.
Each virtual day prints the resident memory, and what the collector knows of objects.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import logging
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from aeron_async.testing.fates import Conditions
from aeron_async.testing.recorder import make_payload
from aeron_async.testing.world import simulate

if TYPE_CHECKING:
    from aeron_async.testing.host import Host
    from aeron_async.testing.world import World

CHANNEL = "aeron:udp?endpoint=bob:20121|term-length=64k"
STREAM_ID = 1001
LENGTH = 200
MESSAGE_INTERVAL_S = 10
HOUR_S = 3_600
DAY_S = 86_400


class Soak:
    """A publisher, a subscriber, and what they have seen."""

    def __init__(self, world: World, days: int) -> None:
        self.world = world
        self.days = days
        self.received = 0
        self.images = 0
        self.restarts = 0
        self.lives = count(1)

    async def run(self) -> list[dict[str, float]]:
        """Let the days pass, and return what each looked like at its end."""
        hosts = [self.world.host("alice"), self.world.host("bob")]
        hosts[0].start(self.publish)
        hosts[1].start(self.subscribe)
        started = perf_counter()
        figures = []
        for day in range(1, self.days + 1):
            for hour in range(24):
                await self.world.sleep(HOUR_S)
                await self.restart(hosts[hour % 2], is_crash=hour % 4 < 2)  # noqa: PLR2004 - two and two
            figures.append(self.look(day, perf_counter() - started))
            print(json.dumps(figures[-1]), flush=True)
        return figures

    async def restart(self, host: Host, *, is_crash: bool) -> None:
        """Restart one host."""
        if is_crash:
            await host.crash()
            await self.world.sleep(1)
        await host.restart()
        self.restarts += 1

    async def publish(self, host: Host) -> None:
        """Offer a message now and then, numbered from 0 in each life."""
        async with host.aeron() as aeron:
            publication = await aeron.add_publication(CHANNEL, STREAM_ID)
            for number in count():
                life = publication.session_id & 0xFFFF
                await publication.offer(make_payload(life, number, LENGTH), reserved_value=number)
                await self.world.sleep(MESSAGE_INTERVAL_S)

    async def subscribe(self, host: Host) -> None:
        """Check that each image gives consecutive messages, and what is in them."""
        async with host.aeron() as aeron:
            subscription = await aeron.add_subscription(CHANNEL, STREAM_ID)
            following: dict[int, int] = {}
            async for message in subscription:
                number = message.reserved_value
                expected = following.setdefault(message.session_id, number)
                assert number == expected, f"message {number} came in place of {expected}"
                life = message.session_id & 0xFFFF
                assert message.data == make_payload(life, number, LENGTH)
                following[message.session_id] = number + 1
                self.received += 1

    def look(self, day: int, seconds: float) -> dict[str, float]:
        """Return what there is now."""
        gc.collect()
        status = Path("/proc/self/status").read_text(encoding="ascii")
        resident = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        return {
            "day": day,
            "resident_mib": round(int(resident.split()[1]) / 1024, 2),
            "objects": len(gc.get_objects()),
            "tasks": len(asyncio.all_tasks()),
            "sockets": sum(host.machine.socket_count for host in self.world.hosts),
            "received": self.received,
            "restarts": self.restarts,
            "datagrams": self.world.network.trace.counts[1],
            "seconds": round(seconds, 1),
        }


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--days", type=int, default=35)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    logging.getLogger("aeron_async").setLevel(logging.CRITICAL)

    async def story(world: World) -> None:
        await Soak(world, options.days).run()

    conditions = Conditions(loss=0.01, delay_ns=500_000)
    simulate(story, seed=options.seed, conditions=conditions, limit_s=1e9)


if __name__ == "__main__":
    main()
