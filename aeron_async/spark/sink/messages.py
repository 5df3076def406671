"""What a task tells the commit, which runs elsewhere, and what the commit tells readers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Self, final

import attrs

from aeron_async.errors import ConfigurationError

if TYPE_CHECKING:
    from aeron_async.spark.sink.identity import Identity

__all__ = ["KnownEnd", "Marker", "StreamEnd", "TaskEnd"]


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
