"""A network of one hand: what is sent is kept, and what arrives is what the test says."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aeron_async.driver.media.network import InterfaceAddress
from aeron_async.driver.media.transport import BoundedTransport

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.driver.media.sockets import SocketAddress, SocketSpec


class FakeTransport(BoundedTransport):
    """A socket that leads nowhere."""

    def __init__(self, protocol: asyncio.DatagramProtocol, extra: dict[str, Any]) -> None:
        super().__init__(asyncio.get_running_loop(), protocol, extra)
        self.protocol = protocol
        self.sent: list[tuple[bytes, SocketAddress | None]] = []
        self.error: OSError | None = None
        self.is_closed = False

    def sendto(self, data: Any, addr: Any = None) -> None:
        if self.error is not None:
            self._tell_error(self.error)
            return
        self.sent.append((bytes(data), addr))

    def close(self) -> None:
        self.is_closed = True
        self.protocol.connection_lost(None)

    def _connect(self, address: SocketAddress) -> None:
        raise AssertionError(address)

    def is_closing(self) -> bool:
        return self.is_closed


class FakeNetwork:
    """Opens fake transports, as fast or as slowly as the test wants.

    Attributes:
        transports: All that were opened, oldest first.
        gate: Opening waits for it.
        names: Looking up names waits for it.
        failure: Raised instead of opening, when set.
    """

    def __init__(self, **extra: int) -> None:
        self.extra = extra
        self.transports: list[FakeTransport] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.failure: Exception | None = None
        self.names = asyncio.Event()
        self.names.set()

    async def open(
        self, protocol_factory: Callable[[], asyncio.DatagramProtocol], spec: SocketSpec
    ) -> asyncio.DatagramTransport:
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        protocol = protocol_factory()
        extra = {"sockname": spec.local, "peername": spec.remote, **self.extra}
        transport = FakeTransport(protocol, extra)
        protocol.connection_made(transport)
        self.transports.append(transport)
        return transport

    async def resolve(
        self, host: str, port: int, *, is_re_resolution: bool = False
    ) -> SocketAddress:
        await self.names.wait()
        return host, port

    async def interfaces(self) -> tuple[InterfaceAddress, ...]:
        loopback = InterfaceAddress(
            name="lo", index=1, address="127.0.0.1", prefix_length=8, is_loopback=True
        )
        return (loopback,)
