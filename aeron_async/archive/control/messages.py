"""Messages of the control protocol, and their codec.

Every request except `AuthConnectRequest` and `CloseSessionRequest` carries the id of its session,
and a correlation id by which the client recognises the answer. Positions and lengths are in bytes.
-1 stands for a value that is not given.

Source: Aeron `aeron-archive-codecs.xml`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar, Final, final

import attrs

from aeron_async.archive.control.sbe import Data, Int32, Int64, SbeMessage, SbeMessageCodec, Text

__all__ = [
    "CATALOG_REQUESTS",
    "CODEC",
    "LOG_ID_QUESTION",
    "PROTOCOL_VERSION",
    "SCHEMA_ID",
    "SCHEMA_VERSION",
    "STREAM_REQUESTS",
    "ArchiveIdRequest",
    "AttachSegmentsRequest",
    "AuthConnectRequest",
    "BoundedReplayRequest",
    "Challenge",
    "ChallengeResponse",
    "CloseSessionRequest",
    "ControlResponse",
    "DeleteDetachedSegmentsRequest",
    "DetachSegmentsRequest",
    "ExtendRecordingRequest",
    "ExtendRecordingRequest2",
    "FindLastMatchingRecordingRequest",
    "KeepAliveRequest",
    "ListRecordingRequest",
    "ListRecordingSubscriptionsRequest",
    "ListRecordingsForUriRequest",
    "ListRecordingsRequest",
    "MaxRecordedPositionRequest",
    "MigrateSegmentsRequest",
    "Ping",
    "PurgeRecordingRequest",
    "PurgeSegmentsRequest",
    "RecordingDescriptorMessage",
    "RecordingIdRequest",
    "RecordingPositionRequest",
    "RecordingProgress",
    "RecordingSignalMessage",
    "RecordingStarted",
    "RecordingStopped",
    "RecordingSubscriptionDescriptor",
    "ReplayRequest",
    "ReplayTokenRequest",
    "ReplicateRequest",
    "ReplicateRequest2",
    "Request",
    "ResponseCode",
    "StartPositionRequest",
    "StartRecordingRequest",
    "StartRecordingRequest2",
    "StopAllReplaysRequest",
    "StopPositionRequest",
    "StopRecordingByIdentityRequest",
    "StopRecordingRequest",
    "StopRecordingSubscriptionRequest",
    "StopReplayRequest",
    "StopReplicationRequest",
    "TaggedReplicateRequest",
    "TruncateRecordingRequest",
    "UpdateChannelRequest",
    "major_of",
    "version_text",
]


@attrs.frozen(kw_only=True)
class Request(SbeMessage):
    """A message of a session; its correlation id ties requests and answers together."""

    control_session_id: Int64
    correlation_id: Int64


@attrs.frozen(kw_only=True)
class RecordingIdRequest(Request):
    """A request about one recording."""

    recording_id: Int64


@attrs.frozen(kw_only=True)
class AuthConnectRequest(SbeMessage):
    """Request to open a session, with the channel and stream for its answers."""

    TEMPLATE: ClassVar[int] = 58

    correlation_id: Int64
    response_stream_id: Int32
    version: Int32
    response_channel: Text
    encoded_credentials: Data = b""
    client_info: Text = ""


@attrs.frozen(kw_only=True)
class CloseSessionRequest(SbeMessage):
    """Request to close the session; it has no answer."""

    TEMPLATE: ClassVar[int] = 3

    control_session_id: Int64


@attrs.frozen(kw_only=True)
class ChallengeResponse(Request):
    """The client's answer to a `Challenge`."""

    TEMPLATE: ClassVar[int] = 60

    encoded_credentials: Data


@attrs.frozen(kw_only=True)
class KeepAliveRequest(Request):
    """Sign of life from a client; it has no answer."""

    TEMPLATE: ClassVar[int] = 61


@attrs.frozen(kw_only=True)
class ArchiveIdRequest(Request):
    """Request for the id of the archive."""

    TEMPLATE: ClassVar[int] = 68


@attrs.frozen(kw_only=True)
class StartRecordingRequest(Request):
    """Request to record a stream."""

    TEMPLATE: ClassVar[int] = 4

    stream_id: Int32
    source_location: Int32
    channel: Text


@attrs.frozen(kw_only=True)
class StartRecordingRequest2(Request):
    """Request to record a stream, optionally only its first source."""

    TEMPLATE: ClassVar[int] = 63

    stream_id: Int32
    source_location: Int32
    auto_stop: Int32
    channel: Text


@attrs.frozen(kw_only=True)
class ExtendRecordingRequest(RecordingIdRequest):
    """Request to extend a recording."""

    TEMPLATE: ClassVar[int] = 11

    stream_id: Int32
    source_location: Int32
    channel: Text


@attrs.frozen(kw_only=True)
class ExtendRecordingRequest2(RecordingIdRequest):
    """Request to extend a recording, optionally from one source only."""

    TEMPLATE: ClassVar[int] = 64

    stream_id: Int32
    source_location: Int32
    auto_stop: Int32
    channel: Text


@attrs.frozen(kw_only=True)
class StopRecordingRequest(Request):
    """Request to stop recording a stream."""

    TEMPLATE: ClassVar[int] = 5

    stream_id: Int32
    channel: Text


@attrs.frozen(kw_only=True)
class StopRecordingSubscriptionRequest(Request):
    """Request to stop a recording subscription."""

    TEMPLATE: ClassVar[int] = 14

    subscription_id: Int64


@attrs.frozen(kw_only=True)
class StopRecordingByIdentityRequest(RecordingIdRequest):
    """Request to stop one recording."""

    TEMPLATE: ClassVar[int] = 65


@attrs.frozen(kw_only=True)
class ReplayRequest(RecordingIdRequest):
    """Request to publish a recording."""

    TEMPLATE: ClassVar[int] = 6

    position: Int64
    length: Int64
    replay_stream_id: Int32
    file_io_max_length: Int32 = -1
    replay_token: Int64 = -1
    replay_channel: Text


@attrs.frozen(kw_only=True)
class BoundedReplayRequest(RecordingIdRequest):
    """Request to publish a recording up to the value of a counter."""

    TEMPLATE: ClassVar[int] = 18

    position: Int64
    length: Int64
    limit_counter_id: Int32
    replay_stream_id: Int32
    file_io_max_length: Int32 = -1
    replay_token: Int64 = -1
    replay_channel: Text


@attrs.frozen(kw_only=True)
class StopReplayRequest(Request):
    """Request to stop a replay."""

    TEMPLATE: ClassVar[int] = 7

    replay_session_id: Int64


@attrs.frozen(kw_only=True)
class StopAllReplaysRequest(RecordingIdRequest):
    """Request to stop all replays of a recording, or, with recording id -1, all replays."""

    TEMPLATE: ClassVar[int] = 19


@attrs.frozen(kw_only=True)
class ReplayTokenRequest(RecordingIdRequest):
    """Request for a token, with which a replay may be requested through another image."""

    TEMPLATE: ClassVar[int] = 105


STREAM_REQUESTS: Final[tuple[type[SbeMessage], ...]] = (
    AuthConnectRequest,
    CloseSessionRequest,
    ChallengeResponse,
    KeepAliveRequest,
    ArchiveIdRequest,
    StartRecordingRequest,
    StartRecordingRequest2,
    ExtendRecordingRequest,
    ExtendRecordingRequest2,
    StopRecordingRequest,
    StopRecordingSubscriptionRequest,
    StopRecordingByIdentityRequest,
    ReplayRequest,
    BoundedReplayRequest,
    StopReplayRequest,
    StopAllReplaysRequest,
    ReplayTokenRequest,
)
"""Every request about sessions, recording and replaying."""


@attrs.frozen(kw_only=True)
class ListRecordingsRequest(Request):
    """Request to list recordings."""

    TEMPLATE: ClassVar[int] = 8

    from_recording_id: Int64
    record_count: Int32


@attrs.frozen(kw_only=True)
class ListRecordingsForUriRequest(Request):
    """Request to list the recordings of a stream."""

    TEMPLATE: ClassVar[int] = 9

    from_recording_id: Int64
    record_count: Int32
    stream_id: Int32
    channel: Text


@attrs.frozen(kw_only=True)
class ListRecordingRequest(RecordingIdRequest):
    """Request to list one recording."""

    TEMPLATE: ClassVar[int] = 10


@attrs.frozen(kw_only=True)
class FindLastMatchingRecordingRequest(Request):
    """Request for the id of the last recording of a stream."""

    TEMPLATE: ClassVar[int] = 16

    min_recording_id: Int64
    session_id: Int32
    stream_id: Int32
    channel: Text


@attrs.frozen(kw_only=True)
class ListRecordingSubscriptionsRequest(Request):
    """Request to list the subscriptions that record."""

    TEMPLATE: ClassVar[int] = 17

    pseudo_index: Int32
    subscription_count: Int32
    apply_stream_id: Int32
    stream_id: Int32
    channel: Text


@attrs.frozen(kw_only=True)
class RecordingPositionRequest(RecordingIdRequest):
    """Request for the recorded position of an active recording."""

    TEMPLATE: ClassVar[int] = 12


@attrs.frozen(kw_only=True)
class StartPositionRequest(RecordingIdRequest):
    """Request for the position where a recording begins."""

    TEMPLATE: ClassVar[int] = 52


@attrs.frozen(kw_only=True)
class StopPositionRequest(RecordingIdRequest):
    """Request for the position where a recording has stopped."""

    TEMPLATE: ClassVar[int] = 15


@attrs.frozen(kw_only=True)
class MaxRecordedPositionRequest(RecordingIdRequest):
    """Request for the position up to which a recording can be replayed."""

    TEMPLATE: ClassVar[int] = 67


@attrs.frozen(kw_only=True)
class TruncateRecordingRequest(RecordingIdRequest):
    """Request to discard everything recorded after a position."""

    TEMPLATE: ClassVar[int] = 13

    position: Int64


@attrs.frozen(kw_only=True)
class PurgeRecordingRequest(RecordingIdRequest):
    """Request to delete a recording."""

    TEMPLATE: ClassVar[int] = 104


@attrs.frozen(kw_only=True)
class DetachSegmentsRequest(RecordingIdRequest):
    """Request to move the start of a recording forward."""

    TEMPLATE: ClassVar[int] = 53

    new_start_position: Int64


@attrs.frozen(kw_only=True)
class DeleteDetachedSegmentsRequest(RecordingIdRequest):
    """Request to delete the files before the start."""

    TEMPLATE: ClassVar[int] = 54


@attrs.frozen(kw_only=True)
class PurgeSegmentsRequest(RecordingIdRequest):
    """Request to delete the segment files before a position."""

    TEMPLATE: ClassVar[int] = 55

    new_start_position: Int64


@attrs.frozen(kw_only=True)
class AttachSegmentsRequest(RecordingIdRequest):
    """Request to move the start of a recording back over detached files."""

    TEMPLATE: ClassVar[int] = 56


@attrs.frozen(kw_only=True)
class MigrateSegmentsRequest(Request):
    """Request to move segment files from one recording to another."""

    TEMPLATE: ClassVar[int] = 57

    src_recording_id: Int64
    dst_recording_id: Int64


@attrs.frozen(kw_only=True)
class UpdateChannelRequest(RecordingIdRequest):
    """Request to change the channel of a recording."""

    TEMPLATE: ClassVar[int] = 107

    channel: Text


@attrs.frozen(kw_only=True)
class ReplicateRequest(Request):
    """Request to copy a recording from another archive."""

    TEMPLATE: ClassVar[int] = 50

    src_recording_id: Int64
    dst_recording_id: Int64
    src_control_stream_id: Int32
    src_control_channel: Text
    live_destination: Text


@attrs.frozen(kw_only=True)
class TaggedReplicateRequest(Request):
    """Request to copy a recording, with tags for the subscription that copies it."""

    TEMPLATE: ClassVar[int] = 62

    src_recording_id: Int64
    dst_recording_id: Int64
    channel_tag_id: Int64
    subscription_tag_id: Int64
    src_control_stream_id: Int32
    src_control_channel: Text
    live_destination: Text


@attrs.frozen(kw_only=True)
class ReplicateRequest2(Request):
    """Request to copy a recording, with all options."""

    TEMPLATE: ClassVar[int] = 66

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
    """Request to stop copying."""

    TEMPLATE: ClassVar[int] = 51

    replication_id: Int64


CATALOG_REQUESTS: Final[tuple[type[SbeMessage], ...]] = (
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
"""Every request about the catalog, segment files and copying."""


SCHEMA_ID: Final = 101
SCHEMA_VERSION: Final = 14
PROTOCOL_VERSION: Final = 1 << 16 | 12 << 8
"""Version 1.12.0; client and archive must have the same major version."""
LOG_ID_QUESTION: Final = "aeron-async:log-id?"
"""Channel of a listing of recording subscriptions that asks for the id of the archive's log.

No channel contains this text, so an archive that does not know the question answers that there is
no such subscription. The answer is one subscription whose channel is this text and the UUID.
"""


@final
class ResponseCode(IntEnum):
    """Result of a request."""

    OK = 0
    ERROR = 1
    RECORDING_UNKNOWN = 2
    SUBSCRIPTION_UNKNOWN = 3


@attrs.frozen(kw_only=True)
class ControlResponse(Request):
    """The result of a request."""

    TEMPLATE: ClassVar[int] = 1

    relevant_id: Int64
    code: Int32
    version: Int32 = 0
    error_message: Text = ""


@attrs.frozen(kw_only=True)
class Challenge(Request):
    """The archive's question to a client whose credentials are not enough."""

    TEMPLATE: ClassVar[int] = 59

    version: Int32 = 0
    encoded_challenge: Data


@attrs.frozen(kw_only=True)
class RecordingDescriptorMessage(Request):
    """One recording in a listing, as the catalog has it."""

    TEMPLATE: ClassVar[int] = 22

    recording_id: Int64
    start_timestamp: Int64
    stop_timestamp: Int64
    start_position: Int64
    stop_position: Int64
    initial_term_id: Int32
    segment_file_length: Int32
    term_buffer_length: Int32
    mtu_length: Int32
    session_id: Int32
    stream_id: Int32
    stripped_channel: Text
    original_channel: Text
    source_identity: Text


@attrs.frozen(kw_only=True)
class RecordingSubscriptionDescriptor(Request):
    """One recording subscription in a listing."""

    TEMPLATE: ClassVar[int] = 23

    subscription_id: Int64
    stream_id: Int32
    stripped_channel: Text


@attrs.frozen(kw_only=True)
class RecordingSignalMessage(Request):
    """A change of state of a recording."""

    TEMPLATE: ClassVar[int] = 24

    recording_id: Int64
    subscription_id: Int64
    position: Int64
    signal: Int32


@attrs.frozen(kw_only=True)
class Ping(SbeMessage):
    """Check that the client is still connected."""

    TEMPLATE: ClassVar[int] = 106

    control_session_id: Int64


@attrs.frozen(kw_only=True)
class RecordingStarted(SbeMessage):
    """Recording event: a recording has started."""

    TEMPLATE: ClassVar[int] = 101

    recording_id: Int64
    start_position: Int64
    session_id: Int32
    stream_id: Int32
    channel: Text
    source_identity: Text


@attrs.frozen(kw_only=True)
class RecordingProgress(SbeMessage):
    """Recording event: the recorded position has moved."""

    TEMPLATE: ClassVar[int] = 102

    recording_id: Int64
    start_position: Int64
    position: Int64


@attrs.frozen(kw_only=True)
class RecordingStopped(SbeMessage):
    """Recording event: a recording has stopped."""

    TEMPLATE: ClassVar[int] = 103

    recording_id: Int64
    start_position: Int64
    stop_position: Int64


CODEC: Final = SbeMessageCodec(
    schema_id=SCHEMA_ID,
    version=SCHEMA_VERSION,
    kinds=(
        *STREAM_REQUESTS,
        *CATALOG_REQUESTS,
        ControlResponse,
        Challenge,
        RecordingDescriptorMessage,
        RecordingSubscriptionDescriptor,
        RecordingSignalMessage,
        Ping,
        RecordingStarted,
        RecordingProgress,
        RecordingStopped,
    ),
)


def major_of(version: int) -> int:
    """Return the major version."""
    return version >> 16 & 0xFF


def version_text(version: int) -> str:
    """Return a version as text, such as "1.12.0"."""
    return f"{major_of(version)}.{version >> 8 & 0xFF}.{version & 0xFF}"
