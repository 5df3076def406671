"""Test a service, a durable stream and a reader of market data with the fixtures of the package."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aeron_async import rpc
from aeron_async.testing import Tick

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aeron_async.archive import DurableStream
    from aeron_async.testing import Market, World

pytestmark = pytest.mark.asyncio
TICKS = 500
orders = rpc.Server("orders")


@orders.unary
async def place(request: bytes) -> bytes:
    """Accept an order: the service under test."""
    return b"placed " + request


@pytest.mark.aeron(loss=0.1)
async def test_an_order_survives_loss_and_a_restart(
    rpc_pair: Callable[..., Awaitable[rpc.Client]], world: World
) -> None:
    """Call through a bad network, and a server that has just come back."""
    client = await rpc_pair(orders, connect_timeout=30)
    assert await client.call("place", b"ACME", timeout=60) == b"placed ACME"
    await world.host("server").restart()
    await client.wait_connected(60)
    assert await client.call("place", b"INIT", timeout=60) == b"placed INIT"


async def test_a_log_is_continued(durable_log: DurableStream) -> None:
    """Append, and append again after the producer was closed."""
    for last in (0, 1):
        async with durable_log.produce("shop") as producer:
            assert producer.last_sequence == last
            await producer.append(b"an order")


async def test_the_latest_prices_are_those_of_the_market(market: Market) -> None:
    """Keep the latest price of each symbol: the reader under test."""
    subscription = await market.subscribe()
    market.start(count=TICKS)
    latest = {}
    async for tick in subscription.typed(Tick):
        latest[tick.symbol] = tick
        if tick.sequence == TICKS:
            break
    assert latest == market.latest
