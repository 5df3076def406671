"""Add a field to a message, while old and new programs run side by side."""

from __future__ import annotations

import asyncio
import os
from typing import NamedTuple

import aeron_async as aa
from aeron_async.codecs import StructCodec, codec, enveloped

CHANNEL = os.environ.get("CHANNEL", "aeron:udp?endpoint=127.0.0.1:20121")


class OldQuote(NamedTuple):
    """What version 1 says."""

    symbol: str
    bid: float


class Quote(NamedTuple):
    """What version 2 says: the field is new, at the end, and has a default."""

    symbol: str
    bid: float
    venue: str = "?"


V1 = enveloped(StructCodec("<symbol:4s,bid:d", into=OldQuote), schema_id=7, version=1)
V2 = enveloped(StructCodec("<symbol:4s,bid:d,venue:4s", into=Quote), schema_id=7, version=2)


def decode_any(payload: bytes | memoryview) -> Quote:
    """Decode both versions: the number stands in the last two bytes of the envelope."""
    if int.from_bytes(payload[6:8], "little") == 1:
        return Quote(*V1.decode(payload))
    return V2.decode(payload)


BOTH = codec(V2.encode, decode_any)


async def main() -> None:
    """Let each reader read what each writer writes."""
    async with aa.Aeron.connect() as aeron:
        old_reader = await aeron.add_subscription(CHANNEL, stream_id=1001)
        new_reader = await aeron.add_subscription(CHANNEL, stream_id=1001)
        publication = await aeron.add_publication(CHANNEL, stream_id=1001)
        await publication.typed(V1).offer(OldQuote("ACME", 100.0))
        await publication.typed(V2).offer(Quote("ACME", 100.5, "XLON"))
        for name, reader in (("old", old_reader.typed(V1)), ("new", new_reader.typed(BOTH))):
            for _ in range(2):
                print(name, tuple(await anext(reader)))


asyncio.run(main())
