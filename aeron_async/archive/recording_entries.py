"""The entries in the catalog of recordings that begin, or go on.

Source: Aeron `ArchiveConductor.startRecordingSession`, `extendRecordingSession`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from aeron_async.archive.disk.changes import clear_behind_stop
from aeron_async.archive.recording_request import check_extension, new_recording
from aeron_async.errors import ArchiveError, ArchiveErrorCode

if TYPE_CHECKING:
    from collections.abc import Container

    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.archive.recording_ends import RecordingEnds
    from aeron_async.archive.recording_request import RecordingRequest
    from aeron_async.archive.resources import ArchiveResources
    from aeron_async.client.image import Image

__all__ = ["RecordingEntries"]


@final
class RecordingEntries:
    """Writes that a recording begins, or goes on.

    Args:
        resources: Of the archive.
        ends: Where recordings have ended that the catalog takes for active.
        active: Ids of the recordings that are written now.

    Attributes:
        extending: Where recordings go on whose session is just about to be, in bytes.
    """

    def __init__(
        self, resources: ArchiveResources, ends: RecordingEnds, active: Container[int]
    ) -> None:
        self._resources = resources
        self._ends = ends
        self._active = active
        self.extending: dict[int, int] = {}

    async def begin(self, request: RecordingRequest, image: Image) -> RecordingDescriptor:
        """Return the entry of a recording, which is new unless one is extended.

        Raises:
            ArchiveError: The image does not go on with what is to be extended.
            StorageError: The disk is full, or failed.
        """
        resources = self._resources
        if request.recording_id is not None:
            return await self._extended(request, request.recording_id, image)
        return await resources.desk.add(
            new_recording(
                request,
                image,
                segment_length=resources.context.segment_length,
                now_ms=resources.aeron.clock.epoch_ms(),
            )
        )

    async def _extended(
        self, request: RecordingRequest, recording_id: int, image: Image
    ) -> RecordingDescriptor:
        stops: list[int] = []
        try:
            descriptor = await self._resources.desk.call(
                self._extend, request, recording_id, image, stops
            )
        except BaseException:
            if stops:
                # Some of it may have been written, and the recording seem to go on.
                await self._ends.write(recording_id, stops[0])
            raise
        self.extending[recording_id] = image.join_position
        return descriptor

    def _extend(
        self, request: RecordingRequest, recording_id: int, image: Image, stops: list[int]
    ) -> RecordingDescriptor:
        """Let an entry seem to go on, while nobody else truncates, purges or extends it.

        Args:
            request: That asked for it.
            recording_id: Of the recording.
            image: That it is to go on with.
            stops: Gets where it had stopped, as soon as that may be written over.
        """
        catalog = self._resources.desk.catalog
        descriptor = catalog.get(recording_id)
        if recording_id in self._active or descriptor.is_active:
            message = f"cannot extend active recording {recording_id}"
            raise ArchiveError(message, code=ArchiveErrorCode.ACTIVE_RECORDING)
        check_extension(descriptor, image)
        # What a truncation left when its archive died would lie behind what is recorded now.
        clear_behind_stop(self._resources.directory, catalog, recording_id)
        stops.append(descriptor.stop_position)
        self._ends.forget(recording_id)
        return catalog.update(
            recording_id,
            control_session_id=request.control_session_id,
            correlation_id=max(request.correlation_id, 0),
            stop_timestamp_ms=-1,
            session_id=image.session_id,
            stop_position=-1,
        )

    async def give_up(self, recording_id: int, position: int) -> None:
        """Write that nothing is recorded: it is in the catalog, and would seem to go on."""
        self.extending.pop(recording_id, None)
        await self._ends.write(recording_id, position)
