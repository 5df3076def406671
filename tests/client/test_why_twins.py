"""Both twins, in Python and compiled, explain the same waits with the same words."""

from __future__ import annotations

import subprocess
import sys

from tests.tracing import untraced_environment

PROGRAM = """
import asyncio
import attrs
import aeron_async as aa
from aeron_async._speedups import WHY_PURE
from aeron_async.testing import simulate
from structlog.testing import capture_logs

CHANNEL = "aeron:udp?endpoint=127.0.0.1:20121"
SMALL = aa.DriverContext(term_buffer_length=64 * 1024)

async def story(world):
    async with world.host("alice").aeron(SMALL) as aeron:
        waiting = await aeron.add_subscription(CHANNEL, 7)
        reading = asyncio.ensure_future(anext(waiting))
        publication = await aeron.add_publication(CHANNEL, 8)
        offering = asyncio.ensure_future(publication.offer(bytes(100)))
        await world.sleep(3)
        slow = await aeron.add_subscription(CHANNEL, 8)
        await offering
        for _ in range(70):
            try:
                await publication.offer(bytes(1000), timeout=5)
            except aa.OfferTimeoutError as error:
                print(error)
                break
        await anext(slow)
        await world.sleep(3)
        waits = aeron._conductor.waits
        print(aa.why(publication), aa.why(slow), waits.line_count, waits.has_timer)
        reading.cancel()

with capture_logs() as lines:
    simulate(story)
for line in lines:
    if "wait" in line["event"]:
        print(line)
print(WHY_PURE)
"""


def output(pure: str) -> list[str]:
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=untraced_environment() | {"AERON_ASYNC_PURE": pure},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return found.stdout.splitlines()


def test_the_twins_say_the_same() -> None:
    compiled, pure = output("0"), output("1")
    assert pure[-1] == "AERON_ASYNC_PURE is set"
    assert compiled[:-1] == pure[:-1]
    assert sum("wait_lasted_long" in line for line in pure) == 3
