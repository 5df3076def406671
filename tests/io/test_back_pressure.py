"""A UDP socket on the loopback never lacks room, so unix datagram sockets stand in: they do."""

from __future__ import annotations

import asyncio
import socket
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from aeron_async.driver.media.loop_transport import open_loop_transport
from aeron_async.driver.media.socket_transport import SocketTransport
from aeron_async.errors import ClosedError
from tests.io.recorder import Recorder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from aeron_async.driver.media.network import TransportKind
    from aeron_async.driver.media.transport import BoundedTransport

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="datagram sockets with abstract names are Linux's"
)


def named_socket() -> tuple[socket.socket, str]:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    name = f"\0aeron-async-{uuid4()}"
    sock.bind(name)
    sock.setblocking(False)
    return sock, name


class Pressed(Recorder):
    """A sender whose peer reads only when told."""

    def __init__(self) -> None:
        super().__init__()
        self.peer, self.peer_name = named_socket()
        self.arrived: list[bytes] = []
        self.on_pause: Callable[[], None] = lambda: None

    def pause_writing(self) -> None:
        super().pause_writing()
        self.on_pause()

    def send_until_paused(self) -> list[bytes]:
        sent: list[bytes] = []
        while len(self.pauses) % 2 == 0:
            sent.append(b"%d" % len(sent))
            self.transport.sendto(memoryview(bytearray(sent[-1])))
        return sent

    def read_peer(self) -> None:
        while True:
            try:
                self.arrived.append(self.peer.recv(64))
            except BlockingIOError:
                return


@asynccontextmanager
async def pressed(kind: TransportKind) -> AsyncIterator[Pressed]:
    sender = Pressed()
    sock, _ = named_socket()
    sock.connect(sender.peer_name)
    loop = asyncio.get_running_loop()
    extra = {"peername": (sender.peer_name, 0)}
    transport: BoundedTransport
    with sender.peer:
        if kind == "loop":
            transport = await open_loop_transport(loop, sock, sender, extra=extra)
        else:
            transport = SocketTransport(loop, sock, sender, burst_limit=8, extra=extra)
            transport.start()
        yield sender
        transport.abort()
        await sender.until(lambda: sender.lost)


async def test_one_datagram_waits_and_nothing_is_lost_or_reordered(
    transport_kind: TransportKind,
) -> None:
    async with pressed(transport_kind) as sender:
        expected: list[bytes] = []
        for round_count in range(1, 4):
            expected += sender.send_until_paused()
            assert sender.pauses == ["pause", "resume"] * (round_count - 1) + ["pause"]
            assert sender.transport.get_write_buffer_size() == len(expected[-1])
            sender.read_peer()
            assert sender.arrived == expected[:-1]
            await sender.until(lambda: sender.pauses[-1] == "resume")
            assert sender.transport.get_write_buffer_size() == 0
            sender.read_peer()
            assert sender.arrived == expected


async def test_a_batch_ends_with_the_datagram_that_has_to_wait(
    transport_kind: TransportKind,
) -> None:
    async with pressed(transport_kind) as sender:
        batch = b"".join(b"%04d" % number for number in range(4_000))
        left_length = sender.transport.send_batch(memoryview(batch), 4)
        assert sender.pauses == ["pause"]
        assert 4 < left_length < len(batch)
        assert left_length % 4 == 0
        with pytest.raises(BufferError, match="send nothing until resume_writing"):
            sender.transport.send_batch(memoryview(batch), 4)
        sender.read_peer()
        assert b"".join(sender.arrived) == batch[: left_length - 4]
        await sender.until(lambda: sender.pauses[-1] == "resume")
        sender.read_peer()
        assert b"".join(sender.arrived) == batch[:left_length]


async def test_a_send_during_a_pause_is_refused_aloud(transport_kind: TransportKind) -> None:
    async with pressed(transport_kind) as sender:
        sent = sender.send_until_paused()
        with pytest.raises(BufferError, match="send nothing until resume_writing"):
            sender.transport.sendto(b"impatient")
        sender.read_peer()
        await sender.until(lambda: sender.pauses[-1] == "resume")
        sender.read_peer()
        assert sender.arrived == sent


async def test_a_waiting_datagram_leaves_before_the_socket_closes(
    transport_kind: TransportKind,
) -> None:
    async with pressed(transport_kind) as sender:
        sent = sender.send_until_paused()
        sender.transport.close()
        sender.transport.close()
        assert sender.transport.is_closing()
        assert sender.lost == []
        with pytest.raises(ClosedError):
            sender.transport.sendto(b"late")
        sender.read_peer()
        await sender.until(lambda: sender.lost)
        sender.read_peer()
        assert sender.arrived == sent
        assert sender.pauses == ["pause"]


@pytest.mark.parametrize("closed_first", [False, True])
async def test_abort_gives_up_the_waiting_datagram(
    transport_kind: TransportKind, *, closed_first: bool
) -> None:
    async with pressed(transport_kind) as sender:
        sent = sender.send_until_paused()
        if closed_first:
            sender.transport.close()
        sender.transport.abort()
        await sender.until(lambda: sender.lost)
        assert sender.lost == [None]
        sender.read_peer()
        assert sender.arrived == sent[:-1]


@pytest.mark.parametrize("how", ["close", "abort"])
async def test_a_pause_may_close_the_transport(transport_kind: TransportKind, how: str) -> None:
    async with pressed(transport_kind) as sender:
        sender.on_pause = getattr(sender.transport, how)
        sender.send_until_paused()
        sender.read_peer()
        await sender.until(lambda: sender.lost)
        assert sender.pauses == ["pause"]


class Reluctant:
    """A socket that fails a few times before it sends."""

    def __init__(self, sock: socket.socket, failures: list[Exception]) -> None:
        self._sock = sock
        self._failures = failures

    def send(self, data: bytes) -> int:
        if self._failures:
            raise self._failures.pop(0)
        return self._sock.send(data)

    def sendto(self, data: bytes, address: tuple[str, int]) -> int:
        if self._failures:
            raise self._failures.pop(0)
        return self._sock.sendto(data, address)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


@asynccontextmanager
async def reluctant(failures: list[Exception]) -> AsyncIterator[Recorder]:
    recorder = Recorder()
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setblocking(False)
    sock.bind(("127.0.0.1", 0))
    loop = asyncio.get_running_loop()
    fake: Any = Reluctant(sock, failures)
    extra = {"sockname": sock.getsockname()}
    transport = SocketTransport(loop, fake, recorder, burst_limit=8, extra=extra)
    transport.start()
    yield recorder
    transport.abort()
    await recorder.until(lambda: recorder.lost)


async def test_a_socket_that_seems_writable_and_is_not_is_tried_again() -> None:
    async with reluctant([BlockingIOError()] * 3) as sender:
        sender.transport.sendto(b"patient", sender.address)
        await sender.until(lambda: sender.received)
        assert sender.received == [b"patient"]
        assert sender.pauses == ["pause", "resume"]


async def test_a_waiting_datagram_that_fails_is_reported_and_sending_goes_on() -> None:
    failure = OSError("no buffer space")
    async with reluctant([BlockingIOError(), failure]) as sender:
        sender.transport.sendto(b"unlucky", sender.address)
        await sender.until(lambda: sender.errors)
        assert sender.errors == [failure]
        assert sender.pauses == ["pause", "resume"]
        sender.transport.sendto(b"lucky", sender.address)
        await sender.until(lambda: sender.received)
        assert sender.received == [b"lucky"]


async def test_a_waiting_datagram_that_fails_while_closing_ends_the_wait() -> None:
    failure = OSError("no buffer space")
    async with reluctant([BlockingIOError(), failure]) as sender:
        sender.transport.sendto(b"unlucky", sender.address)
        sender.transport.close()
        await sender.until(lambda: sender.lost)
        assert sender.errors == [failure]
        assert sender.pauses == ["pause"]


async def test_a_receive_error_leaves_a_waiting_datagram_watched() -> None:
    failures: list[Exception] = [BlockingIOError()]
    async with reluctant(failures) as sender:
        sender.transport.sendto(b"waiting", sender.address)
        sender.transport._on_error(OSError("seen by the reader"))
        sender.transport._on_error(OSError("seen again"))
        await sender.until(lambda: sender.received)
        assert sender.received == [b"waiting"]
        assert sender.pauses == ["pause", "resume"]
        assert len(sender.errors) == 2


async def test_a_closing_transport_keeps_only_its_waiting_datagram_watched() -> None:
    async with reluctant([BlockingIOError()]) as sender:
        sender.transport.sendto(b"waiting", sender.address)
        sender.transport._on_error(OSError("seen by the reader"))
        sender.transport.close()
        await sender.until(lambda: sender.lost)
        assert sender.pauses == ["pause"]
        assert sender.received == []
