"""No subscriber reads, or only a spy does: the publication says what it waits for."""

from __future__ import annotations

import asyncio
import os

import aeron_async as aa

CHANNEL = os.environ.get("CHANNEL", "aeron:udp?endpoint=127.0.0.1:20121")


async def main() -> None:
    """Let an offer time out, and read why; then mend it."""
    async with aa.Aeron.connect() as aeron:
        publication = await aeron.add_publication(CHANNEL, stream_id=1001)
        await aeron.add_subscription(CHANNEL, stream_id=1002)
        try:
            await publication.offer(b"hello", timeout=0.5)
        except aa.OfferTimeoutError as error:
            print(error.why.reason.name if error.why else error)
        for stream in aa.why(publication).seen.nearly:
            print(f"there is a subscription of stream {stream.stream_id}")

        await aeron.add_subscription(f"aeron-spy:{CHANNEL}", stream_id=1001)
        found = aa.why(publication)
        print(found.reason.name)
        print(found.remedy)

        await aeron.add_subscription(CHANNEL, stream_id=1001)
        await publication.offer(b"hello")
        print(aa.why(publication).reason.name)


asyncio.run(main())
