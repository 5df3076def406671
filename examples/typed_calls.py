"""Calls with values instead of bytes: a codec each way, at both ends."""

from __future__ import annotations

import asyncio
import os

import aeron_async as aa
from aeron_async import rpc
from aeron_async.codecs import codec

ENDPOINT = os.environ.get("CHANNEL", "aeron:udp?endpoint=127.0.0.1:20121")
CONTROL = os.environ.get("REPLY_CHANNEL", "aeron:udp?endpoint=127.0.0.1:20122").rpartition("=")[2]
CHANNEL = f"{ENDPOINT}|control={CONTROL}"
TEXT = codec(str.encode, bytes.decode)
NUMBER = codec(lambda number: b"%d" % number, int)
words = rpc.Server("words")


@words.unary(request=TEXT, response=NUMBER)
def length(text: str) -> int:
    """Return how many characters a text has."""
    return len(text)


async def main() -> None:
    """Serve and call within one process."""
    async with (
        aa.Aeron.connect() as aeron,
        words.serve(aeron, CHANNEL),
        rpc.Client(aeron, CHANNEL, "words") as client,
    ):
        length_of = client.method("length", request=TEXT, response=NUMBER)
        print(await length_of("déjà vu", timeout=1))
        try:
            await client.call("length", b"\xff", timeout=1)
        except rpc.CallFailedError as error:
            print(error.status.name)


asyncio.run(main())
