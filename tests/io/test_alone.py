"""The short ways to and from a socket: a datagram that arrives, or is sent, alone."""

from __future__ import annotations

import asyncio
import errno
import socket
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

import aeron_async as aa
from aeron_async._speedups import CompiledBatchReader, LoneReading
from aeron_async.driver.media import socket_transport
from aeron_async.driver.media.socket_transport import SocketTransport
from aeron_async.driver.media.sockets import SO_TIMESTAMPNS, UDP_GRO
from aeron_async.driver.sender import LANE_QUIET_NS
from tests.by_hand import NOT_BUILT
from tests.io.test_batch_reader import bound, datagrams, receiver, send_batch, sender_to

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.driver.media.sockets import SocketAddress

__all__ = ["receiver"]

pytestmark = [
    pytest.mark.skipif(CompiledBatchReader is None, reason=NOT_BUILT),
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux batches datagrams"),
]
CHANNEL = "aeron:udp?endpoint=127.0.0.1:0"


def make_reader(sock: socket.socket) -> Any:
    return socket_transport.make_reader(sock)


class Taker:
    """Takes what it is told to take, and keeps it."""

    def __init__(self, *, is_willing: bool = True) -> None:
        self.is_willing = is_willing
        self.seen: list[tuple[bytes, SocketAddress]] = []

    def __call__(self, data: memoryview, address: SocketAddress) -> bool:
        self.seen.append((bytes(data), address))
        return self.is_willing


def rest(reader: Any, sock: socket.socket) -> list[bytes]:
    """Return what is left at the socket."""
    found: list[bytes] = []
    while True:
        reader.read(sock, 64)
        found += [each for data, cuts, _ in reader.groups for each in datagrams(data, cuts)]
        if reader.is_drained:
            return found


def test_datagrams_are_received_as_long_as_they_are_taken(receiver: socket.socket) -> None:
    reader, taker = make_reader(receiver), Taker()
    with sender_to(receiver) as sender:
        assert reader.read_alone(receiver, taker, 64), "there is nothing"
        assert taker.seen == []
        sent = [b"one", b"two", b"three"]
        for data in sent:
            sender.send(data)
        assert reader.read_alone(receiver, taker, 64)
        assert taker.seen == [(each, sender.getsockname()[:2]) for each in sent]


def test_no_more_datagrams_are_received_than_the_burst_limit_says(receiver: socket.socket) -> None:
    reader, taker = make_reader(receiver), Taker()
    with sender_to(receiver) as sender:
        for number in range(5):
            sender.send(b"%d" % number)
        assert not reader.read_alone(receiver, taker, 3)
        assert [data for data, _ in taker.seen] == [b"0", b"1", b"2"]
        assert rest(reader, receiver) == [b"3", b"4"]


def test_a_datagram_that_is_not_taken_comes_first_by_the_next_read(
    receiver: socket.socket,
) -> None:
    reader, taker = make_reader(receiver), Taker(is_willing=False)
    with sender_to(receiver) as sender:
        for data in (b"one", b"two", b""):
            sender.send(data)
        assert not reader.read_alone(receiver, taker, 64)
        assert rest(reader, receiver) == [b"one", b"two", b""]
        assert rest(reader, receiver) == []


def test_a_batch_is_offered_to_nobody(receiver: socket.socket) -> None:
    reader, taker = make_reader(receiver), Taker()
    with sender_to(receiver) as sender:
        send_batch(sender, b"aabbc", 2)
        sender.send(b"alone")
        assert not reader.read_alone(receiver, taker, 64)
        assert taker.seen == []
        assert rest(reader, receiver) == [b"aa", b"bb", b"c", b"alone"]


def test_an_error_is_kept_for_the_next_read() -> None:
    with bound("127.0.0.1") as sock, bound("127.0.0.1") as gone:
        address = gone.getsockname()
        gone.close()
        sock.connect(address)
        sock.send(b"to nobody")
        reader, taker = make_reader(sock), Taker()
        while reader.read_alone(sock, taker, 64):
            pass
        assert reader.read(sock, 64) == 1
        assert reader.error is not None
        assert reader.error.errno == errno.ECONNREFUSED
        assert rest(reader, sock) == []
        assert taker.seen == []


def test_a_datagram_with_a_timestamp_is_offered_to_nobody(receiver: socket.socket) -> None:
    receiver.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    reader, taker = make_reader(receiver), Taker()
    with sender_to(receiver) as sender:
        sender.send(b"timed")
        assert not reader.read_alone(receiver, taker, 64)
        assert reader.read(receiver, 64) == 1
        assert reader.epoch_ns > 0
        assert taker.seen == []


def test_datagrams_that_the_system_dropped_are_told_by_a_read() -> None:
    with bound("127.0.0.1") as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        sock.setsockopt(socket.SOL_SOCKET, 40, 1)
        sock.setsockopt(socket.SOL_UDP, UDP_GRO, 1)
        reader, taker = make_reader(sock), Taker()
        with sender_to(sock) as sender:
            for _ in range(64):
                sender.send(bytes(1_024))
            rest(reader, sock)
            sender.send(b"after the loss")
            assert not reader.read_alone(sock, taker, 64)
            assert reader.read(sock, 64) == 1
            assert reader.dropped > 0
            # That they were dropped is told once.
            sender.send(b"later")
            assert reader.read_alone(sock, taker, 64)
            assert taker.seen[0][0] == b"later"


def test_what_raises_leaves_its_datagram_to_the_next_read(receiver: socket.socket) -> None:
    def fail(_data: memoryview, _address: SocketAddress) -> bool:
        message = "no"
        raise ValueError(message)

    reader, taker = make_reader(receiver), Taker()
    with sender_to(receiver) as sender:
        sender.send(b"not lost")
        with pytest.raises(ValueError, match="no"):
            reader.read_alone(receiver, fail, 64)
        sender.send(b"next")
        assert not reader.read_alone(receiver, taker, 64)
        assert taker.seen == []
        assert rest(reader, receiver) == [b"not lost", b"next"]


# What the loop calls.


class Reading:
    """A `LoneReading`, and what it has called."""

    def __init__(self, sock: socket.socket, taker: Callable[..., Any], *, count: int = 64) -> None:
        self.reader = make_reader(sock)
        self.errors: list[Exception] = []
        self.told: list[str] = []
        assert LoneReading is not None
        self.read = LoneReading(
            *(self.reader, sock, taker, lambda: self.told.append("taken"), count),
            *(self.errors.append, lambda: self.told.append("on")),
        )


def test_a_look_for_more_is_left_out_after_lone_datagrams(receiver: socket.socket) -> None:
    taker = Taker()
    reading = Reading(receiver, taker)
    with sender_to(receiver) as sender:
        sender.send(b"alone")
        reading.read()
        for number in range(9):
            sender.send(b"%d" % number)
        left = []
        while len(taker.seen) < 10:
            reading.read()
            left.append(10 - len(taker.seen))
    # Each of them keeps the socket readable, so that the loop calls again; then all are taken.
    assert left == [8, 7, 6, 5, 0]
    assert [data for data, _ in taker.seen[1:]] == [b"%d" % each for each in range(9)]
    assert reading.told == ["taken"] * 6


def test_a_look_for_more_follows_whatever_was_not_alone(receiver: socket.socket) -> None:
    taker = Taker()
    reading = Reading(receiver, taker)
    with sender_to(receiver) as sender:
        for _ in range(3):
            for _ in range(2):
                sender.send(b"two")
            reading.read()
        assert len(taker.seen) == 6
        sender.send(b"alone")
        reading.read()
        taker.is_willing = False
        sender.send(b"long")
        reading.read()
        assert reading.told == ["taken"] * 5 + ["on"]
        assert rest(reading.reader, receiver) == [b"long"]
        taker.is_willing = True
        for _ in range(3):
            sender.send(b"three")
        reading.read()
        assert len(taker.seen) == 11


def test_what_a_reading_calls_may_raise(receiver: socket.socket) -> None:
    reading = Reading(receiver, lambda *_: 1 // 0)
    with sender_to(receiver) as sender:
        sender.send(b"kept")
        reading.read()
        assert [type(each) for each in reading.errors] == [ZeroDivisionError]
        assert reading.told == ["taken"], "others may have been taken before"
        reading.read()
        assert reading.told == ["taken", "taken", "on"]
        assert rest(reading.reader, receiver) == [b"kept"]


def test_a_reading_stops_at_its_count_and_is_made_once(receiver: socket.socket) -> None:
    reading = Reading(receiver, Taker(), count=2)
    with sender_to(receiver) as sender:
        for _ in range(3):
            sender.send(b"many")
        reading.read()
        assert reading.told == ["taken", "on"]
    with pytest.raises(ValueError, match="made once"):
        reading.read.__init__(reading.reader, receiver, bool, bool, 1, bool, bool)  # type: ignore[misc] # hostile
    empty = type(reading.read).__new__(type(reading.read))
    with pytest.raises(ValueError, match="without a reader"):
        empty()


# The whole way.


async def lone_pair(aeron: aa.Aeron) -> tuple[aa.Publication, aa.Subscription]:
    """Return a publication and a subscription over UDP, whose ways have become calm."""
    subscription = await aeron.add_subscription(CHANNEL, 1)
    channel = f"aeron:udp?endpoint={subscription.local_address}"
    publication = await aeron.add_publication(channel, 1)
    await publication.wait_connected(10)
    for _ in range(20):
        await publication.offer(b"warm")
        await anext(subscription)
    return publication, subscription


async def test_a_queue_of_frames_takes_one_turn_of_the_loop() -> None:
    """Not a turn for each: whatever else the loop does in a turn would hold up the stream."""
    turns = 0

    def count_turns() -> None:
        nonlocal turns
        turns += 1
        loop.call_soon(count_turns)

    loop = asyncio.get_running_loop()
    async with aa.Aeron.connect() as aeron:
        publication, subscription = await lone_pair(aeron)
        for _ in range(30):
            await publication.offer(b"alone")
            # Longer than a lane waits, so that each message is a datagram of its own.
            end_ns = time.perf_counter_ns() + 2 * LANE_QUIET_NS
            while time.perf_counter_ns() < end_ns:
                pass
        count_turns()
        for _ in range(30):
            await anext(subscription)
    assert turns < 10


async def test_a_handler_is_called_by_the_socket_that_had_the_message() -> None:
    called: list[bool] = []
    arrived, is_by_socket = asyncio.Event(), False

    def handle(_message: Any) -> None:
        assert asyncio.current_task() is None
        called.append(is_by_socket)
        arrived.set()

    def deliver() -> None:
        nonlocal is_by_socket
        is_by_socket = True
        assert subscription._delivery is not None
        subscription._delivery.deliver_now()
        is_by_socket = False

    async with aa.Aeron.connect() as aeron:
        publication, subscription = await lone_pair(aeron)
        subscription.on_message(handle)
        subscription._listener.deliver = deliver
        for _ in range(50):
            arrived.clear()
            await publication.offer(b"lone")
            await arrived.wait()
    assert len(called) == 50
    assert sum(called) > 25


@pytest.mark.parametrize("act", ["close", "aeron", "replace", "remove", "raise"])
async def test_a_handler_called_in_place_may_do_whatever_one_called_later_may(act: str) -> None:
    loop = asyncio.get_running_loop()
    reported: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: reported.append(context))
    seen: list[bytes] = []
    arrived = asyncio.Event()
    aeron = await aa.Aeron.connect()
    publication, subscription = await lone_pair(aeron)
    closing: list[asyncio.Task[None]] = []

    def later(message: Any) -> None:
        seen.append(b"later " + message.data)
        arrived.set()

    def handle(message: Any) -> None:
        seen.append(message.data)
        arrived.set()
        acts: dict[str, Callable[[], object]] = {
            "close": subscription.close,
            "aeron": lambda: closing.append(loop.create_task(aeron.aclose())),
            "replace": lambda: subscription.on_message(later),
            "remove": lambda: subscription.on_message(None),
            "raise": lambda: 1 / 0,
        }
        acts[act]()

    subscription.on_message(handle)
    await asyncio.sleep(0)
    await publication.offer(b"first")
    await arrived.wait()
    arrived.clear()
    await asyncio.gather(*closing)
    if act in {"replace", "raise"}:
        await publication.offer(b"second")
        await arrived.wait()
        assert seen == [b"first", b"later second" if act == "replace" else b"second"]
    elif act == "remove":
        await publication.offer(b"second")
        assert bytes(await anext(subscription)) == b"second"
    else:
        assert subscription.is_closed
        assert seen == [b"first"]
    assert len(reported) == (2 if act == "raise" else 0)
    await aeron.aclose()


async def test_a_publication_outlives_the_errors_of_its_lone_offers() -> None:
    """An absent receiver makes sends fail, and uvloop drops a socket that has had an error."""
    async with aa.Aeron.connect() as ours:
        theirs = await aa.Aeron.connect()
        subscription = await theirs.add_subscription(CHANNEL, 1)
        channel = f"aeron:udp?endpoint={subscription.local_address}"
        publication = await ours.add_publication(channel, 1)
        for _ in range(3):
            await publication.wait_connected(10)
            for _ in range(20):
                await publication.offer(b"heard")
                assert bytes(await anext(subscription)) == b"heard"
            await theirs.aclose()
            # A round of the loop for each: the error of one send is what the next one meets.
            for _ in range(20):
                publication.try_offer(b"unheard")
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            theirs = await aa.Aeron.connect()
            subscription = await theirs.add_subscription(channel, 1)
            await subscription.wait_connected(10)
        await theirs.aclose()


# What compiled code may send to.


async def opened(peer: socket.socket | None, protocol: asyncio.DatagramProtocol) -> SocketTransport:
    sock = bound("127.0.0.1")
    if peer is not None:
        sock.connect(peer.getsockname())
    extra = {"peername": None if peer is None else peer.getsockname()}
    loop = asyncio.get_running_loop()
    transport = SocketTransport(loop, sock, protocol, burst_limit=64, extra=extra)
    transport.start()
    return transport


def raw_fd(transport: SocketTransport) -> int | None:
    return transport.raw_fd


async def test_only_a_connected_socket_is_sent_to_by_its_descriptor() -> None:
    with bound("127.0.0.1") as peer:
        transport = await opened(None, asyncio.DatagramProtocol())
        assert raw_fd(transport) is None
        transport.close()
        transport = await opened(peer, asyncio.DatagramProtocol())
        assert raw_fd(transport) == transport._fileno
        transport.close()
        assert raw_fd(transport) is None, "the number may belong to another file by now"


def unconnected_fd(transport: SocketTransport) -> int | None:
    return transport.unconnected_fd


async def test_compiled_code_sends_to_addresses_by_a_socket_without_a_peer() -> None:
    with bound("127.0.0.1") as peer:
        transport = await opened(peer, asyncio.DatagramProtocol())
        assert unconnected_fd(transport) is None
        assert transport.raw_address(peer.getsockname()) is None
        transport.close()
        transport = await opened(None, asyncio.DatagramProtocol())
        assert unconnected_fd(transport) == transport._fileno
        raw = transport.raw_address(peer.getsockname())
        assert raw is not None
        assert raw[4:8] == socket.inet_aton("127.0.0.1")
        assert transport.raw_address(("::1", 1)) is None, "it is of another family"
        transport._hold(b"waits", peer.getsockname())
        assert unconnected_fd(transport) is None
        transport.abort()
        assert unconnected_fd(transport) is None


@pytest.mark.parametrize("how", ["sent", "closed", "aborted"])
async def test_nothing_is_sent_past_a_datagram_that_waits(how: str) -> None:
    with bound("127.0.0.1") as peer:
        transport = await opened(peer, asyncio.DatagramProtocol())
        transport._hold(b"waits", None)
        assert raw_fd(transport) is None
        if how == "closed":
            transport.close()
        elif how == "aborted":
            transport.abort()
        else:
            while transport.get_write_buffer_size():
                await asyncio.sleep(0)
            assert raw_fd(transport) == transport._fileno
            transport.close()
        for _ in range(5):
            await asyncio.sleep(0)
        assert raw_fd(transport) is None
