"""Many datagrams in one call: what the other side gets is the same datagrams, in the same order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aeron_async.driver.media.sockets import SocketSpec
from aeron_async.errors import ClosedError
from tests.io.recorder import LOOPBACK, opened

if TYPE_CHECKING:
    from aeron_async.driver.media.network import Network

BLOCK = bytes(range(256)) * 2_000
SPEC = SocketSpec(local=LOOPBACK, socket_rcvbuf_length=1024 * 1024)
IPV6_SPEC = SocketSpec(local=("::1", 0), socket_rcvbuf_length=1024 * 1024)


def datagrams(batch: bytes, segment_length: int) -> list[bytes]:
    return [batch[at : at + segment_length] for at in range(0, len(batch), segment_length)]


@pytest.mark.parametrize(
    ("spec", "length", "segment_length"),
    [
        (SPEC, 1_408 * 40, 1_408),
        (IPV6_SPEC, 1_408 * 40 + 32, 1_408),
        (SPEC, 1_408 * 150 + 1, 1_408),
        (IPV6_SPEC, 32 * 200, 32),
        (SPEC, 1_408, 1_408),
        (IPV6_SPEC, 100, 1_408),
        (SPEC, 8_192 * 20, 8_192),
        (SPEC, 32_753 * 3, 32_753),
        (SPEC, 65_507 * 2, 65_507),
        (IPV6_SPEC, 65_507 * 2, 65_507),
    ],
)
async def test_a_batch_arrives_as_datagrams_of_its_length(
    network: Network, spec: SocketSpec, length: int, segment_length: int
) -> None:
    batch = BLOCK[:length]
    async with opened(network, spec) as receiver, opened(network, spec) as sender:
        left_length = sender.transport.send_batch(
            memoryview(batch), segment_length, receiver.address
        )
        assert left_length == length
        expected = datagrams(batch, segment_length)
        await receiver.until(lambda: len(receiver.received) == len(expected))
        assert receiver.received == expected
        assert set(receiver.addresses) == {sender.address}
        assert not sender.pauses
        assert not sender.errors


async def test_a_connected_socket_sends_a_batch_to_its_peer(network: Network) -> None:
    async with (
        opened(network, SPEC) as peer,
        opened(network, SocketSpec(local=LOOPBACK, remote=peer.address)) as connected,
    ):
        assert connected.transport.send_batch(memoryview(b"aabbc"), 2) == 5
        await peer.until(lambda: len(peer.received) == 3)
        assert peer.received == [b"aa", b"bb", b"c"]


async def test_a_batch_to_an_absent_peer_ends_where_the_system_refuses(
    network: Network, unused_udp_port: int
) -> None:
    spec = SocketSpec(local=LOOPBACK, remote=("127.0.0.1", unused_udp_port))
    async with opened(network, spec) as sender:
        sender.transport.sendto(b"anyone?")
        # The refusal of the first is the answer to the next, unless it was read before.
        left_length = sender.transport.send_batch(memoryview(b"aabbc"), 2)
        await sender.until(lambda: sender.errors)
        assert left_length < 5
        assert isinstance(sender.errors[0], ConnectionRefusedError)
        assert not sender.transport.is_closing()


async def test_a_batch_that_cannot_be_meant_is_refused(network: Network) -> None:
    async with opened(network, SPEC) as sender:
        for segment_length in (0, -1):
            with pytest.raises(ValueError, match="segment_length"):
                sender.transport.send_batch(memoryview(b"ab"), segment_length, sender.address)
        with pytest.raises(ValueError, match="empty"):
            sender.transport.send_batch(memoryview(b""), 1, sender.address)
        with pytest.raises(ValueError, match="must be given"):
            sender.transport.send_batch(memoryview(b"ab"), 1)
        sender.transport.close()
        with pytest.raises(ClosedError):
            sender.transport.send_batch(memoryview(b"ab"), 1, sender.address)
