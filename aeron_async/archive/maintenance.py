"""Truncating, purging and deleting recordings of an open archive.

Source: Aeron `ArchiveConductor`, `DeleteSegmentsSession`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, final

from aeron_async.archive.api import RecordingSignal, RecordingSignalEvent
from aeron_async.archive.disk import changes
from aeron_async.errors import ArchiveError, ArchiveErrorCode, InvalidPositionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aeron_async.archive.recordings import Recordings
    from aeron_async.archive.resources import ArchiveResources

__all__ = [
    "RecordingMaintenance",
]

Result = TypeVar("Result")


@final
class RecordingMaintenance:
    """Changes recordings, one change at a time.

    Args:
        resources: Resources of the archive.
        recordings: The active recordings.
        replayed: Returns the position and the end position, in bytes, of each replay of a
            recording.
    """

    def __init__(
        self,
        resources: ArchiveResources,
        recordings: Recordings,
        replayed: Callable[[int], Iterable[tuple[int, int | None]]],
    ) -> None:
        self._resources = resources
        self._recordings = recordings
        self._replayed = replayed

    async def truncate(self, recording_id: int, position: int, correlation_id: int) -> int:
        """Discard everything recorded after a position; see `Archive.truncate`."""

        def check() -> None:
            self._check_stopped(recording_id, "truncate")
            for _, end in self._replayed(recording_id):
                if end is None or end > position:
                    message = f"cannot truncate recording {recording_id} with active replay"
                    raise ArchiveError(message)

        count = await self._change(check, changes.truncate, recording_id, position)
        self._deleted(recording_id, position, correlation_id)
        return count

    async def purge_segments(self, recording_id: int, position: int, correlation_id: int) -> int:
        """Delete the segment files before a position; see `Archive.purge_segments`."""
        check = await self._not_replayed(recording_id, position)
        recorded = self._recorded(recording_id)
        count = await self._change(
            check, changes.purge_segments, recording_id, position, recorded_position=recorded
        )
        self._deleted(recording_id, position, correlation_id)
        return count

    async def detach_segments(self, recording_id: int, position: int) -> None:
        """Move the start of a recording forward; see `Archive.detach_segments`."""
        check = await self._not_replayed(recording_id, position)
        recorded = self._recorded(recording_id)
        await self._change(
            check, changes.detach_segments, recording_id, position, recorded_position=recorded
        )

    async def attach_segments(self, recording_id: int) -> int:
        """Move the start of a recording back over detached files; see `Archive.attach_segments`."""
        return await self._change(unchecked, changes.attach_segments, recording_id)

    async def delete_detached_segments(self, recording_id: int, correlation_id: int) -> int:
        """Delete the files before the start; see `Archive.delete_detached_segments`."""
        count = await self._change(unchecked, changes.delete_detached_segments, recording_id)
        start = (await self._resources.catalog.get(recording_id)).start_position
        self._deleted(recording_id, start, correlation_id)
        return count

    async def purge_recording(self, recording_id: int, correlation_id: int) -> int:
        """Delete a recording; see `Archive.purge_recording`."""

        def check() -> None:
            self._check_stopped(recording_id, "purge")
            if any(True for _ in self._replayed(recording_id)):
                message = f"cannot purge recording {recording_id} with active replay"
                raise ArchiveError(message)

        count = await self._change(check, changes.purge_recording, recording_id)
        self._deleted(recording_id, -1, correlation_id)
        return count

    async def _change(
        self,
        check: Callable[[], object],
        function: Callable[..., Result],
        *args: object,
        **keywords: object,
    ) -> Result:
        """Change a recording; the check runs under the catalog's lock and sees all replays."""
        catalog = self._resources.catalog
        result = await catalog.call_checked(
            check, function, self._resources.directory, catalog.blocking, *args, **keywords
        )
        self._recordings.on_changed()
        return result

    def _recorded(self, recording_id: int) -> int | None:
        session = self._recordings.sessions.get(recording_id)
        return None if session is None else session.position

    def _check_stopped(self, recording_id: int, what: str) -> None:
        if recording_id in self._recordings.sessions:
            message = f"cannot {what} active recording {recording_id}: stop it first"
            raise ArchiveError(message, code=ArchiveErrorCode.ACTIVE_RECORDING)

    async def _not_replayed(self, recording_id: int, position: int) -> Callable[[], None]:
        """Return a check that refuses a new start position beyond the position of a replay."""
        descriptor = await self._resources.catalog.get(recording_id)

        def check() -> None:
            for replayed, _ in self._replayed(recording_id):
                base = descriptor.segment_base(replayed)
                if position > base:
                    message = (
                        f"invalid detach: newStartPosition={position} is beyond the file from "
                        f"{base} on, which is being replayed; the nearest valid one is {base}"
                    )
                    raise InvalidPositionError(message, nearest=base)

        return check

    def _deleted(self, recording_id: int, position: int, correlation_id: int) -> None:
        self._resources.signals.tell(
            RecordingSignalEvent(
                recording_id=recording_id,
                subscription_id=-1,
                position=position,
                signal=RecordingSignal.DELETE,
                correlation_id=correlation_id,
            )
        )


def unchecked() -> None:
    """Check nothing: this change is allowed whatever is recorded or replayed."""
