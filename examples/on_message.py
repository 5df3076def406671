"""Answer each message from a function, as soon as it arrives."""

from __future__ import annotations

import asyncio
import os

import aeron_async as aa

QUOTES = os.environ.get("CHANNEL", "aeron:udp?endpoint=127.0.0.1:20121")
ORDERS = os.environ.get("ORDER_CHANNEL", "aeron:udp?endpoint=127.0.0.1:20122")
STREAM_ID = 1001
LIMIT = 100


def trade(quotes: aa.Subscription, orders: aa.Publication) -> None:
    """Order whatever costs less than the limit."""

    def on_quote(message: aa.Message) -> None:
        price = int(message.data)
        # It must not wait: an order for which there is no room is dropped, and counted elsewhere.
        if price < LIMIT and isinstance(orders.try_offer(b"buy %d" % price), aa.OfferOutcome):
            print(f"no room for an order at {price}")

    quotes.on_message(on_quote)


async def main() -> None:
    """Publish quotes, and read the orders, in one process, so that nothing else is needed."""
    async with (
        aa.Aeron.connect() as aeron,
        await aeron.add_subscription(QUOTES, STREAM_ID) as quotes,
        await aeron.add_subscription(ORDERS, STREAM_ID) as orders,
        await aeron.add_publication(QUOTES, STREAM_ID) as market,
        await aeron.add_publication(ORDERS, STREAM_ID) as ordering,
    ):
        await ordering.wait_connected(timeout=5)
        trade(quotes, ordering)
        for price in (101, 99, 100, 98):
            await market.offer(b"%d" % price)
        print((await anext(orders)).data.decode(), "and", (await anext(orders)).data.decode())


if __name__ == "__main__":
    asyncio.run(main())
