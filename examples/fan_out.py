"""One stream to many: archivers must have every event, and a gateway takes what it can."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import AsyncExitStack

import aeron_async as aa

PORT = os.environ.get("CHANNEL", "aeron:udp?endpoint=127.0.0.1:20121").rpartition(":")[2]
GROUP, LOOPBACK, ARCHIVERS = f"224.20.30.39:{PORT}", "127.0.0.1", 101

GATEWAY = aa.Channel.multicast(GROUP, interface=LOOPBACK)
ARCHIVER = aa.Channel.multicast(GROUP, interface=LOOPBACK, gtag=ARCHIVERS)
# Short terms keep the windows small, so that back pressure comes early. And a gateway that was run
# over says no goodbye: without `linger` the publisher would wait 5 s for it when it closes.
PACE = aa.Fc.tagged(ARCHIVERS, size=2)
EVENTS = aa.Channel.multicast(GROUP, interface=LOOPBACK, term_length="64k", linger="100ms", fc=PACE)
SERVICES = {"the gateway": GATEWAY, "one archiver": ARCHIVER, "another archiver": ARCHIVER}
PAUSES, TAKEN = dict.fromkeys(SERVICES, 0.0), dict.fromkeys(SERVICES, 0)


async def serve(name: str, events: aa.Subscription) -> None:
    """Take event after event; a service would be a process of its own."""
    async for _ in events:
        TAKEN[name] += 1
        await asyncio.sleep(PAUSES[name])


async def main() -> None:
    """Wait for the archivers; then let the gateway be slow, then an archiver."""
    async with asyncio.TaskGroup() as group, AsyncExitStack() as stack:
        publisher = await stack.enter_async_context(aa.Aeron.connect())
        publication = await publisher.add_publication(EVENTS, stream_id=1001)
        for name, channel in SERVICES.items():
            print(f"connected before {name} is there: {publication.is_connected}")
            aeron = await stack.enter_async_context(aa.Aeron.connect())
            events = await aeron.add_subscription(channel, stream_id=1001)
            group.create_task(serve(name, events))
            await events.wait_connected()
        await publication.wait_connected()

        for name in ("the gateway", "one archiver"):
            PAUSES[name] = 0.01
            started = time.monotonic()
            await publication.offer_many([bytes(1000)] * 200)
            await publication.drain()
            print(f"{name} is slow: 200 events took {time.monotonic() - started:.1f} s")
            PAUSES[name] = 0.0
        print(f"the gateway had {TAKEN['the gateway']} of 400 events, and is still run over")


asyncio.run(main())
