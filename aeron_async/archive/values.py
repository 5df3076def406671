"""What is said of recordings: where they come from, what becomes of them, and what records.

Source: Aeron `AeronArchive`, `RecordingSignal`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, final

import attrs

__all__ = [
    "ALL_AND_FOLLOW",
    "ALL_AND_STOP",
    "RecordingSignal",
    "RecordingSignalEvent",
    "RecordingSubscription",
    "SourceLocation",
]

ALL_AND_FOLLOW: Final = -1
"""Length of a replay of everything, and of what is still recorded."""
ALL_AND_STOP: Final = -2
"""Length of a replay of everything that is there when it begins."""


@final
class SourceLocation(IntEnum):
    """Where a stream to be recorded comes from."""

    LOCAL = 0
    """A publication of this driver: over UDP it is spied upon, and not sent twice."""
    REMOTE = 1
    """Whoever sends to the channel."""


@final
class RecordingSignal(IntEnum):
    """What has become of a recording."""

    START = 0
    STOP = 1
    EXTEND = 2
    REPLICATE = 3
    MERGE = 4
    SYNC = 5
    DELETE = 6
    REPLICATE_END = 7


@attrs.frozen(kw_only=True)
class RecordingSignalEvent:
    """Something has become of a recording.

    Attributes:
        recording_id: Of the recording.
        subscription_id: That records it; -1 where there is none.
        position: Where it happened, in bytes; -1 where that means nothing.
        signal: What happened.
        correlation_id: Of the request that led to it; -1 where that was none of this client.
    """

    recording_id: int
    subscription_id: int
    position: int
    signal: RecordingSignal
    correlation_id: int = -1


@attrs.frozen
class RecordingSubscription:
    """A subscription that records.

    Attributes:
        subscription_id: As the request to record was answered with.
        stream_id: Of the stream.
        channel: With only what tells streams apart.
    """

    subscription_id: int
    stream_id: int
    channel: str
