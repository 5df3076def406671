"""Reader of effectively-once streams: yields each row once, and only rows of closed batches."""

from __future__ import annotations

from typing import Final, final

import attrs

from aeron_async.errors import ArchiveError, ConfigurationError
from aeron_async.spark.sink.identity import Identity, Marker

__all__ = ["CommittedRows"]

DEFAULT_MOST_PENDING: Final = 1 << 20


@attrs.define
class Partition:
    """State of one partition.

    Attributes:
        last: Identity of the last row or marker.
        pending: Rows of the batch that is not closed yet.
    """

    last: Identity | None = None
    pending: list[bytes] = attrs.field(factory=list)


@final
class CommittedRows:
    """Turns the messages of one query, from one recording or several, into committed rows.

    Rows are returned in order when the marker of their batch arrives. Repeated messages are
    dropped, and so are rows that no marker closes.

    Args:
        most_pending: Upper limit on rows that wait for their marker.
    """

    def __init__(self, *, most_pending: int = DEFAULT_MOST_PENDING) -> None:
        if most_pending < 1:
            message = f"most_pending is {most_pending}, and must be at least 1"
            raise ConfigurationError(message)
        self._most_pending = most_pending
        self._pending_count = 0
        self._partitions: dict[int, Partition] = {}

    def feed(self, reserved_value: int, payload: bytes | memoryview) -> list[bytes]:
        """Take a message, and return the rows that it commits: none unless it is a marker.

        Args:
            reserved_value: Reserved value of the message.
            payload: Payload of the message; a view is copied.

        Raises:
            ArchiveError: Rows are missing before this row or marker.
            ConfigurationError: Too many rows wait for their marker.
        """
        identity = Identity.of(reserved_value)
        # The partition has 12 bits, so this mapping cannot grow without limit.
        partition = self._partitions.setdefault(identity.partition, Partition())
        last = partition.last
        if last is not None and identity <= last:
            return []
        begun = last is not None and last.batch == identity.batch
        if not begun:
            self._forget(partition)
        if identity.is_marker:
            return self._close(partition, identity, Marker.decode(payload))
        expected = len(partition.pending)
        if identity.index != expected:
            message = (
                f"{identity} came where row {expected} of the batch should: read the recording"
            )
            raise ArchiveError(message)
        if self._pending_count >= self._most_pending:
            message = (
                f"{self._pending_count} rows wait for the end of their batch: raise most_pending, "
                "or make batches less"
            )
            raise ConfigurationError(message)
        partition.last = identity
        partition.pending.append(bytes(payload))
        self._pending_count += 1
        return []

    def _close(self, partition: Partition, identity: Identity, marker: Marker) -> list[bytes]:
        rows = partition.pending
        if len(rows) != marker.rows:
            message = (
                f"batch {identity.batch} of partition {identity.partition} has {marker.rows} rows, "
                f"and {len(rows)} came: read the recording"
            )
            raise ArchiveError(message)
        self._forget(partition)
        partition.last = identity
        return rows

    def _forget(self, partition: Partition) -> None:
        self._pending_count -= len(partition.pending)
        partition.pending = []
