"""A service of `Type=notify`: systemd hears that it works, that its loop turns, that it ends."""

from __future__ import annotations

import asyncio
import os
import signal

import aeron_async as aa
from aeron_async.health import SystemdNotifier, status_of

CHANNEL = os.environ.get("CHANNEL", "aeron:udp?endpoint=127.0.0.1:20121")


async def main() -> None:
    """Publish a number each second, until systemd stops the service."""
    is_stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, is_stopped.set)
    async with aa.Aeron.connect() as aeron:
        with SystemdNotifier(lambda: status_of(aeron.stats())) as notifier:
            publication = await aeron.add_publication(CHANNEL, stream_id=1001)
            await publication.wait_connected()
            notifier.ready()
            print("ready", flush=True)
            publishing = asyncio.create_task(publish(publication))
            await is_stopped.wait()
            notifier.stopping()
            publishing.cancel()
            # The pings go on meanwhile.
            await publication.drain(timeout=10)


async def publish(publication: aa.Publication) -> None:
    """Publish numbers."""
    number = 0
    while True:
        await publication.offer(b"%d" % number)
        number += 1
        await asyncio.sleep(1)


asyncio.run(main())
