"""A network without drivers: hosts, sockets, and protocols that only listen."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from aeron_async.driver.media.sockets import SocketAddress, SocketSpec
from aeron_async.testing.sim_network import SimNetwork
from aeron_async.testing.virtual_clock import VirtualTime

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aeron_async.testing.fates import Conditions
    from aeron_async.testing.sim_network import SimHost

MS = 0.001


class Listener(asyncio.DatagramProtocol):
    """Keeps all that it is told."""

    def __init__(self) -> None:
        self.received: list[tuple[bytes, SocketAddress]] = []
        self.told: list[str] = []
        self.errors: list[Exception] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.told.append("made")

    def connection_lost(self, exc: Exception | None) -> None:
        self.told.append("lost")

    def datagram_received(self, data: bytes | Any, addr: Any) -> None:
        self.received.append((bytes(data), addr))

    def error_received(self, exc: Exception) -> None:
        self.errors.append(exc)

    def pause_writing(self) -> None:
        self.told.append("paused")

    def resume_writing(self) -> None:
        self.told.append("resumed")

    @property
    def data(self) -> list[bytes]:
        return [data for data, _ in self.received]


def make_network(conditions: Conditions | None = None, *, seed: int = 1) -> SimNetwork:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTime)
    return SimNetwork(loop, seed=seed, conditions=conditions)


@asynccontextmanager
async def opened(
    host: SimHost,
    local: SocketAddress = ("0.0.0.0", 0),
    remote: SocketAddress | None = None,
    **options: Any,
) -> AsyncIterator[tuple[asyncio.DatagramTransport, Listener]]:
    """Open a socket for as long as a block lasts."""
    listener = Listener()
    spec = SocketSpec(local=local, remote=remote, **options)
    transport = await host.open(lambda: listener, spec)
    try:
        yield transport, listener
    finally:
        transport.close()
