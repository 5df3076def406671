"""Two processes and more on one file: what one stores, the others see in the order of the stores.

Nothing here waits for a time: each process ends after so many messages, or after so many looks for
one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from aeron_async.concurrent import atomic_buffer
from aeron_async.concurrent.broadcast import BROADCAST_TRAILER_LENGTH, BroadcastReceiver
from aeron_async.concurrent.ring_buffer import RING_TRAILER_LENGTH, ManyToOneRingBuffer
from tests.concurrent.litmus_process import SLOT_LENGTH, START_LENGTH, message_of, slot_of
from tests.concurrent.shared import BROADCAST_TAIL, needs_shared_memory
from tests.tracing import untraced, untraced_environment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aeron_async.concurrent.atomic_buffer import Mapping

pytestmark = [needs_shared_memory, pytest.mark.processes]

ROOT: Final = Path(__file__).parents[2]
MODULE: Final = "tests.concurrent.litmus_process"
PATIENCE_S: Final = 120
"""How long a process may need on a machine that has other work; a failure, not a hang, after it."""
SLOTS: Final = 100_000
PRODUCERS: Final = 3
MESSAGES: Final = 40_000
RING_CAPACITY: Final = 4096
BROADCASTS: Final = 200_000
BROADCAST_CAPACITY: Final = 4096


class Others:
    """The other processes of a test."""

    def __init__(self, processes: list[subprocess.Popen[bytes]]) -> None:
        self._processes = processes
        self._turns = 0

    def are_there(self) -> bool:
        """Let them work for a moment; return whether one of them has not ended yet."""
        self._turns += 1
        os.sched_yield()
        # To ask the system takes longer than to look for a message.
        return self._turns % 64 != 0 or any(each.poll() is None for each in self._processes)

    def end(self) -> list[int]:
        return [each.wait(PATIENCE_S) for each in self._processes]


@contextmanager
def sharing(
    path: Path, length: int, role: str, *arguments: int, count: int = 1
) -> Iterator[tuple[Mapping, Others]]:
    """Share a file of zeros with other processes that have a role."""
    with path.open("xb+") as file:
        file.truncate(length)
        mapping = atomic_buffer.Mapping(file.fileno(), length)
    command = [sys.executable, "-m", MODULE, role, str(path), *map(str, arguments)]
    processes = [
        subprocess.Popen(command, cwd=ROOT, env=untraced_environment()) for _ in range(count)
    ]
    try:
        with untraced():
            yield mapping, Others(processes)
    finally:
        for each in processes:
            each.kill()
            each.wait(PATIENCE_S)


def test_what_was_stored_before_a_release_is_seen_after_an_acquire(tmp_path: Path) -> None:
    length = (SLOTS + 1) * SLOT_LENGTH
    seen = looks = 0
    with sharing(tmp_path / "slots", length, "pass", SLOTS) as (mapping, others):
        shared = atomic_buffer.AtomicBuffer(mapping)
        while seen < SLOTS and others.are_there():
            number = shared.load_acquire_64(0)
            assert number >= seen
            looks += number > seen
            for each in range(seen + 1, number + 1):
                assert shared.get_bytes(each * SLOT_LENGTH, SLOT_LENGTH) == slot_of(each)
            seen = number
        assert others.end() == [0]
        assert shared.load_acquire_64(0) == SLOTS
    assert looks > 0


def test_three_producers_lose_no_message_and_keep_their_order(tmp_path: Path) -> None:
    length = START_LENGTH + RING_CAPACITY + RING_TRAILER_LENGTH
    arguments = ("claim", MESSAGES, PRODUCERS)
    next_number = dict.fromkeys(range(1, PRODUCERS + 1), 0)

    def hear(type_id: int, body: bytes) -> None:
        assert body == message_of(next_number[type_id])
        next_number[type_id] += 1

    with sharing(tmp_path / "ring", length, *arguments, count=PRODUCERS) as (mapping, others):
        ring = ManyToOneRingBuffer(atomic_buffer.AtomicBuffer(mapping, START_LENGTH))
        while others.are_there():
            ring.read(hear, 1000)
        assert others.end() == [0] * PRODUCERS
        while ring.size:
            position = ring.consumer_position
            ring.read(hear, 1000)
            assert ring.consumer_position > position
        assert next_number == dict.fromkeys(next_number, MESSAGES)
        assert ring.next_correlation_id() == PRODUCERS * MESSAGES
        assert ring.consumer_position > 100 * RING_CAPACITY
        assert ring.corrupt_count == 0


def test_a_receiver_beside_a_fast_transmitter_hears_whole_messages_or_a_lap(
    tmp_path: Path,
) -> None:
    length = START_LENGTH + BROADCAST_CAPACITY + BROADCAST_TRAILER_LENGTH
    last_number = last_lapped = received = 0
    with sharing(tmp_path / "broadcast", length, "overtake", BROADCASTS) as (mapping, others):
        memory = atomic_buffer.AtomicBuffer(mapping, START_LENGTH)
        receiver = BroadcastReceiver(memory)
        tail_at = BROADCAST_CAPACITY + BROADCAST_TAIL
        # The first lap is certain, all others are as they come.
        while memory.load_acquire_64(tail_at) <= BROADCAST_CAPACITY and others.are_there():
            pass
        while True:
            is_over = not others.are_there()
            laps = receiver.lapped_count
            if (message := receiver.receive()) is not None:
                number = int.from_bytes(message[1][:4], "little")
                assert message == (1 + number % 7, message_of(number))
                is_lapped = receiver.lapped_count > last_lapped
                assert number == last_number + 1 or (number > last_number and is_lapped)
                last_number, last_lapped = number, receiver.lapped_count
                received += 1
            elif is_over and receiver.lapped_count == laps:
                break
        assert others.end() == [0]
        assert last_number == BROADCASTS
        assert receiver.lapped_count >= 1
        assert 1 <= received < BROADCASTS
