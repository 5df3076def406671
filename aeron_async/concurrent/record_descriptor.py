"""The layout of records in ring buffers and broadcast buffers.

A record begins at a multiple of 8 and takes a multiple of 8 bytes. Its numbers have the byte order
of the machine:

    0 length i32, header included | 4 type id i32 | 8 body, then padding to a multiple of 8

A record of type -1 is padding, up to the end of the buffer or over a hole.

Source: Agrona `ringbuffer.RecordDescriptor`, `broadcast.RecordDescriptor`; Aeron `aeron_rb.h`,
`aeron_broadcast_descriptor.h`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aeron_async.errors import ConfigurationError
from aeron_async.protocol.units import align

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = [
    "ALIGNMENT",
    "CAPACITY_MAX",
    "CAPACITY_MIN",
    "HEADER_LENGTH",
    "PADDING_TYPE_ID",
    "TYPE_OFFSET",
    "align_record",
    "capacity_of",
    "checked_body",
]

TYPE_OFFSET: Final = 4
HEADER_LENGTH: Final = 8
ALIGNMENT: Final = 8
PADDING_TYPE_ID: Final = -1
TYPE_ID_MAX: Final = 2**31 - 1
CAPACITY_MIN: Final = 64
"""Least bytes of records: room for the longest record at one of its two ends, in any state."""
CAPACITY_MAX: Final = 2**30
"""Most bytes of records: the largest power of two that a record's length can express."""


def align_record(length: int) -> int:
    """Return how many bytes a record of this length takes."""
    return align(length, ALIGNMENT)


def capacity_of(length: int, trailer_length: int) -> int:
    """Return how many bytes of records a buffer has before its trailer.

    Raises:
        ConfigurationError: It is no power of two from 64 to 2**30.
    """
    capacity = length - trailer_length
    if not CAPACITY_MIN <= capacity <= CAPACITY_MAX or capacity & (capacity - 1):
        message = (
            f"a buffer takes a power of two from {CAPACITY_MIN} to {CAPACITY_MAX} bytes of "
            f"records, and {trailer_length} bytes of trailer, got {length} bytes"
        )
        raise ConfigurationError(message)
    return capacity


def checked_body(type_id: int, body: ReadableBuffer, length_max: int) -> bytes:
    """Return a message's bytes, ready to be stored: after this call nothing can refuse them.

    Raises:
        ConfigurationError: The type id is not from 1 to 2**31 - 1, or the body is too long.
    """
    if not 1 <= type_id <= TYPE_ID_MAX:
        message = f"the type id of a message is from 1 to {TYPE_ID_MAX}, got {type_id}"
        raise ConfigurationError(message)
    data = body if isinstance(body, bytes) else bytes(memoryview(body))
    if len(data) > length_max:
        message = f"a message takes at most {length_max} bytes here, got {len(data)}"
        raise ConfigurationError(message)
    return data
