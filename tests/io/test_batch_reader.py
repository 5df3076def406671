"""Both readers tell the same of what came; the compiled one takes more of it in one call."""

from __future__ import annotations

import socket
import sys
import time
from array import array
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from aeron_async._speedups import CompiledBatchReader
from aeron_async.driver.media.socket_transport import BatchReader, decode_address, make_reader
from aeron_async.driver.media.sockets import SO_RXQ_OVFL, SO_TIMESTAMPNS, UDP_GRO, UDP_SEGMENT
from tests.by_hand import NOT_BUILT

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux batches datagrams")
needs_compiled = pytest.mark.skipif(CompiledBatchReader is None, reason=NOT_BUILT)

LONGEST = 65_507
MakeReader = Callable[[socket.socket], Any]


@pytest.fixture(
    params=[
        pytest.param(lambda _: BatchReader(), id="python"),
        pytest.param(make_reader, id="compiled", marks=needs_compiled),
    ]
)
def make(request: pytest.FixtureRequest) -> MakeReader:
    found: MakeReader = request.param
    return found


@pytest.fixture(params=["127.0.0.1", "::1"])
def receiver(request: pytest.FixtureRequest) -> Iterator[socket.socket]:
    with bound(request.param) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * 1024 * 1024)
        sock.setsockopt(socket.SOL_UDP, UDP_GRO, 1)
        yield sock


def bound(host: str) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
    sock.setblocking(False)
    sock.bind((host, 0))
    return sock


def sender_to(receiver: socket.socket) -> socket.socket:
    sock = bound(receiver.getsockname()[0])
    sock.connect(receiver.getsockname())
    return sock


def send_batch(sock: socket.socket, data: bytes, segment_length: int) -> None:
    note = segment_length.to_bytes(2, sys.byteorder)
    assert sock.sendmsg([data], [(socket.SOL_UDP, UDP_SEGMENT, note)]) == len(data)


def datagrams(data: memoryview, segments: Any) -> Iterator[bytes]:
    """Yield what was sent, as the segment table says."""
    start = 0
    for end, segment_length in zip(segments[::2], segments[1::2], strict=True):
        if end == start:
            yield b""
        for at in range(start, end, segment_length or 1):
            yield bytes(data[at : min(at + segment_length, end)])
        start = end
    assert start == len(data)


def read_all(reader: Any, sock: socket.socket, count: int = 64) -> list[tuple[Any, list[bytes]]]:
    found: list[tuple[Any, list[bytes]]] = []
    while True:
        used = reader.read(sock, count)
        assert reader.error is None
        found += [
            (address, list(datagrams(data, segments))) for data, segments, address in reader.groups
        ]
        if reader.is_drained:
            return found
        assert used > 0


def test_batches_and_what_comes_alone_keep_their_order_and_their_lengths(
    make: MakeReader, receiver: socket.socket
) -> None:
    with sender_to(receiver) as sender:
        send_batch(sender, b"aabbc", 2)
        sender.send(b"alone")
        sender.send(b"")
        send_batch(sender, b"ddee", 2)
        found = read_all(make(receiver), receiver)
        assert {address for address, _ in found} == {sender.getsockname()[:2]}
        expected = [b"aa", b"bb", b"c", b"alone", b"", b"dd", b"ee"]
        assert [each for _, group in found for each in group] == expected


def test_every_source_has_what_it_sent(make: MakeReader, receiver: socket.socket) -> None:
    with sender_to(receiver) as first, sender_to(receiver) as second:
        for number in range(3):
            send_batch(first, b"aabb%d" % number, 2)
            second.send(b"two%d" % number)
            second.send(b"")
        found = read_all(make(receiver), receiver)
        told: dict[Any, list[bytes]] = {}
        for address, group in found:
            told.setdefault(address, []).extend(group)
        one = [each for number in (b"0", b"1", b"2") for each in (b"aa", b"bb", number)]
        assert told[first.getsockname()[:2]] == one
        assert told[second.getsockname()[:2]] == [b"two0", b"", b"two1", b"", b"two2", b""]


def test_the_longest_batches_fill_the_memory_and_no_more(
    make: MakeReader, receiver: socket.socket
) -> None:
    reader = make(receiver)
    batch = bytes(range(256)) * 250
    with sender_to(receiver) as sender:
        for _ in range(6):
            send_batch(sender, batch, 1_000)
        reader.read(receiver, 10_000)
        assert not reader.is_drained
        assert 1 <= sum(len(segments) // 2 for _, segments, _ in reader.groups) <= 4
        left = read_all(reader, receiver)
        for _, group in left:
            assert set(map(len, group)) == {1_000}


def test_what_is_read_is_counted_by_datagrams_and_by_length(
    make: MakeReader, receiver: socket.socket
) -> None:
    reader = make(receiver)
    with sender_to(receiver) as sender:
        for data, segment_length, count in (
            (b"x", 1, 1),
            (b"", 1, 1),
            (bytes(9_000), 9_000, 1),
            (bytes(33_000), 33_000, 2),
            (bytes(64), 1, 8),
            (bytes(12), 4, 1),
            (bytes(60_000), 1_400, 5),
            (bytes(60_000), 30_000, 3),
        ):
            if len(data) > segment_length:
                send_batch(sender, data, segment_length)
            else:
                sender.send(data)
            assert reader.read(receiver, 1) == count
    assert reader.read(receiver, 1) == 0
    assert (reader.is_drained, reader.groups, reader.error) == (True, [], None)


@needs_compiled
def test_a_call_ends_when_its_count_is_used_up(receiver: socket.socket) -> None:
    reader = make_reader(receiver)
    with sender_to(receiver) as sender:
        for _ in range(100):
            sender.send(b"x")
        assert reader.read(receiver, 5) == 5
        assert [len(segments) for _, segments, _ in reader.groups] == [10]
        # So many batches it has room to tell of.
        assert reader.read(receiver, 1_000) == 64
        assert reader.read(receiver, 1_000) == 31
        assert reader.is_drained


def test_an_error_comes_behind_what_came(
    make: MakeReader, receiver: socket.socket, unused_udp_port: int
) -> None:
    host = receiver.getsockname()[0]
    reader = make(receiver)
    with sender_to(receiver) as sender:
        sender.send(b"before")
        receiver.connect((host, unused_udp_port))
        receiver.send(b"anyone?")
        errors = [reader.error for _ in range(3) if reader.read(receiver, 64) >= 0]
        assert [type(each) for each in errors if each] == [ConnectionRefusedError]


def test_a_closed_socket_is_an_error(make: MakeReader) -> None:
    sock = bound("127.0.0.1")
    reader = make(sock)
    sock.close()
    assert reader.read(sock, 64) == 1
    assert isinstance(reader.error, OSError)
    assert not reader.is_drained


def test_drops_and_times_are_told(make: MakeReader, receiver: socket.socket) -> None:
    receiver.setsockopt(socket.SOL_SOCKET, SO_RXQ_OVFL, 1)
    receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
    receiver.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    reader = make(receiver)
    begun_ns = time.time_ns()
    with sender_to(receiver) as sender:
        for _ in range(100):
            sender.send(bytes(500))
        times, count = [], 0
        while reader.read(receiver, 64):
            times.append(reader.epoch_ns)
            count += sum(len(segments) // 2 for _, segments, _ in reader.groups)
        assert len(times) == count > 1
        # Not in order: until Linux has begun to note when datagrams arrive, it notes when they are
        # read.
        assert begun_ns <= min(times) <= max(times) <= time.time_ns()
        assert reader.dropped == -1
        sender.send(b"after")
        assert reader.read(receiver, 64) == 1
        assert reader.dropped == 100 - count


@needs_compiled
def test_addresses_of_a_flood_are_not_kept_for_ever(receiver: socket.socket) -> None:
    assert CompiledBatchReader is not None
    decoded: list[bytes] = []

    def decode(raw: bytes) -> Any:
        decoded.append(raw)
        return decode_address(raw)

    reader = CompiledBatchReader(
        memoryview(bytearray(65_536)), memoryview(array("i", bytes(512))), decode
    )
    addresses = []
    for _ in range(300):
        with sender_to(receiver) as sender:
            sender.send(b"x")
            addresses.append(sender.getsockname()[:2])
        reader.read(receiver, 1)
        assert reader.groups[0][2] == addresses[-1]
    assert len(decoded) >= len(set(addresses))


@needs_compiled
@pytest.mark.parametrize(("memory", "segments"), [(65_535, 512), (65_536, 508), (0, 0)])
def test_memory_that_is_too_short_is_refused(memory: int, segments: int) -> None:
    assert CompiledBatchReader is not None
    with pytest.raises(ValueError, match="too short"):
        CompiledBatchReader(
            memoryview(bytearray(memory)), memoryview(bytearray(segments)).cast("i"), decode_address
        )
    reader = CompiledBatchReader.__new__(CompiledBatchReader)
    with pytest.raises(ValueError, match="without memory"), bound("127.0.0.1") as sock:
        reader.read(sock, 1)


@needs_compiled
def test_segments_at_an_odd_address_are_refused() -> None:
    assert CompiledBatchReader is not None
    segments = memoryview(bytearray(514))[2:].cast("i")
    with pytest.raises(ValueError, match="multiple of 4"):
        CompiledBatchReader(memoryview(bytearray(65_536)), segments, decode_address)


def test_a_link_is_part_of_an_address_that_many_links_have() -> None:
    port = socket.htons(9).to_bytes(2, sys.byteorder)
    host = socket.inet_pton(socket.AF_INET6, "fe80::1")
    family = int(socket.AF_INET6).to_bytes(2, sys.byteorder)
    raw = family + port + bytes(4) + host + (3).to_bytes(4, sys.byteorder)
    assert decode_address(raw) == ("fe80::1%3", 9)
