"""An archive in this event loop: it records streams into a directory, and replays them.

Source: Aeron `Archive`, `ArchiveConductor`.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from contextlib import AsyncExitStack
from itertools import islice
from typing import TYPE_CHECKING, Final, Literal, final
from weakref import WeakSet

import attrs

from aeron_async.archive.api import ALL_AND_FOLLOW, Archive, RecordingSubscription, SourceLocation
from aeron_async.archive.arguments import (
    check_aeron_and_context,
    check_channel_part,
    check_flag,
    check_given,
    check_id,
    check_ids,
    check_location,
    check_replayed,
)
from aeron_async.archive.disk.catalog import Catalog
from aeron_async.archive.disk.checksums import checksum_named
from aeron_async.archive.disk.files import OsDirectory, code_of, reason_of
from aeron_async.archive.disk.log_id import read_or_create_log_id
from aeron_async.archive.disk.mark_file import MarkFile, MarkIdentity
from aeron_async.archive.disk.recovery import recover
from aeron_async.archive.disk_access import AsyncCatalog, DiskThreads, finished
from aeron_async.archive.maintenance import RecordingMaintenance
from aeron_async.archive.recording_channels import extending_channel
from aeron_async.archive.recordings import Recordings
from aeron_async.archive.replay import LocalReplay, ReplayRange
from aeron_async.archive.replay_session import Replays
from aeron_async.archive.resources import (
    ArchiveResources,
    FreeSpace,
    handshake_limit,
    log_failed_task,
)
from aeron_async.archive.signals import SignalHub
from aeron_async.client.arguments import check_callable, check_stream_id, publication_uri
from aeron_async.client.opening import Opening
from aeron_async.client.waiters import Notify
from aeron_async.errors import ArchiveError, ClosedError, StorageError
from aeron_async.logs import get_logger
from aeron_async.stats import ArchiveStats, RecordingStats, Table
from aeron_async.tasks import TaskOwner

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from uuid import UUID

    from aeron_async.archive.api import Replay, SignalReader
    from aeron_async.archive.context import ArchiveContext
    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.archive.disk.files import Directory
    from aeron_async.archive.disk_access import Disk
    from aeron_async.archive.recording_session import RecordingSession
    from aeron_async.client.aeron import Aeron
    from aeron_async.client.exclusive_publication import ExclusivePublication
    from aeron_async.errors import AeronError
    from aeron_async.stats import Stats

__all__ = [
    "LocalArchive",
    "LocalListing",
    "OpenFiles",
    "close_files",
    "open_files",
    "opened_files",
]

log: Final = get_logger(__name__)


# The directory.


@attrs.frozen
class OpenFiles:
    """The directory and files that an open archive holds."""

    directory: Directory
    mark: MarkFile
    catalog: Catalog


def open_files(context: ArchiveContext, directory: Directory | None, now_ms: int) -> OpenFiles:
    """Open the directory, and end recordings that were active when its last archive died.

    Raises:
        ArchiveBusyError: Another archive holds the directory.
        ArchiveFileError: The mark file or the catalog cannot be read.
        StorageError: The disk is full, or failed.
        OSError: The directory cannot be opened.
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
    """Open the directory as `open_files` does; errors of the disk do not name it yet."""
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
        # Close the mark file too. Recovered stop positions stay in the catalog for the next
        # archive.
        mark.close()
        raise
    return OpenFiles(directory, mark, catalog)


async def opened_files(
    disk: Disk, context: ArchiveContext, directory: Directory | None, now_ms: int
) -> OpenFiles:
    """Open the directory as `open_files` does; close it again if the caller is cancelled.

    Raises:
        ArchiveBusyError: See `open_files`, also for the other errors.
    """
    opening = disk.begin(open_files, context, directory, now_ms)
    try:
        return await finished(opening)
    except BaseException:
        if not opening.cancelled() and opening.exception() is None:
            # No caller has the result: left open, it would keep every other archive out.
            await disk.run(close_files, opening.result())
        raise


def close_files(files: OpenFiles) -> None:
    """Mark the archive as closed in order, and release the directory."""
    try:
        files.catalog.close()
    finally:
        files.mark.close()


# The archive.


class LocalListing:
    """The methods of `LocalArchive` that list recordings and free disk space."""

    _resources: ArchiveResources
    _recordings: Recordings
    _room: RecordingMaintenance

    @abstractmethod
    def _check_open(self) -> None: ...

    # Listing.

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
        async for each in self._resources.catalog.descriptors(
            from_recording_id, is_wanted=None if is_any else is_wanted
        ):
            yield each

    async def describe(self, recording_id: int) -> RecordingDescriptor:
        """Return the descriptor of a recording; see `Archive.describe`."""
        self._check_open()
        return await self._resources.catalog.get(check_id(recording_id))

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
        catalog = self._resources.catalog
        async for each in catalog.descriptors(min_recording_id, is_wanted=is_wanted):
            found = each.recording_id
        return found

    async def start_position(self, recording_id: int) -> int:
        """Return the position where a recording begins, in bytes."""
        return (await self.describe(recording_id)).start_position

    async def stop_position(self, recording_id: int) -> int | None:
        """Return the position where a recording has stopped, in bytes; None while it is active."""
        descriptor = await self.describe(recording_id)
        return None if descriptor.is_active else descriptor.stop_position

    async def recording_position(self, recording_id: int) -> int | None:
        """Return the recorded position of an active recording, in bytes; None if it has stopped."""
        descriptor = await self.describe(recording_id)
        session = self._recordings.sessions.get(recording_id)
        if session is None and not descriptor.is_active:
            return None
        return self._recordings.recorded_position(descriptor)

    async def max_recorded_position(self, recording_id: int) -> int:
        """Return the position up to which a recording can be replayed, in bytes, active or not."""
        return self._recordings.recorded_position(await self.describe(recording_id))

    async def wait_recorded(self, recording_id: int, position: int) -> int:
        """Wait until a recording has come to a position, or has stopped; return where it is."""
        check_id(position, "position")
        while True:
            session = self._recordings.sessions.get(recording_id)
            if session is None:
                return await self.max_recorded_position(recording_id)
            if session.position >= position:
                return session.position
            await session.progress.wait()

    async def log_id(self) -> UUID:
        """Return the id of this archive's log; the first call creates it, in a file `log-id`.

        Raises:
            ArchiveFileError: The file is damaged.
            StorageError: The disk is full, or failed.
        """
        self._check_open()
        resources = self._resources
        return await resources.catalog.call(read_or_create_log_id, resources.directory)

    # Freeing disk space.

    async def truncate(self, recording_id: int, position: int, *, correlation_id: int = -1) -> int:
        """Discard everything recorded after a position; see `Archive.truncate`."""
        self._check_open()
        return await self._room.truncate(
            check_id(recording_id), check_id(position, "position"), correlation_id
        )

    async def purge_segments(
        self, recording_id: int, new_start_position: int, *, correlation_id: int = -1
    ) -> int:
        """Delete the segment files before a position; see `Archive.purge_segments`."""
        self._check_open()
        return await self._room.purge_segments(
            check_id(recording_id),
            check_id(new_start_position, "new_start_position"),
            correlation_id,
        )

    async def detach_segments(self, recording_id: int, new_start_position: int) -> None:
        """Move the start of a recording forward; see `Archive.detach_segments`."""
        self._check_open()
        await self._room.detach_segments(
            check_id(recording_id), check_id(new_start_position, "new_start_position")
        )

    async def attach_segments(self, recording_id: int) -> int:
        """Move the start of a recording back over detached files; see `Archive.attach_segments`."""
        self._check_open()
        return await self._room.attach_segments(check_id(recording_id))

    async def delete_detached_segments(self, recording_id: int, *, correlation_id: int = -1) -> int:
        """Delete the detached files before the start of a recording; return how many."""
        self._check_open()
        return await self._room.delete_detached_segments(check_id(recording_id), correlation_id)

    async def purge_recording(self, recording_id: int, *, correlation_id: int = -1) -> int:
        """Delete a recording and its files; see `Archive.purge_recording`."""
        self._check_open()
        return await self._room.purge_recording(check_id(recording_id), correlation_id)


def arrived_positions(driver: Stats) -> dict[int, int]:
    """Return up to where streams have arrived, or were published in this driver, by their ids.

    An image of IPC, and that of a spy, has the id of its publication.
    """
    streams = (driver.images, driver.publications)
    return {
        stream_id: position
        for table in streams
        for stream_id, position in zip(
            table.column("registration_id"), table.column("position"), strict=True
        )
    }


ALIVE_SECONDS: Final = 1.0
MAX_RECORDINGS_SHOWN: Final = 256
"""Most recordings in the statistics: those that began first, so that none leaves while it lives."""


@final
class LocalArchive(LocalListing, Archive):
    """An archive in this event loop. `open` makes it; close it before its client."""

    def __init__(
        self, resources: ArchiveResources, files: OpenFiles, *, is_disk_owned: bool
    ) -> None:
        self._resources = resources
        self._files = files
        self._is_disk_owned = is_disk_owned
        self.archive_id: int = resources.archive_id
        self._recordings = Recordings(resources)
        self.recording_sessions: dict[int, RecordingSession] = self._recordings.sessions
        self._replays = Replays(resources, self._recordings)
        self._room = RecordingMaintenance(resources, self._recordings, self._replayed)
        self._iterators: WeakSet[LocalReplay] = WeakSet()
        resources.tasks.start(self._stay_alive(), "aeron-archive-mark-file")
        resources.tasks.start(self._measure_free_space(), "aeron-archive-free-space")
        self._closer = TaskOwner()
        self._closing: asyncio.Future[None] | None = None

    @classmethod
    def open(
        cls,
        aeron: Aeron,
        context: ArchiveContext,
        *,
        directory: Directory | None = None,
        disk: Disk | None = None,
    ) -> Opening[LocalArchive]:
        """Open the archive of a directory, and create the archive if there is none.

        Recordings that were active when another process died end where their segment files end.

        Args:
            aeron: A started client; the archive does not close it.
            context: The settings.
            directory: Used instead of the directory that the settings name.
            disk: Runs blocking disk work; threads of the archive's own if not given.

        Returns:
            An awaitable for the archive, and also an async context manager that closes it at the
                end. Either raises:

        Raises:
            ConfigurationError: An argument has the wrong type; raised by the call itself.
            ArchiveBusyError: Another archive holds the directory.
            ArchiveFileError: The mark file or the catalog cannot be read.
            StorageError: The disk is full, or failed.
            OSError: The directory cannot be opened.
        """
        check_aeron_and_context("LocalArchive.open", aeron, context)
        return Opening(cls._open(aeron, context, directory, disk), "LocalArchive.open")

    @classmethod
    async def _open(
        cls,
        aeron: Aeron,
        context: ArchiveContext,
        directory: Directory | None,
        disk: Disk | None,
    ) -> LocalArchive:
        is_disk_owned = disk is None
        disk = DiskThreads() if disk is None else disk
        try:
            files = await opened_files(disk, context, directory, aeron.clock.epoch_ms())
        except BaseException:
            if is_disk_owned:
                await disk.aclose()
            raise
        resources = ArchiveResources(
            aeron=aeron,
            context=context,
            archive_id=files.mark.archive_id,
            directory=files.directory,
            catalog=AsyncCatalog(files.catalog, disk, path=files.directory.path),
            disk=disk,
            free_space=FreeSpace(files.directory.path, disk, aeron.clock),
            signals=SignalHub(),
            tasks=TaskOwner(log_failed_task),
            changed=Notify(),
        )
        return cls(resources, files, is_disk_owned=is_disk_owned)

    @property
    def refused_images(self) -> int:
        """Return how many sources were not recorded because `max_recorded_images` was reached."""
        return self._recordings.refused_images

    def stats(self, driver: Stats | None = None) -> ArchiveStats:
        """Return the statistics of this moment; `Stats.with_archive` adds them to its driver's.

        It takes some microseconds a recording and no access to the disk: the free bytes are
        measured in a thread, each second and before a recording begins, and have an age.

        Args:
            driver: Those of its driver, of just now. They tell what has arrived for a recording if
                that driver is another process; without them its lag is unknown.

        Raises:
            ClosedError: The archive is closed.
        """
        self._check_open()
        resources, recordings = self._resources, self._recordings
        sessions = recordings.sessions
        arrived = {} if driver is None else arrived_positions(driver)
        shown = [each.stats(arrived) for each in islice(sessions.values(), MAX_RECORDINGS_SHOWN)]
        local_count = sum(each.is_under_way for each in list(self._iterators))
        return ArchiveStats(
            archive_id=self.archive_id,
            free_bytes=resources.free_space.length,
            free_age_ns=resources.free_space.age_ns,
            low_space_limit_bytes=resources.context.low_storage_threshold,
            recording_count=len(resources.catalog.blocking),
            active_count=len(sessions),
            replay_count=len(self._replays) + local_count,
            refused_image_count=recordings.refused_images,
            failed_count=recordings.failed_count,
            recorded_bytes=recordings.recorded_bytes,
            recordings=Table.of(RecordingStats, shown),
        )

    # Recording.

    async def recording_subscriptions(self) -> list[RecordingSubscription]:
        """Return the requests that have not ended; see `Archive.recording_subscriptions`."""
        self._check_open()
        return [
            RecordingSubscription(
                subscription_id=each.subscription_id,
                stream_id=each.stream_id,
                channel=each.stripped_channel,
            )
            for each in self._recordings.requests()
        ]

    async def start_recording(
        self,
        channel: str,
        stream_id: int,
        *,
        source_location: SourceLocation | Literal["local", "remote"] = SourceLocation.LOCAL,
        auto_stop: bool = False,
        on_failed: Callable[[ArchiveError], object] | None = None,
        correlation_id: int = -1,
    ) -> int:
        """Record a stream from now on; see `Archive.start_recording`."""
        self._check_open()
        return await self._recordings.start(
            channel,
            stream_id,
            source_location=check_location(source_location),
            auto_stop=check_flag(auto_stop, "auto_stop"),
            on_failed=check_callable(on_failed, "on_failed"),
            correlation_id=correlation_id,
        )

    async def extend_recording(
        self,
        recording_id: int,
        channel: str,
        stream_id: int,
        *,
        source_location: SourceLocation | Literal["local", "remote"] = SourceLocation.LOCAL,
        auto_stop: bool = False,
        on_failed: Callable[[ArchiveError], object] | None = None,
        correlation_id: int = -1,
        control_session_id: int = 0,
    ) -> int:
        """Extend a stopped recording; see `Archive.extend_recording`."""
        self._check_open()
        return await self._recordings.start(
            channel,
            stream_id,
            source_location=check_location(source_location),
            auto_stop=check_flag(auto_stop, "auto_stop"),
            on_failed=check_callable(on_failed, "on_failed"),
            recording_id=check_id(recording_id),
            correlation_id=correlation_id,
            control_session_id=control_session_id,
        )

    async def extending_publication(
        self, recording_id: int, channel: str, stream_id: int
    ) -> ExclusivePublication:
        """Return a publication that begins where a recording has stopped."""
        self._check_open()
        check_id(recording_id)
        publication_uri(channel, check_stream_id(stream_id))
        descriptor = await self.describe(recording_id)
        return await self._resources.aeron.add_exclusive_publication(
            extending_channel(descriptor, channel), stream_id
        )

    async def stop_recording(self, channel: str, stream_id: int) -> None:
        """Stop recording a stream; see `Archive.stop_recording`."""
        self._check_open()
        await self._recordings.stop_channel(channel, stream_id)

    async def stop_recording_subscription(self, subscription_id: int) -> None:
        """Stop a recording subscription; see `Archive.stop_recording_subscription`."""
        self._check_open()
        await self._recordings.stop_subscription(check_id(subscription_id, "subscription_id"))

    async def stop_recording_by_identity(self, recording_id: int) -> bool:
        """Stop one recording; see `Archive.stop_recording_by_identity`."""
        self._check_open()
        return await self._recordings.stop_identity(check_id(recording_id))

    # Replaying.

    def replay(
        self,
        recording_id: int,
        from_position: int | None = None,
        to_position: int | None = None,
        *,
        follow: bool = False,
    ) -> Replay:
        """Return an iterator over the messages of a recording; see `Archive.replay`.

        A replay that follows ends only at `to_position`: when the recording stops, the replay waits
        for an extension.
        """
        self._check_open()
        check_replayed(recording_id, from_position, to_position, follow=follow)
        extent = ReplayRange(
            self._resources,
            self._recordings,
            recording_id,
            from_position=from_position,
            to_position=to_position,
            follow=follow,
        )
        replay = LocalReplay(self._resources, extent)
        self._iterators.add(replay)
        return replay

    async def start_replay(
        self,
        recording_id: int,
        channel: str,
        stream_id: int,
        *,
        position: int = -1,
        length: int = ALL_AND_FOLLOW,
        limit_counter_id: int | None = None,
        file_io_max_length: int = -1,
        on_failed: Callable[[AeronError], object] | None = None,
        handshake_length: int | None = None,
    ) -> int:
        """Publish a recording on a channel; see `Archive.start_replay` and `Replays.start`."""
        self._check_open()
        check_callable(on_failed, "on_failed")
        check_ids(recording_id=recording_id, position=position, length=length)
        check_given(limit_counter_id=limit_counter_id)
        return await self._replays.start(
            recording_id,
            channel,
            stream_id,
            position=position,
            length=length,
            limit_counter_id=limit_counter_id,
            file_io_max_length=file_io_max_length,
            on_failed=on_failed,
            handshake_length=handshake_limit(self._resources.aeron, handshake_length),
        )

    async def stop_replay(self, replay_session_id: int) -> None:
        """Stop a replay; see `Archive.stop_replay`."""
        self._check_open()
        await self._replays.stop(check_id(replay_session_id, "replay_session_id"))

    async def stop_all_replays(self, recording_id: int | None = None) -> None:
        """Stop all replays, or all of one recording."""
        self._check_open()
        check_given(recording_id=recording_id)
        await self._replays.stop_all(recording_id)

    # Signals.

    def signals(self) -> SignalReader:
        """Return an iterator over the signals of all recordings, from now on."""
        self._check_open()
        return self._resources.signals.stream()

    async def aclose(self) -> None:
        """Stop all recordings and replays, and close the files, even if the caller is cancelled.

        A second caller waits for the first.
        """
        if self._closing is None:
            self._closing = self._closer.start(self._close(), "aeron-archive-close")
        await finished(self._closing)

    async def _close(self) -> None:
        resources = self._resources
        # If one step fails, the stack still runs the others.
        async with AsyncExitStack() as stack:
            if self._is_disk_owned:
                stack.push_async_callback(resources.disk.aclose)
            stack.push_async_callback(resources.catalog.call, close_files, self._files)
            stack.callback(resources.signals.close)
            for replay in list(self._iterators):
                replay.end(ClosedError(f"the archive of {resources.directory.path} was closed"))
                stack.push_async_callback(replay.aclose)
            stack.push_async_callback(resources.tasks.aclose)
            stack.push_async_callback(self._replays.aclose)
            stack.push_async_callback(self._recordings.aclose)

    def _replayed(self, recording_id: int) -> Iterator[tuple[int, int | None]]:
        """Yield the position and the end position, in bytes, of each replay of a recording."""
        yield from self._replays.of(recording_id)
        for replay in list(self._iterators):
            if replay.recording_id == recording_id and replay.is_under_way:
                yield replay.position, replay.end_position

    async def _stay_alive(self) -> None:
        """Refresh the mark file every second, which shows that the directory is in use."""
        resources = self._resources
        while True:
            await asyncio.sleep(ALIVE_SECONDS)
            try:
                now_ms = resources.aeron.clock.epoch_ms()
                await resources.disk.run(self._files.mark.refresh, now_ms)
            except OSError as error:
                log.warning("mark_file_not_written", error=reason_of(error))

    async def _measure_free_space(self) -> None:
        """Measure the free space every second; on its own, for the mark file may be elsewhere."""
        while True:
            await self._resources.free_space.measure()
            await asyncio.sleep(ALIVE_SECONDS)

    def _check_open(self) -> None:
        if self._closing is not None:
            message = f"the archive of {self._resources.directory.path} is closed"
            raise ClosedError(message)
