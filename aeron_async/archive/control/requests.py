"""What a client asks of an archive: sessions, recordings, replays.

Every request but the first two says which session it belongs to, and a number by which its answer
is known. Positions and lengths are in bytes. -1 stands for what is not given.

Source: Aeron `aeron-archive-codecs.xml`.
"""

from __future__ import annotations

from typing import ClassVar, Final

import attrs

from aeron_async.archive.control.sbe import Data, Int32, Int64, Message, Text

__all__ = [
    "STREAM_REQUESTS",
    "ArchiveIdRequest",
    "AuthConnectRequest",
    "BoundedReplayRequest",
    "ChallengeResponse",
    "CloseSessionRequest",
    "ExtendRecordingRequest",
    "ExtendRecordingRequest2",
    "KeepAliveRequest",
    "RecordingRequest",
    "ReplayRequest",
    "ReplayTokenRequest",
    "Request",
    "StartRecordingRequest",
    "StartRecordingRequest2",
    "StopAllReplaysRequest",
    "StopRecordingByIdentityRequest",
    "StopRecordingRequest",
    "StopRecordingSubscriptionRequest",
    "StopReplayRequest",
]


@attrs.frozen(kw_only=True)
class Request(Message):
    """A message that belongs to a session and, by its correlation id, to a request."""

    control_session_id: Int64
    correlation_id: Int64


@attrs.frozen(kw_only=True)
class RecordingRequest(Request):
    """A request about one recording."""

    recording_id: Int64


@attrs.frozen(kw_only=True)
class AuthConnectRequest(Message):
    """Open a session; its answers come on a stream of the client's choice."""

    TEMPLATE: ClassVar = 58

    correlation_id: Int64
    response_stream_id: Int32
    version: Int32
    response_channel: Text
    encoded_credentials: Data = b""
    client_info: Text = ""


@attrs.frozen(kw_only=True)
class CloseSessionRequest(Message):
    """Close the session; there is no answer."""

    TEMPLATE: ClassVar = 3

    control_session_id: Int64


@attrs.frozen(kw_only=True)
class ChallengeResponse(Request):
    """Answer a challenge."""

    TEMPLATE: ClassVar = 60

    encoded_credentials: Data


@attrs.frozen(kw_only=True)
class KeepAliveRequest(Request):
    """Say that the client is there; there is no answer."""

    TEMPLATE: ClassVar = 61


@attrs.frozen(kw_only=True)
class ArchiveIdRequest(Request):
    """Ask for the id of the archive."""

    TEMPLATE: ClassVar = 68


@attrs.frozen(kw_only=True)
class StartRecordingRequest(Request):
    """Record a stream."""

    TEMPLATE: ClassVar = 4

    stream_id: Int32
    source_location: Int32
    channel: Text


@attrs.frozen(kw_only=True)
class StartRecordingRequest2(Request):
    """Record a stream, if so wished only its first source."""

    TEMPLATE: ClassVar = 63

    stream_id: Int32
    source_location: Int32
    auto_stop: Int32
    channel: Text


@attrs.frozen(kw_only=True)
class ExtendRecordingRequest(RecordingRequest):
    """Go on with a recording."""

    TEMPLATE: ClassVar = 11

    stream_id: Int32
    source_location: Int32
    channel: Text


@attrs.frozen(kw_only=True)
class ExtendRecordingRequest2(RecordingRequest):
    """Go on with a recording, if so wished from one source only."""

    TEMPLATE: ClassVar = 64

    stream_id: Int32
    source_location: Int32
    auto_stop: Int32
    channel: Text


@attrs.frozen(kw_only=True)
class StopRecordingRequest(Request):
    """Record a stream no more."""

    TEMPLATE: ClassVar = 5

    stream_id: Int32
    channel: Text


@attrs.frozen(kw_only=True)
class StopRecordingSubscriptionRequest(Request):
    """Record with a subscription no more."""

    TEMPLATE: ClassVar = 14

    subscription_id: Int64


@attrs.frozen(kw_only=True)
class StopRecordingByIdentityRequest(RecordingRequest):
    """Stop one recording."""

    TEMPLATE: ClassVar = 65


@attrs.frozen(kw_only=True)
class ReplayRequest(RecordingRequest):
    """Publish a recording anew."""

    TEMPLATE: ClassVar = 6

    position: Int64
    length: Int64
    replay_stream_id: Int32
    file_io_max_length: Int32 = -1
    replay_token: Int64 = -1
    replay_channel: Text


@attrs.frozen(kw_only=True)
class BoundedReplayRequest(RecordingRequest):
    """Publish a recording anew, up to what a counter says."""

    TEMPLATE: ClassVar = 18

    position: Int64
    length: Int64
    limit_counter_id: Int32
    replay_stream_id: Int32
    file_io_max_length: Int32 = -1
    replay_token: Int64 = -1
    replay_channel: Text


@attrs.frozen(kw_only=True)
class StopReplayRequest(Request):
    """Stop a replay."""

    TEMPLATE: ClassVar = 7

    replay_session_id: Int64


@attrs.frozen(kw_only=True)
class StopAllReplaysRequest(RecordingRequest):
    """Stop all replays of a recording, or of all when that is -1."""

    TEMPLATE: ClassVar = 19


@attrs.frozen(kw_only=True)
class ReplayTokenRequest(RecordingRequest):
    """Ask for leave to replay from another image."""

    TEMPLATE: ClassVar = 105


STREAM_REQUESTS: Final[tuple[type[Message], ...]] = (
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
"""All of these."""
