"""Choose where the driver's log lines go: here to standard error, changes of state included."""

from __future__ import annotations

import asyncio
import logging
import os
import sys

import structlog

import aeron_async as aa

CHANNEL = os.environ.get("CHANNEL", "aeron:udp?endpoint=127.0.0.1:20121")

structlog.configure(
    wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
    logger_factory=structlog.PrintLoggerFactory(sys.stderr),
)


async def main() -> None:
    """Send one message; the changes of state on the way are logged."""
    async with aa.Aeron.connect() as aeron:
        subscription = await aeron.add_subscription(CHANNEL, stream_id=1001)
        publication = await aeron.add_publication(CHANNEL, stream_id=1001)
        await publication.offer(b"the only line on standard output")
        print((await anext(subscription)).data.decode())


asyncio.run(main())
