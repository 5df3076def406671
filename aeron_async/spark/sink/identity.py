"""The identity of a row, the marker of a closed batch, and what tasks tell the commit.

Layout, 64 bits, highest first: batch 28, partition 12, index 24. The highest index is no row but
the marker that closes the batch of the partition. As unsigned numbers the identities of a partition
grow as its rows do.
"""

from __future__ import annotations

import json
from typing import Final, Self, final

import attrs

from aeron_async.errors import ConfigurationError

__all__ = [
    "MARKER_INDEX",
    "Identity",
    "KnownEnd",
    "Marker",
    "StreamEnd",
    "TaskEnd",
]

BATCH_BITS: Final = 28
PARTITION_BITS: Final = 12
INDEX_BITS: Final = 24
BATCH_SHIFT: Final = PARTITION_BITS + INDEX_BITS
BATCH_LIMIT: Final = 1 << BATCH_BITS
PARTITION_LIMIT: Final = 1 << PARTITION_BITS
MARKER_INDEX: Final = (1 << INDEX_BITS) - 1
UNSIGNED: Final = (1 << 64) - 1
SIGN: Final = 1 << 63


@final
@attrs.frozen(order=True)
class Identity:
    """The place of a row in what a query has written.

    Attributes:
        batch: Of the query, as Spark counts them.
        partition: Of the batch.
        index: Of the row in the partition; the highest is the marker.
    """

    batch: int
    partition: int
    index: int

    def __attrs_post_init__(self) -> None:
        for name, value, limit, remedy in (
            ("batch", self.batch, BATCH_LIMIT, "start the query anew, with a new checkpoint"),
            ("partition", self.partition, PARTITION_LIMIT, "repartition() into fewer"),
            ("row", self.index, MARKER_INDEX + 1, "repartition() into more, or make batches less"),
        ):
            if not 0 <= value < limit:
                message = (
                    f"{name} {value} has no identity: with delivery=effectively-once it must be "
                    f"from 0 to {limit - 1}: {remedy}"
                )
                raise ConfigurationError(message)

    @property
    def is_marker(self) -> bool:
        """Return whether this closes the batch of the partition."""
        return self.index == MARKER_INDEX

    @property
    def reserved_value(self) -> int:
        """Return it as a message carries it: signed 64 bits."""
        value = self.batch << BATCH_SHIFT | self.partition << INDEX_BITS | self.index
        return value - (SIGN << 1) if value & SIGN else value

    @classmethod
    def of(cls, reserved_value: int) -> Self:
        """Return what a message carries."""
        value = reserved_value & UNSIGNED
        partition = value >> INDEX_BITS & PARTITION_LIMIT - 1
        return cls(value >> BATCH_SHIFT, partition, value & MARKER_INDEX)

    @classmethod
    def marker(cls, batch: int, partition: int) -> Self:
        """Return what closes the batch of a partition."""
        return cls(batch, partition, MARKER_INDEX)


def first_reserved_value(batch: int, partition: int, index: int, count: int) -> int:
    """Return what the first of some rows in a row carries; the next ones are one more each.

    Raises:
        ConfigurationError: One of them has no identity.
    """
    first = Identity(batch, partition, index)
    last = Identity(batch, partition, index + max(count - 1, 0))
    if last.is_marker:
        Identity(batch, partition, MARKER_INDEX + 1)
    return first.reserved_value


@final
@attrs.frozen(kw_only=True)
class KnownEnd:
    """How far a recording was once: it need not be read again before that.

    Attributes:
        recording_id: Of the recording.
        started_ms: When it began, in milliseconds since 1970: a new archive counts from 0 again.
        position: Behind a whole message, in bytes.
        last: Identity of that message.
    """

    recording_id: int
    started_ms: int
    position: int
    last: Identity


@final
@attrs.frozen(kw_only=True)
class StreamEnd:
    """Where a task stopped publishing on a stream.

    Attributes:
        channel: Of the stream.
        stream_id: Within the channel.
        session_id: Of the task's publication.
        position: Behind its last message, in bytes.
        known: How far its recording is; None where there is none.
    """

    channel: str
    stream_id: int
    session_id: int
    position: int
    known: KnownEnd | None = None


@final
@attrs.frozen(kw_only=True)
class TaskEnd:
    """What a task has written.

    Attributes:
        query: Whose rows they are; None where they have no identity.
        batch: Of the query; likewise.
        partition: Of the batch.
        row_count: Rows of the partition, whoever published them.
        streams: Where they are.
    """

    query: str | None
    batch: int | None
    partition: int
    row_count: int
    streams: tuple[StreamEnd, ...]


@final
@attrs.frozen(kw_only=True)
class Marker:
    """The last message of a batch in a partition: only what it closes is to be believed.

    Attributes:
        query: Whose rows they are.
        batch: Of the query.
        partition: Of the batch.
        rows: How many rows of the batch are in the partition.
        session_id: Of the attempt that brought the last of them.
        position: Behind them in the recording, in bytes.
    """

    query: str
    batch: int
    partition: int
    rows: int
    session_id: int
    position: int

    def encode(self) -> bytes:
        """Return the payload: JSON with sorted keys."""
        return json.dumps(attrs.asdict(self), sort_keys=True).encode()

    @classmethod
    def decode(cls, payload: bytes | memoryview) -> Self:
        """Return what a payload says.

        Raises:
            ConfigurationError: It is no marker.
        """
        try:
            return cls(**json.loads(bytes(payload)))
        except (ValueError, TypeError) as error:
            message = f"a message with the identity of a marker is none: {bytes(payload[:80])!r}"
            raise ConfigurationError(message) from error
