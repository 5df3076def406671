"""Records of a durable stream: their header on the wire, and what a consumer gets.

Each message of a `Producer` is a header of 40 bytes and the data. The header is an SBE message
header and one block, little endian, so that programs in other languages can generate the codec:

| offset | size | field | |
|---|---|---|---|
| 0 | 2 | block length | 32; a reader skips what is longer |
| 2 | 2 | template id | 1 `DATA`, 2 `OPENED` |
| 4 | 2 | schema id | 24929 |
| 6 | 2 | version | 1 |
| 8 | 8 | producer id u64 | the first eight bytes of the SHA-256 of the producer's name |
| 16 | 8 | sequence u64 | of `DATA`: 1 for the first record of the log, then one more each |
| 24 | 8 | timestamp i64 | nanoseconds since 1970, by the producer's clock |
| 32 | 4 | epoch u32 | of the producer; each opening of the log has the next one |
| 36 | 4 | flags u32 | 0; a reader ignores flags that it does not know |

`OPENED` is the first record of each epoch. It has the sequence of the last `DATA` before it, and
the producer's name in UTF-8 instead of data. Consumers do not return it.

A message that is no such record, because another program has published it, is returned as it is.
"""

from __future__ import annotations

from enum import IntEnum
from hashlib import sha256
from struct import Struct
from typing import TYPE_CHECKING, Final, final

import attrs

from aeron_async.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aeron_async.archive.durable.cursors import Cursor

__all__ = [
    "HEADER_LENGTH",
    "MOST_EPOCH",
    "MOST_SEQUENCE",
    "Boundary",
    "Record",
    "RecordBatch",
    "RecordHeader",
    "RecordKind",
    "check_producer_name",
    "decode_header",
    "encode_header",
    "producer_id_of",
]

HEADER: Final = Struct("<HHHHQQqII")
HEADER_LENGTH: Final = HEADER.size
MESSAGE_HEADER_LENGTH: Final = 8
BLOCK_LENGTH: Final = HEADER_LENGTH - MESSAGE_HEADER_LENGTH
SCHEMA_ID: Final = int.from_bytes(b"aa", "little")
SCHEMA_VERSION: Final = 1
MOST_SEQUENCE: Final = (1 << 63) - 1
"""Largest sequence, so that databases can store it as a signed number."""
MOST_EPOCH: Final = (1 << 32) - 1
LONGEST_NAME: Final = 255


@final
class RecordKind(IntEnum):
    """Template ids of records."""

    DATA = 1
    OPENED = 2


@final
@attrs.frozen
class RecordHeader:
    """The header of one record.

    Attributes:
        kind: What the record is.
        producer_id: Digest of the producer's name; see `producer_id_of`.
        sequence: Number of the record in the log, from 1.
        epoch: Which opening of the log it is of, from 1.
        timestamp_ns: When it was appended, in nanoseconds since 1970.
    """

    kind: RecordKind
    producer_id: int
    sequence: int
    epoch: int
    timestamp_ns: int = 0


def encode_header(header: RecordHeader) -> bytes:
    """Return the bytes of a header."""
    return HEADER.pack(
        BLOCK_LENGTH,
        header.kind,
        SCHEMA_ID,
        SCHEMA_VERSION,
        header.producer_id,
        header.sequence,
        header.timestamp_ns,
        header.epoch,
        0,
    )


def decode_header(data: bytes) -> tuple[RecordHeader, int] | None:
    """Return the header of a message and where its data begins; None if it is no record."""
    if len(data) < HEADER_LENGTH:
        return None
    block_length, kind, schema_id, version, producer_id, sequence, timestamp_ns, epoch, _ = (
        HEADER.unpack_from(data)
    )
    begin = MESSAGE_HEADER_LENGTH + block_length
    is_record = (
        schema_id == SCHEMA_ID
        and version >= SCHEMA_VERSION
        and kind in RecordKind.__members__.values()
        and block_length >= BLOCK_LENGTH
        and begin <= len(data)
        and sequence <= MOST_SEQUENCE
        and epoch > 0
        and (sequence > 0 or kind == RecordKind.OPENED)
    )
    if not is_record:
        return None
    return RecordHeader(RecordKind(kind), producer_id, sequence, epoch, timestamp_ns), begin


def check_producer_name(name: object) -> str:
    """Return the name of a producer.

    Raises:
        ConfigurationError: It is no printable text of 1 to 255 bytes in UTF-8.
    """
    is_text = isinstance(name, str) and name.isprintable()
    if not (is_text and 0 < len(str(name).encode("utf-8", "replace")) <= LONGEST_NAME):
        message = f"name={name!r} must be printable text of 1 to {LONGEST_NAME} bytes in UTF-8"
        raise ConfigurationError(message)
    return str(name)


def producer_id_of(name: str) -> int:
    """Return the number that stands for a producer's name in the records."""
    return int.from_bytes(sha256(name.encode()).digest()[:8], "little")


# What a consumer gets.


@final
@attrs.frozen(kw_only=True)
class Boundary:
    """The place between two recordings of a log, or a part of the log that was purged.

    Attributes:
        recording_id: Recording before the boundary; None if nothing was read before it.
        stop_position: Up to where that recording was read, in bytes.
        next_recording_id: Recording behind the boundary.
        start_position: Where that recording is read from, in bytes.
        is_lost: Whether records in between were purged before they were read.
    """

    recording_id: int | None
    stop_position: int
    next_recording_id: int
    start_position: int
    is_lost: bool


@final
@attrs.frozen
class Record:
    """One record of a log.

    Attributes:
        data: The data, without header.
        cursor: The place behind the record: store it to continue with the next one.
        sequence: Number of the record in the log; None if another program published the message.
        epoch: Which opening of the log appended it; None if another program published the message.
        producer_id: Digest of the producer's name, or None.
        timestamp_ns: When it was appended, in nanoseconds since 1970; or None.
        boundary: The boundary that was crossed directly before this record, or None.
    """

    data: bytes
    cursor: Cursor
    sequence: int | None = None
    epoch: int | None = None
    producer_id: int | None = None
    timestamp_ns: int | None = None
    boundary: Boundary | None = None


@final
@attrs.frozen
class RecordBatch:
    """Consecutive records; at least one.

    Attributes:
        records: The records, in the order of the log.
    """

    records: Sequence[Record]

    @property
    def cursor(self) -> Cursor:
        """Return the place behind the last record."""
        return self.records[-1].cursor
