"""Counters: 64-bit numbers that other programs may read while they change, in Aeron's layout.

Two parallel arrays are indexed by counter id. The values array holds 128 bytes per counter, so that
no two share a cache line; the metadata array holds 512:

    values    0 value i64 | 8 registration id i64 | 16 owner id i64 | 24 reference id i64 | padding
    metadata  0 state i32 | 4 type id i32 | 8 free-for-reuse deadline i64, epoch ms
              16 key, 112 bytes | 128 label length i32 | 132 label, 380 bytes

Invariant: allocating writes the state last and freeing writes it first, so a reader never sees half
a counter. A freed id keeps the state -1 until its deadline: readers may still hold it.

Source: Aeron `CountersManager`, `CountersReader`, `aeron_counters_manager.c`.
"""

from __future__ import annotations

import heapq
import mmap
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

import attrs

from aeron_async._speedups import WHY_PURE
from aeron_async.errors import ClosedError, ConfigurationError, RegistrationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from _typeshed import ReadableBuffer, WriteableBuffer


__all__ = [
    "DEFAULT_VALUES_LENGTH",
    "LOCAL_ADDRESS_TYPE_ID",
    "METADATA_LENGTH",
    "PUBLISHER_POSITION_TYPE_ID",
    "SENDER_POSITION_TYPE_ID",
    "SUBSCRIPTION_POSITION_TYPE_ID",
    "VALUE_LENGTH",
    "Cell",
    "Counter",
    "CounterRecord",
    "CountersManager",
    "CountersReader",
    "Position",
]


class _View(Protocol):
    def __getitem__(self, index: int, /) -> int: ...

    def __setitem__(self, index: int, value: int, /) -> None: ...


class _Closed:
    """Replaces the memory of a closed counter, so that an access to an open one needs no check."""

    __slots__ = ("_why",)

    def __init__(self, why: str) -> None:
        self._why = why

    def __getitem__(self, index: int, /) -> int:
        raise ClosedError(self._why)

    def __setitem__(self, index: int, value: int, /) -> None:
        raise ClosedError(self._why)


class Cell:
    """The 64-bit value of a counter, while the counter is open: one of some words."""

    __slots__ = ("_view",)

    def __init__(self, words: memoryview, index: int = 0) -> None:
        self._view: _View = words[index : index + 1]

    def __getitem__(self, index: int) -> int:
        return self._view[index]

    def __setitem__(self, index: int, value: int) -> None:
        self._view[index] = value

    def release(self, why: str) -> None:
        """Stop using the memory: it may belong to another counter now.

        Args:
            why: Text of the `ClosedError` that every further access raises.
        """
        self._view = _Closed(why)


if not TYPE_CHECKING and WHY_PURE is None:
    from aeron_async._speedups.paths import Cell


VALUE_LENGTH: Final = 128
METADATA_LENGTH: Final = 512
DEFAULT_VALUES_LENGTH: Final = 8 * 1024 * 1024
MAX_KEY_LENGTH: Final = 112
MAX_LABEL_LENGTH: Final = 380

RECORD_UNUSED: Final = 0
RECORD_ALLOCATED: Final = 1
RECORD_RECLAIMED: Final = -1
NOT_FREE_TO_REUSE: Final = 2**63 - 1
NULL_OWNER_ID: Final = -1

# Types of counters by which clients find what a driver has made for them.
SENDER_POSITION_TYPE_ID: Final = 2
SUBSCRIPTION_POSITION_TYPE_ID: Final = 4
PUBLISHER_POSITION_TYPE_ID: Final = 12
LOCAL_ADDRESS_TYPE_ID: Final = 14

# Distances between records, and fields inside one, in units of the numbers they hold.
_VALUE_WORDS: Final = VALUE_LENGTH // 8
_METADATA_INTS: Final = METADATA_LENGTH // 4
_METADATA_LONGS: Final = METADATA_LENGTH // 8
_TYPE_INT: Final = 1
_DEADLINE_LONG: Final = 1
_LABEL_LENGTH_INT: Final = 32
_KEY_OFFSET: Final = 16
_LABEL_OFFSET: Final = 132


@attrs.frozen(kw_only=True)
class CounterRecord:
    """Snapshot of one counter.

    Attributes:
        key: All 112 bytes; their meaning depends on `type_id`.
    """

    counter_id: int
    type_id: int
    value: int
    registration_id: int
    owner_id: int
    reference_id: int
    key: bytes
    label: str


class Counter:
    """A counter with a single writer; an access reads or writes one word of memory, without a lock.

    `CountersManager.allocate` makes it. After `close` every access raises `ClosedError`, because
    the memory may belong to another counter.

    Attributes:
        id: Id of the counter.
        cell: The counter's word of memory, for the compiled code; closed with the counter.
        name: Its type and registration in one number, for the table that allocated it.

    Source: Aeron `AtomicCounter`, `aeron_atomic_counter_t`.
    """

    __slots__ = ("_is_closed", "_reader", "cell", "id", "name")

    def __init__(
        self, reader: CountersReader, counter_id: int, cell: Cell, name: int | None = None
    ) -> None:
        self.id: Final = counter_id
        self.name: Final = name
        self.cell: Cell = cell
        self._reader = reader
        self._is_closed = False

    @classmethod
    def mapped(cls, reader: CountersReader, counter_id: int, value: memoryview) -> Counter:
        """Return a counter that another process has allocated, and alone frees.

        Args:
            reader: Reads its label.
            counter_id: Its id.
            value: Its value, one signed word of 64 bits.
        """
        return cls(reader, counter_id, Cell(value))

    def get(self) -> int:
        """Return the value."""
        return self.cell[0]

    def set(self, value: int) -> None:
        """Replace the value."""
        self.cell[0] = value

    def increment(self, amount: int = 1) -> None:
        """Add to the value."""
        try:
            self.cell[0] += amount
        except (OverflowError, ValueError):
            # Only another process can have written a value so great: start again.
            self.cell[0] = amount

    def propose_max(self, value: int) -> bool:
        """Raise the value to `value` if that is greater, and return whether it was."""
        cell = self.cell
        if value > cell[0]:
            cell[0] = value
            return True
        return False

    @property
    def label(self) -> str:
        """The text that describes the value to people."""
        self.get()
        return self._reader.label(self.id)

    def update_label(self, label: str) -> None:
        """Replace the label; what exceeds 380 bytes is cut."""
        self.get()
        self._manager.write_label(self.id, label)

    def append_to_label(self, text: str) -> None:
        """Append to the label; what exceeds 380 bytes is cut."""
        self.update_label(self.label + text)

    @property
    def is_closed(self) -> bool:
        """Whether the counter has been closed or freed."""
        return self._is_closed

    def close(self) -> None:
        """Free the counter; a second call does nothing."""
        if not self._is_closed:
            self._manager.free(self.id)

    @property
    def _manager(self) -> CountersManager:
        reader = self._reader
        assert isinstance(reader, CountersManager), "another process has allocated this counter"
        return reader

    def invalidate(self, why: str = "") -> None:
        """Refuse all further access; called by who frees the counter. A second call does nothing.

        Args:
            why: Text of the error that an access raises then; by default it names the counter.
        """
        if not self._is_closed:
            self._is_closed = True
            self.cell.release(why or f"counter {self.id} is closed: it was given back for reuse")

    def __repr__(self) -> str:
        shown = "closed" if self._is_closed else f"{self.label!r} = {self.get()}"
        return f"<Counter {self.id} {shown}>"


# Differs: Aeron has a class of its own for a counter that holds a position in a stream, in bytes.
Position = Counter


class CountersReader:
    """Reads counters of any writer, ids 0 to `limit` - 1, in two buffers.

    Args:
        values: 128 bytes per counter; a remainder is not used.
        metadata: 512 bytes per counter, so at least four times as long.

    Raises:
        ConfigurationError: `metadata` is too short, or `values` is too short for one counter.
    """

    def __init__(self, values: ReadableBuffer, metadata: ReadableBuffer) -> None:
        value_bytes = memoryview(values).cast("B")
        metadata_bytes = memoryview(metadata).cast("B")
        self.limit: Final = len(value_bytes) // VALUE_LENGTH
        if self.limit == 0 or len(metadata_bytes) < self.limit * METADATA_LENGTH:
            message = (
                f"each counter takes {VALUE_LENGTH} bytes of values and {METADATA_LENGTH} of "
                f"metadata, got {len(value_bytes)} and {len(metadata_bytes)} bytes"
            )
            raise ConfigurationError(message)
        self._metadata = metadata_bytes
        # Whole words, so that a reader never sees a partial store of another process.
        self._values = value_bytes[: self.limit * VALUE_LENGTH].cast("q")
        self._metadata_ints = metadata_bytes[: self.limit * METADATA_LENGTH].cast("i")
        self._metadata_longs = metadata_bytes[: self.limit * METADATA_LENGTH].cast("q")

    def state(self, counter_id: int) -> int:
        """Return 0 for never used, 1 for allocated, -1 for freed and perhaps not yet reusable."""
        return self._metadata_ints[self._checked(counter_id) * _METADATA_INTS]

    def value(self, counter_id: int) -> int:
        """Return the value of a counter, whatever its state."""
        return self._values[self._checked(counter_id) * _VALUE_WORDS]

    def word(self, counter_id: int) -> memoryview:
        """Return the memory of a value, one signed word of 64 bits, for its only writer."""
        word = self._checked(counter_id) * _VALUE_WORDS
        return self._values[word : word + 1]

    def label(self, counter_id: int) -> str:
        """Return the label of a counter, whatever its state."""
        start = self._checked(counter_id) * METADATA_LENGTH + _LABEL_OFFSET
        length = self._metadata_ints[counter_id * _METADATA_INTS + _LABEL_LENGTH_INT]
        # The length is limited, because the buffer may be another program's file.
        end = start + min(max(length, 0), MAX_LABEL_LENGTH)
        return bytes(self._metadata[start:end]).decode("utf-8", "replace")

    def owner_id(self, counter_id: int) -> int:
        """Return the id of the client that a counter belongs to; -1 for none."""
        return self._values[self._checked(counter_id) * _VALUE_WORDS + 2]

    def reference_id(self, counter_id: int) -> int:
        """Return the id of what a counter tells about, such as the image of a position."""
        return self._values[self._checked(counter_id) * _VALUE_WORDS + 3]

    def is_allocated(self, counter_id: int, type_id: int) -> bool:
        """Return whether a counter is in use, and of a type."""
        is_allocated = self.state(counter_id) == RECORD_ALLOCATED
        return is_allocated and self._type_id(counter_id) == type_id

    def record(self, counter_id: int) -> CounterRecord:
        """Return everything about a counter, whatever its state."""
        word = self._checked(counter_id) * _VALUE_WORDS
        value, registration_id, owner_id, reference_id = self._values[word : word + 4]
        start = counter_id * METADATA_LENGTH
        return CounterRecord(
            counter_id=counter_id,
            type_id=self._type_id(counter_id),
            value=value,
            registration_id=registration_id,
            owner_id=owner_id,
            reference_id=reference_id,
            key=bytes(self._metadata[start + _KEY_OFFSET :][:MAX_KEY_LENGTH]),
            label=self.label(counter_id),
        )

    def for_each(self, handler: Callable[[CounterRecord], object]) -> None:
        """Pass every allocated counter to `handler`, lowest id first."""
        for record in self:
            handler(record)

    def snapshot(self) -> list[CounterRecord]:
        """Return every allocated counter, lowest id first."""
        return list(self)

    def find(self, *, type_id: int, registration_id: int) -> CounterRecord | None:
        """Return an allocated counter of this type and registration, if there is one.

        If there are several, it is that with the lowest id, or for a driver's own table the oldest.

        Source: Aeron `CountersReader.findByTypeIdAndRegistrationId`.
        """
        for counter_id in self._allocated_ids():
            found = self._values[counter_id * _VALUE_WORDS + 1]
            if found == registration_id and self._type_id(counter_id) == type_id:
                return self.record(counter_id)
        return None

    def ids_of(self, type_id: int) -> Iterator[int]:
        """Yield the ids of the allocated counters of one type, lowest first."""
        return (each for each in self._allocated_ids() if self._type_id(each) == type_id)

    def ids_and_types(self) -> Iterator[tuple[int, int]]:
        """Yield the id and the type of each allocated counter, lowest id first."""
        return ((each, self._type_id(each)) for each in self._allocated_ids())

    def release(self) -> None:
        """Release every view of the buffers; after that every access raises `ValueError`."""
        for view in (self._values, self._metadata_ints, self._metadata_longs, self._metadata):
            view.release()

    def __iter__(self) -> Iterator[CounterRecord]:
        return map(self.record, self._allocated_ids())

    def _allocated_ids(self) -> Iterator[int]:
        """Yield the allocated ids; the first id that was never used ends the table."""
        for counter_id in range(self.limit):
            state = self._metadata_ints[counter_id * _METADATA_INTS]
            if state == RECORD_UNUSED:
                return
            if state == RECORD_ALLOCATED:
                yield counter_id

    def _type_id(self, counter_id: int) -> int:
        return self._metadata_ints[counter_id * _METADATA_INTS + _TYPE_INT]

    def _checked(self, counter_id: int) -> int:
        """Return the id; a negative one would silently count from the end of the table."""
        if 0 <= counter_id < self.limit:
            return counter_id
        message = f"counter id {counter_id} is not between 0 and {self.limit - 1}"
        raise IndexError(message)


def name_of(type_id: int, registration_id: int) -> int:
    """Return the type and the registration of a counter in one number."""
    return registration_id << 32 | type_id & 0xFFFF_FFFF


def ids_named(named: int | tuple[int, ...]) -> tuple[int, ...]:
    """Return the ids of the counters of one name."""
    return named if isinstance(named, tuple) else (named,)


class CountersManager(CountersReader):
    """Allocates counters, and frees them for reuse after a delay.

    Args:
        values: Writable and zeroed, 128 bytes per counter.
        metadata: Writable and zeroed, 512 bytes per counter.
        free_to_reuse_timeout_ms: How long a freed id is not reused, in milliseconds.
        epoch_ms: Wall-clock time in milliseconds; other programs read the deadline of a freed id.
    """

    def __init__(
        self,
        values: WriteableBuffer,
        metadata: WriteableBuffer,
        *,
        free_to_reuse_timeout_ms: int,
        epoch_ms: Callable[[], int],
    ) -> None:
        super().__init__(values, metadata)
        self._free_to_reuse_timeout_ms = free_to_reuse_timeout_ms
        self._epoch_ms = epoch_ms
        # A view for the cells alone: the other can be released while they are in use.
        self._cells = self._values[:]
        self._counters: dict[int, Counter] = {}
        # By type and registration: one id, or several, oldest first. The table itself is slow to
        # search, and clients may write to it. A tuple for each would take a MB for 2,000 streams.
        self._named: dict[int, int | tuple[int, ...]] = {}
        # (deadline, id), soonest first: wall-clock time may step back, so ids may arrive unsorted.
        self._resting: list[tuple[int, int]] = []
        self._used_count = 0

    def release(self) -> None:
        """Release every view of the buffers; after that every access raises `ValueError`.

        Counters that are open keep one view, and with it the memory, until they are freed.
        """
        super().release()
        with suppress(BufferError):
            self._cells.release()

    @classmethod
    def in_memory(
        cls,
        values_length: int = DEFAULT_VALUES_LENGTH,
        *,
        free_to_reuse_timeout_ms: int,
        epoch_ms: Callable[[], int],
    ) -> CountersManager:
        """Manage counters in anonymous memory, whose pages cost nothing until they are used.

        `values_length` is in bytes: 128 for each possible counter.
        """
        return cls(
            mmap.mmap(-1, values_length),
            mmap.mmap(-1, values_length * (METADATA_LENGTH // VALUE_LENGTH)),
            free_to_reuse_timeout_ms=free_to_reuse_timeout_ms,
            epoch_ms=epoch_ms,
        )

    def allocate(
        self,
        type_id: int,
        key: bytes,
        label: str,
        *,
        registration_id: int = 0,
        owner_id: int = NULL_OWNER_ID,
        reference_id: int = 0,
    ) -> Counter:
        """Publish a new counter with value 0.

        Type ids below 1000 belong to Aeron's own products. A key beyond 112 bytes and a label
        beyond 380 are cut. The counter is freed with the client that owns it; -1 means no owner.

        Raises:
            RegistrationError: every counter is in use, or freed too recently.
        """
        counter_id = self._next_id()
        word = counter_id * _VALUE_WORDS
        # Differs: the C driver stores the ids after the state, so that a reader may see them as 0.
        for offset, number in enumerate((0, registration_id, owner_id, reference_id)):
            self._values[word + offset] = number
        self._metadata_ints[counter_id * _METADATA_INTS + _TYPE_INT] = type_id
        self._metadata_longs[counter_id * _METADATA_LONGS + _DEADLINE_LONG] = NOT_FREE_TO_REUSE
        used_key = key[:MAX_KEY_LENGTH]
        key_start = counter_id * METADATA_LENGTH + _KEY_OFFSET
        self._metadata[key_start : key_start + len(used_key)] = used_key
        self.write_label(counter_id, label)
        self._metadata_ints[counter_id * _METADATA_INTS] = RECORD_ALLOCATED
        name = name_of(type_id, registration_id)
        counter = Counter(self, counter_id, Cell(self._cells, word), name)
        self._counters[counter_id] = counter
        named = self._named.get(name)
        self._named[name] = counter_id if named is None else (*ids_named(named), counter_id)
        return counter

    def free(self, counter_id: int) -> None:
        """Free a counter; its id may be reused after the timeout.

        Raises:
            RegistrationError: no such counter is allocated.
        """
        counter = self._counters.pop(counter_id, None)
        if counter is None:
            message = f"counter {counter_id} cannot be freed: it is not allocated"
            raise RegistrationError(message)
        counter.invalidate()
        assert counter.name is not None
        named = self._named.pop(counter.name)
        if left := tuple(each for each in ids_named(named) if each != counter_id):
            self._named[counter.name] = left if len(left) > 1 else left[0]
        self._metadata_ints[counter_id * _METADATA_INTS] = RECORD_RECLAIMED
        key_start = counter_id * METADATA_LENGTH + _KEY_OFFSET
        self._metadata[key_start : key_start + MAX_KEY_LENGTH] = bytes(MAX_KEY_LENGTH)
        deadline_ms = self._epoch_ms() + self._free_to_reuse_timeout_ms
        self._metadata_longs[counter_id * _METADATA_LONGS + _DEADLINE_LONG] = deadline_ms
        heapq.heappush(self._resting, (deadline_ms, counter_id))

    def find(self, *, type_id: int, registration_id: int) -> CounterRecord | None:
        """Return the oldest counter of this type and registration, if there is one."""
        found = self._named.get(name_of(type_id, registration_id))
        return None if found is None else self.record(ids_named(found)[0])

    @property
    def value_words(self) -> memoryview:
        """Return the values of all counters, one in each sixteen words, for who reads many."""
        return self._values

    @property
    def used_count(self) -> int:
        """Return how many counters were ever allocated: those of the ids below this."""
        return self._used_count

    @property
    def allocated_count(self) -> int:
        """Return how many counters are in use."""
        return len(self._counters)

    def write_label(self, counter_id: int, label: str) -> None:
        """Replace a label; its length is stored last, so that no reader reads past the text."""
        encoded = label.encode("utf-8", "replace")[:MAX_LABEL_LENGTH]
        start = self._checked(counter_id) * METADATA_LENGTH + _LABEL_OFFSET
        self._metadata[start : start + len(encoded)] = encoded
        self._metadata_ints[counter_id * _METADATA_INTS + _LABEL_LENGTH_INT] = len(encoded)

    def _next_id(self) -> int:
        if self._resting and self._resting[0][0] <= self._epoch_ms():
            return heapq.heappop(self._resting)[1]
        if self._used_count == self.limit:
            message = (
                f"no counter is left: {len(self._counters)} of {self.limit} are in use and "
                f"{len(self._resting)} were freed less than {self._free_to_reuse_timeout_ms} ms "
                "ago; raise aeron.counters.buffer.length, 128 bytes for each counter"
            )
            raise RegistrationError(message)  # GENERIC, as both official drivers answer
        self._used_count += 1
        return self._used_count - 1
