"""A buffer that one process writes and many read, such as a driver's responses to its clients.

The transmitter waits for no receiver: one that is slower than the transmitter by a whole buffer is
lapped, and misses messages. Records follow each other in `capacity` bytes, a power of two; then
comes a trailer of 128 bytes. Positions count bytes and only grow:

    capacity + 0 tail intent i64, the tail after what is being written
             + 8 tail i64
             + 16 latest i64, where the newest record begins

Invariant: the tail intent is stored before the bytes that it covers, and a receiver loads it after
the bytes it has copied. A copy whose bytes were overwritten meets an intent of more than a capacity
beyond its beginning.

The transmitter never reads back what it stored. A receiver trusts nothing in the buffer: it copies
at most `max_message_length` bytes, from within the buffer, and reads every value once.

Source: Agrona `BroadcastTransmitter`, `BroadcastReceiver`, `CopyBroadcastReceiver`,
`BroadcastBufferDescriptor`; Aeron `aeron_broadcast_transmitter.c`, `aeron_broadcast_receiver.h`.
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
from aeron_async.errors import ConfigurationError, ProtocolError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    from aeron_async.concurrent.atomic_buffer import AtomicBuffer

__all__ = ["BROADCAST_TRAILER_LENGTH", "BroadcastReceiver", "BroadcastTransmitter"]

BROADCAST_TRAILER_LENGTH: Final = 128
TAIL_INTENT_OFFSET: Final = 0
TAIL_OFFSET: Final = 8
LATEST_OFFSET: Final = 16
TAIL_MAX: Final = 2**62
"""Largest position at which a transmitter starts: from there it never reaches the last number."""


class BroadcastTransmitter:
    """The one writer of a broadcast buffer.

    It continues at the tail that the buffer has when the transmitter is made.

    Args:
        buffer: Records and trailer; used until the transmitter is no longer used, never released
            here.

    Attributes:
        capacity: Bytes of records.
        max_message_length: Bytes of the longest body: an eighth of the capacity.

    Raises:
        ConfigurationError: The compiled code is missing; or the capacity, which is the length of
            the buffer less 128, is no power of two from 64 to 2**30; or the tail in the buffer is
            one that no transmitter stores.

    Source: Agrona `BroadcastTransmitter`.
    """

    __slots__ = ("_buffer", "_tail", "capacity", "max_message_length")

    def __init__(self, buffer: AtomicBuffer) -> None:
        atomic_buffer.check_shared_memory()
        self.capacity: Final = capacity_of(buffer.length, BROADCAST_TRAILER_LENGTH)
        self.max_message_length: Final = self.capacity // 8
        self._buffer = buffer
        self._tail = buffer.load_acquire_64(self.capacity + TAIL_OFFSET)
        if not 0 <= self._tail <= TAIL_MAX or self._tail & (ALIGNMENT - 1):
            message = f"no transmitter stores {self._tail} as the tail of a broadcast buffer"
            raise ConfigurationError(message)

    def transmit(self, type_id: int, body: ReadableBuffer) -> None:
        """Send a message to every receiver.

        Args:
            type_id: At least 1.
            body: At most `max_message_length` bytes; it is copied.

        Raises:
            ConfigurationError: The type id or the body is not valid; nothing was changed.
        """
        data = checked_body(type_id, body, self.max_message_length)
        buffer, capacity, tail = self._buffer, self.capacity, self._tail
        length = HEADER_LENGTH + len(data)
        taken = align_record(length)
        index = tail & (capacity - 1)
        to_end = capacity - index
        padding = to_end if taken > to_end else 0
        latest = tail + padding
        self._tail = latest + taken
        buffer.store_release_64(capacity + TAIL_INTENT_OFFSET, self._tail)
        # A release store lets later stores pass it; a receiver that sees one of them has to see
        # the intent too.
        atomic_buffer.release_fence()
        if padding:
            buffer.store_release_32(index, padding)
            buffer.store_release_32(index + TYPE_OFFSET, PADDING_TYPE_ID)
            index = 0
        buffer.store_release_32(index, length)
        buffer.store_release_32(index + TYPE_OFFSET, type_id)
        buffer.put_bytes(index + HEADER_LENGTH, data)
        buffer.store_release_64(capacity + LATEST_OFFSET, latest)
        buffer.store_release_64(capacity + TAIL_OFFSET, self._tail)


class BroadcastReceiver:
    """A reader of a broadcast buffer; there may be any number of them.

    It begins with the newest message that the buffer has when the receiver is made, if there is
    one.

    Args:
        buffer: Records and trailer; used until the receiver is no longer used, never released here.

    Attributes:
        capacity: Bytes of records.
        max_message_length: Bytes of the longest body: an eighth of the capacity.
        lapped_count: How often the transmitter was a whole buffer ahead, so that messages were
            missed.

    Raises:
        ConfigurationError: The compiled code is missing, or the capacity, which is the length of
            the buffer less 128, is no power of two from 64 to 2**30.

    Source: Agrona `BroadcastReceiver`, `CopyBroadcastReceiver`.
    """

    __slots__ = ("_buffer", "_next", "capacity", "lapped_count", "max_message_length")

    def __init__(self, buffer: AtomicBuffer) -> None:
        atomic_buffer.check_shared_memory()
        self.capacity: Final = capacity_of(buffer.length, BROADCAST_TRAILER_LENGTH)
        self.max_message_length: Final = self.capacity // 8
        self.lapped_count: int = 0
        self._buffer = buffer
        self._next = self._latest()

    @property
    def tail_offset(self) -> int:
        """Where the tail is in the buffer, in bytes, for those who wait for it to change."""
        return self.capacity + TAIL_OFFSET

    @property
    def tail(self) -> int:
        """Position of the tail, in bytes."""
        return self._buffer.load_acquire_64(self.capacity + TAIL_OFFSET)

    def receive(self) -> tuple[int, bytes] | None:
        """Return the type id and the body of the next message.

        Returns:
            None if there is no other message, or if the receiver was lapped, also while it copied
            the body. A lap adds one to `lapped_count`, and the next call begins at the message that
            was the newest then.

        Raises:
            ProtocolError: The buffer holds what no transmitter stores. Every later call finds the
                same, unless the buffer changes.
        """
        buffer, capacity, cursor = self._buffer, self.capacity, self._next
        tail = buffer.load_acquire_64(capacity + TAIL_OFFSET)
        if tail <= cursor:
            return None
        if cursor & (ALIGNMENT - 1):
            message = f"a broadcast record at {cursor}, which is no multiple of {ALIGNMENT}"
            raise ProtocolError(message)
        if self._is_overwritten(cursor):
            self._rejoin()
            return None
        start = cursor
        index = cursor & (capacity - 1)
        length, type_id = self._header(index)
        if type_id == PADDING_TYPE_ID and length == capacity - index:
            cursor += length
            index = 0
            length, type_id = self._header(index)
        end = cursor + align_record(length)
        # Differs: Aeron's receivers take any length, and read beyond the buffer if it says so.
        is_valid = (
            HEADER_LENGTH <= length <= HEADER_LENGTH + self.max_message_length
            and align_record(length) <= capacity - index
            and type_id > 0
            and end <= tail
        )
        body = b""
        if is_valid:
            body = buffer.get_bytes(index + HEADER_LENGTH, length - HEADER_LENGTH)
        # The header may be of any time, as the body may: only the intent says whether they are one.
        atomic_buffer.acquire_fence()
        if self._is_overwritten(start):
            self._rejoin()
            return None
        if not is_valid:
            message = (
                f"a broadcast record at {cursor} of length {length} and type {type_id}, where the "
                f"tail is {tail} and the capacity {capacity}"
            )
            raise ProtocolError(message)
        self._next = end
        return type_id, body

    def _latest(self) -> int:
        return self._buffer.load_acquire_64(self.capacity + LATEST_OFFSET)

    def _header(self, index: int) -> tuple[int, int]:
        """Return the length and the type id of a record."""
        length = self._buffer.load_acquire_32(index)
        return length, self._buffer.load_acquire_32(index + TYPE_OFFSET)

    def _is_overwritten(self, cursor: int) -> bool:
        intent = self._buffer.load_acquire_64(self.capacity + TAIL_INTENT_OFFSET)
        return cursor + self.capacity <= intent

    def _rejoin(self) -> None:
        """Count a lap, and continue with the newest message."""
        self.lapped_count += 1
        self._next = self._latest()
