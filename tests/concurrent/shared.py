"""Rings and broadcasts for tests, and buffers that tell of every access."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import pytest

from aeron_async.concurrent import atomic_buffer
from aeron_async.concurrent.atomic_buffer import WHY_NOT_SHARED
from aeron_async.concurrent.broadcast import BROADCAST_TRAILER_LENGTH
from aeron_async.concurrent.ring_buffer import RING_TRAILER_LENGTH, ManyToOneRingBuffer
from tests.by_hand import NOT_BUILT

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.concurrent.atomic_buffer import AtomicBuffer

needs_shared_memory = pytest.mark.skipif(WHY_NOT_SHARED is not None, reason=NOT_BUILT)

TAIL: Final = 128
HEAD_CACHE: Final = 256
HEAD: Final = 384
CORRELATION_ID: Final = 512
HEARTBEAT: Final = 640
TAIL_INTENT: Final = 0
BROADCAST_TAIL: Final = 8
LATEST: Final = 16

Received = list[tuple[int, bytes]]


def ring_memory(capacity: int) -> AtomicBuffer:
    return memory_of(capacity + RING_TRAILER_LENGTH)


def broadcast_memory(capacity: int) -> AtomicBuffer:
    return memory_of(capacity + BROADCAST_TRAILER_LENGTH)


def memory_of(length: int) -> AtomicBuffer:
    # An empty `bytearray` lies at any address, from Python 3.13 on.
    return atomic_buffer.AtomicBuffer(bytearray(length + 8), 0, length)


def everything(memory: AtomicBuffer) -> bytes:
    return memory.get_bytes(0, memory.length)


def read_batch(ring: ManyToOneRingBuffer, limit: int = 1_000_000) -> Received:
    """Return what one call of `read` passes on."""
    found: Received = []
    assert ring.read(lambda type_id, body: found.append((type_id, body)), limit) == len(found)
    return found


def read_all(ring: ManyToOneRingBuffer) -> Received:
    """Return what there is on both sides of the end of the ring."""
    return read_batch(ring) + read_batch(ring)


def ring_at(capacity: int, position: int) -> tuple[ManyToOneRingBuffer, AtomicBuffer]:
    """Return an empty ring whose head and tail have come to a position."""
    memory = ring_memory(capacity)
    memory.store_release_64(capacity + TAIL, position)
    memory.store_release_64(capacity + HEAD, position)
    return ManyToOneRingBuffer(memory), memory


class Watched:
    """An atomic buffer that calls `before`, with the name of the method, ahead of every access."""

    def __init__(self, memory: AtomicBuffer, before: Callable[[str], object]) -> None:
        self._memory = memory
        self._before = before

    @property
    def length(self) -> int:
        return self._memory.length

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._memory, name)

        def access(*args: Any) -> Any:
            self._before(name)
            return method(*args)

        return access


def watched(memory: AtomicBuffer, before: Callable[[str], object]) -> AtomicBuffer:
    return cast("AtomicBuffer", Watched(memory, before))


class Once:
    """Does something ahead of one access: that with this index among those of this name."""

    def __init__(self, name: str, index: int, act: Callable[[], object]) -> None:
        self._name = name
        self._left = index + 1
        self._act = act

    def __call__(self, name: str) -> None:
        self._left -= name == self._name
        if self._left == 0:
            self._left = -1
            self._act()
