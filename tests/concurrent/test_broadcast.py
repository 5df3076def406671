"""The broadcast buffer, edge by edge: what is sent, what a receiver sees, how it is lapped."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

import pytest

from aeron_async.concurrent import atomic_buffer
from aeron_async.concurrent.broadcast import (
    BROADCAST_TRAILER_LENGTH,
    BroadcastReceiver,
    BroadcastTransmitter,
)
from aeron_async.errors import ConfigurationError, ProtocolError
from tests.concurrent.shared import (
    BROADCAST_TAIL,
    LATEST,
    TAIL_INTENT,
    Once,
    Received,
    broadcast_memory,
    everything,
    needs_shared_memory,
    watched,
)

if TYPE_CHECKING:
    from aeron_async.concurrent.atomic_buffer import AtomicBuffer

pytestmark = needs_shared_memory

CAPACITY: Final = 1024


def pair(capacity: int = CAPACITY) -> tuple[BroadcastTransmitter, BroadcastReceiver, AtomicBuffer]:
    memory = broadcast_memory(capacity)
    return BroadcastTransmitter(memory), BroadcastReceiver(memory), memory


def receive_all(receiver: BroadcastReceiver) -> Received:
    found: Received = []
    while (message := receiver.receive()) is not None:
        found.append(message)
    return found


def lap(transmitter: BroadcastTransmitter) -> None:
    """Send a whole buffer, of eight bytes a message, and a little more."""
    for _ in range(CAPACITY // 16 + 1):
        transmitter.transmit(9, b"overtake")


def set_trailer(memory: AtomicBuffer, **numbers: int) -> None:
    offsets = {"intent": TAIL_INTENT, "tail": BROADCAST_TAIL, "latest": LATEST}
    for name, number in numbers.items():
        memory.store_release_64(CAPACITY + offsets[name], number)


# What it is made of.


@pytest.mark.parametrize("capacity", [64, 128, 2**20])
def test_messages_pass_in_order(capacity: int) -> None:
    transmitter, receiver, _ = pair(capacity)
    assert receiver.receive() is None
    for length in [0, 1, 7, capacity // 8, 8, 3] * 5:
        transmitter.transmit(7, b"m" * length)
        assert receive_all(receiver) == [(7, b"m" * length)]
    assert receiver.lapped_count == 0
    assert transmitter.max_message_length == receiver.max_message_length == capacity // 8


@pytest.mark.parametrize("capacity", [-BROADCAST_TRAILER_LENGTH, 0, 32, 96, 1025])
@pytest.mark.parametrize("end", [BroadcastTransmitter, BroadcastReceiver])
def test_another_capacity_is_refused(end: Any, capacity: int) -> None:
    with pytest.raises(ConfigurationError, match="a power of two from 64"):
        end(broadcast_memory(capacity))


@pytest.mark.parametrize("end", [BroadcastTransmitter, BroadcastReceiver])
def test_there_is_no_broadcast_without_compiled_code(
    end: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = broadcast_memory(CAPACITY)
    monkeypatch.setattr(atomic_buffer, "WHY_NOT_SHARED", "it is not there")
    with pytest.raises(ConfigurationError, match="it is not there"):
        end(memory)


def test_golden_bytes_of_a_response() -> None:
    body = bytes.fromhex("060000000000000000000000ffffffff")[:8] + bytes.fromhex("ffffffff")
    transmitter, receiver, memory = pair()
    transmitter.transmit(0x0F07, body)
    assert memory.get_bytes(0, 24) == bytes.fromhex(
        "14000000 070f0000 0600000000000000 ffffffff 00000000"
    )
    assert struct.unpack("=3q", memory.get_bytes(CAPACITY, 24)) == (24, 24, 0)
    transmitter.transmit(0x0F07, body)
    assert struct.unpack("=3q", memory.get_bytes(CAPACITY, 24)) == (48, 48, 24)
    assert memory.get_bytes(CAPACITY + 24, 104) == bytes(104)
    assert receive_all(receiver) == [(0x0F07, body)] * 2


@pytest.mark.parametrize(
    ("type_id", "body"), [(-1, b""), (0, b""), (2**31, b""), (1, bytes(CAPACITY // 8 + 1))]
)
def test_a_message_that_is_not_valid_changes_nothing(type_id: int, body: bytes) -> None:
    transmitter, receiver, memory = pair()
    with pytest.raises(ConfigurationError):
        transmitter.transmit(type_id, body)
    assert everything(memory) == bytes(memory.length)
    assert receiver.receive() is None


@pytest.mark.parametrize("padding", [8, 16, 128])
def test_padding_precedes_a_message_that_does_not_fit_at_the_end(padding: int) -> None:
    memory = broadcast_memory(CAPACITY)
    start = 3 * CAPACITY - padding
    set_trailer(memory, intent=start, tail=start, latest=start)
    transmitter, receiver = BroadcastTransmitter(memory), BroadcastReceiver(memory)
    body = b"p" * (CAPACITY // 8)
    transmitter.transmit(2, body)
    assert memory.get_bytes(CAPACITY - padding, 8) == struct.pack("=ii", padding, -1)
    end = 3 * CAPACITY + 136
    assert struct.unpack("=3q", memory.get_bytes(CAPACITY, 24)) == (end, end, 3 * CAPACITY)
    assert receive_all(receiver) == [(2, body)]


def test_a_message_that_reaches_the_end_needs_no_padding() -> None:
    memory = broadcast_memory(CAPACITY)
    set_trailer(memory, intent=CAPACITY - 16, tail=CAPACITY - 16, latest=CAPACITY - 16)
    transmitter, receiver = BroadcastTransmitter(memory), BroadcastReceiver(memory)
    transmitter.transmit(2, b"to end")
    assert memory.load_acquire_64(CAPACITY + BROADCAST_TAIL) == CAPACITY
    assert receive_all(receiver) == [(2, b"to end")]


def test_a_transmitter_continues_at_the_tail_and_never_reads_it_back() -> None:
    memory = broadcast_memory(CAPACITY)
    BroadcastTransmitter(memory).transmit(1, b"first")
    receiver = BroadcastReceiver(memory)
    transmitter = BroadcastTransmitter(memory)
    set_trailer(memory, intent=7, tail=-5, latest=2**62)
    transmitter.transmit(2, b"second")
    assert receive_all(receiver) == [(1, b"first"), (2, b"second")]


@pytest.mark.parametrize("tail", [-8, 4, 2**62 + 8, 2**63 - 8])
def test_a_tail_that_no_transmitter_stores_is_refused(tail: int) -> None:
    memory = broadcast_memory(CAPACITY)
    set_trailer(memory, tail=tail)
    with pytest.raises(ConfigurationError, match=f"stores {tail} as the tail"):
        BroadcastTransmitter(memory)


# Receivers.


def test_a_receiver_begins_with_the_newest_message() -> None:
    transmitter, _, memory = pair()
    for body in (b"old", b"new"):
        transmitter.transmit(1, body)
    late = BroadcastReceiver(memory)
    transmitter.transmit(1, b"next")
    assert receive_all(late) == [(1, b"new"), (1, b"next")]


def test_a_receiver_a_whole_buffer_behind_is_not_lapped() -> None:
    transmitter, receiver, _ = pair()
    for number in range(CAPACITY // 16):
        transmitter.transmit(1, struct.pack("=q", number))
    # The first record is whole until the transmitter says that it will overwrite it.
    assert receiver.receive() is None
    assert receiver.lapped_count == 1

    transmitter, receiver, _ = pair()
    for number in range(CAPACITY // 16 - 1):
        transmitter.transmit(1, struct.pack("=q", number))
    assert len(receive_all(receiver)) == CAPACITY // 16 - 1
    assert receiver.lapped_count == 0


def test_a_receiver_that_was_lapped_says_so_and_continues_with_the_newest_message() -> None:
    transmitter, receiver, _ = pair()
    lap(transmitter)
    transmitter.transmit(3, b"newest")
    assert receiver.receive() is None
    assert receiver.lapped_count == 1
    transmitter.transmit(4, b"after")
    assert receive_all(receiver) == [(3, b"newest"), (4, b"after")]
    assert receiver.lapped_count == 1


@pytest.mark.parametrize(
    ("name", "index"),
    [("load_acquire_32", 0), ("load_acquire_32", 1), ("get_bytes", 0), ("load_acquire_64", 3)],
)
def test_a_receiver_that_is_lapped_while_it_reads_says_so(name: str, index: int) -> None:
    memory = broadcast_memory(CAPACITY)
    transmitter = BroadcastTransmitter(memory)
    receiver = BroadcastReceiver(watched(memory, Once(name, index, lambda: lap(transmitter))))
    transmitter.transmit(1, b"overtaken, while it is read")
    assert receiver.receive() is None
    assert receiver.lapped_count == 1
    assert receive_all(receiver) == [(9, b"overtake")]


def test_a_header_that_was_overwritten_is_a_lap_and_no_error() -> None:
    memory = broadcast_memory(CAPACITY)
    transmitter = BroadcastTransmitter(memory)

    def overwrite() -> None:
        lap(transmitter)
        memory.store_release_32(0, -77)

    receiver = BroadcastReceiver(watched(memory, Once("load_acquire_32", 0, overwrite)))
    transmitter.transmit(1, b"")
    assert receiver.receive() is None
    assert receiver.lapped_count == 1


def test_nothing_is_received_before_it_is_whole() -> None:
    memory = broadcast_memory(CAPACITY)
    receiver = BroadcastReceiver(memory)
    seen = []
    transmitter = BroadcastTransmitter(
        watched(memory, lambda _name: seen.append(receiver.receive()))
    )
    transmitter.transmit(1, b"whole")
    # One load when it is made, six stores when it sends.
    assert seen == [None] * 7
    assert receive_all(receiver) == [(1, b"whole")]


# What no transmitter writes.


@pytest.mark.parametrize(
    ("length", "type_id"),
    [
        *((0, 1), (7, 1), (-8, 1), (-(2**31), 1), (25, 1), (137, 1), (2**31 - 1, 1)),
        *((16, 0), (16, -7), (16, -1), (CAPACITY, -1)),
    ],
)
def test_a_record_that_no_transmitter_writes_is_an_error(length: int, type_id: int) -> None:
    transmitter, receiver, memory = pair()
    transmitter.transmit(1, b"good")
    transmitter.transmit(1, b"bad67890")
    assert receiver.receive() == (1, b"good")
    memory.store_release_32(16, length)
    memory.store_release_32(20, type_id)
    for _ in range(2):
        with pytest.raises(ProtocolError, match=f"length {length} and type {type_id}, where the"):
            receiver.receive()
    assert receiver.lapped_count == 0


def test_padding_twice_is_an_error() -> None:
    memory = broadcast_memory(CAPACITY)
    set_trailer(memory, intent=CAPACITY + 64, tail=CAPACITY + 64, latest=CAPACITY - 8)
    memory.put_bytes(CAPACITY - 8, struct.pack("=ii", 8, -1))
    memory.put_bytes(0, struct.pack("=ii", CAPACITY, -1))
    with pytest.raises(ProtocolError, match="type -1"):
        BroadcastReceiver(memory).receive()


def test_a_record_around_the_end_is_an_error() -> None:
    memory = broadcast_memory(CAPACITY)
    set_trailer(memory, intent=CAPACITY + 64, tail=CAPACITY + 64, latest=CAPACITY - 8)
    memory.put_bytes(CAPACITY - 8, struct.pack("=ii", 16, 1))
    with pytest.raises(ProtocolError, match="length 16 and type 1"):
        BroadcastReceiver(memory).receive()


@pytest.mark.parametrize("latest", [1, 12, 2**62 + 4])
def test_a_position_that_is_no_multiple_of_eight_is_an_error(latest: int) -> None:
    memory = broadcast_memory(CAPACITY)
    set_trailer(memory, intent=latest + 64, tail=latest + 64, latest=latest)
    memory.put_bytes(latest % CAPACITY, struct.pack("=ii", 16, 1))
    with pytest.raises(ProtocolError, match=f"at {latest}, which is no multiple of 8"):
        BroadcastReceiver(memory).receive()


def test_a_body_of_more_than_an_eighth_of_the_capacity_is_an_error() -> None:
    memory = broadcast_memory(CAPACITY)
    set_trailer(memory, intent=512, tail=512, latest=0)
    memory.put_bytes(0, struct.pack("=ii", 136, 1))
    assert BroadcastReceiver(memory).receive() == (1, bytes(128))
    memory.put_bytes(0, struct.pack("=ii", 137, 1))
    with pytest.raises(ProtocolError, match="length 137"):
        BroadcastReceiver(memory).receive()


def test_an_intent_far_ahead_laps_at_every_call_and_no_more() -> None:
    transmitter, receiver, memory = pair()
    transmitter.transmit(1, b"")
    set_trailer(memory, intent=2**63 - 1)
    assert [receiver.receive() for _ in range(3)] == [None] * 3
    assert receiver.lapped_count == 3
