"""Offer and receive quotes as values, one by one and as columns."""

from __future__ import annotations

import asyncio
import os
from typing import NamedTuple

import aeron_async as aa
from aeron_async.codecs import StructCodec, enveloped

CHANNEL = os.environ.get("CHANNEL", "aeron:udp?endpoint=127.0.0.1:20121")


class Quote(NamedTuple):
    """A quote, as this program uses it."""

    symbol: str
    bid: float
    ask: float


CODEC = enveloped(
    StructCodec("<symbol:8s,bid:d,ask:d", into=Quote),
    schema_id=7,
    version=1,
)
QUOTES = [Quote("AERN", 100 + tick / 4, 100.5 + tick / 4) for tick in range(6)]


async def main() -> None:
    """Publish and consume in one process, so that nothing else is needed."""
    CODEC.columns()  # Imports pyarrow now.
    async with (
        aa.Aeron.connect() as aeron,
        aeron.add_subscription(CHANNEL, stream_id=1001) as subscription,
        aeron.add_publication(CHANNEL, stream_id=1001) as publication,
    ):
        quotes = publication.typed(CODEC)
        await quotes.offer(QUOTES[0], timeout=10)
        await publication.offer(b"no quote at all")
        await quotes.offer_many(QUOTES[1:])

        received = subscription.typed(CODEC, on_undecodable=refused)
        print("first:", await anext(received))
        print("second:", await anext(received))
        async with received.batches(linger_ns=10**9, max_messages=4) as batches:
            async for batch in batches:
                table = batch.to_arrow()
                print(f"{table.num_rows} quotes, bids:", table.column("bid").to_pylist())
                break


def refused(message: aa.Message, error: Exception) -> None:
    """Say that a message was skipped."""
    print(f"skipped at position {message.position}: {error}")


asyncio.run(main())
