"""Several segment batches in one call: they leave as if each had been sent by itself."""

from __future__ import annotations

import errno
import sys
from array import array
from typing import TYPE_CHECKING, Any

import attrs
import pytest
from structlog.testing import capture_logs

from aeron_async._speedups import send_segmented
from aeron_async.driver.media import socket_transport
from aeron_async.driver.media.network import Network, SystemNetwork
from aeron_async.driver.media.sockets import SocketSpec
from aeron_async.errors import ClosedError
from tests.by_hand import NOT_BUILT
from tests.io.recorder import LOOPBACK, opened

if TYPE_CHECKING:
    from collections.abc import Callable

PLAIN = SocketSpec(local=LOOPBACK, socket_rcvbuf_length=4 * 1024 * 1024)
BATCHING = attrs.evolve(PLAIN, is_batching=True)
DATA = memoryview(bytes(range(256)) * 2_000)
BATCHES = [(10_272, 1_408), (64, 64), (300, 100), (65_472, 1_408), (2_048, 32), (65_507, 32_753)]
LONG_BATCHES = [(300, 100), (65_506, 32_754), (300, 100), (32 * 65, 32), (70_000, 1_408), (5, 2)]
needs_compiled = pytest.mark.skipif(send_segmented is None, reason=NOT_BUILT)
only_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux segments datagrams")


def with_table(batches: list[tuple[int, int]]) -> tuple[memoryview, array[int], list[bytes]]:
    """Return data, its segment table, and the datagrams in it."""
    segments, start = array("i"), 0
    expected: list[bytes] = []
    for length, segment_length in batches:
        end = start + length
        segments.extend((end, segment_length))
        starts = range(start, end, segment_length)
        expected += [bytes(DATA[at : min(at + segment_length, end)]) for at in starts]
        start = end
    return DATA[:start], segments, expected


@pytest.mark.parametrize(
    ("batches", "is_batching", "is_connected"),
    [
        # Each with each of the others, and all three together where it matters most.
        (BATCHES, False, False),
        (BATCHES, True, True),
        (LONG_BATCHES, False, True),
        (LONG_BATCHES, True, False),
        (BATCHES[:1], False, False),
        (BATCHES[:1], True, True),
        ([], False, True),
        ([], True, False),
    ],
)
async def test_several_batches_leave_as_their_datagrams(
    network: Network, batches: list[tuple[int, int]], *, is_batching: bool, is_connected: bool
) -> None:
    data, segments, expected = with_table(batches)
    async with opened(network, PLAIN) as peer:
        spec = attrs.evolve(PLAIN, is_batching=is_batching)
        if is_connected:
            spec = attrs.evolve(spec, remote=peer.address)
        async with opened(network, spec) as sender:
            address = None if is_connected else peer.address
            assert sender.transport.send_batches(data, segments, address) == len(data)
            await peer.until(lambda: len(peer.received) == len(expected))
            assert peer.received == expected
            assert not sender.errors


async def test_what_cannot_be_meant_is_refused(network: Network) -> None:
    data, segments, _ = with_table(BATCHES)
    async with opened(network, PLAIN) as peer:
        async with opened(network, BATCHING) as sender:
            with pytest.raises(ValueError, match="must be given"):
                sender.transport.send_batches(data, segments)
        async with opened(network, attrs.evolve(BATCHING, remote=peer.address)) as sender:
            with pytest.raises(ValueError, match="the socket is connected"):
                sender.transport.send_batches(data, segments, peer.address)
            for wrong in ((0, 100), (300, 0), (300, -1)):
                with pytest.raises(ValueError, match=r"empty|segment_length"):
                    sender.transport.send_batches(data, array("i", wrong))
            sender.transport.close()
            with pytest.raises(ClosedError):
                sender.transport.send_batches(data, segments)


@only_linux
async def test_batches_to_an_absent_peer_end_where_the_system_refuses(unused_udp_port: int) -> None:
    data, segments, _ = with_table(BATCHES)
    spec = attrs.evolve(BATCHING, remote=("127.0.0.1", unused_udp_port))
    async with opened(SystemNetwork("socket"), spec) as sender:
        # The refusal of one is the answer to the next.
        assert sender.transport.send_batches(data, segments) == BATCHES[0][0]
        assert [type(error) for error in sender.errors] == [ConnectionRefusedError]
        assert not sender.transport.is_closing()


def failing(number: int, *, at_batch: int) -> Callable[..., tuple[int, int, int]]:
    """Return what sends batches up to one, and that once is refused with an error."""
    numbers = [number]

    def send(sock: Any, data: Any, segments: Any, index: int, start: int) -> tuple[int, int, int]:
        assert send_segmented is not None
        if not numbers:
            return send_segmented(sock, data, segments, index, start)
        found = send_segmented(sock, data, segments[: 2 * at_batch], index, start)
        return found[0], found[1], numbers.pop()

    return send


@needs_compiled
async def test_of_batches_that_find_no_room_the_first_datagram_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(socket_transport, "send_segmented", failing(errno.EAGAIN, at_batch=2))
    network, (data, segments, expected) = SystemNetwork("socket"), with_table(BATCHES)
    async with (
        opened(network, PLAIN) as peer,
        opened(network, attrs.evolve(BATCHING, remote=peer.address)) as sender,
    ):
        left_length = sender.transport.send_batches(data, segments)
        assert left_length == BATCHES[0][0] + BATCHES[1][0] + BATCHES[2][1]
        assert sender.pauses == ["pause"]
        with pytest.raises(BufferError):
            sender.transport.send_batches(data, segments)
        await sender.until(lambda: sender.pauses == ["pause", "resume"])
        await peer.until(lambda: len(peer.received) == 10)
        assert peer.received == expected[:10]


@needs_compiled
@pytest.mark.parametrize("number", [errno.EIO, errno.EINVAL, errno.EMSGSIZE])
async def test_where_the_system_cuts_no_batches_they_leave_one_by_one(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(socket_transport, "send_segmented", failing(number, at_batch=2))
    network, (data, segments, expected) = SystemNetwork("socket"), with_table(BATCHES)
    async with (
        opened(network, PLAIN) as peer,
        opened(network, attrs.evolve(BATCHING, remote=peer.address)) as sender,
    ):
        with capture_logs() as lines:
            assert sender.transport.send_batches(data, segments) == len(data)
            assert sender.transport.send_batches(data[:64], array("i", (64, 32))) == 64
        assert [line["event"] for line in lines] == ["segmentation_unavailable"]
        expected += [bytes(DATA[:32]), bytes(DATA[32:64])]
        await peer.until(lambda: len(peer.received) == len(expected))
        assert peer.received == expected
        assert not sender.errors


@needs_compiled
async def test_a_datagram_alone_that_is_refused_says_nothing_of_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(socket_transport, "send_segmented", failing(errno.EMSGSIZE, at_batch=1))
    network, (data, segments, _) = SystemNetwork("socket"), with_table(BATCHES)
    async with (
        opened(network, PLAIN) as peer,
        opened(network, attrs.evolve(BATCHING, remote=peer.address)) as sender,
    ):
        with capture_logs() as lines:
            assert sender.transport.send_batches(data, segments) == BATCHES[0][0]
        assert not lines
        assert [error.errno for error in sender.errors if isinstance(error, OSError)] == [
            errno.EMSGSIZE
        ]
        assert sender.transport.send_batches(data, segments) == len(data)


@needs_compiled
@pytest.mark.parametrize(
    ("segments", "index", "start"),
    [
        ((), 0, 0),
        ((300,), 0, 0),
        ((0, 100), 0, 0),
        ((-300, 100), 0, 0),
        ((2**31 - 1, 100), 0, 0),
        ((300, 0), 0, 0),
        ((300, -100), 0, 0),
        ((300, 65_536), 0, 0),
        ((65_508, 65_508), 0, 0),
        ((300, 100), 2, 0),
        ((300, 100), -2, 0),
        ((300, 100), 2**62, 0),
        ((300, 100), 0, 300),
        ((300, 100), 0, -100),
    ],
)
async def test_cuts_that_cannot_be_meant_send_nothing(
    segments: Any, index: int, start: int
) -> None:
    assert send_segmented is not None
    network = SystemNetwork("socket")
    async with (
        opened(network, PLAIN) as peer,
        opened(network, attrs.evolve(BATCHING, remote=peer.address)) as sender,
    ):
        sock = sender.transport.get_extra_info("socket")
        found = send_segmented(sock, DATA[:70_000], array("i", segments), index, start)
        assert found == (start, index, 0)
        sender.transport.sendto(b"first")
        await peer.until(lambda: peer.received)
        assert peer.received == [b"first"]
