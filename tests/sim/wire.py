"""What goes over the wire of a world, frame by frame, and peers that are made by hand."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from aeron_async.driver.media.sockets import SocketSpec
from aeron_async.protocol.datagram import DataFrame, Frame, frames
from aeron_async.testing.trace import Verdict

if TYPE_CHECKING:
    from aeron_async.driver.media.sockets import SocketAddress
    from aeron_async.testing.host import Host
    from aeron_async.testing.world import World

T = TypeVar("T", bound=Frame)


class Sent(NamedTuple):
    """One frame that has left."""

    at_s: float
    source: SocketAddress
    destination: SocketAddress
    frame: Any
    datagram_length: int


class Wire:
    """Everything that leaves, lost on its way or not."""

    def __init__(self, world: World) -> None:
        self.sent: list[Sent] = []
        world.network.trace.watch(self._on_event)

    def _on_event(
        self,
        now_ns: int,
        verdict: Verdict,
        source: SocketAddress,
        destination: SocketAddress,
        datagram: bytes,
    ) -> None:
        if verdict in (Verdict.SENT, Verdict.LOST, Verdict.PARTITIONED, Verdict.NO_ROUTE):
            self.sent += [
                Sent(now_ns / 1e9, source, destination, frame, len(datagram))
                for frame in frames(datagram)
            ]

    def of(self, kind: type[T], since_s: float = 0.0) -> list[Sent]:
        """Return the frames of one kind that have left since then."""
        return [each for each in self.sent if isinstance(each.frame, kind) and each.at_s >= since_s]

    def heartbeats(self, since_s: float = 0.0) -> list[Sent]:
        """Return the heartbeats that have left since then."""
        return [each for each in self.of(DataFrame, since_s) if each.frame.header.is_heartbeat]


class Peer(asyncio.DatagramProtocol):
    """A socket that says what it is told to, and keeps what it hears."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.heard: list[bytes] = []

    @classmethod
    async def open(cls, host: Host, port: int) -> Peer:
        """Open a socket at a port of a host."""
        peer = cls()
        await host.machine.open(lambda: peer, SocketSpec(local=(host.address, port)))
        return peer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str | Any, int]) -> None:
        del addr
        self.heard.append(bytes(data))

    def say(self, datagram: bytes, destination: SocketAddress) -> None:
        """Send a datagram."""
        self.transport.sendto(datagram, destination)


async def until(world: World, condition: Any, limit_s: float = 60.0) -> None:
    """Let time pass until something has come true."""
    deadline_ns = world.now_ns + round(limit_s * 1e9)
    while not condition():
        assert world.now_ns < deadline_ns, "not within its time"
        await world.sleep(0.01)
