"""What is asked about the recordings of an archive in this event loop, and about their room."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from aeron_async.archive.arguments import check_channel_part, check_given, check_id, check_ids

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.archive.making_room import MakingRoom
    from aeron_async.archive.recordings import Recordings
    from aeron_async.archive.resources import ArchiveResources

__all__ = ["LocalListing"]


class LocalListing:
    """The part of `LocalArchive` that tells of recordings and makes room."""

    _resources: ArchiveResources
    _recordings: Recordings
    _room: MakingRoom

    @abstractmethod
    def _check_open(self) -> None: ...

    # What is there.

    async def recordings(
        self,
        from_recording_id: int = 0,
        *,
        channel: str = "",
        stream_id: int | None = None,
    ) -> AsyncIterator[RecordingDescriptor]:
        """Iterate over recordings, in the order of their ids; see `Archive.recordings`."""
        self._check_open()
        check_ids(from_recording_id=from_recording_id)
        check_given(stream_id=stream_id)
        check_channel_part(channel)

        def is_wanted(each: RecordingDescriptor) -> bool:
            return channel in each.original_channel and stream_id in (None, each.stream_id)

        is_any = not channel and stream_id is None
        async for each in self._resources.desk.descriptors(
            from_recording_id, is_wanted=None if is_any else is_wanted
        ):
            yield each

    async def describe(self, recording_id: int) -> RecordingDescriptor:
        """Return what is known of a recording; see `Archive.describe`."""
        self._check_open()
        return await self._resources.desk.get(check_id(recording_id))

    async def find_last(
        self, *, channel: str, stream_id: int, session_id: int, min_recording_id: int = 0
    ) -> int | None:
        """Return the id of the last recording that matches, or None."""
        self._check_open()
        check_channel_part(channel)
        check_ids(stream_id=stream_id, session_id=session_id, min_recording_id=min_recording_id)

        def is_wanted(each: RecordingDescriptor) -> bool:
            is_stream = each.stream_id == stream_id and each.session_id == session_id
            return is_stream and channel in each.original_channel

        found = None
        async for each in self._resources.desk.descriptors(min_recording_id, is_wanted=is_wanted):
            found = each.recording_id
        return found

    async def start_position(self, recording_id: int) -> int:
        """Return where a recording begins, in bytes."""
        return (await self.describe(recording_id)).start_position

    async def stop_position(self, recording_id: int) -> int | None:
        """Return where a recording has stopped, in bytes; None while it goes on."""
        descriptor = await self.describe(recording_id)
        return None if descriptor.is_active else descriptor.stop_position

    async def recording_position(self, recording_id: int) -> int | None:
        """Return up to where a recording has been written, in bytes; None when it has stopped."""
        descriptor = await self.describe(recording_id)
        session = self._recordings.sessions.get(recording_id)
        if session is None and not descriptor.is_active:
            return None
        return self._recordings.recorded_position(descriptor)

    async def max_recorded_position(self, recording_id: int) -> int:
        """Return up to where a recording can be replayed, in bytes, whether it goes on or not."""
        return self._recordings.recorded_position(await self.describe(recording_id))

    # Making room.

    async def truncate(self, recording_id: int, position: int, *, correlation_id: int = -1) -> int:
        """Forget what was recorded from a position on; see `Archive.truncate`."""
        self._check_open()
        return await self._room.truncate(
            check_id(recording_id), check_id(position, "position"), correlation_id
        )

    async def purge_segments(
        self, recording_id: int, new_start_position: int, *, correlation_id: int = -1
    ) -> int:
        """Forget whole files before a position; see `Archive.purge_segments`."""
        self._check_open()
        return await self._room.purge_segments(
            check_id(recording_id),
            check_id(new_start_position, "new_start_position"),
            correlation_id,
        )

    async def detach_segments(self, recording_id: int, new_start_position: int) -> None:
        """Let a recording begin later; see `Archive.detach_segments`."""
        self._check_open()
        await self._room.detach_segments(
            check_id(recording_id), check_id(new_start_position, "new_start_position")
        )

    async def attach_segments(self, recording_id: int) -> int:
        """Let a recording begin as early as there are files; see `Archive.attach_segments`."""
        self._check_open()
        return await self._room.attach_segments(check_id(recording_id))

    async def delete_detached_segments(self, recording_id: int, *, correlation_id: int = -1) -> int:
        """Remove the files before the start of a recording; return how many."""
        self._check_open()
        return await self._room.delete_detached_segments(check_id(recording_id), correlation_id)

    async def purge_recording(self, recording_id: int, *, correlation_id: int = -1) -> int:
        """Forget a recording and remove its files; see `Archive.purge_recording`."""
        self._check_open()
        return await self._room.purge_recording(check_id(recording_id), correlation_id)
