"""What the system had no room for is counted, and the operator told what to change."""

from __future__ import annotations

import socket
import struct
import sys
from typing import TYPE_CHECKING

import attrs
import pytest
from structlog.testing import capture_logs

from aeron_async.driver.media.network import SystemNetwork
from aeron_async.driver.media.sockets import SO_RXQ_OVFL, DropLog, SocketSpec
from tests.io.recorder import LOOPBACK, opened
from tests.io.scripted_socket import Received, RunRecorder, scripted

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of drops")

SPEC = SocketSpec(local=LOOPBACK, socket_rcvbuf_length=1)
FLOOD_COUNT = 300


@pytest.mark.parametrize("is_batching", [False, True])
async def test_what_a_flood_loses_is_counted_to_the_datagram(*, is_batching: bool) -> None:
    network, receiver = SystemNetwork("socket"), RunRecorder()
    spec = attrs.evolve(SPEC, is_batching=is_batching)
    async with opened(network, spec, receiver), opened(network) as sender:
        with capture_logs() as lines:
            for _ in range(FLOOD_COUNT):
                sender.transport.sendto(bytes(500), receiver.address)
            await receiver.until(lambda: receiver.received)
            # The count comes beside the datagrams that were queued after the drops.
            sender.transport.sendto(b"after", receiver.address)
            await receiver.until(lambda: receiver.received[-1] == b"after")
        assert len(receiver.received) < 100
        assert len(receiver.received) + sum(receiver.drop_counts) == FLOOD_COUNT + 1
        (line,) = [line for line in lines if line["event"] == "datagrams_dropped"]
        assert line["local"] == f"127.0.0.1:{receiver.address[1]}"
        assert line["count"] == sum(receiver.drop_counts)
        assert "SO_RCVBUF" in line["remedy"]
        assert "net.core.rmem_max" in line["remedy"]


def telling(counts: list[int]) -> Callable[[Received], Received]:
    def alter(received: Received) -> Received:
        note = (socket.SOL_SOCKET, SO_RXQ_OVFL, struct.pack("@I", counts.pop(0)))
        return received[0], [note], *received[2:]

    return alter


async def test_the_count_runs_over_and_is_taken_once_whoever_tells_it() -> None:
    spec, network = attrs.evolve(SPEC, socket_rcvbuf_length=0), SystemNetwork("socket")
    counts = [0, 2, 2, 7, 5, 2**31, 2**32 - 1, 4]
    async with opened(network) as sender, scripted(spec) as (receiver, sock):
        assert isinstance(receiver, RunRecorder)
        sock.alter = telling(counts)
        for _ in range(8):
            sender.transport.sendto(b"x", receiver.address)
        await receiver.until(lambda: len(receiver.received) == 8)
        # The 5 was read before the 7, and queued after it.
        assert receiver.drop_counts == [2, 5, 2**31 - 7, 2**31 - 1, 5]


async def test_a_protocol_that_does_not_ask_is_not_told() -> None:
    network = SystemNetwork("socket")
    async with opened(network, SPEC) as receiver, opened(network) as sender:
        for _ in range(FLOOD_COUNT):
            sender.transport.sendto(bytes(500), receiver.address)
        await receiver.until(lambda: receiver.received)
        sender.transport.sendto(b"after", receiver.address)
        await receiver.until(lambda: receiver.received[-1] == b"after")
        assert receiver.errors == []


def test_sockets_warn_once_a_second_of_all_they_lost_since() -> None:
    """However many sockets a flood finds."""
    extra = {"sockname": ("::1", 9), "granted_rcvbuf_length": 4_096}
    drop_log = DropLog()
    with capture_logs() as lines:
        for count, now_s in ((1, 10.0), (2, 10.5), (4, 10.9), (8, 11.0), (16, 12.5)):
            drop_log.note(count, extra, now_s)
    assert [line["count"] for line in lines] == [1, 14, 16]
    assert {line["local"] for line in lines} == {"[::1]:9"}
    assert {line["granted_rcvbuf_length"] for line in lines} == {4_096}


async def test_a_wish_that_is_not_granted_is_no_shortage() -> None:
    spec = attrs.evolve(SPEC, socket_rcvbuf_length=4_096, wished_rcvbuf_length=2**31 - 1)
    with capture_logs() as lines:
        async with opened(SystemNetwork("socket"), spec) as receiver:
            granted_length = receiver.transport.get_extra_info("granted_rcvbuf_length")
    assert granted_length > spec.socket_rcvbuf_length
    assert [line["event"] for line in lines] == []
