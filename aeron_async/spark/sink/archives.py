"""Archive that a sink task uses: one that runs elsewhere, or one of its own on a path.

With `archive.path`, each partition of each query has an archive of its own, because two attempts
must never share a directory: the second waits for the archive's lock until the first attempt ends
or is killed.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio

from aeron_async.archive.context import ArchiveContext
from aeron_async.archive.control.client import RemoteArchive
from aeron_async.archive.local_archive import LocalArchive
from aeron_async.errors import AeronTimeoutError, ArchiveBusyError, ArchiveError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aeron_async.archive.api import Archive
    from aeron_async.client.aeron import Aeron
    from aeron_async.client.exclusive_publication import ExclusivePublication
    from aeron_async.spark.sink.options import SinkOptions

__all__ = [
    "archive_directory",
    "archive_of_partition",
    "looks",
    "remote_archive",
    "wait_recorded",
    "wait_session_recorded",
]

FIRST_LOOK_S: Final = 0.001
LONGEST_LOOK_S: Final = 0.1
CATALOG_CAPACITY: Final = 4_096


async def looks() -> AsyncIterator[None]:
    """Yield at once, and then at growing intervals."""
    pause_s = FIRST_LOOK_S
    while True:
        yield
        await anyio.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_LOOK_S)


def archive_directory(path: str, query_id: str, partition: int) -> Path:
    """Return the directory of a partition's archive, below `archive.path`."""
    return Path(path) / query_id / str(partition)


@asynccontextmanager
async def archive_of_partition(
    aeron: Aeron, options: SinkOptions, query_id: str, partition: int
) -> AsyncIterator[Archive]:
    """Open, or connect to, the archive that holds the recording of a partition.

    Raises:
        AeronTimeoutError: Another attempt holds the archive, or it does not answer.
    """
    if options.archive_path is None:
        async with remote_archive(aeron, options) as remote:
            yield remote
        return
    directory = archive_directory(options.archive_path, query_id, partition)
    async with await local_archive(aeron, directory, options) as local:
        yield local


def remote_archive(aeron: Aeron, options: SinkOptions) -> RemoteArchive:
    """Return a client of the archive at `archive.control.channel`, as an async context manager."""
    assert options.archive_control_channel is not None
    return RemoteArchive.connect(
        aeron,
        control_channel=options.archive_control_channel,
        control_stream_id=options.archive_control_stream_id,
        response_channel=options.archive_response_channel,
        timeout=options.archive_timeout_s,
    )


async def local_archive(aeron: Aeron, directory: Path, options: SinkOptions) -> LocalArchive:
    """Open an archive as soon as no other attempt holds it."""
    timeout_s = options.timeout_s
    await anyio.Path(directory).mkdir(parents=True, exist_ok=True)
    context = ArchiveContext.from_environment(
        directory=str(directory),
        catalog_capacity=CATALOG_CAPACITY,
        segment_length=options.archive_segment_length,
    )
    with anyio.move_on_after(timeout_s):
        async for _ in looks():
            try:
                return await LocalArchive.open(aeron, context)
            except ArchiveBusyError:
                continue
    message = (
        f"the archive in {directory} is held by another attempt for more than {timeout_s} s: end "
        "that, or raise publishTimeoutMs"
    )
    raise AeronTimeoutError(message)


async def wait_recorded(
    archive: Archive,
    recording_id: int,
    session_id: int,
    position: int,
    *,
    session_before: int | None = None,
    timeout_s: float,
) -> None:
    """Wait until a recording has everything that a session published.

    Args:
        archive: Archive of the recording.
        recording_id: The recording.
        session_id: Session of the publication.
        position: End of the publication, in bytes.
        session_before: Session recorded before; None for a new recording.
        timeout_s: Time limit.

    Raises:
        AeronTimeoutError: The recording did not get there in time.
        ArchiveError: The recording stopped before, or another session records to it.
    """
    with anyio.move_on_after(timeout_s):
        async for _ in looks():
            found = await archive.describe(recording_id)
            if found.session_id == session_before != session_id:
                # The archive receives the new session, but has not begun to extend the recording
                # with it.
                continue
            recorded = await archive.recording_position(recording_id) if found.is_active else None
            if found.session_id == session_id and (recorded or found.stop_position) >= position:
                return
            if found.session_id != session_id or not found.is_active:
                message = (
                    f"recording {recording_id} stopped at {found.stop_position}, session "
                    f"{found.session_id}, before all of session {session_id} up to {position} was "
                    "recorded: another attempt has taken over, or the disk of the archive is full"
                )
                raise ArchiveError(message)
    message = (
        f"recording {recording_id} did not come to {position} within {timeout_s} s: does the "
        "archive keep up? Raise publishTimeoutMs"
    )
    raise AeronTimeoutError(message)


async def wait_session_recorded(
    archive: Archive, publication: ExclusivePublication, *, timeout_s: float
) -> None:
    """Wait until an archive that already records a stream has everything of a publication.

    Raises:
        AeronTimeoutError: The recording did not get there in time, or the stream is not recorded.
        ArchiveError: The recording stopped.
    """
    recording_id = None
    with anyio.move_on_after(timeout_s):
        async for _ in looks():
            recording_id = await archive.find_last(
                channel="", stream_id=publication.stream_id, session_id=publication.session_id
            )
            if recording_id is not None:
                break
    if recording_id is None:
        message = (
            f"no archive records {publication.channel} stream {publication.stream_id} within "
            f"{timeout_s} s: start the recording first, or set waitFor=consumed"
        )
        raise AeronTimeoutError(message)
    await wait_recorded(
        archive,
        recording_id,
        publication.session_id,
        publication.position,
        timeout_s=timeout_s,
    )
