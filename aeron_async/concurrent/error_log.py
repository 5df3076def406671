"""The log of distinct errors, in Aeron's layout: one record per error, with how often it happened.

Records begin at multiples of 8 bytes; the first length of 0 ends the log:

    0 length i32, header included | 4 observation count i32 | 8 last observation i64, epoch ms
    16 first observation i64, epoch ms | 24 text, UTF-8

Invariant: a record is complete before its length is stored, so a reader never sees half a text. The
length is stored as one word after a release fence; nothing here is read, compared and swapped,
because a log has one writer, and so private memory and pure Python do as well.

The writer keeps offsets and counts to itself: what another process writes into the buffer cannot
make it write elsewhere. The reader expects any bytes. Texts are neither escaped nor shortened in
the log: code that shows them must do that (`aeron_async.text.printable`).

Source: Agrona `DistinctErrorLog`, `ErrorLogReader`; Aeron `aeron_distinct_error_log.c`.
"""

from __future__ import annotations

from enum import Enum
from struct import Struct
from typing import TYPE_CHECKING, Final, final

import attrs

from aeron_async.concurrent.atomic_buffer import acquire_fence, release_fence
from aeron_async.errors import ConfigurationError
from aeron_async.protocol.units import align

if TYPE_CHECKING:
    from collections.abc import Generator

    from _typeshed import ReadableBuffer, WriteableBuffer

__all__ = ["DistinctErrorLog", "ErrorObservation", "ErrorOutcome", "read_error_log"]

HEADER_LENGTH: Final = 24
RECORD_ALIGNMENT: Final = 8
OBSERVATION_COUNT_MAX: Final = 2**31 - 1
"""The count stays there instead of turning negative."""

# Distances between fields, in units of the numbers they hold.
_COUNT_INT: Final = 1
_LAST_OBSERVATION_LONG: Final = 1
_FIRST_OBSERVATION_LONG: Final = 2
# What follows the length of a record.
_REST_OF_HEADER: Final = Struct("<iqq")


@final
class ErrorOutcome(Enum):
    """What `DistinctErrorLog.record` did with an error."""

    NEW = "new"
    """The log has a new record."""
    AGAIN = "again"
    """The log had the error; its count and its last observation have changed."""
    NO_ROOM = "no room"
    """The error is new and does not fit: nothing has changed, and nothing of it is kept."""


@attrs.frozen(kw_only=True)
class ErrorObservation:
    """One distinct error as a log holds it.

    Attributes:
        observation_count: As the log has it; 0 for a moment while another writer adds the record.
        first_observation_ms: Epoch milliseconds.
        last_observation_ms: Epoch milliseconds.
        text: As it was recorded: not escaped.
    """

    observation_count: int
    first_observation_ms: int
    last_observation_ms: int
    text: str


@attrs.define
class _Record:
    """Where a record begins, in bytes, and its count."""

    offset: int
    count: int


class DistinctErrorLog:
    """The only writer of a log of distinct errors.

    Two errors are the same if their texts are equal. Memory is bounded: what is remembered is what
    is in the buffer, so no more texts than the buffer holds, at 32 bytes or more for each.

    Args:
        buffer: Writable and zeroed.

    Raises:
        ConfigurationError: `buffer` is too short for any record.
    """

    def __init__(self, buffer: WriteableBuffer) -> None:
        view = memoryview(buffer).cast("B")
        self._capacity: Final = len(view) - len(view) % RECORD_ALIGNMENT
        if self._capacity < HEADER_LENGTH:
            message = f"an error log needs at least {HEADER_LENGTH} bytes, got {len(view)}"
            raise ConfigurationError(message)
        self._bytes = view[: self._capacity]
        self._ints = self._bytes.cast("i")
        self._longs = self._bytes.cast("q")
        self._records: dict[bytes, _Record] = {}
        self._next_offset = 0
        self._unrecorded_count = 0

    @property
    def distinct_count(self) -> int:
        """How many errors the log has."""
        return len(self._records)

    def to_bytes(self) -> bytes:
        """Return a copy of what is recorded, in Aeron's layout."""
        return bytes(self._bytes[: self._next_offset])

    @property
    def unrecorded_count(self) -> int:
        """How many observations were of errors that did not fit."""
        return self._unrecorded_count

    def record(self, error: str, now_ms: int) -> ErrorOutcome:
        """Record an observation of an error.

        Args:
            error: Its text; surrogates, which UTF-8 cannot hold, are replaced by escapes.
            now_ms: Epoch milliseconds.
        """
        text = error.encode("utf-8", "backslashreplace")
        record = self._records.get(text)
        if record is None:
            return self._append(text, now_ms)
        record.count = min(record.count + 1, OBSERVATION_COUNT_MAX)
        self._ints[record.offset // 4 + _COUNT_INT] = record.count
        # Readers that look for what is new since some time must find the new count, too.
        release_fence()
        self._longs[record.offset // 8 + _LAST_OBSERVATION_LONG] = now_ms
        return ErrorOutcome.AGAIN

    def _append(self, text: bytes, now_ms: int) -> ErrorOutcome:
        offset = self._next_offset
        length = HEADER_LENGTH + len(text)
        if length > self._capacity - offset:
            # Differs: Aeron writes the error to standard error; here the caller decides.
            self._unrecorded_count += 1
            return ErrorOutcome.NO_ROOM
        # Differs: Aeron stores the count and the last observation after the length, so that a
        # reader may see them as 0.
        self._bytes[offset + 4 : offset + length] = _REST_OF_HEADER.pack(1, now_ms, now_ms) + text
        release_fence()
        self._ints[offset // 4] = length
        self._records[text] = _Record(offset, 1)
        self._next_offset = align(offset + length, RECORD_ALIGNMENT)
        return ErrorOutcome.NEW


def read_error_log(
    buffer: ReadableBuffer, *, since_ms: int = 0
) -> Generator[ErrorObservation, None, None]:
    """Yield the errors of a log of any writer, oldest first, while the writer may be at work.

    A record longer than the rest of the buffer is cut there. A length that is shorter than a header
    ends the log.

    Args:
        buffer: The log; any bytes will do. No more texts are made than it has bytes for.
        since_ms: Leave out errors that were last observed before; epoch milliseconds.
    """
    view = memoryview(buffer).cast("B")
    capacity = len(view)
    whole = view[: capacity - capacity % RECORD_ALIGNMENT]
    ints, longs = whole.cast("i"), whole.cast("q")
    offset = 0
    while offset <= capacity - HEADER_LENGTH:
        # Another process may change the length at any time, so it is read once.
        length = min(ints[offset // 4], capacity - offset)
        if length < HEADER_LENGTH:
            return
        acquire_fence()
        last_observation_ms = longs[offset // 8 + _LAST_OBSERVATION_LONG]
        acquire_fence()
        if last_observation_ms >= since_ms:
            text = view[offset + HEADER_LENGTH : offset + length].tobytes()
            yield ErrorObservation(
                observation_count=ints[offset // 4 + _COUNT_INT],
                first_observation_ms=longs[offset // 8 + _FIRST_OBSERVATION_LONG],
                last_observation_ms=last_observation_ms,
                text=text.decode("utf-8", "replace"),
            )
        offset = align(offset + length, RECORD_ALIGNMENT)
