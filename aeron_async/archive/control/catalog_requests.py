"""What a client asks of an archive about what it has: listings, positions, files, copies.

Source: Aeron `aeron-archive-codecs.xml`.
"""

from __future__ import annotations

from typing import ClassVar, Final

import attrs

from aeron_async.archive.control.requests import RecordingRequest, Request
from aeron_async.archive.control.sbe import (  # noqa: TC001 - a codec reads the annotations
    Data,
    Int32,
    Int64,
    Message,
    Text,
)

__all__ = [
    "CATALOG_REQUESTS",
    "AttachSegmentsRequest",
    "DeleteDetachedSegmentsRequest",
    "DetachSegmentsRequest",
    "FindLastMatchingRecordingRequest",
    "ListRecordingRequest",
    "ListRecordingSubscriptionsRequest",
    "ListRecordingsForUriRequest",
    "ListRecordingsRequest",
    "MaxRecordedPositionRequest",
    "MigrateSegmentsRequest",
    "PurgeRecordingRequest",
    "PurgeSegmentsRequest",
    "RecordingPositionRequest",
    "ReplicateRequest",
    "ReplicateRequest2",
    "StartPositionRequest",
    "StopPositionRequest",
    "StopReplicationRequest",
    "TaggedReplicateRequest",
    "TruncateRecordingRequest",
    "UpdateChannelRequest",
]


@attrs.frozen(kw_only=True)
class ListRecordingsRequest(Request):
    """List recordings."""

    TEMPLATE: ClassVar = 8

    from_recording_id: Int64
    record_count: Int32


@attrs.frozen(kw_only=True)
class ListRecordingsForUriRequest(Request):
    """List recordings of a stream."""

    TEMPLATE: ClassVar = 9

    from_recording_id: Int64
    record_count: Int32
    stream_id: Int32
    channel: Text


@attrs.frozen(kw_only=True)
class ListRecordingRequest(RecordingRequest):
    """List one recording."""

    TEMPLATE: ClassVar = 10


@attrs.frozen(kw_only=True)
class FindLastMatchingRecordingRequest(Request):
    """Ask for the last recording of a stream."""

    TEMPLATE: ClassVar = 16

    min_recording_id: Int64
    session_id: Int32
    stream_id: Int32
    channel: Text


@attrs.frozen(kw_only=True)
class ListRecordingSubscriptionsRequest(Request):
    """List what is subscribed to, to be recorded."""

    TEMPLATE: ClassVar = 17

    pseudo_index: Int32
    subscription_count: Int32
    apply_stream_id: Int32
    stream_id: Int32
    channel: Text


@attrs.frozen(kw_only=True)
class RecordingPositionRequest(RecordingRequest):
    """Ask up to where a recording has been written."""

    TEMPLATE: ClassVar = 12


@attrs.frozen(kw_only=True)
class StartPositionRequest(RecordingRequest):
    """Ask where a recording begins."""

    TEMPLATE: ClassVar = 52


@attrs.frozen(kw_only=True)
class StopPositionRequest(RecordingRequest):
    """Ask where a recording has stopped."""

    TEMPLATE: ClassVar = 15


@attrs.frozen(kw_only=True)
class MaxRecordedPositionRequest(RecordingRequest):
    """Ask up to where a recording can be replayed."""

    TEMPLATE: ClassVar = 67


@attrs.frozen(kw_only=True)
class TruncateRecordingRequest(RecordingRequest):
    """Forget what lies from a position on."""

    TEMPLATE: ClassVar = 13

    position: Int64


@attrs.frozen(kw_only=True)
class PurgeRecordingRequest(RecordingRequest):
    """Forget a recording."""

    TEMPLATE: ClassVar = 104


@attrs.frozen(kw_only=True)
class DetachSegmentsRequest(RecordingRequest):
    """Let a recording begin later."""

    TEMPLATE: ClassVar = 53

    new_start_position: Int64


@attrs.frozen(kw_only=True)
class DeleteDetachedSegmentsRequest(RecordingRequest):
    """Remove files before the start."""

    TEMPLATE: ClassVar = 54


@attrs.frozen(kw_only=True)
class PurgeSegmentsRequest(RecordingRequest):
    """Forget whole files before a position."""

    TEMPLATE: ClassVar = 55

    new_start_position: Int64


@attrs.frozen(kw_only=True)
class AttachSegmentsRequest(RecordingRequest):
    """Let a recording begin earlier."""

    TEMPLATE: ClassVar = 56


@attrs.frozen(kw_only=True)
class MigrateSegmentsRequest(Request):
    """Move files from one recording to another."""

    TEMPLATE: ClassVar = 57

    src_recording_id: Int64
    dst_recording_id: Int64


@attrs.frozen(kw_only=True)
class UpdateChannelRequest(RecordingRequest):
    """Let a recording be known under another channel."""

    TEMPLATE: ClassVar = 107

    channel: Text


@attrs.frozen(kw_only=True)
class ReplicateRequest(Request):
    """Copy a recording from another archive."""

    TEMPLATE: ClassVar = 50

    src_recording_id: Int64
    dst_recording_id: Int64
    src_control_stream_id: Int32
    src_control_channel: Text
    live_destination: Text


@attrs.frozen(kw_only=True)
class TaggedReplicateRequest(Request):
    """Copy a recording, and name what does so by tags."""

    TEMPLATE: ClassVar = 62

    src_recording_id: Int64
    dst_recording_id: Int64
    channel_tag_id: Int64
    subscription_tag_id: Int64
    src_control_stream_id: Int32
    src_control_channel: Text
    live_destination: Text


@attrs.frozen(kw_only=True)
class ReplicateRequest2(Request):
    """Copy a recording, with all that can be said about it."""

    TEMPLATE: ClassVar = 66

    src_recording_id: Int64
    dst_recording_id: Int64
    stop_position: Int64
    channel_tag_id: Int64
    subscription_tag_id: Int64
    src_control_stream_id: Int32
    file_io_max_length: Int32 = -1
    replication_session_id: Int32 = -1
    src_control_channel: Text
    live_destination: Text
    replication_channel: Text
    encoded_credentials: Data = b""
    src_response_channel: Text = ""


@attrs.frozen(kw_only=True)
class StopReplicationRequest(Request):
    """Stop copying."""

    TEMPLATE: ClassVar = 51

    replication_id: Int64


CATALOG_REQUESTS: Final[tuple[type[Message], ...]] = (
    ListRecordingsRequest,
    ListRecordingsForUriRequest,
    ListRecordingRequest,
    FindLastMatchingRecordingRequest,
    ListRecordingSubscriptionsRequest,
    RecordingPositionRequest,
    StartPositionRequest,
    StopPositionRequest,
    MaxRecordedPositionRequest,
    TruncateRecordingRequest,
    PurgeRecordingRequest,
    DetachSegmentsRequest,
    DeleteDetachedSegmentsRequest,
    PurgeSegmentsRequest,
    AttachSegmentsRequest,
    MigrateSegmentsRequest,
    UpdateChannelRequest,
    ReplicateRequest,
    TaggedReplicateRequest,
    ReplicateRequest2,
    StopReplicationRequest,
)
"""All of these."""
