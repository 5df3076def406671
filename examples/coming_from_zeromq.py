"""PUB and SUB, and a SUB that conflates, as with ZeroMQ."""

from __future__ import annotations

import asyncio
import os

import aeron_async as aa

CONTROL = os.environ.get("CHANNEL", "aeron:udp?endpoint=127.0.0.1:20121").rpartition("=")[2]
# The publisher binds, as a PUB socket does, and subscribers report there from any port.
BIND = aa.Channel.mdc_publisher(CONTROL)
CONNECT = aa.Channel.mdc_subscriber("127.0.0.1:0", CONTROL)
QUOTES = 1001
COUNT = 100


def symbol(message: aa.Message) -> bytes:
    """Return what comes before the blank: conflation is per symbol."""
    return message.data.partition(b" ")[0]


async def main() -> None:
    """Publish faster than one reads."""
    async with (
        aa.Aeron.connect() as aeron,
        aeron.add_publication(BIND, QUOTES) as pub,
        aeron.add_subscription(CONNECT, QUOTES) as sub,
    ):
        # ZeroMQ loses what is sent before a subscriber is there; this waits.
        await pub.wait_connected(timeout=10)
        async with sub.latest(symbol) as latest:
            for price in range(100, 100 + COUNT):
                await pub.offer(b"ACME %d" % price)
                await pub.offer(b"INIT %d" % (price + 50))
            while latest.skipped < 2 * COUNT - 2:  # noqa: ASYNC110 - a count wakes no task
                await asyncio.sleep(0.01)
            for _ in range(2):
                print((await anext(latest)).data.decode())
            print(f"{latest.skipped} older ones were replaced")


asyncio.run(main())
