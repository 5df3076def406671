"""The other process of a litmus test: `python -m tests.concurrent.litmus_process ROLE FILE ...`."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

from aeron_async.concurrent import atomic_buffer
from aeron_async.concurrent.broadcast import BroadcastTransmitter
from aeron_async.concurrent.ring_buffer import ManyToOneRingBuffer

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.concurrent.atomic_buffer import AtomicBuffer

__all__ = ["SLOT_LENGTH", "START_LENGTH", "filled", "message_of", "slot_of"]

START_LENGTH: Final = 64
"""Bytes in front of a shared file: a word that counts the processes that have come."""
SLOT_LENGTH: Final = 64
PATIENCE: Final = 20_000_000
"""How often a process looks for something before it ends with an error."""


def await_that(is_so: Callable[[], bool]) -> None:
    for _ in range(PATIENCE):
        if is_so():
            return
        os.sched_yield()
    sys.exit("nothing happens")


def slot_of(number: int) -> bytes:
    return number.to_bytes(8, sys.byteorder) * (SLOT_LENGTH // 8)


def filled(number: int, length: int) -> bytes:
    """Return a body that says its number, and whose every byte follows from it."""
    return (number.to_bytes(4, "little") * (length // 4 + 1))[:length]


def message_of(number: int) -> bytes:
    return filled(number, 4 + number * 7 % 61)


def pass_messages(shared: AtomicBuffer, count: int) -> None:
    """Fill slots, and say after each, in the first word, that it is full."""
    for number in range(1, count + 1):
        shared.put_bytes(number * SLOT_LENGTH, slot_of(number))
        shared.store_release_64(0, number)


def claim_tails(shared: AtomicBuffer, part: AtomicBuffer, count: int, producers: int) -> None:
    """Write numbered messages when all producers have come; take as many correlation ids."""
    ring = ManyToOneRingBuffer(part)
    type_id = shared.fetch_add_64(0, 1) + 1
    await_that(lambda: shared.load_acquire_64(0) >= producers)
    for number in range(count):
        body = message_of(number)
        ring.next_correlation_id()
        if not ring.write(type_id, body):
            await_that(lambda body=body: ring.write(type_id, body))  # type: ignore[misc]


def overtake(part: AtomicBuffer, count: int) -> None:
    transmitter = BroadcastTransmitter(part)
    for number in range(1, count + 1):
        transmitter.transmit(1 + number % 7, message_of(number))


def main(role: str, path: str, count: str, producers: str = "1") -> None:
    fd = os.open(path, os.O_RDWR)
    mapping = atomic_buffer.Mapping(fd, os.fstat(fd).st_size)
    os.close(fd)
    shared = atomic_buffer.AtomicBuffer(mapping)
    if role == "pass":
        pass_messages(shared, int(count))
        return
    part = atomic_buffer.AtomicBuffer(mapping, START_LENGTH)
    if role == "claim":
        claim_tails(shared, part, int(count), int(producers))
    else:
        overtake(part, int(count))


if __name__ == "__main__":
    main(*sys.argv[1:])
