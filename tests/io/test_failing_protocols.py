"""A protocol that fails at what one source sent: what came from the others is handed over."""

from __future__ import annotations

import asyncio
from array import array
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from aeron_async._speedups import CompiledBatchReader
from aeron_async.driver.media import socket_transport
from aeron_async.driver.media.network import SystemNetwork
from aeron_async.driver.media.socket_transport import BatchReader, make_reader
from tests.by_hand import NOT_BUILT
from tests.io.recorder import Recorder, opened

if TYPE_CHECKING:
    from collections.abc import Callable

needs_compiled = pytest.mark.skipif(CompiledBatchReader is None, reason=NOT_BUILT)

ONE: tuple[str, int] = ("127.0.0.1", 1)
OTHER: tuple[str, int] = ("127.0.0.1", 2)


@pytest.fixture
async def failures() -> list[Exception]:
    """Return what the handler of exceptions is told."""
    found: list[Exception] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: found.append(context["exception"])
    )
    return found


@pytest.fixture(
    params=[
        pytest.param(lambda _: BatchReader(), id="python"),
        pytest.param(make_reader, id="compiled", marks=needs_compiled),
    ]
)
def _reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_transport, "make_reader", request.param)


def failing_at(start: bytes) -> Callable[[bytes], None]:
    def fail(datagram: bytes) -> None:
        if datagram.startswith(start):
            raise LookupError(datagram)

    return fail


@pytest.mark.usefixtures("_reader")
@pytest.mark.parametrize("count", [1, 2])
async def test_what_other_sources_sent_is_not_lost(failures: list[Exception], count: int) -> None:
    network = SystemNetwork("socket")
    async with (
        opened(network) as receiver,
        opened(network) as hapless,
        opened(network) as other,
    ):
        receiver.on_datagram = failing_at(b"hapless")
        expected = [b"hapless %d" % number for number in range(count)]
        for datagram in expected:
            hapless.transport.sendto(datagram, receiver.address)
        for number in range(5):
            expected.append(b"other %d" % number)
            other.transport.sendto(expected[-1], receiver.address)
        await receiver.until(lambda: len(receiver.received) == len(expected))
        assert receiver.received == expected
        assert [str(failure) for failure in failures] == [str(each) for each in expected[:count]]


class Fails(Recorder):
    """Fails at everything it is told beside datagrams."""

    def media_timestamp_received(self, epoch_ns: int) -> None:
        raise LookupError(epoch_ns)

    def datagrams_dropped(self, count: int) -> None:
        raise LookupError(count)

    def datagrams_received(self, data: memoryview, _: int, addr: tuple[str, int]) -> None:
        self.datagram_received(bytes(data), addr)

    def batches_received(self, data: memoryview, _: Any, addr: tuple[str, int]) -> None:
        self.datagram_received(bytes(data), addr)


@attrs.define
class Scripted:
    """Reads a datagram, a batch and several batches, each of another source, and then an error."""

    groups: list[Any]
    is_drained: bool = True
    error: OSError | None = None
    dropped: int = 7
    epoch_ns: int = 9

    def read(self, sock: Any, count_left: int) -> int:
        sock.recv(100)
        return count_left


async def test_what_fails_beside_a_group_costs_none_and_the_error_behind_them_is_told(
    failures: list[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    error = OSError("unreachable")
    several = array("i", (4, 2, 8, 2))
    reader = Scripted(
        [
            (memoryview(b"bad 1234"), array("i", (8, 8)), ONE),
            (memoryview(b"bad 5678"), array("i", (8, 4)), OTHER),
            (memoryview(b"bad 90ab"), several, ONE),
            (memoryview(b"good batch"), several, OTHER),
            (memoryview(b"good one"), array("i", (8, 8)), ONE),
        ],
        error=error,
    )
    monkeypatch.setattr(socket_transport, "make_reader", lambda _: reader)
    network = SystemNetwork("socket")
    async with opened(network, recorder=Fails()) as receiver, opened(network) as sender:
        receiver.on_datagram = failing_at(b"bad")
        sender.transport.sendto(b"any", receiver.address)
        await receiver.until(lambda: receiver.errors)
        assert receiver.errors == [error]
        assert receiver.received == [bytes(data) for data, _, _ in reader.groups]
        assert receiver.addresses == [address for _, _, address in reader.groups]
        assert [failure.args[0] for failure in failures] == [7, 9, *receiver.received[:3]]
