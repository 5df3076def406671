"""A service that knows prices, with metrics."""

import asyncio

import aeron_async as aa
from aeron_async import rpc
from aeron_async.metrics import serve_metrics

CHANNEL = "aeron:udp?endpoint=127.0.0.1:20121|control=127.0.0.1:20122"
PRICES = {b"ACME": b"100.25", b"INIT": b"7.50"}
service = rpc.Server("prices")


@service.unary
def price(symbol: bytes) -> bytes:
    """Return the price of a symbol."""
    return PRICES[symbol]


async def main() -> None:
    """Serve until Ctrl-C."""
    async with (
        aa.Aeron.connect() as aeron,
        service.serve(aeron, CHANNEL) as serving,
        serve_metrics(lambda: aeron.stats().with_calls(serving.stats()), port=9464),
    ):
        print("serving", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
