"""A Python service beside a Java one: both are clients of one driver, and share streams over IPC.

Start `aeron-async driver`, this program, and for example Aeron's sample, with one AERON_DIR:
`java -Daeron.dir=$AERON_DIR -Daeron.sample.channel=aeron:ipc io.aeron.samples.BasicPublisher`.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress

import aeron_async as aa

# What driver and Java service are given, too.
DIRECTORY = os.environ["AERON_DIR"]
CHANNEL = os.environ.get("CHANNEL", "aeron:ipc")


async def main() -> None:
    """Print what one publisher of the other service sends, and count it where all can read it."""
    async with (
        aa.Aeron.connect(directory=DIRECTORY) as aeron,
        aeron.add_subscription(CHANNEL, stream_id=1001) as subscription,
        aeron.add_counter(1_001, "messages that Python has taken") as taken,
    ):
        print("listening", flush=True)
        await subscription.wait_connected()
        async for message in subscription.images[0]:
            taken.increment()
            print(message.position, message.data.decode(), flush=True)


with suppress(KeyboardInterrupt):
    asyncio.run(main())
