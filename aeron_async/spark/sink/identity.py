"""Identities of rows, markers of closed batches, and the results of tasks.

An identity has 64 bits, from the highest: batch 28, partition 12, index 24. The highest index is
the marker that closes the batch of a partition. As unsigned numbers, the identities of a partition
ascend in the order of its rows.
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
    """Place of a row in the output of a query.

    Attributes:
        batch: Batch number of Spark.
        partition: Partition of the batch.
        index: Row in the partition; the highest index is the marker.
    """

    batch: int
    partition: int
    index: int

    def __attrs_post_init__(self) -> None:
        for name, value, limit, remedy in (
            ("batch", self.batch, BATCH_LIMIT, "start the query again, with a new checkpoint"),
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
        """Return whether this is the marker that closes the batch of a partition."""
        return self.index == MARKER_INDEX

    @property
    def reserved_value(self) -> int:
        """Return the identity as a reserved value: signed 64 bits."""
        value = self.batch << BATCH_SHIFT | self.partition << INDEX_BITS | self.index
        return value - (SIGN << 1) if value & SIGN else value

    @classmethod
    def of(cls, reserved_value: int) -> Self:
        """Return the identity in a reserved value."""
        value = reserved_value & UNSIGNED
        partition = value >> INDEX_BITS & PARTITION_LIMIT - 1
        return cls(value >> BATCH_SHIFT, partition, value & MARKER_INDEX)

    @classmethod
    def marker(cls, batch: int, partition: int) -> Self:
        """Return the marker for the batch of a partition."""
        return cls(batch, partition, MARKER_INDEX)


def first_reserved_value(batch: int, partition: int, index: int, count: int) -> int:
    """Return the reserved value of the first of several rows; each next one is greater by one.

    Raises:
        ConfigurationError: A row has no valid identity.
    """
    first = Identity(batch, partition, index)
    last = Identity(batch, partition, index + max(count - 1, 0))
    if last.is_marker:
        Identity(batch, partition, MARKER_INDEX + 1)
    return first.reserved_value


@final
@attrs.frozen(kw_only=True)
class KnownEnd:
    """An earlier end of a recording, before which nothing must be read again.

    Attributes:
        recording_id: The recording.
        started_ms: When it began, in milliseconds since 1970; tells it from a recording with the
            same id in a new archive.
        position: End of a whole message, in bytes.
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
        channel: Channel of the stream.
        stream_id: Stream within the channel.
        session_id: Session of the task's publication.
        position: End of its last message, in bytes.
        known: End of its recording; None if there is none.
    """

    channel: str
    stream_id: int
    session_id: int
    position: int
    known: KnownEnd | None = None


@final
@attrs.frozen(kw_only=True)
class TaskEnd:
    """Result of a task.

    Attributes:
        query: Query that wrote the rows; None if they have no identity.
        batch: Batch of the query; None if the rows have no identity.
        partition: Partition of the batch.
        row_count: Rows of the partition, including those that an earlier attempt published.
        streams: Where the rows were published.
    """

    query: str | None
    batch: int | None
    partition: int
    row_count: int
    streams: tuple[StreamEnd, ...]


@final
@attrs.frozen(kw_only=True)
class Marker:
    """Last message of a batch in a partition; readers ignore rows that no marker closes.

    Attributes:
        query: Query that wrote the rows.
        batch: Batch of the query.
        partition: Partition of the batch.
        rows: Rows of the batch in the partition.
        session_id: Session of the attempt that published the last of them.
        position: End of the rows in the recording, in bytes.
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
        """Parse a payload.

        Raises:
            ConfigurationError: The payload is no marker.
        """
        try:
            return cls(**json.loads(bytes(payload)))
        except (ValueError, TypeError) as error:
            message = f"a message with the identity of a marker is none: {bytes(payload[:80])!r}"
            raise ConfigurationError(message) from error
