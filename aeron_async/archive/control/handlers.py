"""Handlers of control requests: each calls a method of the archive and returns the answer.

Source: Aeron `ArchiveConductor`, `ListRecordingsSession`, `ListRecordingSubscriptionsSession`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, Protocol

from aeron_async.archive.api import SourceLocation
from aeron_async.archive.control.messages import (
    CODEC,
    LOG_ID_QUESTION,
    PROTOCOL_VERSION,
    SCHEMA_ID,
    SCHEMA_VERSION,
    ArchiveIdRequest,
    AttachSegmentsRequest,
    BoundedReplayRequest,
    ControlResponse,
    DeleteDetachedSegmentsRequest,
    DetachSegmentsRequest,
    ExtendRecordingRequest,
    ExtendRecordingRequest2,
    FindLastMatchingRecordingRequest,
    ListRecordingRequest,
    ListRecordingsForUriRequest,
    ListRecordingsRequest,
    ListRecordingSubscriptionsRequest,
    MaxRecordedPositionRequest,
    MigrateSegmentsRequest,
    PurgeRecordingRequest,
    PurgeSegmentsRequest,
    RecordingDescriptorMessage,
    RecordingPositionRequest,
    RecordingSubscriptionDescriptor,
    ReplayRequest,
    ReplicateRequest,
    ReplicateRequest2,
    ResponseCode,
    StartPositionRequest,
    StartRecordingRequest,
    StartRecordingRequest2,
    StopAllReplaysRequest,
    StopPositionRequest,
    StopRecordingByIdentityRequest,
    StopRecordingRequest,
    StopRecordingSubscriptionRequest,
    StopReplayRequest,
    StopReplicationRequest,
    TaggedReplicateRequest,
    TruncateRecordingRequest,
    UpdateChannelRequest,
)
from aeron_async.archive.control.sbe import HEADER
from aeron_async.archive.disk.descriptor import BLOCK, ENTRY_HEADER_LENGTH, encode_entry
from aeron_async.errors import AeronError, ArchiveError, ArchiveErrorCode, UnknownRecordingError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from aeron_async.archive.control.messages import Request
    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.archive.recording_session import RecordingSession
    from aeron_async.logs import Log

__all__ = [
    "DELETIONS",
    "HANDLERS",
    "LASTING",
    "LISTINGS",
    "STARTS",
    "ServedArchive",
    "encode_descriptor",
    "listing",
    "refusal_of",
]


# Refusals.


def refusal_of(request: Request, error: Exception, log: Log) -> ArchiveError:
    """Return the error to send to a client; an unexpected one is logged."""
    if isinstance(error, ArchiveError):
        return error
    if not isinstance(error, AeronError):
        log.error("archive_request_failed", request=str(request), exc_info=error)
    return ArchiveError(str(error))


# Requests that are answered with a number.


class ServedArchive(Protocol):
    """What an archive must offer beyond `Archive` to be served; `LocalArchive` does.

    Its methods take further arguments: `start_recording` and `extend_recording` take
    `correlation_id`, `extend_recording` also `control_session_id`, and `start_replay` takes
    `file_io_max_length`, and `handshake_length` if the receiver of the replay may never answer. All
    three take `on_failed`, which reports errors after the answer.

    Attributes:
        archive_id: Id that tells archives apart.
        recording_sessions: Active sessions by recording id.
    """

    archive_id: int
    recording_sessions: Mapping[int, RecordingSession]


Handler = Callable[..., Awaitable[int]]


async def start_recording(archive: Any, request: Any, on_failed: Any = None) -> int:
    """Start a recording; answer with the id of the subscription."""
    return int(
        await archive.start_recording(
            request.channel,
            request.stream_id,
            source_location=location_of(request),
            auto_stop=bool(getattr(request, "auto_stop", 0)),
            on_failed=on_failed,
            correlation_id=request.correlation_id,
        )
    )


async def extend_recording(archive: Any, request: Any, on_failed: Any = None) -> int:
    """Extend a recording; answer with the id of the subscription."""
    return int(
        await archive.extend_recording(
            request.recording_id,
            request.channel,
            request.stream_id,
            source_location=location_of(request),
            auto_stop=bool(getattr(request, "auto_stop", 0)),
            on_failed=on_failed,
            correlation_id=request.correlation_id,
            control_session_id=request.control_session_id,
        )
    )


def location_of(request: Any) -> SourceLocation:
    """Return the source location of a request.

    Raises:
        ArchiveError: The number is not a source location.
    """
    if request.source_location not in set(SourceLocation):
        message = f"unknown source location {request.source_location}"
        raise ArchiveError(message)
    return SourceLocation(request.source_location)


async def stop_recording(archive: Any, request: Any) -> int:
    """Stop a recording; answer with 0."""
    await archive.stop_recording(request.channel, request.stream_id)
    return 0


async def stop_recording_subscription(archive: Any, request: Any) -> int:
    """Stop a recording subscription; answer with 0."""
    await archive.stop_recording_subscription(request.subscription_id)
    return 0


async def replay(archive: Any, request: Any, on_failed: Any = None, **more: int) -> int:
    """Start a replay, with a limit of unanswered bytes in `more`; answer with its id."""
    return int(
        await archive.start_replay(
            request.recording_id,
            request.replay_channel,
            request.replay_stream_id,
            position=request.position,
            length=request.length,
            limit_counter_id=getattr(request, "limit_counter_id", None),
            file_io_max_length=request.file_io_max_length,
            on_failed=on_failed,
            **more,
        )
    )


async def stop_replay(archive: Any, request: Any) -> int:
    """Stop a replay, unless it has ended; answer with 0."""
    await archive.stop_replay(request.replay_session_id)
    return 0


async def stop_all_replays(archive: Any, request: Any) -> int:
    """Stop all replays, or those of one recording; answer with 0."""
    only = None if request.recording_id == -1 else request.recording_id
    await archive.stop_all_replays(only)
    return 0


async def find_last(archive: Any, request: Any) -> int:
    """Find the last matching recording; answer with its id, or -1."""
    if request.min_recording_id < 0:
        message = f"minRecordingId={request.min_recording_id} < 0"
        raise UnknownRecordingError(message)
    found = await archive.find_last(
        channel=request.channel,
        stream_id=request.stream_id,
        session_id=request.session_id,
        min_recording_id=request.min_recording_id,
    )
    return -1 if found is None else int(found)


async def detach_segments(archive: Any, request: Any) -> int:
    """Detach segments; answer with 0."""
    await archive.detach_segments(request.recording_id, request.new_start_position)
    return 0


async def archive_id(archive: Any, request: Any) -> int:
    """Answer with the id of the archive."""
    del request
    return int(archive.archive_id)


async def stop_replication(archive: Any, request: Any) -> int:
    """Refuse: this archive has no replications."""
    del archive
    message = f"unknown replication id {request.replication_id}"
    raise ArchiveError(message, code=ArchiveErrorCode.UNKNOWN_REPLICATION)


async def unsupported(archive: Any, request: Any) -> int:
    """Refuse a request that this archive does not support.

    Differs: the official archive copies recordings from others, moves segments between its own, and
    renames their channels.
    """
    del archive
    message = f"this archive does not support {type(request).__name__}"
    raise ArchiveError(message)


def about(name: str, argument: str | None = None) -> Handler:
    """Return a handler that calls one method with the recording id; its answer None becomes -1."""

    async def ask(archive: Any, request: Any) -> int:
        more = () if argument is None else (getattr(request, argument),)
        answer = await getattr(archive, name)(request.recording_id, *more)
        return -1 if answer is None else int(answer)

    return ask


HANDLERS: Final[dict[type[Any], Handler]] = {
    ArchiveIdRequest: archive_id,
    StartRecordingRequest: start_recording,
    StartRecordingRequest2: start_recording,
    ExtendRecordingRequest: extend_recording,
    ExtendRecordingRequest2: extend_recording,
    StopRecordingRequest: stop_recording,
    StopRecordingSubscriptionRequest: stop_recording_subscription,
    StopRecordingByIdentityRequest: about("stop_recording_by_identity"),
    ReplayRequest: replay,
    BoundedReplayRequest: replay,
    StopReplayRequest: stop_replay,
    StopAllReplaysRequest: stop_all_replays,
    FindLastMatchingRecordingRequest: find_last,
    StartPositionRequest: about("start_position"),
    StopPositionRequest: about("stop_position"),
    RecordingPositionRequest: about("recording_position"),
    MaxRecordedPositionRequest: about("max_recorded_position"),
    TruncateRecordingRequest: about("truncate", "position"),
    PurgeRecordingRequest: about("purge_recording"),
    PurgeSegmentsRequest: about("purge_segments", "new_start_position"),
    DetachSegmentsRequest: detach_segments,
    DeleteDetachedSegmentsRequest: about("delete_detached_segments"),
    AttachSegmentsRequest: about("attach_segments"),
    MigrateSegmentsRequest: unsupported,
    UpdateChannelRequest: unsupported,
    ReplicateRequest: unsupported,
    TaggedReplicateRequest: unsupported,
    ReplicateRequest2: unsupported,
    StopReplicationRequest: stop_replication,
}
"""Handler of each request; listings, tokens and session requests are handled elsewhere."""

STARTS: Final = (
    StartRecordingRequest,
    StartRecordingRequest2,
    ExtendRecordingRequest,
    ExtendRecordingRequest2,
)
"""Requests whose session gets the signals of the recording."""

LASTING: Final = (*STARTS, ReplayRequest, BoundedReplayRequest)
"""Requests whose session gets errors that come after the answer."""

DELETIONS: Final = (
    TruncateRecordingRequest,
    PurgeRecordingRequest,
    PurgeSegmentsRequest,
    DeleteDetachedSegmentsRequest,
)
"""Requests whose session gets a delete signal after the answer."""


# Listings.

IDS: Final = Struct("<qq")
ALIGNMENT: Final = 64
"""Alignment of catalog entries; they are sent with their padding, as in the catalog."""

LISTINGS: Final = (
    ListRecordingRequest,
    ListRecordingsRequest,
    ListRecordingsForUriRequest,
    ListRecordingSubscriptionsRequest,
)
"""Requests for a listing; a session may have one at a time."""


def encode_descriptor(
    descriptor: RecordingDescriptor, *, control_session_id: int, correlation_id: int
) -> bytes:
    """Return the message about a recording: its catalog entry with other leading numbers."""
    template = RecordingDescriptorMessage.TEMPLATE
    entry = encode_entry(descriptor, alignment=ALIGNMENT)
    return b"".join(
        (
            HEADER.pack(BLOCK.size, template, SCHEMA_ID, SCHEMA_VERSION),
            IDS.pack(control_session_id, correlation_id),
            entry[ENTRY_HEADER_LENGTH + IDS.size :],
        )
    )


async def listing(archive: Any, request: Request) -> AsyncIterator[bytes]:
    """Yield the messages that answer a listing."""
    if isinstance(request, ListRecordingRequest):
        pieces = one_recording(archive, request)
    elif isinstance(request, ListRecordingSubscriptionsRequest):
        pieces = subscriptions(archive, request)
    else:
        pieces = recordings(archive, request)
    async for piece in pieces:
        yield piece


async def one_recording(archive: Any, request: ListRecordingRequest) -> AsyncIterator[bytes]:
    """Yield the message about one recording."""
    try:
        descriptor = await archive.describe(request.recording_id)
    except UnknownRecordingError:
        yield end_of(request, ResponseCode.RECORDING_UNKNOWN, request.recording_id)
        return
    yield piece_of(request, descriptor)


async def recordings(archive: Any, request: Any) -> AsyncIterator[bytes]:
    """Yield messages about recordings."""
    is_any = isinstance(request, ListRecordingsRequest)
    sent_count = 0
    next_id = request.from_recording_id
    if request.record_count > 0:
        # The id that ends the listing follows the last recording that was checked, not the last
        # that matched.
        async for descriptor in archive.recordings(request.from_recording_id):
            next_id = descriptor.recording_id + 1
            if is_any or (
                descriptor.stream_id == request.stream_id
                and request.channel in descriptor.original_channel
            ):
                yield piece_of(request, descriptor)
                sent_count += 1
                if sent_count == request.record_count:
                    return
    yield end_of(request, ResponseCode.RECORDING_UNKNOWN, next_id)


async def subscriptions(
    archive: Any, request: ListRecordingSubscriptionsRequest
) -> AsyncIterator[bytes]:
    """Yield messages about subscriptions that record; or the log id, for its own question."""
    if request.channel == LOG_ID_QUESTION:
        yield CODEC.encode(
            RecordingSubscriptionDescriptor(
                control_session_id=request.control_session_id,
                correlation_id=request.correlation_id,
                subscription_id=-1,
                stream_id=0,
                stripped_channel=f"{LOG_ID_QUESTION}{await archive.log_id()}",
            )
        )
        return
    sent_count = 0
    found = await archive.recording_subscriptions()
    if request.pseudo_index >= 0 and request.subscription_count > 0:
        for each in found[request.pseudo_index :]:
            if (
                request.apply_stream_id and each.stream_id != request.stream_id
            ) or request.channel not in each.channel:
                continue
            yield CODEC.encode(
                RecordingSubscriptionDescriptor(
                    control_session_id=request.control_session_id,
                    correlation_id=request.correlation_id,
                    subscription_id=each.subscription_id,
                    stream_id=each.stream_id,
                    stripped_channel=each.channel,
                )
            )
            sent_count += 1
            if sent_count == request.subscription_count:
                return
    yield end_of(request, ResponseCode.SUBSCRIPTION_UNKNOWN, 0)


def piece_of(request: Request, descriptor: RecordingDescriptor) -> bytes:
    """Return the message about a recording, addressed to a request."""
    return encode_descriptor(
        descriptor,
        control_session_id=request.control_session_id,
        correlation_id=request.correlation_id,
    )


def end_of(request: Request, code: ResponseCode, relevant_id: int) -> bytes:
    """Return the message that ends a listing."""
    return CODEC.encode(
        ControlResponse(
            control_session_id=request.control_session_id,
            correlation_id=request.correlation_id,
            relevant_id=relevant_id,
            code=code,
            version=PROTOCOL_VERSION,
        )
    )
