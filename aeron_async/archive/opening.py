"""Opens what an archive has on its disk, and closes it: all that blocks, in two calls."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import attrs

from aeron_async.archive.disk.catalog import Catalog
from aeron_async.archive.disk.checksums import checksum_named
from aeron_async.archive.disk.disk_errors import code_of, reason_of
from aeron_async.archive.disk.files import OsDirectory
from aeron_async.archive.disk.mark_file import MarkFile
from aeron_async.archive.disk.mark_layout import MarkIdentity
from aeron_async.archive.disk.recovery import recover
from aeron_async.archive.disk_threads import finished
from aeron_async.errors import ArchiveError, ArchiveErrorCode, StorageError
from aeron_async.logs import get_logger

if TYPE_CHECKING:
    from aeron_async.archive.context import ArchiveContext
    from aeron_async.archive.disk.files import Directory
    from aeron_async.archive.disk_threads import Disk
    from aeron_async.archive.resources import ArchiveResources

__all__ = ["OpenFiles", "check_room", "close_files", "free_length", "open_files", "opened_files"]

log = get_logger(__name__)


@attrs.frozen
class OpenFiles:
    """What an archive holds open for as long as it lives."""

    directory: Directory
    mark: MarkFile
    catalog: Catalog


def open_files(context: ArchiveContext, directory: Directory | None, now_ms: int) -> OpenFiles:
    """Take the directory, and let recordings end that were going on when its archive died.

    Raises:
        ArchiveBusyError: Another archive holds the directory.
        ArchiveFileError: What is there cannot be read.
        StorageError: The disk is full, or failed.
        OSError: The directory cannot be had.
    """
    try:
        return take_files(context, directory, now_ms)
    except OSError as error:
        if error.filename is not None or error.errno is None or isinstance(error, ArchiveError):
            raise
        path = context.directory if directory is None else directory.path
        message = f"the archive in {path} cannot be opened: {reason_of(error)}"
        raise StorageError(message, code=code_of(error)) from error


def take_files(context: ArchiveContext, directory: Directory | None, now_ms: int) -> OpenFiles:
    """Take the directory, as `open_files`; what the disk says does not name it."""
    checksum = checksum_named(context.record_checksum)
    directory = OsDirectory(context.directory) if directory is None else directory
    mark_directory = None if context.mark_file_dir is None else OsDirectory(context.mark_file_dir)
    mark = MarkFile.open(
        directory,
        MarkIdentity(
            archive_id=context.archive_id,
            control_stream_id=context.control_stream_id,
            local_control_stream_id=context.local_control_stream_id,
            events_stream_id=context.recording_events_stream_id,
            control_channel=context.control_channel or "",
            local_control_channel=context.local_control_channel,
            events_channel=context.recording_events_channel or "",
        ),
        now_ms=now_ms,
        mark_directory=mark_directory,
        sync_level=context.file_sync_level,
    )
    try:
        catalog = Catalog.open(
            directory,
            capacity=context.catalog_capacity,
            checksum=checksum,
            sync_level=context.catalog_file_sync_level,
        )
        try:
            for each in recover(
                directory,
                catalog,
                now_ms=now_ms,
                ends_are_whole=mark.ends_are_whole,
                checksum=checksum,
            ):
                log.warning(
                    "recording_recovered",
                    recording_id=each.recording_id,
                    stop_position=each.stop_position,
                    discarded=each.discarded,
                )
            mark.signal_ready(now_ms)
        except BaseException:
            catalog.close()
            raise
    except BaseException:
        # What was found of it before stays said: whoever comes next, ours or not, can take it.
        mark.close()
        raise
    return OpenFiles(directory, mark, catalog)


async def opened_files(
    disk: Disk, context: ArchiveContext, directory: Directory | None, now_ms: int
) -> OpenFiles:
    """Take the directory, as `open_files`; who is cancelled meanwhile lets go of it again.

    Raises:
        ArchiveBusyError: As `open_files`; likewise the others.
    """
    opening = disk.begin(open_files, context, directory, now_ms)
    try:
        return await finished(opening)
    except BaseException:
        if not opening.cancelled() and opening.exception() is None:
            # Nobody would ever close it, and it keeps all others out of the directory.
            await disk.run(close_files, opening.result())
        raise


def close_files(files: OpenFiles) -> None:
    """Say that the archive has ended in order, and let go of the directory."""
    try:
        files.catalog.close()
    finally:
        files.mark.close()


def free_length(path: str) -> int | None:
    """Return how many bytes may still be written where a directory is; None if nobody knows."""
    try:
        found = os.statvfs(path)
    except (OSError, AttributeError):
        return None
    return found.f_bavail * found.f_frsize


async def check_room(resources: ArchiveResources) -> None:
    """Refuse to record where there is little room left.

    Raises:
        ArchiveError: There is.
    """
    least = resources.context.low_storage_threshold
    free = await resources.disk.run(free_length, resources.directory.path)
    if free is not None and free < least:
        message = (
            f"low storage threshold={least} > usable space={free} in "
            f"{resources.directory.path}: make room, or lower low_storage_threshold"
        )
        raise ArchiveError(message, code=ArchiveErrorCode.STORAGE_SPACE)
