"""What a client asks about the recordings that an archive elsewhere has, and about their room."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Final

from aeron_async.archive.arguments import check_channel_part, check_given, check_id, check_ids
from aeron_async.archive.control.catalog_requests import (
    AttachSegmentsRequest,
    DeleteDetachedSegmentsRequest,
    DetachSegmentsRequest,
    FindLastMatchingRecordingRequest,
    ListRecordingRequest,
    ListRecordingsForUriRequest,
    ListRecordingsRequest,
    ListRecordingSubscriptionsRequest,
    MaxRecordedPositionRequest,
    PurgeRecordingRequest,
    PurgeSegmentsRequest,
    RecordingPositionRequest,
    StartPositionRequest,
    StopPositionRequest,
    TruncateRecordingRequest,
)
from aeron_async.archive.control.messages import (
    RecordingDescriptorMessage,
    RecordingSubscriptionDescriptor,
)
from aeron_async.archive.control.refusals import unknown_recording
from aeron_async.archive.disk.descriptor import RecordingDescriptor
from aeron_async.archive.values import RecordingSubscription

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aeron_async.archive.control.connection import ControlConnection
    from aeron_async.archive.control.requests import Request

__all__ = ["RemoteListing", "descriptor_of"]

PAGE_LENGTH: Final = 64
"""Recordings that are asked for at once."""


class RemoteListing:
    """The part of `RemoteArchive` that asks about recordings and makes room."""

    @property
    @abstractmethod
    def connection(self) -> ControlConnection:
        """Return the session with the archive."""

    @abstractmethod
    async def _ask(self, kind: type[Request], **fields: Any) -> int: ...

    async def recordings(
        self,
        from_recording_id: int = 0,
        *,
        channel: str = "",
        stream_id: int | None = None,
    ) -> AsyncIterator[RecordingDescriptor]:
        """Iterate over recordings; see `Archive.recordings`."""
        check_ids(from_recording_id=from_recording_id)
        check_given(stream_id=stream_id)
        check_channel_part(channel)
        kind: type[Request] = ListRecordingsRequest
        fields: dict[str, Any] = {}
        if stream_id is not None:
            kind = ListRecordingsForUriRequest
            fields = {"channel": channel, "stream_id": stream_id}
        last = None
        while last is None:
            pieces, last = await self.connection.list_pieces(
                kind,
                count=PAGE_LENGTH,
                from_recording_id=from_recording_id,
                record_count=PAGE_LENGTH,
                **fields,
            )
            for piece in pieces:
                descriptor = descriptor_of(piece)
                from_recording_id = descriptor.recording_id + 1
                if channel in descriptor.original_channel:
                    yield descriptor

    async def recording_subscriptions(self) -> list[RecordingSubscription]:
        """Return what was asked to be recorded; see `Archive.recording_subscriptions`."""
        found: list[RecordingSubscription] = []
        last = None
        while last is None:
            pieces, last = await self.connection.list_pieces(
                ListRecordingSubscriptionsRequest,
                count=PAGE_LENGTH,
                pseudo_index=len(found),
                subscription_count=PAGE_LENGTH,
                apply_stream_id=0,
                stream_id=0,
                channel="",
            )
            found.extend(map(subscription_of, pieces))
        return found

    async def describe(self, recording_id: int) -> RecordingDescriptor:
        """Return what is known of a recording; see `Archive.describe`."""
        check_id(recording_id)
        pieces, _ = await self.connection.list_pieces(
            ListRecordingRequest, count=1, recording_id=recording_id
        )
        if not pieces:
            raise unknown_recording(recording_id)
        return descriptor_of(pieces[0])

    async def find_last(
        self, *, channel: str, stream_id: int, session_id: int, min_recording_id: int = 0
    ) -> int | None:
        """Return the id of the last recording that matches, or None."""
        found = await self._ask(
            FindLastMatchingRecordingRequest,
            channel=check_channel_part(channel),
            stream_id=stream_id,
            session_id=session_id,
            min_recording_id=min_recording_id,
        )
        return None if found < 0 else found

    async def start_position(self, recording_id: int) -> int:
        """Return where a recording begins, in bytes."""
        return await self._ask(StartPositionRequest, recording_id=recording_id)

    async def stop_position(self, recording_id: int) -> int | None:
        """Return where a recording has stopped, in bytes; None while it goes on."""
        position = await self._ask(StopPositionRequest, recording_id=recording_id)
        return None if position < 0 else position

    async def recording_position(self, recording_id: int) -> int | None:
        """Return up to where a recording has been written, in bytes; None when it has stopped."""
        position = await self._ask(RecordingPositionRequest, recording_id=recording_id)
        return None if position < 0 else position

    async def max_recorded_position(self, recording_id: int) -> int:
        """Return up to where a recording can be replayed, in bytes, whether it goes on or not."""
        return await self._ask(MaxRecordedPositionRequest, recording_id=recording_id)

    # Making room.

    async def truncate(self, recording_id: int, position: int) -> int:
        """Forget what was recorded from a position on; see `Archive.truncate`."""
        return await self._ask(
            TruncateRecordingRequest, recording_id=recording_id, position=position
        )

    async def purge_segments(self, recording_id: int, new_start_position: int) -> int:
        """Forget whole files before a position; see `Archive.purge_segments`."""
        return await self._ask(
            PurgeSegmentsRequest, recording_id=recording_id, new_start_position=new_start_position
        )

    async def detach_segments(self, recording_id: int, new_start_position: int) -> None:
        """Let a recording begin later; see `Archive.detach_segments`."""
        await self._ask(
            DetachSegmentsRequest, recording_id=recording_id, new_start_position=new_start_position
        )

    async def attach_segments(self, recording_id: int) -> int:
        """Let a recording begin earlier; see `Archive.attach_segments`."""
        return await self._ask(AttachSegmentsRequest, recording_id=recording_id)

    async def delete_detached_segments(self, recording_id: int) -> int:
        """Remove the files before the start of a recording; return how many."""
        return await self._ask(DeleteDetachedSegmentsRequest, recording_id=recording_id)

    async def purge_recording(self, recording_id: int) -> int:
        """Forget a recording and remove its files; see `Archive.purge_recording`."""
        return await self._ask(PurgeRecordingRequest, recording_id=recording_id)


def subscription_of(message: object) -> RecordingSubscription:
    """Return what an archive tells of a subscription that records."""
    assert isinstance(message, RecordingSubscriptionDescriptor), "listings have no other pieces"
    return RecordingSubscription(
        subscription_id=message.subscription_id,
        stream_id=message.stream_id,
        channel=message.stripped_channel,
    )


def descriptor_of(message: object) -> RecordingDescriptor:
    """Return what an archive tells of a recording."""
    assert isinstance(message, RecordingDescriptorMessage), "listings have no other pieces"
    return RecordingDescriptor(
        recording_id=message.recording_id,
        start_position=message.start_position,
        stop_position=message.stop_position,
        start_timestamp_ms=message.start_timestamp,
        stop_timestamp_ms=message.stop_timestamp,
        initial_term_id=message.initial_term_id,
        term_length=message.term_buffer_length,
        segment_length=message.segment_file_length,
        mtu_length=message.mtu_length,
        session_id=message.session_id,
        stream_id=message.stream_id,
        stripped_channel=message.stripped_channel,
        original_channel=message.original_channel,
        source_identity=message.source_identity,
    )
