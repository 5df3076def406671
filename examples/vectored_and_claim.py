"""Send a header and a body without joining them, and write a message in place."""

from __future__ import annotations

import asyncio
import os
import struct

import aeron_async as aa

CHANNEL = os.environ.get("CHANNEL", "aeron:udp?endpoint=127.0.0.1:20121")
QUOTE = struct.Struct("<qd")


async def main() -> None:
    """Offer a list of buffers, commit a claim, abort another."""
    async with aa.Aeron.connect() as aeron:
        subscription = await aeron.add_subscription(CHANNEL, stream_id=1001)
        publication = await aeron.add_publication(CHANNEL, stream_id=1001)

        await publication.offer([b"header ", memoryview(b"and body")], reserved_value=42)

        with await publication.claim(QUOTE.size) as claim:
            QUOTE.pack_into(claim.data, 0, 7, 99.5)

        # Leaving the `with` block by an exception would do the same.
        claim = await publication.claim(100)
        claim.abort()

        await publication.offer(b"last")

        message = await anext(subscription)
        print(message.data.decode(), message.reserved_value)
        message = await anext(subscription)
        print(*QUOTE.unpack(message.data))
        message = await anext(subscription)
        print(message.data.decode(), "came next: no subscriber gets the aborted claim")


asyncio.run(main())
