"""Calls by method and outcome as metrics, beside those of the driver."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import aeron_async as aa
from aeron_async import rpc
from aeron_async.metrics import MetricsText

if TYPE_CHECKING:
    from aeron_async.stats import Stats

server = rpc.Server("orders")


@server.unary
def place(request: bytes) -> bytes:
    """Answer with what was asked."""
    return request


async def main() -> None:
    """Serve two services, call one, and print its metrics."""
    async with (
        aa.Aeron.connect() as aeron,
        server.serve(aeron, "aeron:ipc") as orders,
        rpc.Server("quotes").serve(aeron, "aeron:ipc", stream_id=1003) as quotes,
        rpc.Client(aeron, "aeron:ipc", "orders") as client,
    ):

        def snapshot() -> Stats:
            return aeron.stats().with_calls([*orders.stats(), *quotes.stats()])

        for _ in range(3):
            await client.call("place", b"ACME 100")
        for line in MetricsText().render(snapshot()).splitlines():
            if line.startswith("aeron_calls") and not line.endswith(" 0"):
                print(line)


asyncio.run(main())
