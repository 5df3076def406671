"""Close in good order on Ctrl-C and on SIGTERM, and exit as shells and service managers expect."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import aeron_async as aa

CHANNEL = os.environ.get("CHANNEL", "aeron:udp?endpoint=127.0.0.1:20121")


async def main() -> None:
    """Print messages until a signal asks for an end."""
    # SIGTERM ends Python without closing anything; this way it does what Ctrl-C does.
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)

    async with aa.Aeron.connect() as aeron:
        subscription = await aeron.add_subscription(CHANNEL, stream_id=1001)
        print("listening", flush=True)
        async for message in subscription:
            print(message.data.decode())


try:
    asyncio.run(main())
except (KeyboardInterrupt, asyncio.CancelledError) as end:
    print("closed everything")
    sys.exit(130 if isinstance(end, KeyboardInterrupt) else 143)
