"""A service in a container of its own: its driver is in another one, and both share /dev/shm.

The containers start in any order, and the driver may be started again: the service waits for it,
and goes on with the next one. The container is stopped by SIGTERM.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress

import aeron_async as aa

DIRECTORY = os.environ["AERON_DIR"]
CHANNEL = os.environ.get("CHANNEL", "aeron:ipc")
PATIENCE_MS = 60_000


async def main() -> None:
    """Print messages until the container is stopped."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    client = aa.Aeron.connect(
        directory=DIRECTORY,
        context=aa.DriverContext(driver_timeout_ms=PATIENCE_MS),
        reconnect=True,
        on_reconnected=lambda event: print("reconnected:", event.reason, flush=True),
    )
    async with client as aeron, aeron.add_subscription(CHANNEL, stream_id=1001) as subscription:
        print("listening", flush=True)
        async for message in subscription:
            print(message.data.decode(), flush=True)


with suppress(asyncio.CancelledError):
    asyncio.run(main())
