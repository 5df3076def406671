"""Rings and broadcasts against plain lists: steps in any order, and steps inside other steps."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Final

from hypothesis import given
from hypothesis import strategies as st

from aeron_async.concurrent.broadcast import BroadcastReceiver, BroadcastTransmitter
from aeron_async.concurrent.ring_buffer import ManyToOneRingBuffer
from tests.concurrent.shared import (
    Received,
    broadcast_memory,
    needs_shared_memory,
    read_batch,
    ring_memory,
    watched,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aeron_async.concurrent.atomic_buffer import AtomicBuffer

pytestmark = needs_shared_memory

CAPACITY: Final = 128
LONGEST: Final = CAPACITY // 8
PRODUCERS: Final = 3
READ: Final = PRODUCERS
"""Stands for the consumer where a number below stands for a producer."""

lengths = st.integers(0, LONGEST)
steps = st.lists(st.tuples(st.integers(0, READ), lengths), min_size=30, max_size=120)


def record_length(body_length: int) -> int:
    return (8 + body_length + 7) // 8 * 8


def body_of(number: int, length: int) -> bytes:
    return bytes((number + each) % 251 for each in range(length))


class RingModel:
    """What the C producer and the C consumer do, with a list of records."""

    def __init__(self) -> None:
        self.head = self.tail = 0
        self.records: deque[tuple[int, tuple[int, bytes] | None]] = deque()

    def write(self, type_id: int, body: bytes) -> bool:
        needed, free = record_length(len(body)), CAPACITY - (self.tail - self.head)
        to_end = CAPACITY - self.tail % CAPACITY
        padding = to_end if needed > to_end else 0
        if needed > free or (padding and needed > self.head % CAPACITY):
            return False
        if padding:
            self.records.append((padding, None))
        self.records.append((needed, (type_id, body)))
        self.tail += padding + needed
        return True

    def read(self, limit: int) -> Received:
        found: Received = []
        block = CAPACITY - self.head % CAPACITY
        while self.records and block and len(found) < limit:
            taken, message = self.records.popleft()
            block -= taken
            self.head += taken
            if message is not None:
                found.append(message)
        return found

    def free_space(self, memory: AtomicBuffer) -> Iterator[int]:
        """Yield the bytes that are free."""
        for position in range(self.tail, self.head + CAPACITY):
            yield memory.get_bytes(position % CAPACITY, 1)[0]


@given(script=steps)
def test_a_ring_does_what_a_list_does(script: list[tuple[int, int]]) -> None:
    memory, model = ring_memory(CAPACITY), RingModel()
    rings = [ManyToOneRingBuffer(memory) for _ in range(PRODUCERS + 1)]
    for number, (actor, length) in enumerate(script):
        if actor == READ:
            assert read_batch(rings[READ], length) == model.read(length)
        else:
            body = body_of(number, length)
            assert rings[actor].write(actor + 1, body) == model.write(actor + 1, body)
        assert rings[READ].consumer_position == model.head
        assert rings[READ].producer_position == model.tail
        assert not any(model.free_space(memory))


class Play:
    """Actors on one ring, each of which may be interrupted by others ahead of any access."""

    def __init__(self, script: list[tuple[int, int]], fates: list[bool]) -> None:
        memory = ring_memory(CAPACITY)
        self.memory = memory
        self.fates: deque[bool] = deque()
        self.rings = [ManyToOneRingBuffer(watched(memory, self.before)) for _ in range(READ + 1)]
        self.accepted: list[list[bytes]] = [[] for _ in range(PRODUCERS)]
        self.received: list[list[bytes]] = [[] for _ in range(PRODUCERS)]
        self.busy: set[int] = set()
        self.steps = enumerate(script)
        self.fates.extend(fates)

    def before(self, _name: str) -> None:
        if self.fates and self.fates.popleft():
            self.step()

    def step(self) -> bool:
        """Let the next actor act if it is not interrupted; return whether there was one."""
        number, (actor, length) = next(self.steps, (0, (-1, 0)))
        if actor >= 0 and actor not in self.busy:
            self.busy.add(actor)
            if actor == READ:
                self.rings[READ].read(self.hear, 1 + length)
            elif self.rings[actor].write(actor + 1, body := body_of(number, length)):
                self.accepted[actor].append(body)
            self.busy.remove(actor)
        return actor >= 0

    def hear(self, type_id: int, body: bytes) -> None:
        self.received[type_id - 1].append(body)


@given(script=steps, fates=st.lists(st.booleans(), max_size=400))
def test_interrupted_producers_lose_and_double_nothing(
    script: list[tuple[int, int]], fates: list[bool]
) -> None:
    play = Play([*script, (READ, 0)], fates)
    while play.step():
        pass
    consumer = play.rings[READ]
    while consumer.size:
        position = consumer.consumer_position
        consumer.read(play.hear, 100)
        assert consumer.consumer_position > position
    assert play.received == play.accepted
    assert play.memory.get_bytes(0, CAPACITY) == bytes(CAPACITY)
    assert consumer.corrupt_count == 0


class BroadcastModel:
    """All that was sent, and where it begins; a receiver is the index of its next message."""

    def __init__(self) -> None:
        self.tail = 0
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.sent: Received = []

    def transmit(self, type_id: int, body: bytes) -> None:
        needed, to_end = record_length(len(body)), CAPACITY - self.tail % CAPACITY
        self.starts.append(self.tail)
        self.tail += needed + (to_end if needed > to_end else 0)
        self.ends.append(self.tail)
        self.sent.append((type_id, body))


class ReceiverModel:
    def __init__(self, model: BroadcastModel) -> None:
        self.model = model
        self.next = max(len(model.sent) - 1, 0)
        self.lapped_count = 0

    def receive(self) -> tuple[int, bytes] | None:
        model = self.model
        if self.next == len(model.sent):
            return None
        start = model.starts[self.next]
        if start + CAPACITY <= model.tail:
            self.lapped_count += 1
            self.next = len(model.sent) - 1
            return None
        self.next += 1
        return model.sent[self.next - 1]


@given(script=st.lists(st.tuples(st.integers(0, 8), lengths), max_size=150))
def test_a_broadcast_does_what_a_list_does(script: list[tuple[int, int]]) -> None:
    memory, model = broadcast_memory(CAPACITY), BroadcastModel()
    transmitter = BroadcastTransmitter(memory)
    receivers = [(BroadcastReceiver(memory), ReceiverModel(model))]
    for number, (choice, length) in enumerate(script):
        if choice < 5:
            transmitter.transmit(1 + number, body := body_of(number, length))
            model.transmit(1 + number, body)
        elif choice == 5:
            receivers.append((BroadcastReceiver(memory), ReceiverModel(model)))
        else:
            # The first receivers are asked more often than later ones, which are therefore slow.
            for receiver, expected in receivers[: 1 + length % len(receivers)]:
                assert receiver.receive() == expected.receive()
                assert receiver.lapped_count == expected.lapped_count


class Audience:
    """A receiver, what it got, and how often it had been lapped by then."""

    def __init__(self, memory: AtomicBuffer) -> None:
        self.receiver = BroadcastReceiver(memory)
        self.found: Received = []
        self.laps: list[int] = []

    def hear(self) -> bool:
        """Return whether there was a message, or a lap instead of one."""
        before = self.receiver.lapped_count
        message = self.receiver.receive()
        if message is not None:
            self.found.append(message)
            self.laps.append(self.receiver.lapped_count)
        return message is not None or self.receiver.lapped_count != before

    def check(self, script: list[int]) -> None:
        """Check that all messages are whole and in order, and that only laps made it miss some."""
        while self.hear():
            pass
        assert self.found[-1][0] == len(script)
        previous, earlier_laps = 0, 0
        for (number, body), laps in zip(self.found, self.laps, strict=True):
            assert body == body_of(number, script[number - 1])
            assert number == previous + 1 or (number > previous and laps > earlier_laps)
            previous, earlier_laps = number, laps
        assert self.laps[-1] > 0 or len(self.found) == len(script)


@given(script=st.lists(lengths, min_size=1, max_size=60), fates=st.lists(st.booleans()))
def test_a_transmitter_is_heard_whole_in_the_midst_of_its_work(
    script: list[int], fates: list[bool]
) -> None:
    memory = broadcast_memory(CAPACITY)
    audience, fate = Audience(memory), iter(fates)
    transmitter = BroadcastTransmitter(
        watched(memory, lambda _name: next(fate, False) and audience.hear())
    )
    for number, length in enumerate(script, 1):
        transmitter.transmit(number, body_of(number, length))
    audience.check(script)


@given(script=st.lists(lengths, min_size=1, max_size=200), fates=st.lists(st.integers(0, 20)))
def test_a_receiver_is_overtaken_in_the_midst_of_its_work(
    script: list[int], fates: list[int]
) -> None:
    memory = broadcast_memory(CAPACITY)
    transmitter, numbers = BroadcastTransmitter(memory), enumerate(script, 1)
    fate: deque[int] = deque()

    def send(_name: str) -> None:
        for number, length in islice(numbers, fate.popleft() if fate else 0):
            transmitter.transmit(number, body_of(number, length))

    audience = Audience(watched(memory, send))
    fate.extend(fates)
    for _ in fates:
        audience.hear()
    for number, length in numbers:
        transmitter.transmit(number, body_of(number, length))
        audience.hear()
    audience.check(script)
