"""A real socket that now and then does something else, and a recorder that takes batches."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from aeron_async.driver.media.socket_transport import SocketTransport
from aeron_async.driver.media.sockets import open_socket
from tests.io.recorder import Recorder

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator, Callable

    from aeron_async.driver.media.sockets import SocketAddress, SocketSpec

Received = tuple[int, list[tuple[int, int, bytes]], int, Any]


def datagrams(batch: bytes | memoryview, segment_length: int) -> list[bytes]:
    return [bytes(batch[at : at + segment_length]) for at in range(0, len(batch), segment_length)]


class RunRecorder(Recorder):
    """Takes batches whole, and hears of what was dropped."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[tuple[int, int]] = []
        self.drop_counts: list[int] = []

    def datagrams_received(
        self, data: memoryview, segment_length: int, addr: SocketAddress
    ) -> None:
        self.batches.append((len(data), segment_length))
        for datagram in datagrams(data, segment_length):
            self.datagram_received(datagram, addr)

    def datagrams_dropped(self, count: int) -> None:
        self.drop_counts.append(count)


class ScriptedSocket:
    """Passes everything on to a socket, except where told otherwise.

    Attributes:
        send_failures: What the next batches raise that are sent; None lets one pass.
        batches: Segment length and address of each batch that was tried.
        alter: Makes another result of what was received.
        missing: Names that it does not have.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.send_failures: list[OSError | None] = []
        self.batches: list[tuple[int, Any]] = []
        self.alter: Callable[[Received], Received] = lambda received: received
        self.missing: set[str] = set()

    def sendmsg(self, buffers: Any, ancillary: Any, flags: int, address: Any) -> int:
        ((_, _, segment_length),) = ancillary
        self.batches.append((int.from_bytes(segment_length, "little"), address))
        failure = self.send_failures.pop(0) if self.send_failures else None
        if failure is not None:
            raise failure
        return self.sock.sendmsg(buffers, ancillary, flags, address)

    def _recvmsg_into(self, buffers: Any, ancillary_length: int) -> Received:
        return self.alter(self.sock.recvmsg_into(buffers, ancillary_length))

    def __getattr__(self, name: str) -> Any:
        if name in self.missing:
            raise AttributeError(name)
        return self._recvmsg_into if name == "recvmsg_into" else getattr(self.sock, name)


@asynccontextmanager
async def scripted(
    spec: SocketSpec, recorder: Recorder | None = None
) -> AsyncIterator[tuple[Recorder, ScriptedSocket]]:
    """Open a transport over a scripted socket, and see it closed."""
    protocol = recorder or RunRecorder()
    fake: Any = ScriptedSocket(open_socket(spec))
    extra = {"sockname": fake.getsockname()[:2]}
    if spec.remote is not None:
        extra["peername"] = spec.remote
    loop = asyncio.get_running_loop()
    transport = SocketTransport(
        loop, fake, protocol, burst_limit=8, extra=extra, is_batching=spec.is_batching
    )
    transport.start()
    try:
        yield protocol, fake
    finally:
        transport.abort()
        await protocol.until(lambda: protocol.lost)
