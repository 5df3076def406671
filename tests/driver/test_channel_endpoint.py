"""An endpoint whose socket fails: it sends nothing more, says so once, and breaks nobody."""

from __future__ import annotations

from array import array
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from aeron_async.clock import SystemClock
from aeron_async.driver.core.control_packet_dispatcher import ControlPacketDispatcher
from aeron_async.driver.core.destination_tracker import DestinationTracker
from aeron_async.driver.core.stream_counters import ChannelStatus
from aeron_async.driver.core.system_counters import DriverCounterId, SystemCounterId
from aeron_async.driver.core.udp_channel import Interface, UdpChannel
from aeron_async.driver.media.endpoint import SendChannelEndpoint
from aeron_async.driver.media.transport import SLICE_COUNT, BoundedTransport
from aeron_async.errors import ClosedError, ErrorCode
from aeron_async.protocol.channel_uri import ChannelUri
from aeron_async.protocol.header import RttFlags
from aeron_async.protocol.rtt import RttMeasurement
from tests.driver.fakes import Counts, Outbox
from tests.driver.rigs import PublicationRig

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from aeron_async.driver.core.outbox import Address

LOCAL = ("127.0.0.1", 40_000)
REMOTE = ("127.0.0.1", 40_456)
NO_LOOP: Any = None


def send_batch(endpoint: SendChannelEndpoint, batch: memoryview, segment_length: int) -> int:
    return endpoint.send_batches(batch, array("i", (len(batch), segment_length)))


class Transport(BoundedTransport):
    """Raises what it is told to, or sends nothing."""

    def __init__(self, protocol: asyncio.DatagramProtocol) -> None:
        super().__init__(NO_LOOP, protocol, {"sockname": LOCAL})
        self.failure: Exception | None = None
        self.sent: list[bytes] = []

    def sendto(self, data: Any, addr: Any = None) -> None:
        if self.failure is not None:
            raise self.failure
        self.sent.append(bytes(data))

    def on_send_error(self, error: OSError) -> None:
        self._protocol.error_received(error)

    def _connect(self, address: Address) -> None:
        pytest.fail(f"nobody moves to {address} here")


class Rig:
    def __init__(self) -> None:
        self.counts = Counts()
        uri = ChannelUri.parse("aeron:udp?endpoint=127.0.0.1:40456")
        dispatcher = ControlPacketDispatcher(self.counts.system, lambda _: None, lambda *_: None)
        self.endpoint = SendChannelEndpoint(
            UdpChannel.for_publication(
                uri, endpoint=REMOTE, interface=Interface(address=LOCAL[0], port=LOCAL[1])
            ),
            SystemClock(),
            self.counts.system,
            dispatcher,
            lambda _: None,
        )
        self.endpoint.counters = [self.counts.new(1), self.counts.new(1)]
        self.endpoint.registration_id = 1
        self.endpoint.status = self.endpoint.counters[0]
        self.transport = Transport(self.endpoint.data)
        self.endpoint.data.connection_made(self.transport)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_a_send_that_raises_leaves_later_errors_their_meaning(rig: Rig) -> None:
    rig.transport.failure = ClosedError("closed under us")
    with pytest.raises(ClosedError):
        rig.endpoint.send(b"x")
    rig.endpoint.data.error_received(ConnectionRefusedError())
    assert rig.counts[SystemCounterId.SHORT_SENDS] == 1


def test_a_descriptor_is_given_away_only_while_datagrams_may_be_sent(rig: Rig) -> None:
    socket, given = rig.endpoint.data, list[int | None]()
    acts: tuple[Callable[[], object], ...] = (
        lambda: setattr(rig.transport, "raw_fd", 7),
        socket.pause_writing,
        socket.resume_writing,
        lambda: socket.connection_lost(None),
        lambda: socket.on_send_error(OSError("too late")),
    )
    for act in acts:
        given.append(socket.sendable_fd)
        act()
    assert [*given, socket.sendable_fd] == [None, 7, None, 7, None, None]


def test_a_descriptor_without_a_peer_is_given_away_only_while_datagrams_may_be_sent(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    socket = rig.endpoint.data
    assert (socket.unconnected_fd, socket.raw_address(LOCAL)) == (None, None)
    monkeypatch.setattr(Transport, "unconnected_fd", 7)
    monkeypatch.setattr(Transport, "raw_address", lambda _, address: repr(address).encode())
    acts: tuple[Callable[[], object], ...] = (
        socket.pause_writing,
        socket.resume_writing,
        lambda: socket.connection_lost(None),
    )
    given = [socket.unconnected_fd]
    for act in acts:
        act()
        given.append(socket.unconnected_fd)
    assert given == [7, None, 7, None]
    assert socket.raw_address(LOCAL) is None


def test_an_error_of_a_send_by_the_descriptor_is_one_of_a_send(rig: Rig) -> None:
    rig.endpoint.data.on_send_error(ConnectionRefusedError())
    assert rig.counts[SystemCounterId.SHORT_SENDS] == 0, "the long way sends again"
    rig.endpoint.data.error_received(ConnectionRefusedError())
    assert rig.counts[SystemCounterId.SHORT_SENDS] == 1


def test_a_batch_leaves_as_datagrams_of_one_length_and_a_shorter_last_one(rig: Rig) -> None:
    assert send_batch(rig.endpoint, memoryview(b"aabbc"), 2) == 5
    assert rig.endpoint.send_batches_to(memoryview(b"ddee"), array("i", (4, 2)), REMOTE) == 4
    assert rig.transport.sent == [b"aa", b"bb", b"c", b"dd", b"ee"]


def test_a_batch_during_a_pause_stays(rig: Rig) -> None:
    rig.endpoint.data.pause_writing()
    assert send_batch(rig.endpoint, memoryview(b"aabbc"), 2) == 0
    assert rig.transport.sent == []


def test_a_batch_that_raises_leaves_later_errors_their_meaning(rig: Rig) -> None:
    rig.transport.failure = ClosedError("closed under us")
    with pytest.raises(ClosedError):
        send_batch(rig.endpoint, memoryview(b"aabb"), 2)
    rig.endpoint.data.error_received(ConnectionRefusedError())
    assert rig.counts[SystemCounterId.SHORT_SENDS] == 1


def test_control_datagrams_that_come_at_once_are_taken_one_by_one(rig: Rig) -> None:
    rig.endpoint.data.datagrams_received(memoryview(b"aabbc"), 2, REMOTE)
    assert rig.counts[SystemCounterId.INVALID_PACKETS] == 3


def test_a_control_datagram_that_fails_does_not_cost_those_behind_it(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[bytes] = []

    def take(datagram: memoryview, *_: object) -> None:
        taken.append(bytes(datagram))
        if datagram[0] == ord("x"):
            raise LookupError(taken[-1])

    monkeypatch.setattr(rig.endpoint.dispatcher, "on_datagram", take)
    with pytest.raises(LookupError):
        rig.endpoint.data.datagrams_received(memoryview(b"xxbbc"), 2, REMOTE)
    assert taken == [b"xx", b"bb", b"c"]
    with pytest.raises(ExceptionGroup) as caught:
        rig.endpoint.data.datagrams_received(memoryview(b"xxbbx"), 2, REMOTE)
    assert [error.args for error in caught.value.exceptions] == [(b"xx",), (b"x",)]
    assert taken[3:] == [b"xx", b"bb", b"x"]


def test_a_socket_that_is_lost_is_counted_logged_shown_and_survived(rig: Rig) -> None:
    assert rig.endpoint.send(b"x")
    recorded: list[tuple[ErrorCode, str]] = []
    rig.counts.system.record_error = lambda *error: recorded.append(error)
    with capture_logs() as lines:
        rig.endpoint.data.connection_lost(OSError("the interface is gone"))
    channel = "aeron:udp?endpoint=127.0.0.1:40456"
    assert recorded == [
        (
            ErrorCode.CHANNEL_ENDPOINT_ERROR,
            f"socket lost: channel={channel}: the interface is gone",
        )
    ]
    assert [(line["event"], line["channel"]) for line in lines] == [("endpoint_lost", channel)]
    assert rig.counts[SystemCounterId.ERRORS] == 1
    assert [each.get() for each in rig.endpoint.counters] == [ChannelStatus.ERRORED, 1]
    assert not rig.endpoint.send(b"x")
    assert rig.endpoint.local_address == "127.0.0.1:40000"
    assert rig.endpoint.granted_sndbuf_length == rig.endpoint.granted_rcvbuf_length == 0
    rig.endpoint.close()


def test_a_socket_that_is_lost_before_its_endpoint_is_open_has_no_status_to_show_it_in(
    rig: Rig,
) -> None:
    rig.endpoint.registration_id = 0
    rig.endpoint.data.connection_lost(OSError("the interface is gone"))
    assert rig.counts[SystemCounterId.ERRORS] == 1
    assert [each.get() for each in rig.endpoint.counters] == [1, 1]


def test_a_socket_that_we_closed_is_no_failure(rig: Rig) -> None:
    with capture_logs() as lines:
        rig.endpoint.data.connection_lost(None)
    assert lines == []
    assert rig.counts[SystemCounterId.ERRORS] == 0


@pytest.mark.parametrize(
    "datagram",
    [b"", b"\0", bytes(65_507), b"\xff" * 65_507, bytes(4) + b"\0\0\x03\0" + bytes(65_499)],
    ids=["empty", "one byte", "zeros", "ones", "a status message of no length"],
)
def test_a_datagram_of_any_length_that_means_nothing_is_counted_and_no_more(
    rig: Rig, datagram: bytes
) -> None:
    before = [record.value for record in rig.counts.manager]
    rig.endpoint.data.datagram_received(datagram, REMOTE)
    assert rig.counts[SystemCounterId.INVALID_PACKETS] == 1
    rig.counts.system[SystemCounterId.INVALID_PACKETS].set(0)
    assert [record.value for record in rig.counts.manager] == before
    assert rig.transport.sent == []


def test_the_longest_frame_there_can_be_is_heard_and_answered_with_a_short_one(rig: Rig) -> None:
    publication = PublicationRig().publication
    rig.endpoint.dispatcher.add(publication)
    outbox = publication._sender._outbox
    assert isinstance(outbox, Outbox)
    request = RttMeasurement(
        session_id=publication.session_id,
        stream_id=publication.stream_id,
        echo_timestamp_ns=1,
        receiver_id=1,
        flags=RttFlags.REPLY,
        trailing=bytes(65_507 - 40),
    )
    rig.endpoint.data.datagram_received(request.encode(), REMOTE)
    assert [len(datagram) for datagram in outbox.take()] == [40]
    assert rig.counts[SystemCounterId.INVALID_PACKETS] == 0


class PartlyBroken(Transport):
    """Refuses to send to one address, as a system without a route there does."""

    def __init__(self, protocol: asyncio.DatagramProtocol, broken: Address) -> None:
        super().__init__(protocol)
        self._broken = broken
        self.addresses: list[Address] = []
        self.room_count = 100

    def sendto(self, data: Any, addr: Any = None) -> None:
        if addr == self._broken:
            self._tell_error(OSError("no route to host"))
        else:
            self.addresses.append(addr)
            self.room_count -= 1
            if not self.room_count:
                self._is_blocked = True
                self._protocol.pause_writing()


ADDRESSES = [("10.0.0.1", port) for port in (1, 2, 3)]


def endpoint_with(addresses: list[Address], counts: Counts) -> SendChannelEndpoint:
    """Return an endpoint of a channel with destinations, without a transport."""
    tracker = DestinationTracker(
        is_manual=True,
        limit=len(addresses),
        count=counts.new(),
        refused=counts.system[DriverCounterId.DESTINATIONS_REFUSED],
    )
    uri = ChannelUri.parse("aeron:udp?control-mode=manual")
    for number, address in enumerate(addresses):
        tracker.add(uri, address, number + 1, 0)
    dispatcher = ControlPacketDispatcher(
        counts.system, lambda _: None, lambda *_: None, destinations=tracker
    )
    channel = UdpChannel.for_publication(
        uri, endpoint=None, interface=Interface(address=LOCAL[0], port=LOCAL[1])
    )
    return SendChannelEndpoint(channel, SystemClock(), counts.system, dispatcher, lambda _: None)


def test_a_destination_that_cannot_be_sent_to_is_counted_and_the_others_get_the_datagram() -> None:
    counts, addresses = Counts(), ADDRESSES
    endpoint = endpoint_with(addresses, counts)
    transport = PartlyBroken(endpoint.data, addresses[1])
    endpoint.data.connection_made(transport)
    for count in (1, 2, 3):
        # Whoever comes first, the one that fails does not keep it from those after it.
        assert endpoint.send(b"x"), "or the publication would send it again to everybody"
        assert sorted(transport.addresses) == [addresses[0], addresses[2]]
        assert counts[SystemCounterId.SHORT_SENDS] == count
        transport.addresses.clear()
    assert send_batch(endpoint, memoryview(b"abcde"), 2) == 5, "likewise with a batch"
    assert sorted(transport.addresses) == [addresses[0]] * 3 + [addresses[2]] * 3
    assert counts[SystemCounterId.SHORT_SENDS] == 6, "one for each datagram of the batch"
    transport.addresses.clear()
    transport.room_count = 4
    assert send_batch(endpoint, memoryview(b"abcdef"), 1) == 4, "what one got while there was room"
    assert transport.addresses == [addresses[2]] * 4
    assert counts[SystemCounterId.SHORT_SENDS] == 6 + 2 * 4, "which both the others missed"
    assert not endpoint.send(b"x")
    assert send_batch(endpoint, memoryview(b"abcde"), 2) == 0
    assert counts[SystemCounterId.SHORT_SENDS] == 14


class Narrow(Transport):
    """Has room for so many datagrams, and holds the last of them, as the system's sockets do."""

    def __init__(self, protocol: asyncio.DatagramProtocol) -> None:
        super().__init__(protocol)
        self.room_count = 1_000_000
        self.batch_count = 0
        self.got: Counter[Address] = Counter()

    def send_batch(self, data: memoryview, segment_length: int, addr: Any = None) -> int:
        self.batch_count += 1
        return super().send_batch(data, segment_length, addr)

    def sendto(self, data: Any, addr: Any = None) -> None:
        super().sendto(data, addr)
        self.got[addr] += 1
        self.room_count -= 1
        if not self.room_count:
            self._is_blocked = True
            self._protocol.pause_writing()

    def make_room(self, count: int) -> None:
        self.room_count = count
        self._is_blocked = False
        self._protocol.resume_writing()


def narrow_endpoint(addresses: list[Address], counts: Counts) -> tuple[SendChannelEndpoint, Narrow]:
    endpoint = endpoint_with(addresses, counts)
    transport = Narrow(endpoint.data)
    endpoint.data.connection_made(transport)
    return endpoint, transport


BATCH = memoryview(bytes(range(46)) * 2)
"""46 datagrams of two bytes."""


def test_a_socket_that_becomes_full_in_a_batch_has_given_all_destinations_much_the_same() -> None:
    counts = Counts()
    endpoint, transport = narrow_endpoint(ADDRESSES, counts)
    transport.make_room(60)
    assert send_batch(endpoint, BATCH, 2) == 24 * 2, "what one of them got, in whole datagrams"
    assert [transport.got[address] for address in ADDRESSES] == [24, 20, 16]
    assert counts[SystemCounterId.SHORT_SENDS] == (24 - 20) + (24 - 16)


def test_a_socket_that_becomes_full_again_and_again_lets_each_destination_be_last() -> None:
    counts = Counts()
    endpoint, transport = narrow_endpoint(ADDRESSES, counts)
    for _ in range(30):
        transport.make_room(60)
        assert send_batch(endpoint, BATCH, 2) == 24 * 2
    assert [transport.got[address] for address in ADDRESSES] == [10 * (24 + 20 + 16)] * 3
    assert counts[SystemCounterId.SHORT_SENDS] == 30 * 12


def test_wherever_a_socket_becomes_full_nobody_misses_more_than_a_slice() -> None:
    for room_count in range(1, 46 * len(ADDRESSES) + 1):
        counts = Counts()
        endpoint, transport = narrow_endpoint(ADDRESSES, counts)
        transport.make_room(room_count)
        got = send_batch(endpoint, BATCH, 2) // 2
        assert sum(transport.got.values()) == room_count
        missed = [got - transport.got[address] for address in ADDRESSES]
        assert min(missed) == 0, f"with room for {room_count}"
        assert max(missed) <= SLICE_COUNT, f"with room for {room_count}"
        assert counts[SystemCounterId.SHORT_SENDS] == sum(missed)


def test_a_batch_costs_each_of_several_destinations_a_call_for_each_slice() -> None:
    counts = Counts()
    endpoint, transport = narrow_endpoint(ADDRESSES, counts)
    assert send_batch(endpoint, BATCH[:-1], 2) == len(BATCH) - 1
    assert transport.batch_count == 3 * -(-46 // SLICE_COUNT)
    assert [transport.got[address] for address in ADDRESSES] == [46] * 3
    assert counts[SystemCounterId.SHORT_SENDS] == 0


@pytest.mark.parametrize("count", [0, 1])
def test_a_batch_for_no_more_than_one_destination_is_not_cut_up(count: int) -> None:
    endpoint, transport = narrow_endpoint(ADDRESSES[:count], Counts())
    assert send_batch(endpoint, BATCH, 2) == len(BATCH)
    assert transport.batch_count == count
    assert transport.got == Counter(dict.fromkeys(ADDRESSES[:count], 46))
