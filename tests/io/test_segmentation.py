"""Batches that the system segments: their receiver sees no difference."""

from __future__ import annotations

import errno
import socket
import sys

import attrs
import pytest
from structlog.testing import capture_logs

from aeron_async.driver.media import sockets
from aeron_async.driver.media.network import SystemNetwork
from aeron_async.driver.media.sockets import SocketSpec
from aeron_async.errors import ClosedError
from tests.io.recorder import LOOPBACK, Recorder, opened
from tests.io.scripted_socket import datagrams, scripted

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux segments datagrams")

PLAIN = SocketSpec(local=LOOPBACK, socket_rcvbuf_length=1024 * 1024)
BATCHING = attrs.evolve(PLAIN, is_batching=True)
DATA = memoryview(bytes(range(256)) * 2_000)
SEGMENT_LENGTH = 1_408
EAGAIN = BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")


async def test_a_batch_leaves_in_few_calls_and_a_peer_cannot_tell() -> None:
    network = SystemNetwork("socket")
    async with opened(network, PLAIN) as peer, scripted(BATCHING) as (sender, sock):
        batch = DATA[: SEGMENT_LENGTH * 100 + 1]
        left_length = sender.transport.send_batch(batch, SEGMENT_LENGTH, peer.address)
        assert left_length == len(batch)
        assert sock.batches == [(SEGMENT_LENGTH, peer.address)] * 3
        await peer.until(lambda: len(peer.received) == 101)
        assert peer.received == datagrams(batch, SEGMENT_LENGTH)
        assert set(peer.addresses) == {sender.address}


@pytest.mark.parametrize(
    ("host", "length", "segment_length", "call_count"),
    [
        ("127.0.0.1", 32 * 64, 32, 1),
        ("127.0.0.1", 32 * 65, 32, 1),
        ("127.0.0.1", 32 * 66, 32, 2),
        ("127.0.0.1", SEGMENT_LENGTH * 46, SEGMENT_LENGTH, 1),
        ("127.0.0.1", SEGMENT_LENGTH * 46 + 32, SEGMENT_LENGTH, 1),
        ("127.0.0.1", SEGMENT_LENGTH * 47 + 32, SEGMENT_LENGTH, 2),
        ("127.0.0.1", SEGMENT_LENGTH + 1, SEGMENT_LENGTH, 1),
        ("127.0.0.1", SEGMENT_LENGTH, SEGMENT_LENGTH, 0),
        ("127.0.0.1", 100, SEGMENT_LENGTH, 0),
        ("127.0.0.1", 32_753 * 2, 32_753, 1),
        ("127.0.0.1", 32_754 * 2, 32_754, 0),
        ("127.0.0.1", 65_507 * 2, 65_507, 0),
        ("::1", SEGMENT_LENGTH * 47 + 32, SEGMENT_LENGTH, 2),
        ("::1", 32_753 * 2, 32_753, 1),
        ("::1", 32_754 * 2, 32_754, 0),
        ("::1", 65_507 * 2, 65_507, 0),
    ],
)
async def test_no_call_takes_more_than_the_system_does_and_one_datagram_goes_the_plain_way(
    host: str, length: int, segment_length: int, call_count: int
) -> None:
    network = SystemNetwork("socket")
    plain, batching = (attrs.evolve(spec, local=(host, 0)) for spec in (PLAIN, BATCHING))
    async with opened(network, plain) as peer, scripted(batching) as (sender, sock):
        batch = DATA[:length]
        assert sender.transport.send_batch(batch, segment_length, peer.address) == length
        assert len(sock.batches) == call_count
        expected = datagrams(batch, segment_length)
        await peer.until(lambda: len(peer.received) == len(expected))
        assert peer.received == expected
        assert sender.errors == []


async def test_a_connected_socket_sends_batches_to_its_peer() -> None:
    network = SystemNetwork("socket")
    async with opened(network, PLAIN) as peer:
        spec = attrs.evolve(BATCHING, remote=peer.address)
        async with scripted(spec) as (sender, sock):
            assert sender.transport.send_batch(DATA[:300], 100) == 300
            assert sock.batches == [(100, None)]
            await peer.until(lambda: len(peer.received) == 3)
            with pytest.raises(ValueError, match="None, the socket is connected"):
                sender.transport.send_batch(DATA[:300], 100, peer.address)


async def test_what_cannot_be_meant_is_refused_as_on_the_plain_way() -> None:
    async with scripted(BATCHING) as (sender, sock):
        for segment_length in (0, -1):
            with pytest.raises(ValueError, match="segment_length"):
                sender.transport.send_batch(DATA[:2], segment_length, sender.address)
        with pytest.raises(ValueError, match="empty"):
            sender.transport.send_batch(DATA[:0], 1, sender.address)
        with pytest.raises(ValueError, match="must be given"):
            sender.transport.send_batch(DATA[:2], 1)
        sender.transport.close()
        with pytest.raises(ClosedError):
            sender.transport.send_batch(DATA[:2], 1, sender.address)
        assert sock.batches == []


async def test_of_a_batch_that_finds_no_room_the_first_datagram_waits() -> None:
    network = SystemNetwork("socket")
    async with opened(network, PLAIN) as peer, scripted(BATCHING) as (sender, sock):
        sock.send_failures = [None, EAGAIN]
        batch = DATA[: 32 * 200]
        assert sender.transport.send_batch(batch, 32, peer.address) == 32 * 65
        assert sender.pauses == ["pause"]
        assert sender.transport.get_write_buffer_size() == 32
        with pytest.raises(BufferError):
            sender.transport.send_batch(batch, 32, peer.address)
        await sender.until(lambda: sender.pauses == ["pause", "resume"])
        assert sender.transport.send_batch(batch[32 * 65 :], 32, peer.address) == 32 * 135
        await peer.until(lambda: len(peer.received) == 200)
        assert peer.received == datagrams(batch, 32)


@pytest.mark.parametrize("sndbuf_length", [1, 20_000])
async def test_a_send_buffer_shorter_than_a_batch_loses_nothing(sndbuf_length: int) -> None:
    network = SystemNetwork("socket")
    spec = attrs.evolve(BATCHING, socket_sndbuf_length=sndbuf_length)
    async with opened(network, PLAIN) as peer, opened(network, spec) as sender:
        left = DATA[: SEGMENT_LENGTH * 150]
        expected = datagrams(left, SEGMENT_LENGTH)
        while left:
            await sender.until(lambda: sender.pauses[-1:] != ["pause"])
            left = left[sender.transport.send_batch(left, SEGMENT_LENGTH, peer.address) :]
            assert sender.errors == []
        await peer.until(lambda: len(peer.received) == 150)
        assert peer.received == expected


@pytest.mark.parametrize("error_number", [errno.EIO, errno.EINVAL, errno.EMSGSIZE])
async def test_a_socket_that_cannot_segment_sends_the_plain_way_from_then_on(
    error_number: int,
) -> None:
    network = SystemNetwork("socket")
    async with opened(network, PLAIN) as peer, scripted(BATCHING) as (sender, sock):
        sock.send_failures = [None, OSError(error_number, "cannot")]
        batch = DATA[: 32 * 200]
        with capture_logs() as lines:
            assert sender.transport.send_batch(batch, 32, peer.address) == len(batch)
            assert sender.transport.send_batch(batch[:64], 32, peer.address) == 64
        assert len(sock.batches) == 2
        assert [line["event"] for line in lines] == ["segmentation_unavailable"]
        assert (lines[0]["segment_length"], lines[0]["reason"]) == (32, "cannot")
        await peer.until(lambda: len(peer.received) == 202)
        assert peer.received == datagrams(batch, 32) + datagrams(batch[:64], 32)
        assert sender.errors == []


async def test_a_batch_that_the_system_refuses_ends_there_and_the_rest_has_not_left() -> None:
    network = SystemNetwork("socket")
    async with opened(network, PLAIN) as peer, scripted(BATCHING) as (sender, sock):
        refusal = ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        sock.send_failures = [None, refusal]
        assert sender.transport.send_batch(DATA[: 32 * 200], 32, peer.address) == 32 * 64
        assert sender.errors == [refusal]
        assert sender.transport.send_batch(DATA[:64], 32, peer.address) == 64
        assert len(sock.batches) == 3
        await peer.until(lambda: len(peer.received) == 66)


async def test_the_refusal_of_an_absent_peer_is_told_once_and_batches_go_on(
    unused_udp_port: int,
) -> None:
    spec = attrs.evolve(BATCHING, remote=("127.0.0.1", unused_udp_port))
    network = SystemNetwork("socket")
    async with opened(network, spec) as sender:
        sender.transport.send_batch(DATA[:64], 32)
        await sender.until(lambda: sender.errors)
        assert isinstance(sender.errors[0], ConnectionRefusedError)
        assert not sender.pauses
        assert not sender.transport.is_closing()


async def test_a_link_that_is_not_there_is_an_error_of_the_batch() -> None:
    spec = attrs.evolve(BATCHING, local=("::1", 0))
    async with scripted(spec) as (sender, sock):
        assert sender.transport.send_batch(DATA[:64], 32, ("fe80::1%nowhere", 9)) == 0
        assert len(sender.errors) == 1
        assert sock.batches == []


async def test_a_system_that_knows_no_segments_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        assert not sockets.offers_segmentation(other), "or it would send the batch as one datagram"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        assert sockets.offers_segmentation(sock)
        monkeypatch.setattr(sys, "platform", "darwin")
        assert not sockets.offers_segmentation(sock)


async def test_a_socket_that_is_not_to_batch_sends_one_by_one() -> None:
    network = SystemNetwork("socket")
    async with opened(network, PLAIN) as peer, scripted(PLAIN, Recorder()) as (sender, sock):
        assert sender.transport.send_batch(DATA[:64], 32, peer.address) == 64
        await peer.until(lambda: len(peer.received) == 2)
        assert sock.batches == []
