"""Any bytes in shared memory: no other error than the declared one, no access outside, an end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from aeron_async.concurrent import atomic_buffer, ring_buffer
from aeron_async.concurrent.broadcast import (
    BROADCAST_TRAILER_LENGTH,
    BroadcastReceiver,
    BroadcastTransmitter,
)
from aeron_async.concurrent.ring_buffer import RING_TRAILER_LENGTH, ManyToOneRingBuffer
from aeron_async.errors import ConfigurationError, ProtocolError
from tests.concurrent.shared import (
    BROADCAST_TAIL,
    HEAD,
    HEAD_CACHE,
    LATEST,
    TAIL,
    TAIL_INTENT,
    needs_shared_memory,
    read_all,
    watched,
)

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = needs_shared_memory

CAPACITY: Final = 128
GUARD: Final = 4096
"""Bytes of other sections of the same file, in front of the buffer and behind it."""
ATTEMPTS: Final = 5
ACCESSES: Final = 4 * ATTEMPTS + 4 * CAPACITY // 8 + 20
"""More than one call ever makes: a few for each attempt, and a few for each record."""
RING_WORDS: Final = tuple(CAPACITY + each for each in (TAIL, HEAD_CACHE, HEAD))
BROADCAST_WORDS: Final = tuple(CAPACITY + each for each in (TAIL_INTENT, BROADCAST_TAIL, LATEST))

wide = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-3, 3 * CAPACITY),
    st.integers(0, 3 * CAPACITY // 8).map(lambda each: each * 8),
    st.sampled_from([-(2**63), -8, 2**62, 2**63 - 8, 2**63 - 1]),
)
narrow = st.one_of(
    st.integers(-(2**31), 2**31 - 1),
    st.integers(-CAPACITY - 8, CAPACITY + 8),
    st.integers(0, CAPACITY // 8 + 1).map(lambda each: each * 8),
)
record_words = st.integers(0, CAPACITY // 4 - 1).map(lambda each: each * 4)


def pokes(words: tuple[int, ...]) -> st.SearchStrategy[tuple[int, int, int]]:
    """What a hostile process stores: the size of a word, its place, its value."""
    return st.one_of(
        st.tuples(st.just(64), st.sampled_from(words), wide),
        st.tuples(st.just(32), record_words, narrow),
    )


def scripts(
    words: tuple[int, ...], choices: int
) -> st.SearchStrategy[list[int | tuple[int, int, int]]]:
    return st.lists(st.one_of(pokes(words), st.integers(0, choices)), max_size=40)


class Section:
    """A buffer between guards, whose accesses are counted."""

    def __init__(self, trailer_length: int) -> None:
        self.file = bytearray(b"\xee" * (2 * GUARD + CAPACITY + trailer_length))
        self.length = CAPACITY + trailer_length
        self.memory = atomic_buffer.AtomicBuffer(self.file, GUARD, self.length)
        self.memory.zero(0, self.length)
        self.watched = watched(self.memory, self.count)
        self.accesses = 0

    def count(self, _name: str) -> None:
        self.accesses += 1

    def poke(self, size: int, offset: int, value: int) -> None:
        getattr(self.memory, f"store_release_{size}")(offset, value)

    def bounded(self, act: Callable[[], object]) -> None:
        """Do something, and check that it came to an end soon."""
        self.accesses = 0
        act()
        assert self.accesses <= ACCESSES

    def check(self, words: tuple[int, ...]) -> None:
        """Check that nothing was written but records and the words of the trailer."""
        assert self.file[:GUARD] == self.file[-GUARD:] == b"\xee" * GUARD
        for offset in range(CAPACITY, self.length, 8):
            assert offset in words or self.memory.load_acquire_64(offset) == 0


def attack_ring(section: Section, script: list[int | tuple[int, int, int]]) -> ManyToOneRingBuffer:
    """Use a ring while another process stores anything anywhere; return its consumer."""
    ring = ManyToOneRingBuffer(section.watched)
    producer = ManyToOneRingBuffer(section.watched)
    received: list[int] = []
    deeds: list[Callable[[], object]] = [
        lambda: producer.write(1, b"message"),
        lambda: producer.write(2, bytes(CAPACITY // 8)),
        lambda: ring.read(lambda _type_id, body: received.append(len(body)), 3),
        lambda: ring.read(lambda _type_id, body: received.append(len(body)), 99),
        ring.unblock,
        ring.resynchronise,
    ]
    with patch.object(ring_buffer, "CLAIM_ATTEMPT_LIMIT", ATTEMPTS):
        for each in script:
            if isinstance(each, int):
                section.bounded(deeds[each])
                assert 0 <= ring.size <= CAPACITY
                assert ring.consumer_position % 8 == 0
            else:
                section.poke(*each)
    assert all(0 <= length <= CAPACITY - 8 for length in received)
    section.check(RING_WORDS)
    return ring


@given(script=scripts(RING_WORDS, 5))
def test_a_ring_survives_any_producer(script: list[int | tuple[int, int, int]]) -> None:
    section = Section(RING_TRAILER_LENGTH)
    ring = attack_ring(section, script)
    # Once the hostile process has gone, the consumer can always make the ring work again.
    assert ring.resynchronise()
    for length in [CAPACITY // 8, 0, 3] * 5:
        assert ring.write(7, b"x" * length)
        assert read_all(ring) == [(7, b"x" * length)]
    assert section.memory.get_bytes(0, CAPACITY) == bytes(CAPACITY)


@given(start=st.lists(pokes(RING_WORDS), max_size=20), script=scripts(RING_WORDS, 5))
def test_a_ring_made_over_any_bytes_survives(
    start: list[tuple[int, int, int]], script: list[int | tuple[int, int, int]]
) -> None:
    section = Section(RING_TRAILER_LENGTH)
    for each in start:
        section.poke(*each)
    attack_ring(section, script)


@given(script=scripts(RING_WORDS, 5), when=st.integers(0, 30), poke=pokes(RING_WORDS))
def test_a_ring_survives_a_producer_that_stores_between_two_accesses(
    script: list[int | tuple[int, int, int]], when: int, poke: tuple[int, int, int]
) -> None:
    section = Section(RING_TRAILER_LENGTH)
    left = [when]

    def before(_name: str) -> None:
        section.accesses += 1
        left[0] -= 1
        if left[0] < 0:
            left[0] = when
            section.poke(*poke)

    section.watched = watched(section.memory, before)
    ring = attack_ring(section, script)
    left[0] = 2**62
    assert ring.resynchronise()


def attack_broadcast(section: Section, script: list[int | tuple[int, int, int]]) -> None:
    """Use a broadcast buffer while another process stores anything anywhere."""
    receiver = BroadcastReceiver(section.watched)

    def receive() -> None:
        try:
            message = receiver.receive()
        except ProtocolError:
            return
        assert message is None or (message[0] > 0 and len(message[1]) <= CAPACITY // 8)

    try:
        transmitter = BroadcastTransmitter(section.watched)
    except ConfigurationError:
        deeds = [receive] * 3
    else:
        deeds = [
            receive,
            lambda: transmitter.transmit(1, b"message"),
            lambda: transmitter.transmit(1, bytes(CAPACITY // 8)),
        ]
    for each in script:
        if isinstance(each, int):
            section.bounded(deeds[each])
        else:
            section.poke(*each)
    section.check(BROADCAST_WORDS)


@given(
    start=st.lists(pokes(BROADCAST_WORDS), max_size=20),
    script=scripts(BROADCAST_WORDS, 2),
)
def test_a_receiver_survives_any_transmitter(
    start: list[tuple[int, int, int]], script: list[int | tuple[int, int, int]]
) -> None:
    section = Section(BROADCAST_TRAILER_LENGTH)
    for each in start:
        section.poke(*each)
    attack_broadcast(section, script)


@given(script=scripts(BROADCAST_WORDS, 2), when=st.integers(0, 15), poke=pokes(BROADCAST_WORDS))
def test_a_receiver_survives_a_transmitter_that_stores_between_two_accesses(
    script: list[int | tuple[int, int, int]], when: int, poke: tuple[int, int, int]
) -> None:
    section = Section(BROADCAST_TRAILER_LENGTH)
    left = [when]

    def before(_name: str) -> None:
        section.accesses += 1
        left[0] -= 1
        if left[0] < 0:
            left[0] = when
            section.poke(*poke)

    section.watched = watched(section.memory, before)
    attack_broadcast(section, script)
