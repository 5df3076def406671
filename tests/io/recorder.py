"""A protocol that remembers everything it was told, and sockets around it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from aeron_async.driver.media.sockets import SocketSpec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from aeron_async.driver.media.network import Network
    from aeron_async.driver.media.sockets import SocketAddress

LOOPBACK: SocketAddress = ("127.0.0.1", 0)
PATIENCE_S = 20


class Recorder(asyncio.DatagramProtocol):
    def __init__(self) -> None:
        self.transport: Any = None
        self.received: list[bytes] = []
        self.addresses: list[SocketAddress] = []
        self.errors: list[Exception] = []
        self.pauses: list[str] = []
        self.lost: list[Exception | None] = []
        self.on_datagram: Callable[[bytes], None] = lambda _: None
        self._changed = asyncio.Event()

    @property
    def address(self) -> SocketAddress:
        address: SocketAddress = self.transport.get_extra_info("sockname")
        return address

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str | Any, int]) -> None:
        self.received.append(bytes(data))
        self.addresses.append(addr)
        self._changed.set()
        self.on_datagram(self.received[-1])

    def error_received(self, exc: Exception) -> None:
        self.errors.append(exc)
        self._changed.set()

    def pause_writing(self) -> None:
        self.pauses.append("pause")

    def resume_writing(self) -> None:
        self.pauses.append("resume")
        self._changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)
        self._changed.set()

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


@asynccontextmanager
async def opened(
    network: Network, spec: SocketSpec | None = None, recorder: Recorder | None = None
) -> AsyncIterator[Recorder]:
    """Open a socket, on the loopback address unless told otherwise, and see it closed."""
    protocol = recorder or Recorder()
    transport = await network.open(lambda: protocol, spec or SocketSpec(local=LOOPBACK))
    try:
        yield protocol
    finally:
        transport.abort()
        await protocol.until(lambda: protocol.lost)
