"""Ask the service for a price: python ask_price.py ACME."""

import asyncio
import sys

from price_service import CHANNEL

import aeron_async as aa
from aeron_async import rpc


async def main() -> None:
    """Ask, and wait for the answer for a second at most."""
    async with aa.Aeron.connect() as aeron, rpc.Client(aeron, CHANNEL, "prices") as client:
        print((await client.call("price", sys.argv[1].encode(), timeout=1)).decode())


asyncio.run(main())
