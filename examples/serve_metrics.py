"""Serve metrics for Prometheus, and tell an orchestrator whether the service is ready."""

from __future__ import annotations

import asyncio
import os

import aeron_async as aa
from aeron_async.health import not_ready
from aeron_async.metrics import serve_metrics

CHANNEL = os.environ.get("CHANNEL", "aeron:udp?endpoint=127.0.0.1:20121")


async def get(port: int, path: str) -> str:
    """Return a page, as Prometheus fetches it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    _, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    return body


async def main() -> None:
    """Publish, and fetch the pages before a subscriber is there and afterwards."""
    async with aa.Aeron.connect() as aeron:
        orders = await aeron.add_publication(CHANNEL, stream_id=1001)

        def reasons() -> list[str]:
            return not_ready(aeron.stats(), expect=[1001])

        async with serve_metrics(aeron.gather_stats, port=0, ready=reasons) as server:
            print(await get(server.port, "/ready"), end="")
            await aeron.add_subscription(CHANNEL, stream_id=1001)
            await orders.wait_connected()
            print(await get(server.port, "/ready"), end="")
            lines = (await get(server.port, "/metrics")).splitlines()
            print(*(line for line in lines if line.startswith("aeron_connected")))


asyncio.run(main())
