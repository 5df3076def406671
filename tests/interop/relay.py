"""A bad piece of wire: what goes through it in either direction may get lost."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LOOPBACK: Final = "127.0.0.1"

Address = tuple[str | Any, int]


class Side(asyncio.DatagramProtocol):
    """One end of the wire.

    Args:
        rate: How much of what arrives here is lost, 0 to 1.
        seed: Makes the losses the same each time, as far as the datagrams are.

    Attributes:
        lost_count: Datagrams that arrived and went no further.
    """

    def __init__(self, rate: float, seed: int) -> None:
        self.lost_count = 0
        self.peer: Address | None = None
        self._rate = rate
        self._random = random.Random(seed)
        self._other = self
        self._transport: asyncio.DatagramTransport

    def join(self, other: Side) -> None:
        self._other = other

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: Address) -> None:
        self.peer = addr
        if self._random.random() < self._rate:
            self.lost_count += 1
        else:
            self._other.forward(data)

    def forward(self, data: bytes) -> None:
        if self.peer is not None:
            self._transport.sendto(data, self.peer)


@asynccontextmanager
async def lossy_relay(
    port: int, endpoint_port: int, *, rate: float, seed: int
) -> AsyncIterator[tuple[Side, Side]]:
    """Stand between a publication that sends to `port` and a subscription at `endpoint_port`."""
    loop = asyncio.get_running_loop()
    near, far = Side(rate, seed), Side(rate, seed + 1)
    near.join(far)
    far.join(near)
    far.peer = LOOPBACK, endpoint_port
    # A connected publication hears nobody but the port it sends to, so answers leave from there.
    one, _ = await loop.create_datagram_endpoint(lambda: near, local_addr=(LOOPBACK, port))
    two, _ = await loop.create_datagram_endpoint(lambda: far, local_addr=(LOOPBACK, 0))
    try:
        yield near, far
    finally:
        one.close()
        two.close()
