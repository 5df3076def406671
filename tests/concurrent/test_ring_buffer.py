"""The ring buffer, edge by edge: what producers claim, what the consumer takes, what it skips."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

import pytest

from aeron_async.concurrent import atomic_buffer, ring_buffer
from aeron_async.concurrent.ring_buffer import RING_TRAILER_LENGTH, ManyToOneRingBuffer
from aeron_async.errors import ConfigurationError
from tests.concurrent.shared import (
    CORRELATION_ID,
    HEAD,
    HEAD_CACHE,
    HEARTBEAT,
    TAIL,
    Once,
    everything,
    needs_shared_memory,
    read_all,
    read_batch,
    ring_at,
    ring_memory,
    watched,
)

if TYPE_CHECKING:
    from aeron_async.concurrent.atomic_buffer import AtomicBuffer

pytestmark = needs_shared_memory

CAPACITY: Final = 1024
LAST: Final = 2**63 - 8
"""Largest position that a 64-bit number expresses."""
WRITE_ACCESSES: Final = 7
"""What `write` does to the buffer: two loads, the claim, and four stores."""


class KilledError(Exception):
    """The process of a producer ends."""


def killed_at(memory: AtomicBuffer, access: int) -> None:
    """Write a message with a producer that ends ahead of one of its accesses."""
    left = access + 1  # the head that every object loads

    def before(_name: str) -> None:
        nonlocal left
        if left == 0:
            raise KilledError
        left -= 1

    ring = ManyToOneRingBuffer(watched(memory, before))
    with pytest.raises(KilledError):
        ring.write(1, b"dead")


def is_working(ring: ManyToOneRingBuffer) -> bool:
    """Return whether messages of every kind pass, over more than one round."""
    for body in [b"", b"x", bytes(ring.max_message_length)] * 8:
        if not ring.write(5, body) or read_all(ring) != [(5, body)]:
            return False
    return True


# What it is made of.


@pytest.mark.parametrize("capacity", [64, 128, 2**20])
def test_the_capacity_is_a_power_of_two(capacity: int) -> None:
    ring = ManyToOneRingBuffer(ring_memory(capacity))
    assert ring.capacity == capacity
    assert ring.max_message_length == capacity // 8
    assert is_working(ring)


@pytest.mark.parametrize("capacity", [-RING_TRAILER_LENGTH, -8, 0, 8, 32, 96, 1000, 1025])
def test_another_capacity_is_refused(capacity: int) -> None:
    with pytest.raises(ConfigurationError, match="a power of two from 64"):
        ManyToOneRingBuffer(ring_memory(capacity))


def test_golden_bytes_of_a_command() -> None:
    record = bytes.fromhex(
        "4100000004000000"
        "05000000000000000600000000000000ffffffffffffffff"
        "d2070000190000006165726f6e3a6970633f7465726d2d6c656e6774683d36346b"
    )
    memory = ring_memory(CAPACITY)
    ring = ManyToOneRingBuffer(memory)
    assert ring.write(4, record[8:])
    assert memory.get_bytes(0, 72) == record + bytes(7)
    assert ring.producer_position == 72
    memory.zero(0, 72)
    memory.put_bytes(0, record)
    assert read_batch(ring) == [(4, record[8:])]


def test_where_the_trailer_has_its_numbers() -> None:
    memory = ring_memory(CAPACITY)
    ring = ManyToOneRingBuffer(memory)
    ring.write(1, bytes(16))
    ring.write(1, bytes(8))
    read_batch(ring, 1)
    ring.consumer_heartbeat_ms = 1_700_000_000_000
    ring.next_correlation_id()
    trailer = memory.get_bytes(CAPACITY, RING_TRAILER_LENGTH)
    expected = bytearray(RING_TRAILER_LENGTH)
    for offset, value in {TAIL: 40, HEAD: 24, CORRELATION_ID: 1, HEARTBEAT: 17 * 10**11}.items():
        struct.pack_into("=q", expected, offset, value)
    assert trailer == bytes(expected)
    assert ring.consumer_heartbeat_ms == 1_700_000_000_000
    assert (ring.producer_position, ring.consumer_position, ring.size) == (40, 24, 16)
    assert ring.stored_consumer_position == 24


def test_correlation_ids_are_handed_out_once() -> None:
    memory = ring_memory(CAPACITY)
    one, other = ManyToOneRingBuffer(memory), ManyToOneRingBuffer(memory)
    assert [ring.next_correlation_id() for ring in (one, other, other, one)] == [0, 1, 2, 3]


# Claims.


@pytest.mark.parametrize("type_id", [-(2**31), -1, 0, 2**31])
def test_a_type_id_below_one_is_refused_and_nothing_claimed(type_id: int) -> None:
    memory = ring_memory(CAPACITY)
    with pytest.raises(ConfigurationError, match="type id"):
        ManyToOneRingBuffer(memory).write(type_id, b"")
    assert everything(memory) == bytes(memory.length)


def test_an_eighth_of_the_capacity_is_the_longest_body() -> None:
    memory = ring_memory(CAPACITY)
    ring = ManyToOneRingBuffer(memory)
    with pytest.raises(ConfigurationError, match="at most 128 bytes here, got 129"):
        ring.write(1, bytes(129))
    assert everything(memory) == bytes(memory.length)
    assert ring.write(1, b"x" * 128)
    assert read_batch(ring) == [(1, b"x" * 128)]


def test_any_buffer_is_a_body() -> None:
    ring = ManyToOneRingBuffer(ring_memory(CAPACITY))
    bodies: list[Any] = [
        bytearray(b"abcd"),
        memoryview(b"aXbX")[::2],
        memoryview(bytes(8)).cast("q"),
    ]
    assert [ring.write(1, body) for body in bodies] == [True] * 3
    assert [body for _, body in read_batch(ring)] == [b"abcd", b"ab", bytes(8)]


def test_a_record_that_reaches_the_end_needs_no_padding() -> None:
    ring, memory = ring_at(CAPACITY, CAPACITY - 24)
    assert ring.write(3, b"s" * 16)
    assert ring.producer_position == CAPACITY
    assert memory.get_bytes(0, CAPACITY - 24) == bytes(CAPACITY - 24)
    assert read_batch(ring) == [(3, b"s" * 16)]
    assert memory.get_bytes(0, CAPACITY) == bytes(CAPACITY)


@pytest.mark.parametrize("padding", [8, 16, 128])
def test_padding_precedes_a_record_that_does_not_fit_at_the_end(padding: int) -> None:
    ring, memory = ring_at(CAPACITY, 5 * CAPACITY - padding)
    body = b"y" * 128
    assert ring.write(3, body)
    assert ring.producer_position == 5 * CAPACITY + 136
    assert memory.get_bytes(CAPACITY - padding, 8) == struct.pack("=ii", padding, -1)
    assert read_batch(ring) == []
    assert ring.consumer_position == 5 * CAPACITY
    assert read_batch(ring) == [(3, body)]
    assert memory.get_bytes(0, CAPACITY) == bytes(CAPACITY)


def test_a_full_ring_changes_nothing() -> None:
    memory = ring_memory(CAPACITY)
    ring = ManyToOneRingBuffer(memory)
    written = 0
    while ring.write(1, bytes(56)):
        written += 1
    assert written == 16
    before = everything(memory)
    assert not ring.write(1, b"")
    assert everything(memory) == before
    assert len(read_batch(ring, 1)) == 1
    assert ring.write(1, bytes(56))
    assert not ring.write(1, b"")


def test_a_record_that_fits_at_neither_end_changes_nothing() -> None:
    memory = ring_memory(CAPACITY)
    ring = ManyToOneRingBuffer(memory)
    for _ in range(15):
        assert ring.write(1, bytes(56))
    # 64 bytes are free at the end and 64 at the start: a record of 72 has no place.
    assert len(read_batch(ring, 1)) == 1
    before = everything(memory)
    assert not ring.write(1, bytes(64))
    assert everything(memory) == before
    assert len(read_batch(ring, 1)) == 1
    assert ring.write(1, bytes(64))
    assert len(read_all(ring)) == 14
    assert ring.size == 0


def test_padding_without_a_record_is_read_over() -> None:
    """Java's producers pad to the end, and then find that there is no room."""
    ring, memory = ring_at(CAPACITY, CAPACITY - 64)
    memory.store_release_64(CAPACITY + TAIL, CAPACITY)
    memory.put_bytes(CAPACITY - 64, struct.pack("=ii", 64, -1))
    assert read_batch(ring) == []
    assert (ring.consumer_position, ring.size) == (CAPACITY, 0)
    assert is_working(ring)


def test_a_claim_that_another_producer_was_before_is_made_again() -> None:
    memory = ring_memory(CAPACITY)
    ring = ManyToOneRingBuffer(memory)
    late = ManyToOneRingBuffer(
        watched(memory, Once("compare_and_swap_64", 0, lambda: ring.write(1, b"early")))
    )
    assert late.write(2, b"late")
    assert read_batch(ring) == [(1, b"early"), (2, b"late")]


def test_a_head_beyond_the_tail_is_only_late_news() -> None:
    memory = ring_memory(CAPACITY)
    ring = ManyToOneRingBuffer(memory)
    seen: list[object] = []

    def pass_by() -> None:
        ring.write(1, b"early")
        seen.extend(read_batch(ring))

    # The first load of the making, then the tail: ahead of the head that `write` loads.
    late = ManyToOneRingBuffer(watched(memory, Once("load_acquire_64", 2, pass_by)))
    assert late.write(2, b"late")
    assert seen == [(1, b"early")]
    assert read_batch(ring) == [(2, b"late")]


def test_a_producer_that_never_comes_first_finds_the_ring_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ring_buffer, "CLAIM_ATTEMPT_LIMIT", 9)
    memory = ring_memory(CAPACITY)
    attempts = []

    def before(name: str) -> None:
        if name == "compare_and_swap_64":
            attempts.append(name)
            memory.fetch_add_64(CAPACITY + TAIL, 8)

    assert not ManyToOneRingBuffer(watched(memory, before)).write(1, b"")
    assert len(attempts) == 9


def test_positions_end_with_the_last_number() -> None:
    ring, memory = ring_at(CAPACITY, LAST - 16)
    assert not ring.write(1, bytes(16))
    assert ring.write(1, bytes(8))
    before = everything(memory)
    assert not ring.write(1, b"")
    assert everything(memory) == before
    assert read_batch(ring) == [(1, bytes(8))]
    assert not ring.resynchronise()


# Reading.


def test_a_limit_leaves_the_rest() -> None:
    ring = ManyToOneRingBuffer(ring_memory(CAPACITY))
    for number in range(5):
        ring.write(1, bytes([number]))
    assert read_batch(ring, 0) == []
    assert read_batch(ring, 2) == [(1, b"\0"), (1, b"\1")]
    assert read_batch(ring, 9) == [(1, b"\2"), (1, b"\3"), (1, b"\4")]


def test_what_a_failing_handler_was_given_counts_as_read() -> None:
    memory = ring_memory(CAPACITY)
    ring = ManyToOneRingBuffer(memory)
    for body in (b"a", b"b", b"c"):
        ring.write(1, body)

    def fail_at_b(_type_id: int, body: bytes) -> None:
        if body == b"b":
            raise KilledError

    with pytest.raises(KilledError):
        ring.read(fail_at_b, 10)
    assert memory.get_bytes(0, 32) == bytes(32)
    assert ring.stored_consumer_position == ring.consumer_position == 32
    assert read_batch(ring) == [(1, b"c")]


def test_a_handler_may_write() -> None:
    ring = ManyToOneRingBuffer(ring_memory(CAPACITY))
    ring.write(1, b"")
    assert ring.read(lambda type_id, _body: ring.write(type_id + 1, b""), 3) == 3
    assert read_batch(ring) == [(4, b"")]


def test_the_consumer_zeroes_before_it_moves_the_head() -> None:
    memory = ring_memory(CAPACITY)
    seen = []

    def before(name: str) -> None:
        if name == "store_release_64":
            seen.append(memory.get_bytes(0, CAPACITY))

    ring = ManyToOneRingBuffer(watched(memory, before))
    for _ in range(16):
        assert ring.write(1, b"z" * 56)
    assert len(read_batch(ring)) == 16
    assert seen == [bytes(CAPACITY)]


# Dead producers.


@pytest.mark.parametrize("access", range(3))
def test_a_producer_that_dies_ahead_of_its_claim_leaves_nothing(access: int) -> None:
    memory = ring_memory(CAPACITY)
    killed_at(memory, access)
    assert everything(memory) == bytes(memory.length)
    assert not ManyToOneRingBuffer(memory).unblock()


@pytest.mark.parametrize("access", range(3, WRITE_ACCESSES))
@pytest.mark.parametrize("position", [0, CAPACITY - 16, CAPACITY - 48])
def test_a_dead_producer_is_skipped_when_another_wrote_behind_it(
    access: int, position: int
) -> None:
    ring, memory = ring_at(CAPACITY, position)
    killed_at(memory, access)
    has_begun = access > 3
    assert read_all(ring) == []
    assert ring.size == 16
    if has_begun:
        assert ring.unblock()
        ring.write(2, b"alive")
    else:
        ring.write(2, b"alive")
        assert ring.unblock()
    assert read_all(ring) == [(2, b"alive")]
    assert memory.get_bytes(0, CAPACITY) == bytes(CAPACITY)
    assert not ring.unblock()
    assert is_working(ring)


def test_a_producer_that_dies_between_padding_and_record_is_skipped() -> None:
    ring, memory = ring_at(CAPACITY, CAPACITY - 8)
    killed_at(memory, 4)
    assert ring.size == 24
    assert read_all(ring) == []
    assert ring.unblock()
    assert read_all(ring) == []
    assert not ring.unblock()
    assert ring.write(2, b"alive")
    assert ring.unblock()
    assert read_all(ring) == [(2, b"alive")]


@pytest.mark.parametrize("position", [0, CAPACITY - 64])
def test_a_claim_up_to_the_end_of_the_ring_blocks_it_no_longer_than_others(position: int) -> None:
    ring, memory = ring_at(CAPACITY, position)
    memory.store_release_64(CAPACITY + TAIL, CAPACITY)
    assert not ring.write(2, b"alive") or position
    assert read_all(ring) == []
    assert ring.unblock()
    assert read_all(ring) == ([(2, b"alive")] if position else [])
    assert not ring.unblock()
    assert is_working(ring)


def test_a_ring_that_one_claim_has_filled_is_emptied_in_two_steps() -> None:
    ring, memory = ring_at(CAPACITY, 512)
    memory.store_release_64(CAPACITY + TAIL, CAPACITY + 512)
    assert not ring.write(2, b"alive")
    assert ring.unblock()
    assert read_all(ring) == []
    # What is left of the claim lies at the start of the ring, and another one must tell its end.
    assert not ring.unblock()
    assert ring.write(2, b"alive")
    assert ring.unblock()
    assert read_all(ring) == [(2, b"alive")]
    assert is_working(ring)


def test_a_claim_with_nothing_behind_it_stays_until_the_ring_is_emptied() -> None:
    ring, memory = ring_at(CAPACITY, 0)
    killed_at(memory, 3)
    assert not ring.unblock()
    assert not ring.is_corrupt
    assert ring.resynchronise()
    assert (ring.consumer_position, ring.size) == (CAPACITY, 0)
    assert is_working(ring)


def test_a_finished_record_blocks_nothing() -> None:
    ring = ManyToOneRingBuffer(ring_memory(CAPACITY))
    assert not ring.unblock()
    ring.write(1, b"here")
    assert not ring.unblock()
    assert read_batch(ring) == [(1, b"here")]


def test_a_producer_that_begins_during_the_scan_is_not_skipped() -> None:
    memory = ring_memory(CAPACITY)
    killed_at(memory, 3)
    ManyToOneRingBuffer(memory).write(2, b"behind")
    begin = Once("get_bytes", 1, lambda: memory.store_release_32(0, -12))
    ring = ManyToOneRingBuffer(watched(memory, begin))
    assert not ring.unblock()
    assert memory.get_bytes(0, 8) == struct.pack("=ii", -12, 0)
    assert ring.unblock()
    assert read_batch(ring) == [(2, b"behind")]


def test_a_hole_is_told_by_lengths_alone() -> None:
    """A type id without a length, as a body of zeros may look, ends no hole."""
    ring, memory = ring_at(CAPACITY, 0)
    memory.store_release_64(CAPACITY + TAIL, 48)
    memory.store_release_32(20, 77)
    memory.store_release_32(32, 12)
    memory.store_release_32(36, 5)
    assert ring.unblock()
    assert memory.load_acquire_32(0) == 32
    assert read_batch(ring) == [(5, bytes(4))]


def test_what_lies_beyond_the_tail_ends_no_hole() -> None:
    ring, memory = ring_at(CAPACITY, 0)
    memory.store_release_64(CAPACITY + TAIL, 16)
    memory.store_release_32(16, 8)
    before = everything(memory)
    assert not ring.unblock()
    assert everything(memory) == before


# What no honest producer writes.


@pytest.mark.parametrize(
    "length", [1, 7, 25, CAPACITY + 8, 2**31 - 1, -1, -7, -25, -(2**31), -CAPACITY - 8]
)
def test_an_impossible_length_stops_the_consumer_until_it_is_skipped(length: int) -> None:
    memory = ring_memory(CAPACITY)
    ring = ManyToOneRingBuffer(memory)
    ring.write(1, b"good")
    ring.write(2, b"bad 67890123")
    ring.write(3, b"lost")
    memory.store_release_64(CAPACITY + TAIL, 40)
    memory.store_release_32(16, length)
    trailer = memory.get_bytes(CAPACITY, HEAD)
    assert read_batch(ring) == [(1, b"good")]
    assert read_batch(ring) == []
    if length > 0:
        assert (ring.is_corrupt, ring.corrupt_count) == (True, 1)
    assert memory.get_bytes(CAPACITY, HEAD) == trailer
    assert ring.unblock()
    assert (ring.is_corrupt, ring.corrupt_count) == (False, 1)
    assert memory.get_bytes(0, CAPACITY) == bytes(CAPACITY)
    assert is_working(ring)


def test_a_record_around_the_end_is_impossible() -> None:
    ring, memory = ring_at(CAPACITY, CAPACITY - 16)
    memory.store_release_64(CAPACITY + TAIL, CAPACITY + 8)
    memory.store_release_32(CAPACITY - 16, 24)
    assert read_batch(ring) == []
    assert ring.is_corrupt
    assert ring.unblock()
    assert is_working(ring)


def test_a_record_that_was_never_claimed_is_impossible() -> None:
    ring, memory = ring_at(CAPACITY, 0)
    memory.store_release_32(0, 16)
    assert read_batch(ring) == []
    assert (ring.is_corrupt, ring.size) == (True, 0)
    assert ring.unblock()
    assert is_working(ring)


@pytest.mark.parametrize(
    "tail",
    [
        *(-(2**63), -8, 8, 1017, 2**62, LAST, 2**63 - 1),
        *(CAPACITY * 2 + each for each in (-8, 1, 4, 7, 12, CAPACITY - 1, CAPACITY + 8)),
    ],
)
def test_an_impossible_tail_is_replaced(tail: int) -> None:
    ring, memory = ring_at(CAPACITY, CAPACITY * 2)
    memory.store_release_64(CAPACITY + TAIL, tail)
    assert not ring.write(1, b"")
    assert 0 <= ring.size <= CAPACITY
    assert ring.unblock()
    assert ring.corrupt_count == 1
    assert is_working(ring)


def test_a_tail_that_was_set_back_does_not_hand_out_what_lies_beyond() -> None:
    ring, memory = ring_at(CAPACITY, 0)
    for _ in range(3):
        ring.write(1, b"")
    memory.store_release_64(CAPACITY + TAIL, 16)
    assert read_batch(ring) == [(1, b"")] * 2
    assert ring.is_corrupt


@pytest.mark.parametrize("offset", [HEAD, HEAD_CACHE])
@pytest.mark.parametrize("value", [-(2**63), -8, 3, 8, 2**62, 2**63 - 1])
def test_the_head_in_the_file_is_only_for_producers(offset: int, value: int) -> None:
    ring, memory = ring_at(CAPACITY, 0)
    for number in range(3):
        ring.write(1, bytes([number]))
    memory.store_release_64(CAPACITY + offset, value)
    assert read_batch(ring, 1) == [(1, b"\0")]
    assert ring.stored_consumer_position == ring.consumer_position == 16
    memory.store_release_64(CAPACITY + offset, value)
    assert read_batch(ring) == [(1, b"\1"), (1, b"\2")]
    memory.store_release_64(CAPACITY + offset, value)
    assert ring.resynchronise()
    assert memory.load_acquire_64(CAPACITY + HEAD_CACHE) <= ring.consumer_position
    assert is_working(ring)


def test_a_head_that_is_no_multiple_of_eight_is_rounded_down() -> None:
    ring, _ = ring_at(CAPACITY, 15)
    assert ring.consumer_position == 8


def test_a_ring_is_not_emptied_while_a_producer_claims() -> None:
    memory = ring_memory(CAPACITY)
    producer = ManyToOneRingBuffer(memory)
    claim = Once("compare_and_swap_64", 0, lambda: producer.write(1, b"saved"))
    ring = ManyToOneRingBuffer(watched(memory, claim))
    assert not ring.resynchronise()
    assert read_batch(ring) == [(1, b"saved")]
    assert ring.resynchronise()
    assert is_working(ring)


def test_producers_find_the_ring_full_while_it_is_emptied() -> None:
    memory = ring_memory(CAPACITY)
    producer = ManyToOneRingBuffer(memory)
    results: list[bool] = []

    def write_now() -> None:
        results.append(producer.write(1, b""))

    ring = ManyToOneRingBuffer(watched(memory, Once("zero", 0, write_now)))
    # A forged head that would make room.
    memory.store_release_64(CAPACITY + HEAD, CAPACITY)
    assert ring.resynchronise()
    assert results == [False]
    assert producer.write(1, b"")


def test_there_is_no_ring_without_compiled_code(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = ring_memory(CAPACITY)
    monkeypatch.setattr(atomic_buffer, "WHY_NOT_SHARED", "it is not there")
    with pytest.raises(ConfigurationError, match="it is not there"):
        ManyToOneRingBuffer(memory)


def test_a_read_ends_after_a_limit_of_padding() -> None:
    memory = ring_memory(CAPACITY)
    ring = ManyToOneRingBuffer(memory)
    for index in range(0, CAPACITY, 8):
        memory.store_release_32(index, 8)
        memory.store_release_32(index + 4, -1)
    memory.store_release_64(CAPACITY + TAIL, CAPACITY)
    positions = []
    while ring.size:
        assert ring.read(lambda *_: None, 1) == 0
        positions.append(ring.consumer_position)
    assert positions == [512, 1024]
    assert is_working(ring)


def test_a_message_that_no_producer_may_write_is_corrupt() -> None:
    memory = ring_memory(CAPACITY)
    ring = ManyToOneRingBuffer(memory)
    length = 8 + ring.max_message_length + 1
    memory.store_release_32(4, 1)
    memory.store_release_32(0, length)
    memory.store_release_64(CAPACITY + TAIL, (length + 7) & -8)
    assert ring.read(lambda *_: None, 1) == 0
    assert ring.is_corrupt
    assert ring.resynchronise()
    assert is_working(ring)
