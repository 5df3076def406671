"""Ask and answer over two streams; the reserved value says which reply belongs to which request."""

from __future__ import annotations

import asyncio
import os

import aeron_async as aa

REQUESTS = os.environ.get("CHANNEL", "aeron:udp?endpoint=127.0.0.1:20121")
REPLIES = os.environ.get("REPLY_CHANNEL", "aeron:udp?endpoint=127.0.0.1:20122")


async def serve(aeron: aa.Aeron) -> None:
    """Answer every request in capitals, under the number it came with."""
    requests = await aeron.add_subscription(REQUESTS, stream_id=1001)
    replies = await aeron.add_publication(REPLIES, stream_id=1002)
    async for request in requests:
        await replies.offer(request.data.upper(), reserved_value=request.reserved_value)


async def main() -> None:
    """Ask three things at once, and match the answers."""
    async with aa.Aeron.connect() as aeron:
        serving = asyncio.create_task(serve(aeron))
        replies = await aeron.add_subscription(REPLIES, stream_id=1002)
        requests = await aeron.add_publication(REQUESTS, stream_id=1001)

        asked = {1: b"one", 2: b"two", 3: b"three"}
        for number, text in asked.items():
            await requests.offer(text, reserved_value=number)
        for _ in asked:
            reply = await anext(replies)
            print(asked[reply.reserved_value].decode(), "->", reply.data.decode())

    # Closing the client ends the loop over its subscriptions, and so the server.
    await serving


asyncio.run(main())
