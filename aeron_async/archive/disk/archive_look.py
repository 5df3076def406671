"""Read-only access to an archive that is not running.

Invariant: no byte of the directory changes, not even in the mark file.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, final

import attrs

from aeron_async.archive.disk.catalog import CATALOG_NAME, Catalog
from aeron_async.archive.disk.files import OsDirectory
from aeron_async.archive.disk.mark_file import (
    LINK_NAME,
    MARK_FILE_NAME,
    current_boot,
    is_whole,
    mark_directory_of,
    refuse,
    take,
)
from aeron_async.archive.disk.recovery import end_on_disk, segments_by_recording
from aeron_async.archive.disk.segment_scan import ScanBuffer

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterator
    from types import TracebackType

    from aeron_async.archive.disk.checksums import Checksum
    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.archive.disk.files import Directory

__all__ = [
    "ArchiveLook",
    "archive_at",
    "check_not_at_work",
]


def archive_at(path: str | os.PathLike[str], *, hint: str = "") -> OsDirectory:
    """Return the directory of an existing archive; a mistyped path creates none.

    Args:
        path: Path of the directory.
        hint: Added to the error text if the path does not exist.

    Raises:
        FileNotFoundError: There is no archive.
        NotADirectoryError: The path is not a directory.
    """
    place = Path(path)
    if not place.exists():
        message = f"{path} holds no archive: it does not exist{hint}"
        raise FileNotFoundError(message)
    if not place.is_dir():
        message = f"{path} holds no archive: it is not a directory"
        raise NotADirectoryError(message)
    directory = OsDirectory(place, create=False)
    if CATALOG_NAME not in directory.names():
        why = "it is empty" if not any(place.iterdir()) else f"there is no {CATALOG_NAME} in it"
        message = f"{path} holds no archive: {why}"
        raise FileNotFoundError(message)
    return directory


def check_not_at_work(directory: Directory, *, now_ms: int) -> bool:
    """Refuse a directory whose archive is running.

    Returns:
        Whether the last recorded frames cannot be torn; see `MarkFile.ends_are_whole`.

    Raises:
        ArchiveBusyError: An archive holds the directory.
        ArchiveFileError: The mark file is not valid.
        OSError: The disk failed.
    """
    target = mark_directory_of(directory)
    if target.path != directory.path:
        link = directory.open(LINK_NAME)
        try:
            if link.try_lock() is False:
                refuse(directory, None, "holds it now, by a link to its own mark file")
        finally:
            link.close()
    if MARK_FILE_NAME not in {*target.names(), *target.other_kinds()}:
        return False
    boot_id = current_boot()
    file, previous = take(target, now_ms=now_ms, boot_id=boot_id)
    file.close()
    return is_whole(previous, boot_id)


@final
class ArchiveLook:
    """Describes the recordings of an archive that is not running, for checks before a deletion.

    A recording without a stop position, because its archive died, is described with the one that
    opening the archive would give it.

    Args:
        directory: Directory of the archive.
        now_ms: The time, in milliseconds since 1970.
        checksum: Checksum that the archive puts into frames; None for none.

    Raises:
        ArchiveBusyError: An archive holds the directory.
        ArchiveFileError: The mark file or the catalog is not valid.
        OSError: The disk failed.
    """

    def __init__(self, directory: Directory, *, now_ms: int, checksum: Checksum | None) -> None:
        self._directory = directory
        self._checksum = checksum
        self._ends_are_whole = check_not_at_work(directory, now_ms=now_ms)
        self._catalog = Catalog.open_to_read(directory)

    async def describe(self, recording_id: int) -> RecordingDescriptor:
        """Return the descriptor of a recording.

        Raises:
            UnknownRecordingError: No recording has that id.
            ArchiveFileError: Its end cannot be determined.
        """
        descriptor = self._catalog.get(recording_id)
        if not descriptor.is_active:
            return descriptor
        found = end_on_disk(
            self._directory,
            descriptor,
            segments_by_recording(self._directory).get(recording_id, []),
            ScanBuffer(),
            ends_are_whole=self._ends_are_whole,
            checksum=self._checksum,
        )
        return attrs.evolve(descriptor, stop_position=found.stop_position)

    async def max_recorded_position(self, recording_id: int) -> int:
        """Return where a recording ends, in bytes."""
        return (await self.describe(recording_id)).stop_position

    async def recordings(self) -> AsyncIterator[RecordingDescriptor]:
        """Iterate over all recordings."""
        for each in list(self._catalog.ids()):
            yield await self.describe(each)

    async def __aenter__(self) -> ArchiveLook:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._catalog.close()
