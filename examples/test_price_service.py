"""Test the service in a simulated network that loses a fifth of all datagrams."""

from typing import Any

import pytest
from price_service import service

from aeron_async import rpc


@pytest.mark.aeron(loss=0.2)
async def test_prices_come_through_loss(rpc_pair: Any) -> None:
    """Ask for a price, and for one that is not there."""
    client = await rpc_pair(service)
    assert await client.call("price", b"ACME", timeout=60) == b"100.25"
    with pytest.raises(rpc.CallFailedError, match="KeyError"):
        await client.call("price", b"NONE", timeout=60)
