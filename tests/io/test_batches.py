"""Datagrams that arrive many at once: none is lost, each keeps its length, no reader starves."""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from typing import Any

import attrs
import pytest

from aeron_async._speedups import CompiledBatchReader
from aeron_async.driver.media.network import SystemNetwork
from aeron_async.driver.media.sockets import SO_TIMESTAMPNS, UDP_GRO, SocketSpec
from tests.io.recorder import LOOPBACK, opened
from tests.io.scripted_socket import Received, RunRecorder, datagrams, scripted
from tests.io.test_multicast import usable

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux batches datagrams")

SPEC = SocketSpec(local=LOOPBACK, socket_rcvbuf_length=1024 * 1024, is_batching=True)
DATA = memoryview(bytes(range(256)) * 2_000)
SEGMENT_LENGTH = 1_408


@pytest.fixture
def network() -> SystemNetwork:
    return SystemNetwork("socket")


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_a_batch_arrives_whole(network: SystemNetwork, host: str) -> None:
    spec, receiver = attrs.evolve(SPEC, local=(host, 0)), RunRecorder()
    async with opened(network, spec, receiver), opened(network, spec) as sender:
        batch = DATA[: SEGMENT_LENGTH * 40 + 32]
        sender.transport.send_batch(batch, SEGMENT_LENGTH, receiver.address)
        await receiver.until(lambda: len(receiver.received) == 41)
        assert receiver.batches == [(len(batch), SEGMENT_LENGTH)]
        assert receiver.received == datagrams(batch, SEGMENT_LENGTH)
        assert set(receiver.addresses) == {sender.address}


async def test_a_connected_socket_takes_batches_of_its_peer(network: SystemNetwork) -> None:
    receiver = RunRecorder()
    async with opened(network, SPEC) as sender:
        spec = attrs.evolve(SPEC, remote=sender.address)
        async with opened(network, spec, receiver):
            sender.transport.send_batch(DATA[:250], 100, receiver.address)
            await receiver.until(lambda: len(receiver.received) == 3)
            assert receiver.batches == [(250, 100)]
            assert receiver.received == datagrams(DATA[:250], 100)


async def test_a_group_takes_batches(network: SystemNetwork, unused_udp_port: int) -> None:
    interface, group = usable(4), "224.20.30.43"
    receiver = RunRecorder()
    member = attrs.evolve(
        SPEC, local=("0.0.0.0", unused_udp_port), group=group, interface=interface
    )
    source = attrs.evolve(SPEC, remote=(group, unused_udp_port), interface=interface)
    async with opened(network, member, receiver), opened(network, source) as sender:
        assert sender.transport.send_batch(DATA[:250], 100) == 250
        await receiver.until(lambda: len(receiver.received) == 3)
        assert receiver.batches == [(250, 100)]
        assert receiver.received == datagrams(DATA[:250], 100)


async def test_datagrams_of_other_lengths_among_batches_keep_their_place_and_their_length(
    network: SystemNetwork,
) -> None:
    receiver = RunRecorder()
    async with opened(network, SPEC, receiver), opened(network, SPEC) as sender:
        expected: list[bytes] = []
        for length, segment_length in ((3_000, 1_000), (32, 32), (64, 32), (900, 400), (7, 7)):
            batch = DATA[:length]
            sender.transport.send_batch(batch, segment_length, receiver.address)
            sender.transport.sendto(DATA[:32], receiver.address)
            expected += [*datagrams(batch, segment_length), bytes(DATA[:32])]
        await receiver.until(lambda: len(receiver.received) == len(expected))
        assert receiver.received == expected
        assert receiver.batches == [(3_000, 1_000), (64, 32), (900, 400)]


async def test_a_protocol_that_takes_no_batches_gets_their_datagrams(
    network: SystemNetwork,
) -> None:
    async with opened(network, SPEC) as receiver, opened(network, SPEC) as sender:
        sender.transport.send_batch(DATA[:250], 100, receiver.address)
        await receiver.until(lambda: len(receiver.received) == 3)
        assert receiver.received == datagrams(DATA[:250], 100)


async def test_a_protocol_that_closes_amid_a_batch_hears_no_more_of_it(
    network: SystemNetwork,
) -> None:
    async with opened(network, SPEC) as receiver, opened(network, SPEC) as sender:
        receiver.on_datagram = lambda _: receiver.transport.close()
        sender.transport.send_batch(DATA[:250], 100, receiver.address)
        await receiver.until(lambda: receiver.lost)
        assert receiver.received == [bytes(DATA[:100])]


async def test_a_protocol_that_closes_amid_many_hears_no_more_of_them(
    network: SystemNetwork,
) -> None:
    async with (
        opened(network, SPEC) as receiver,
        opened(network, SPEC) as sender,
        opened(network, SPEC) as other,
    ):
        receiver.on_datagram = lambda _: receiver.transport.close()
        for each in (sender, sender, other):
            each.transport.sendto(b"x", receiver.address)
        await receiver.until(lambda: receiver.lost)
        assert receiver.received == [b"x"]


class ManyRunsRecorder(RunRecorder):
    """Takes many batches in one call."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[list[int]] = []

    def batches_received(self, data: memoryview, segments: Any, addr: Any) -> None:
        self.calls.append(list(segments))
        start = 0
        for end, segment_length in zip(segments[::2], segments[1::2], strict=True):
            self.datagrams_received(data[start:end], segment_length, addr)
            start = end


@pytest.mark.skipif(
    CompiledBatchReader is None, reason="the reader in Python takes one batch a call"
)
async def test_batches_that_came_one_after_another_are_told_at_once(network: SystemNetwork) -> None:
    receiver = ManyRunsRecorder()
    async with opened(network, SPEC, receiver), opened(network, SPEC) as sender:
        for _ in range(3):
            sender.transport.send_batch(DATA[:250], 100, receiver.address)
        await receiver.until(lambda: len(receiver.received) == 9)
        assert receiver.calls == [[250, 100, 500, 100, 750, 100]]
        assert receiver.received == datagrams(DATA[:250], 100) * 3


async def test_a_protocol_that_fails_at_one_datagram_of_a_batch_gets_the_others(
    network: SystemNetwork,
) -> None:
    failures: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))

    def fail(datagram: bytes) -> None:
        if len(receiver.received) == 1:
            raise LookupError(datagram)

    async with opened(network, SPEC) as receiver, opened(network, SPEC) as sender:
        receiver.on_datagram = fail
        sender.transport.send_batch(DATA[:250], 100, receiver.address)
        await receiver.until(lambda: len(receiver.received) == 3)
        assert [type(failure["exception"]) for failure in failures] == [LookupError]


def cut_off(received: Received) -> Received:
    length, ancillary, flags, address = received
    return length, ancillary, flags | socket.MSG_CTRUNC, address


def without_notes(received: Received) -> Received:
    return received[0], [], *received[2:]


def with_strange_notes(received: Received) -> Received:
    """Say what no system says: halves of numbers, other levels, segments of no or all length."""
    length, _, flags, address = received
    notes = [
        (socket.SOL_UDP, UDP_GRO, b"\x64"),
        (socket.SOL_SOCKET, 40, b"\x01"),
        (socket.SOL_SOCKET, SO_TIMESTAMPNS, b"\x01"),
        (socket.SOL_SOCKET, 4_711, b"\x01"),
        (socket.IPPROTO_IP, UDP_GRO, struct.pack("@i", 100)),
    ]
    return length, notes, flags, address


def with_segments_of(segment_length: int) -> Any:
    def alter(received: Received) -> Received:
        note = (socket.SOL_UDP, UDP_GRO, struct.pack("@i", segment_length))
        return received[0], [note], *received[2:]

    return alter


@pytest.mark.parametrize(
    "alter",
    [
        cut_off,
        without_notes,
        with_strange_notes,
        with_segments_of(0),
        with_segments_of(-1),
        with_segments_of(250),
        with_segments_of(1_000),
    ],
)
async def test_a_batch_of_which_the_system_says_nothing_certain_is_one_datagram(
    network: SystemNetwork, alter: Any
) -> None:
    async with opened(network, SPEC) as sender, scripted(SPEC) as (receiver, sock):
        sock.alter = alter
        sender.transport.send_batch(DATA[:250], 100, receiver.address)
        await receiver.until(lambda: receiver.received)
        assert receiver.received == [bytes(DATA[:250])]


async def test_a_system_that_says_nothing_beside_datagrams_still_brings_them(
    network: SystemNetwork,
) -> None:
    spec = attrs.evolve(SPEC, is_batching=False)
    async with opened(network, SPEC) as sender, scripted(spec) as (receiver, sock):
        sock.missing = {"recvmsg_into"}
        sender.transport.send_batch(DATA[:250], 100, receiver.address)
        await receiver.until(lambda: len(receiver.received) == 3)
        assert receiver.received == datagrams(DATA[:250], 100)


@pytest.mark.parametrize("changes", [{"is_batching": False}, {"is_timestamped": True}])
async def test_a_socket_that_is_not_to_batch_or_tells_times_gets_datagrams_one_by_one(
    network: SystemNetwork, changes: Any
) -> None:
    receiver = Timed()
    spec = attrs.evolve(SPEC, **changes)
    async with opened(network, spec, receiver), opened(network, SPEC) as sender:
        sender.transport.send_batch(DATA[:250], 100, receiver.address)
        await receiver.until(lambda: len(receiver.received) == 3)
        assert receiver.batches == []
        assert receiver.received == datagrams(DATA[:250], 100)
        assert len(receiver.times) == (3 if spec.is_timestamped else 0)


class Timed(RunRecorder):
    def __init__(self) -> None:
        super().__init__()
        self.times: list[int] = []

    def media_timestamp_received(self, epoch_ns: int) -> None:
        self.times.append(epoch_ns)


@pytest.mark.parametrize(
    ("segment_length", "batch_count", "most_batches"),
    [(32, 40, 8), (1_024, 4, 8), (8_192, 8, 8)],
    ids=["short", "usual", "long"],
)
async def test_batches_end_a_burst_before_they_starve_anybody_and_not_at_once(
    segment_length: int, batch_count: int, most_batches: int
) -> None:
    network = SystemNetwork("socket", 64)
    spec = attrs.evolve(SPEC, socket_rcvbuf_length=4 * 1024 * 1024)
    receiver = RunRecorder()
    async with opened(network, spec, receiver), opened(network, SPEC) as sender:
        count = min(64, 65_507 // segment_length)
        batch = bytes(segment_length * count)
        for _ in range(batch_count):
            sender.transport.send_batch(memoryview(batch), segment_length, receiver.address)
        counts, before = [], 0
        while before < batch_count * count:
            await asyncio.sleep(0)
            counts.append(len(receiver.received) - before)
            before = len(receiver.received)
        assert 2 * count <= max(counts) <= (most_batches + 1) * count
