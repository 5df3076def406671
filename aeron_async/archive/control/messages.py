"""What an archive says, and the codec of all messages of its control protocol.

Source: Aeron `aeron-archive-codecs.xml`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar, Final, final

import attrs

from aeron_async.archive.control.catalog_requests import CATALOG_REQUESTS
from aeron_async.archive.control.requests import STREAM_REQUESTS, Request
from aeron_async.archive.control.sbe import Codec, Data, Int32, Int64, Message, Text

__all__ = [
    "CODEC",
    "PROTOCOL_VERSION",
    "SCHEMA_ID",
    "SCHEMA_VERSION",
    "Challenge",
    "ControlResponse",
    "Ping",
    "RecordingDescriptorMessage",
    "RecordingProgress",
    "RecordingSignalMessage",
    "RecordingStarted",
    "RecordingStopped",
    "RecordingSubscriptionDescriptor",
    "ResponseCode",
    "major_of",
    "version_text",
]

SCHEMA_ID: Final = 101
SCHEMA_VERSION: Final = 14
PROTOCOL_VERSION: Final = 1 << 16 | 12 << 8
"""Version 1.12.0; both sides must agree about the first number."""


@final
class ResponseCode(IntEnum):
    """What came of a request."""

    OK = 0
    ERROR = 1
    RECORDING_UNKNOWN = 2
    SUBSCRIPTION_UNKNOWN = 3


@attrs.frozen(kw_only=True)
class ControlResponse(Request):
    """Say what came of a request."""

    TEMPLATE: ClassVar = 1

    relevant_id: Int64
    code: Int32
    version: Int32 = 0
    error_message: Text = ""


@attrs.frozen(kw_only=True)
class Challenge(Request):
    """Ask for better credentials."""

    TEMPLATE: ClassVar = 59

    version: Int32 = 0
    encoded_challenge: Data


@attrs.frozen(kw_only=True)
class RecordingDescriptorMessage(Request):
    """Tell of one recording, as the catalog has it."""

    TEMPLATE: ClassVar = 22

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
    """Tell of one subscription that records."""

    TEMPLATE: ClassVar = 23

    subscription_id: Int64
    stream_id: Int32
    stripped_channel: Text


@attrs.frozen(kw_only=True)
class RecordingSignalMessage(Request):
    """Tell what has become of a recording."""

    TEMPLATE: ClassVar = 24

    recording_id: Int64
    subscription_id: Int64
    position: Int64
    signal: Int32


@attrs.frozen(kw_only=True)
class Ping(Message):
    """Look whether the client is there."""

    TEMPLATE: ClassVar = 106

    control_session_id: Int64


@attrs.frozen(kw_only=True)
class RecordingStarted(Message):
    """Tell everybody that a recording has begun."""

    TEMPLATE: ClassVar = 101

    recording_id: Int64
    start_position: Int64
    session_id: Int32
    stream_id: Int32
    channel: Text
    source_identity: Text


@attrs.frozen(kw_only=True)
class RecordingProgress(Message):
    """Tell everybody how far a recording is."""

    TEMPLATE: ClassVar = 102

    recording_id: Int64
    start_position: Int64
    position: Int64


@attrs.frozen(kw_only=True)
class RecordingStopped(Message):
    """Tell everybody that a recording has stopped."""

    TEMPLATE: ClassVar = 103

    recording_id: Int64
    start_position: Int64
    stop_position: Int64


CODEC: Final = Codec(
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
    """Return the first number of a version."""
    return version >> 16 & 0xFF


def version_text(version: int) -> str:
    """Return a version as people write it."""
    return f"{major_of(version)}.{version >> 8 & 0xFF}.{version & 0xFF}"
