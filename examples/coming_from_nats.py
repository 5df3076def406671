"""Publish and subscribe, and ask, as with NATS, without a server between the two."""

from __future__ import annotations

import asyncio
import os

import aeron_async as aa
from aeron_async import rpc

# The publisher has an address where subscribers report; a stream id stands for a subject.
CONTROL = os.environ.get("CHANNEL", "aeron:udp?endpoint=127.0.0.1:20121").rpartition("=")[2]
# "min" waits for the slowest subscriber; ":/2" is not connected before two are there.
PUBLISH = aa.Channel.mdc_publisher(CONTROL, fc=aa.Fc.min(size=2))
SUBSCRIBE = aa.Channel.mdc_subscriber("127.0.0.1:0", CONTROL)
PRICES = 1001
service = rpc.Server("prices")


@service.unary
def last(request: bytes) -> bytes:
    """Answer with a price, as a responder of a subject does."""
    return request + b" 100.25"


async def main() -> None:
    """Publish to two, and ask one."""
    async with (
        aa.Aeron.connect() as aeron,
        aa.Aeron.connect() as elsewhere,
        aeron.add_publication(PUBLISH, PRICES) as prices,
        aeron.add_subscription(SUBSCRIBE, PRICES) as one,
        elsewhere.add_subscription(SUBSCRIBE, PRICES) as other,
    ):
        # nc.publish("prices", ...), but it waits for subscribers and for room.
        await prices.offer(b"ACME 100.25", timeout=10)
        # async for message in await nc.subscribe("prices")
        for subscription in (one, other):
            print((await anext(subscription)).data.decode())

        # await nc.request("prices.last", b"ACME"): nobody answers yet.
        async with rpc.Client(aeron, "aeron:ipc", "prices", connect_timeout=0.1) as client:
            try:
                await client.call("last", b"ACME")
            except rpc.NoServerError:
                print("no responders")
            async with service.serve(aeron, "aeron:ipc"):
                await client.wait_connected(10)
                print((await client.call("last", b"ACME")).decode())


asyncio.run(main())
