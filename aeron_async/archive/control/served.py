"""What is asked of the archive that is served: each request as a call, its answer as a number.

Source: Aeron `ArchiveConductor`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from aeron_async.archive.api import SourceLocation
from aeron_async.archive.control import catalog_requests as catalog
from aeron_async.archive.control import requests
from aeron_async.errors import ArchiveError, ArchiveErrorCode, UnknownRecordingError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aeron_async.archive.recording_session import RecordingSession

__all__ = [
    "DELETIONS",
    "HANDLERS",
    "LASTING",
    "STARTS",
    "ServedArchive",
]


class ServedArchive(Protocol):
    """What an archive must offer beyond `Archive` to be served; `LocalArchive` does.

    Those who start or extend a recording also say `correlation_id`, who extend also
    `control_session_id`, and who start a replay also `file_io_max_length`, and `handshake_length`
    where its receiver may never answer; all of them say `on_failed` to hear of what goes wrong
    later.

    Attributes:
        archive_id: By which its clients tell it from others.
        recording_sessions: What is written now, by the ids of its recordings.
    """

    archive_id: int
    recording_sessions: Mapping[int, RecordingSession]


Handler = Callable[..., Awaitable[int]]


async def start_recording(archive: Any, request: Any, on_failed: Any = None) -> int:
    """Answer with the id of the subscription."""
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
    """Answer with the id of the subscription."""
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
    """Return where the stream of a request comes from.

    Raises:
        ArchiveError: Nobody knows that place.
    """
    if request.source_location not in set(SourceLocation):
        message = f"unknown source location {request.source_location}"
        raise ArchiveError(message)
    return SourceLocation(request.source_location)


async def stop_recording(archive: Any, request: Any) -> int:
    """Answer that it was stopped."""
    await archive.stop_recording(request.channel, request.stream_id)
    return 0


async def stop_recording_subscription(archive: Any, request: Any) -> int:
    """Answer that it was stopped."""
    await archive.stop_recording_subscription(request.subscription_id)
    return 0


async def replay(archive: Any, request: Any, on_failed: Any = None, **more: int) -> int:
    """Answer with the id of the replay; what it may send unanswered is bounded by `more`."""
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
    """Answer that it was stopped, or had ended."""
    await archive.stop_replay(request.replay_session_id)
    return 0


async def stop_all_replays(archive: Any, request: Any) -> int:
    """Answer that they were stopped."""
    only = None if request.recording_id == -1 else request.recording_id
    await archive.stop_all_replays(only)
    return 0


async def find_last(archive: Any, request: Any) -> int:
    """Answer with the id of the recording, or -1."""
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
    """Answer that it was done."""
    await archive.detach_segments(request.recording_id, request.new_start_position)
    return 0


async def archive_id(archive: Any, request: Any) -> int:
    """Answer with the id of the archive."""
    del request
    return int(archive.archive_id)


async def stop_replication(archive: Any, request: Any) -> int:
    """Refuse: there are none."""
    del archive
    message = f"unknown replication id {request.replication_id}"
    raise ArchiveError(message, code=ArchiveErrorCode.UNKNOWN_REPLICATION)


async def unsupported(archive: Any, request: Any) -> int:
    """Refuse.

    Differs: the official archive copies recordings from others, moves segments between its own, and
    renames their channels.
    """
    del archive
    message = f"this archive does not support {type(request).__name__}"
    raise ArchiveError(message)


def about(name: str, argument: str | None = None) -> Handler:
    """Return what asks about one recording, and answers with a number, -1 where there is none."""

    async def ask(archive: Any, request: Any) -> int:
        more = () if argument is None else (getattr(request, argument),)
        answer = await getattr(archive, name)(request.recording_id, *more)
        return -1 if answer is None else int(answer)

    return ask


HANDLERS: Final[dict[type[Any], Handler]] = {
    requests.ArchiveIdRequest: archive_id,
    requests.StartRecordingRequest: start_recording,
    requests.StartRecordingRequest2: start_recording,
    requests.ExtendRecordingRequest: extend_recording,
    requests.ExtendRecordingRequest2: extend_recording,
    requests.StopRecordingRequest: stop_recording,
    requests.StopRecordingSubscriptionRequest: stop_recording_subscription,
    requests.StopRecordingByIdentityRequest: about("stop_recording_by_identity"),
    requests.ReplayRequest: replay,
    requests.BoundedReplayRequest: replay,
    requests.StopReplayRequest: stop_replay,
    requests.StopAllReplaysRequest: stop_all_replays,
    catalog.FindLastMatchingRecordingRequest: find_last,
    catalog.StartPositionRequest: about("start_position"),
    catalog.StopPositionRequest: about("stop_position"),
    catalog.RecordingPositionRequest: about("recording_position"),
    catalog.MaxRecordedPositionRequest: about("max_recorded_position"),
    catalog.TruncateRecordingRequest: about("truncate", "position"),
    catalog.PurgeRecordingRequest: about("purge_recording"),
    catalog.PurgeSegmentsRequest: about("purge_segments", "new_start_position"),
    catalog.DetachSegmentsRequest: detach_segments,
    catalog.DeleteDetachedSegmentsRequest: about("delete_detached_segments"),
    catalog.AttachSegmentsRequest: about("attach_segments"),
    catalog.MigrateSegmentsRequest: unsupported,
    catalog.UpdateChannelRequest: unsupported,
    catalog.ReplicateRequest: unsupported,
    catalog.TaggedReplicateRequest: unsupported,
    catalog.ReplicateRequest2: unsupported,
    catalog.StopReplicationRequest: stop_replication,
}
"""What each request asks of the archive; listings, tokens and sessions are others' business."""

STARTS: Final = (
    requests.StartRecordingRequest,
    requests.StartRecordingRequest2,
    requests.ExtendRecordingRequest,
    requests.ExtendRecordingRequest2,
)
"""Whoever asks this hears what becomes of the recording."""

LASTING: Final = (*STARTS, requests.ReplayRequest, requests.BoundedReplayRequest)
"""Whoever asks this hears of what goes wrong until it has ended."""

DELETIONS: Final = (
    catalog.TruncateRecordingRequest,
    catalog.PurgeRecordingRequest,
    catalog.PurgeSegmentsRequest,
    catalog.DeleteDetachedSegmentsRequest,
)
"""Whoever asks this hears when it is done."""
