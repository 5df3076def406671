"""An archive in this event loop: records streams into a directory, and replays them.

Source: Aeron `Archive`, `ArchiveConductor`.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final, final
from weakref import WeakSet

from aeron_async.archive.api import (
    ALL_AND_FOLLOW,
    Archive,
    RecordingSubscription,
    SourceLocation,
)
from aeron_async.archive.argument_order import check_aeron_and_context
from aeron_async.archive.arguments import (
    check_flag,
    check_given,
    check_id,
    check_ids,
    check_location,
    check_replayed,
)
from aeron_async.archive.catalog_desk import CatalogDesk
from aeron_async.archive.disk.disk_errors import reason_of
from aeron_async.archive.disk_threads import DiskThreads, finished
from aeron_async.archive.extending import extending_channel
from aeron_async.archive.local_listing import LocalListing
from aeron_async.archive.making_room import MakingRoom
from aeron_async.archive.opening import OpenFiles, close_files, opened_files
from aeron_async.archive.recordings import Recordings
from aeron_async.archive.replay import LocalReplay
from aeron_async.archive.replay_range import ReplayRange
from aeron_async.archive.replays import Replays
from aeron_async.archive.resources import ArchiveResources
from aeron_async.archive.signal_hub import SignalHub
from aeron_async.archive.tasks import Tasks
from aeron_async.client.arguments import check_callable, check_stream_id, publication_uri
from aeron_async.client.opening import Opening
from aeron_async.client.signal import Signal
from aeron_async.errors import ClosedError
from aeron_async.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aeron_async.archive.api import Replay, SignalReader
    from aeron_async.archive.context import ArchiveContext
    from aeron_async.archive.disk.files import Directory
    from aeron_async.archive.disk_threads import Disk
    from aeron_async.client.aeron import Aeron
    from aeron_async.client.exclusive_publication import ExclusivePublication
    from aeron_async.errors import AeronError, ArchiveError

__all__ = ["LocalArchive"]

ALIVE_SECONDS: Final = 1.0

log = get_logger(__name__)


@final
class LocalArchive(LocalListing, Archive):
    """Records and replays here; made by `open`, and closed before its client is."""

    def __init__(
        self, resources: ArchiveResources, files: OpenFiles, *, is_disk_owned: bool
    ) -> None:
        self._resources = resources
        self._files = files
        self._is_disk_owned = is_disk_owned
        self.archive_id = resources.archive_id
        self._recordings = Recordings(resources)
        self.recording_sessions = self._recordings.sessions
        self._replays = Replays(resources, self._recordings)
        self._room = MakingRoom(resources, self._recordings, self._replayed)
        self._iterators: WeakSet[LocalReplay] = WeakSet()
        resources.tasks.start(self._stay_alive(), "aeron-archive-mark-file")
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
        """Open the archive of a directory, and make it if there is none.

        Recordings that were going on when another process died end where their files do.

        Args:
            aeron: A client that has been started; it stays the caller's.
            context: The settings.
            directory: In place of the one that the settings name.
            disk: Where blocking work is done; threads of its own when not given.

        Returns:
            What is awaited for the archive, or entered with `async with` to have it closed in the
            end; either raises:

        Raises:
            ConfigurationError: An argument is something else; at the call.
            ArchiveBusyError: Another archive holds the directory.
            ArchiveFileError: What is there cannot be read.
            StorageError: The disk is full, or failed.
            OSError: The directory cannot be had.
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
            desk=CatalogDesk(files.catalog, disk, path=files.directory.path),
            disk=disk,
            signals=SignalHub(),
            tasks=Tasks(),
            changed=Signal(),
        )
        return cls(resources, files, is_disk_owned=is_disk_owned)

    @property
    def refused_images(self) -> int:
        """Return how many sources were not recorded because there were too many."""
        return self._recordings.refused_images

    # Recording.

    async def recording_subscriptions(self) -> list[RecordingSubscription]:
        """Return what was asked for and has not ended; see `Archive.recording_subscriptions`."""
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
        source_location: SourceLocation = SourceLocation.LOCAL,
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
        source_location: SourceLocation = SourceLocation.LOCAL,
        auto_stop: bool = False,
        on_failed: Callable[[ArchiveError], object] | None = None,
        correlation_id: int = -1,
        control_session_id: int = 0,
    ) -> int:
        """Go on with a recording that has stopped; see `Archive.extend_recording`."""
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
        """Record a stream no more; see `Archive.stop_recording`."""
        self._check_open()
        await self._recordings.stop_channel(channel, stream_id)

    async def stop_recording_subscription(self, subscription_id: int) -> None:
        """Record no more with a subscription; see `Archive.stop_recording_subscription`."""
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

        One that follows never ends by itself but at `to_position`: when the recording stops it
        waits for an extension.
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
        """Publish a recording anew; see `Archive.start_replay`, and `Replays.start`."""
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
            handshake_length=handshake_length,
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

    # What happens.

    def signals(self) -> SignalReader:
        """Return an iterator over what becomes of recordings, from now on."""
        self._check_open()
        return self._resources.signals.stream()

    async def aclose(self) -> None:
        """Stop all recordings and replays, and close the files, cancelled or not.

        Closing twice is closing once; a second caller waits for the first.
        """
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(), name="aeron-archive-close")
        await finished(self._closing)

    async def _close(self) -> None:
        resources = self._resources
        # Whatever fails, the rest is closed.
        async with AsyncExitStack() as stack:
            if self._is_disk_owned:
                stack.push_async_callback(resources.disk.aclose)
            stack.push_async_callback(resources.desk.call, close_files, self._files)
            stack.callback(resources.signals.close)
            for replay in list(self._iterators):
                replay.end(ClosedError(f"the archive of {resources.directory.path} was closed"))
                stack.push_async_callback(replay.aclose)
            stack.push_async_callback(resources.tasks.aclose)
            stack.push_async_callback(self._replays.aclose)
            stack.push_async_callback(self._recordings.aclose)

    def _replayed(self, recording_id: int) -> Iterator[tuple[int, int | None]]:
        """Return for each replay of a recording where it is, and where it ends, in bytes."""
        yield from self._replays.of(recording_id)
        for replay in list(self._iterators):
            if replay.recording_id == recording_id and replay.is_under_way:
                yield replay.position, replay.end_position

    async def _stay_alive(self) -> None:
        """Say every second that the directory is held."""
        resources = self._resources
        while True:
            await asyncio.sleep(ALIVE_SECONDS)
            try:
                now_ms = resources.aeron.clock.epoch_ms()
                await resources.disk.run(self._files.mark.refresh, now_ms)
            except OSError as error:
                log.warning("mark_file_not_written", error=reason_of(error))

    def _check_open(self) -> None:
        if self._closing is not None:
            message = f"the archive of {self._resources.directory.path} is closed"
            raise ClosedError(message)
