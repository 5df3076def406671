"""Use a publication and a subscription as one stream of anyio, and read to the end of another."""

from __future__ import annotations

import os

import anyio
from anyio.streams.stapled import StapledObjectStream

import aeron_async as aa
from aeron_async.codecs import codec

THERE = os.environ.get("CHANNEL", "aeron:udp?endpoint=127.0.0.1:20121")
BACK = os.environ.get("REPLY_CHANNEL", "aeron:udp?endpoint=127.0.0.1:20122")
TEXT = codec(str.encode, bytes.decode)


async def shout(aeron: aa.Aeron) -> None:
    """Answer one caller, until its publication ends."""
    async with (
        aeron.add_subscription(THERE, stream_id=1001) as asked,
        aeron.add_publication(BACK, stream_id=1001) as answers,
    ):
        await asked.wait_connected()
        async for message in aa.ImageStream(asked.images[0]):
            await answers.send(message.data.upper())
    print("the caller has ended")


async def main() -> None:
    """Ask twice, and end."""
    async with aa.Aeron.connect() as aeron, anyio.create_task_group() as group:
        group.start_soon(shout, aeron)
        words = await aeron.add_publication(THERE, stream_id=1001)
        heard = await aeron.add_subscription(BACK, stream_id=1001)
        stream: StapledObjectStream[str] = StapledObjectStream(words.typed(TEXT), heard.typed(TEXT))
        async with stream:
            for word in ("one", "two"):
                await stream.send(word)
                print(await stream.receive())


anyio.run(main)
