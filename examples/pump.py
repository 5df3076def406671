"""Pump one stream into another, as anyio has streams: a slow reader at the end holds them all."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import anyio

import aeron_async as aa

if TYPE_CHECKING:
    from anyio.abc import ObjectReceiveStream, ObjectSendStream

# Short terms keep the windows small, so that back pressure comes early.
NEAR = os.environ.get("CHANNEL", "aeron:udp?endpoint=127.0.0.1:20121") + "|term-length=64k"
FAR = os.environ.get("REPLY_CHANNEL", "aeron:udp?endpoint=127.0.0.1:20122") + "|term-length=64k"


async def pump(source: ObjectReceiveStream[aa.Message], sink: ObjectSendStream[bytes]) -> None:
    """Send on what is received; a message counts as taken once it was sent on."""
    async for message in source:
        await sink.send(message.data)


async def read_slowly(source: ObjectReceiveStream[aa.Message], count: int) -> None:
    """Take two milliseconds over each message."""
    for _ in range(count):
        await source.receive()
        await anyio.sleep(0.002)


async def main() -> None:
    """Fill both streams, then let the far end be read."""
    async with aa.Aeron.connect() as aeron, anyio.create_task_group() as group:
        near = await aeron.add_subscription(NEAR, stream_id=1001)
        far = await aeron.add_subscription(FAR, stream_id=1001)
        group.start_soon(pump, near, await aeron.add_publication(FAR, stream_id=1001))
        publication = await aeron.add_publication(NEAR, stream_id=1001)
        count = 0
        with anyio.move_on_after(0.5):
            while True:
                await publication.send(bytes(992))
                count += 1
        print(f"no reader at the far end: stopped after {count} KiB, two windows of 64 KiB")

        async with anyio.create_task_group() as reading:
            reading.start_soon(read_slowly, far, count + 300)
            started = time.monotonic()
            for _ in range(300):
                await publication.send(bytes(992))
            print(f"with a reader: 300 more took {time.monotonic() - started:.1f} s")
        near.close()


anyio.run(main)
