from __future__ import annotations

import asyncio
import gc
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import ref

import pytest

from aeron_async.driver.media.network import SystemNetwork
from aeron_async.driver.media.sockets import SocketSpec
from aeron_async.errors import ClosedError
from tests.io.recorder import LOOPBACK, Recorder, opened

if TYPE_CHECKING:
    from aeron_async.driver.media.network import Network

SPEC = SocketSpec(local=LOOPBACK)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def a_few_turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.parametrize("how", ["close", "abort"])
async def test_closing_twice_is_closing_once(network: Network, how: str) -> None:
    recorder = Recorder()
    transport = await network.open(lambda: recorder, SPEC)
    for _ in range(2):
        getattr(transport, how)()
        assert transport.is_closing()
    assert recorder.lost == []
    await recorder.until(lambda: recorder.lost)
    transport.close()
    transport.abort()
    await a_few_turns()
    assert recorder.lost == [None]


async def test_nothing_is_sent_after_the_end(network: Network) -> None:
    async with opened(network) as sender:
        sender.transport.close()
        with pytest.raises(ClosedError, match="3 bytes"):
            sender.transport.sendto(b"end", sender.address)


async def test_a_watched_socket_frees_its_port_at_once() -> None:
    network = SystemNetwork("socket")
    async with opened(network) as first:
        first.transport.close()
        async with opened(network, SocketSpec(local=first.address)) as second:
            assert second.address == first.address


@pytest.mark.parametrize("how", ["close", "abort"])
async def test_a_datagram_may_close_the_transport_and_none_follows(
    network: Network, how: str
) -> None:
    async with opened(network) as receiver, opened(network) as sender:
        receiver.on_datagram = lambda _: getattr(receiver.transport, how)()
        for message in (b"0", b"1", b"2"):
            sender.transport.sendto(message, receiver.address)
        await receiver.until(lambda: receiver.lost)
        assert receiver.received == [b"0"]


class ClosesOnError(Recorder):
    def error_received(self, exc: Exception) -> None:
        super().error_received(exc)
        self.transport.close()


async def test_an_error_may_close_the_transport(network: Network, unused_udp_port: int) -> None:
    spec = SocketSpec(local=LOOPBACK, remote=("127.0.0.1", unused_udp_port))
    async with opened(network, spec, ClosesOnError()) as sender:
        sender.transport.sendto(b"anyone?")
        await sender.until(lambda: sender.lost)
        assert len(sender.errors) == 1


class ClosesAtOnce(Recorder):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        transport.close()


async def test_a_protocol_may_close_as_soon_as_it_is_connected(network: Network) -> None:
    async with opened(network, SPEC, ClosesAtOnce()) as receiver:
        assert receiver.transport.is_closing()


class Fails(Recorder):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        message = "not today"
        raise LookupError(message)


def fail() -> Recorder:
    message = "no protocol"
    raise LookupError(message)


linux_only = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")


@linux_only
@pytest.mark.parametrize("factory", [Fails, fail])
async def test_a_failed_opening_raises_and_leaves_no_file_open(
    network: Network, factory: type[Recorder]
) -> None:
    before = open_files()
    with pytest.raises(LookupError):
        await network.open(factory, SPEC)
    await a_few_turns()
    assert open_files() == before


@linux_only
@pytest.mark.parametrize("turn_count", [0, 1, 2, 3])
async def test_a_cancelled_opening_leaves_no_file_open(network: Network, turn_count: int) -> None:
    before = open_files()
    recorder = Recorder()
    opening = asyncio.ensure_future(network.open(lambda: recorder, SPEC))
    for _ in range(turn_count):
        await asyncio.sleep(0)
    if not opening.cancel():
        opening.result().close()
    await asyncio.wait([opening])
    await a_few_turns()
    assert open_files() == before


@linux_only
async def test_no_file_stays_open_and_no_warning_is_given(network: Network) -> None:
    before = open_files()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for how in ("close", "abort") * 20:
            transport = await network.open(Recorder, SPEC)
            transport.sendto(b"to itself", transport.get_extra_info("sockname"))
            getattr(transport, how)()
            del transport
        await a_few_turns()
        gc.collect()
    assert [str(warning.message) for warning in caught] == []
    assert open_files() == before


async def test_a_closed_transport_keeps_no_protocol_alive(network: Network) -> None:
    made: list[ref[Recorder]] = []

    def make() -> Recorder:
        recorder = Recorder()
        made.append(ref(recorder))
        return recorder

    transport = await network.open(make, SPEC)
    transport.close()
    await a_few_turns()
    gc.collect()
    assert [recorder() for recorder in made] == [None]
    assert transport.is_closing()


def test_a_transport_may_be_closed_after_its_loop() -> None:
    recorder = Recorder()
    loop = asyncio.new_event_loop()
    network = SystemNetwork("socket")
    transport = loop.run_until_complete(network.open(lambda: recorder, SPEC))
    loop.close()
    transport.close()
    transport.close()
    assert transport.get_extra_info("socket").fileno() == -1
    assert recorder.lost == []
