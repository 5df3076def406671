"""A ring buffer that many processes write and one process reads, such as a driver's commands.

Records follow each other in `capacity` bytes, a power of two; then comes a trailer of 768 bytes.
Positions count bytes and only grow; the index of a record is its position modulo the capacity:

    capacity + 128 tail position i64, moved by compare-and-swap
             + 256 head cache position i64, a copy of the head for producers
             + 384 head position i64, moved by the consumer
             + 512 correlation id counter i64
             + 640 heartbeat of the consumer i64, epoch ms

A producer claims space by moving the tail, stores the negative length, the type id and the body,
and then the length, with release order. A record never runs around the end: padding precedes it.

Invariant: the free space holds only zeros, because the consumer zeroes what it read before it moves
the head. A length of 0 therefore says that a producer has claimed a record and not begun it.

Any producer may be hostile. The consumer keeps its head in the object and never reads it back; it
takes no record beyond the tail or the end of the ring, and reads every value once.

Source: Agrona `ManyToOneRingBuffer`, `RingBufferDescriptor`; Aeron `aeron_mpsc_rb.c`, `aeron_rb.h`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aeron_async.concurrent import atomic_buffer
from aeron_async.concurrent.record_descriptor import (
    ALIGNMENT,
    HEADER_LENGTH,
    PADDING_TYPE_ID,
    TYPE_OFFSET,
    align_record,
    capacity_of,
    checked_body,
)
from aeron_async.protocol.units import INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    from _typeshed import ReadableBuffer

    from aeron_async.concurrent.atomic_buffer import AtomicBuffer

__all__ = ["RING_TRAILER_LENGTH", "ManyToOneRingBuffer"]

RING_TRAILER_LENGTH: Final = 768
TAIL_OFFSET: Final = 128
HEAD_CACHE_OFFSET: Final = 256
HEAD_OFFSET: Final = 384
CORRELATION_ID_OFFSET: Final = 512
HEARTBEAT_OFFSET: Final = 640

CLAIM_ATTEMPT_LIMIT: Final = 10_000
"""How often a producer tries to move the tail while other producers move it."""
PADDING_LIMIT: Final = 64
"""Records without a message that one `read` looks at; an honest ring has one at its end."""
_FULL: Final = -1


class ManyToOneRingBuffer:
    """Messages from many producers, in any process, to one consumer.

    Any number of objects may produce, each by `write`. One object consumes, by `read`, `unblock`
    and `resynchronise`; its head is what the file says when the object is made, so a consumer makes
    it before others can write the file.

    Args:
        buffer: Records and trailer; used until the ring is no longer used, never released here.

    Attributes:
        capacity: Bytes of records.
        max_message_length: Bytes of the longest body: an eighth of the capacity.
        corrupt_count: At how many positions the consumer met what no honest producer writes.

    Raises:
        ConfigurationError: The compiled code is missing, or the capacity, which is the length of
            the buffer less 768, is no power of two from 64 to 2**30.

    Source: Agrona `ManyToOneRingBuffer`.
    """

    __slots__ = (
        "_buffer",
        "_correlation_id_at",
        "_corrupt_position",
        "_head",
        "_head_at",
        "_head_cache_at",
        "_heartbeat_at",
        "_mask",
        "_tail_at",
        "capacity",
        "corrupt_count",
        "max_message_length",
    )

    def __init__(self, buffer: AtomicBuffer) -> None:
        atomic_buffer.check_shared_memory()
        capacity = capacity_of(buffer.length, RING_TRAILER_LENGTH)
        self.capacity: Final = capacity
        self.max_message_length: Final = capacity // 8
        self.corrupt_count: int = 0
        self._corrupt_position: int | None = None
        self._buffer = buffer
        self._mask: Final = capacity - 1
        self._tail_at: Final = capacity + TAIL_OFFSET
        self._head_cache_at: Final = capacity + HEAD_CACHE_OFFSET
        self._head_at: Final = capacity + HEAD_OFFSET
        self._correlation_id_at: Final = capacity + CORRELATION_ID_OFFSET
        self._heartbeat_at: Final = capacity + HEARTBEAT_OFFSET
        # Differs: Aeron's consumer reads its head back from the file, where any client may write.
        # It is a multiple of 8 whatever the file says, so that every index is one.
        self._head = buffer.load_acquire_64(self._head_at) & -ALIGNMENT

    # For producers.

    def write(self, type_id: int, body: ReadableBuffer) -> bool:
        """Append a message, and return whether there was room for it.

        A process that ends inside this call may leave a record that only `unblock` can skip.

        Args:
            type_id: At least 1.
            body: At most `max_message_length` bytes; it is copied.

        Raises:
            ConfigurationError: The type id or the body is not valid; nothing was claimed.
        """
        data = checked_body(type_id, body, self.max_message_length)
        length = HEADER_LENGTH + len(data)
        index = self._claim(align_record(length))
        if index == _FULL:
            return False
        buffer = self._buffer
        buffer.store_release_32(index, -length)
        # A release store lets later stores pass it, and the negative length has to be seen first.
        atomic_buffer.release_fence()
        buffer.store_release_32(index + TYPE_OFFSET, type_id)
        buffer.put_bytes(index + HEADER_LENGTH, data)
        buffer.store_release_32(index, length)
        return True

    def _claim(self, needed: int) -> int:
        """Move the tail by so many bytes, and by padding if they do not fit; return their index."""
        buffer, capacity = self._buffer, self.capacity
        # Differs: Aeron tries for as long as other producers move the tail; a hostile one could
        # keep this process here.
        for _ in range(CLAIM_ATTEMPT_LIMIT):
            tail = buffer.load_acquire_64(self._tail_at)
            # Differs: Aeron's producers read a copy of the head first, to spare a cache line; it
            # may be forged, and then they overwrite what was not read.
            head = buffer.load_acquire_64(self._head_at)
            if tail < head:
                continue  # other producers moved the tail, and the consumer followed
            if tail & (ALIGNMENT - 1) or needed > capacity - (tail - head):
                return _FULL
            index = tail & self._mask
            to_end = capacity - index
            padding = to_end if needed > to_end else 0
            if padding and needed > (head & self._mask):
                return _FULL
            new_tail = tail + padding + needed
            if new_tail > INT64_MAX:
                return _FULL
            if buffer.compare_and_swap_64(self._tail_at, tail, new_tail):
                if not padding:
                    return index
                buffer.store_release_32(index, -padding)
                atomic_buffer.release_fence()
                self._pad(index, padding)
                return 0
        return _FULL

    def _pad(self, index: int, length: int) -> None:
        self._buffer.store_release_32(index + TYPE_OFFSET, PADDING_TYPE_ID)
        self._buffer.store_release_32(index, length)

    def next_correlation_id(self) -> int:
        """Return a number that no other call returns, in any process."""
        return self._buffer.fetch_add_64(self._correlation_id_at, 1)

    @property
    def producer_position(self) -> int:
        """Position of the tail, in bytes; any process may have written it."""
        return self._buffer.load_acquire_64(self._tail_at)

    @property
    def stored_consumer_position(self) -> int:
        """Position of the head as producers see it, in bytes; any process may have written it."""
        return self._buffer.load_acquire_64(self._head_at)

    @property
    def consumer_heartbeat_ms(self) -> int:
        """When the consumer was last alive, in epoch ms; -1 once it has ended, 0 before it began.

        Any process may have written it.
        """
        return self._buffer.load_acquire_64(self._heartbeat_at)

    @consumer_heartbeat_ms.setter
    def consumer_heartbeat_ms(self, now_ms: int) -> None:
        self._buffer.store_release_64(self._heartbeat_at, now_ms)

    # For the consumer.

    @property
    def consumer_position(self) -> int:
        """Position of this consumer's own head, in bytes, which no other process can change."""
        return self._head

    @property
    def size(self) -> int:
        """Bytes between this consumer's head and the tail, from 0 to the capacity."""
        return min(max(self.producer_position - self._head, 0), self.capacity)

    def length_at(self, index: int) -> int:
        """Return the length in the header of a record, whatever it is."""
        return self._buffer.load_acquire_32(index)

    @property
    def is_corrupt(self) -> bool:
        """Whether `read` or `unblock` found no valid record at the consumer's position."""
        return self._corrupt_position == self._head

    def read(self, handler: Callable[[int, bytes], object], limit: int) -> int:
        """Pass messages to `handler`, and return how many.

        One call reads at most to the end of the ring, and the next one continues at its start. It
        also ends after 64 records of padding, which hostile producers may write: so 0 may mean that
        it saw only padding, and `size` tells whether more is left. What `handler` was given counts
        as read, also if it raises; it must call neither `read`, `unblock` nor `resynchronise`.

        Args:
            handler: Takes the type id and the body. A hostile producer chooses both: the type id
                may be any 32-bit number but -1.
            limit: Most messages to pass.
        """
        buffer, head = self._buffer, self._head
        start = head & self._mask
        block = self.capacity - start
        consumed = count = padding_count = available = 0
        try:
            while consumed < block and count < limit and padding_count < PADDING_LIMIT:
                index = start + consumed
                length = buffer.load_acquire_32(index)
                if length <= 0:
                    break
                end = consumed + align_record(length)
                # Differs: Aeron takes any length above 0, and zeroes that many bytes even beyond
                # the end of the ring.
                if end > available:
                    # A record is claimed before its length is stored, so the tail covers it.
                    available = self._available()
                if length < HEADER_LENGTH or end > min(block, available):
                    self._note_corrupt(head + consumed)
                    break
                type_id = buffer.load_acquire_32(index + TYPE_OFFSET)
                if type_id == PADDING_TYPE_ID:
                    consumed = end
                    padding_count += 1
                    continue
                if length > HEADER_LENGTH + self.max_message_length:
                    self._note_corrupt(head + consumed)
                    break
                body = buffer.get_bytes(index + HEADER_LENGTH, length - HEADER_LENGTH)
                consumed = end
                count += 1
                handler(type_id, body)
        finally:
            if consumed:
                self._release(start, consumed)
        return count

    def unblock(self) -> bool:
        """Skip what a dead producer left at the consumer's position, and return whether it could.

        That is a record begun and not finished, a claim after which there is a later record before
        the end of the ring, or a claim up to the end of the ring; all become padding. Another claim
        with nothing after it stays until the next one. What is no valid record is skipped by
        `resynchronise`.

        Call it when the consumer's position has been the same for the client liveness timeout, and
        for all that time `producer_position` was another one or `is_corrupt` was true. A producer
        that is only slow loses its message then, and may write where others write; so does one that
        has claimed the end of the ring just now.
        """
        index = self._head & self._mask
        length = self._buffer.load_acquire_32(index)
        # Loaded after the length, as in `read`; -1 if the tail is not possible.
        room = min(self._available(), self.capacity - index)
        if 0 < abs(length) < HEADER_LENGTH or align_record(abs(length)) > room:
            self._note_corrupt(self._head)
            return self.resynchronise()
        if length == 0:
            return room > 0 and self._pad_hole(index, index + room)
        if length < 0:
            self._pad(index, -length)
        return length < 0

    def resynchronise(self) -> bool:
        """Skip everything that was claimed, and leave an empty ring.

        Every message that is not read yet is lost. The position grows by the capacity, and the
        positions in the file are made valid again. A producer that is inside `write` may still
        store its record afterwards, where it does not belong.

        Returns:
            Whether it was done; False if a producer moved the tail at the same time.
        """
        buffer, head = self._buffer, self._head
        empty = head + self.capacity
        if empty > INT64_MAX:
            return False
        tail = buffer.load_acquire_64(self._tail_at)
        # Producers must see a full ring while it is zeroed, whatever the file said before.
        buffer.store_release_64(self._head_at, head)
        buffer.store_release_64(self._head_cache_at, head)
        if not buffer.compare_and_swap_64(self._tail_at, tail, empty):
            return False
        self._release(0, self.capacity)
        return True

    def _available(self) -> int:
        """Return how many bytes producers have claimed; -1 if the tail is not possible."""
        tail = self._buffer.load_acquire_64(self._tail_at)
        claimed = tail - self._head
        is_possible = 0 <= claimed <= self.capacity and not tail & (ALIGNMENT - 1)
        return claimed if is_possible else -1

    def _note_corrupt(self, position: int) -> None:
        if position != self._corrupt_position:
            self._corrupt_position = position
            self.corrupt_count += 1

    def _release(self, start: int, length: int) -> None:
        """Give space back to the producers."""
        self._buffer.zero(start, length)
        self._head += length
        self._buffer.store_release_64(self._head_at, self._head)

    def _pad_hole(self, index: int, end: int) -> bool:
        """Make padding of a hole that ends at a record; the hole begins at `index`."""
        found = self._first_length(index + ALIGNMENT, end)
        # Differs: nothing can follow a claim up to the end of the ring, where Aeron waits for ever.
        if found is None and end == self.capacity:
            found = end
        if found is None:
            return False
        atomic_buffer.acquire_fence()
        # The producer of the hole may have begun its record after the first look.
        if self._first_length(index, found) is not None:
            return False
        self._pad(index, found - index)
        return True

    def _first_length(self, start: int, end: int) -> int | None:
        """Return the first index from `start` to `end` where a length is not 0."""
        words = memoryview(self._buffer.get_bytes(start, end - start)).cast("i")[::2]
        return next((start + ALIGNMENT * i for i, word in enumerate(words) if word), None)
