"""Recordings: requests to record, their catalog entries, and one session for each image.

Source: Aeron `ArchiveConductor.startRecordingSession`, `extendRecordingSession`.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final, final

import attrs

from aeron_async.archive.api import RecordingSignal, RecordingSignalEvent, SourceLocation
from aeron_async.archive.disk.changes import clear_behind_stop
from aeron_async.archive.disk.descriptor import ACTIVE, RecordingDescriptor
from aeron_async.archive.recording_channels import (
    extending_channel,
    recording_key,
    stripped_channel,
)
from aeron_async.archive.recording_session import open_session
from aeron_async.archive.stalled_recordings import StalledRecordingWarner
from aeron_async.client.arguments import check_stream_id, subscription_uri
from aeron_async.errors import (
    AeronError,
    ArchiveError,
    ArchiveErrorCode,
    ClosedError,
    UnknownRecordingError,
)
from aeron_async.logs import get_logger, within
from aeron_async.protocol.channel_uri import ChannelUri, Media

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from aeron_async.archive.recording_session import RecordingSession
    from aeron_async.archive.resources import ArchiveResources
    from aeron_async.client.image import Image
    from aeron_async.client.subscription import Subscription

__all__ = [
    "RecordingEnds",
    "RecordingEntries",
    "RecordingRequest",
    "Recordings",
    "check_extension",
    "check_room",
    "new_recording",
    "pass_over",
]


# Requests to record.


@attrs.define(eq=False, kw_only=True)
class RecordingRequest:
    """A request to record, with its subscription.

    Attributes:
        key: Equal for two requests that would record the same stream.
        original_channel: Channel as the caller gave it.
        stripped_channel: Channel as the catalog stores it.
        recording_id: Recording to be extended; None if each image starts a recording of its own.
        auto_stop: Whether the request ends with its first image.
        correlation_id: Correlation id of the request.
        control_session_id: Control session that asked for an extension.
        subscription: Subscription that records; None until the driver has added it.
        tasks: One task for each image of the subscription.
        active_count: How many of these tasks record, or are about to.
        is_lacking: Whether an image was not recorded, or not completely.
        is_stopping: Whether the request was stopped: only data that has arrived is still recorded.
        error: First reason why less was recorded than requested.
        on_failed: Called with each such reason.
    """

    key: str
    stream_id: int
    original_channel: str
    stripped_channel: str
    recording_id: int | None
    auto_stop: bool
    correlation_id: int
    control_session_id: int
    subscription: Subscription | None = None
    tasks: list[asyncio.Task[None]] = attrs.field(factory=list)
    active_count: int = 0
    is_lacking: bool = False
    is_stopping: bool = False
    error: ArchiveError | None = None
    on_failed: Callable[[ArchiveError], object] | None = None

    def fail(self, error: ArchiveError | None) -> None:
        """Store why less was recorded than requested, and call `on_failed`."""
        if error is None:
            return
        self.error = self.error or error
        if self.on_failed is not None:
            self.on_failed(error)

    @property
    def subscription_id(self) -> int:
        """Return the id that stops this request; -1 until the driver has added the subscription."""
        return -1 if self.subscription is None else self.subscription.registration_id

    def add(self, task: asyncio.Task[None]) -> None:
        """Add the task that records one more image."""
        self.tasks.append(task)
        self.active_count += 1
        if not self.auto_stop:
            task.add_done_callback(self.tasks.remove)


def new_recording(
    request: RecordingRequest, image: Image, *, segment_length: int, now_ms: int
) -> RecordingDescriptor:
    """Return the catalog entry of a new recording, still without its id.

    Args:
        request: The request to record.
        image: Image to be recorded.
        segment_length: As configured, in bytes; raised to the term length if that is longer.
        now_ms: The time, in milliseconds since 1970.
    """
    return RecordingDescriptor(
        recording_id=0,
        start_position=image.join_position,
        start_timestamp_ms=now_ms,
        initial_term_id=image.initial_term_id,
        term_length=image.term_length,
        segment_length=max(segment_length, image.term_length),
        mtu_length=image.mtu_length,
        session_id=image.session_id,
        stream_id=image.stream_id,
        stripped_channel=request.stripped_channel,
        original_channel=request.original_channel,
        source_identity=image.source_identity,
    )


def check_extension(descriptor: RecordingDescriptor, image: Image) -> None:
    """Refuse an image that does not begin where the recording stopped.

    Raises:
        ArchiveError: The join position, initial term id, term length or MTU differs.
    """
    for name, found, wanted in (
        ("joinPosition", image.join_position, descriptor.stop_position),
        ("initialTermId", image.initial_term_id, descriptor.initial_term_id),
        ("termBufferLength", image.term_length, descriptor.term_length),
        ("mtuLength", image.mtu_length, descriptor.mtu_length),
    ):
        if found != wanted:
            message = (
                f"cannot extend recording {descriptor.recording_id} image.{name}={found} not "
                f"equal to the recording's {wanted}: publish with `extending_publication`, or on "
                f"{extending_channel(descriptor, descriptor.original_channel)}"
            )
            raise ArchiveError(message, code=ArchiveErrorCode.INVALID_EXTENSION)


async def pass_over(image: Image, request: RecordingRequest) -> None:
    """Consume an image without recording it, so that its publisher is not blocked.

    Differs: Aeron consumes nothing, and so blocks the publisher of such an image.
    """
    while not (request.is_stopping or image.is_closed or image.is_end_of_stream):
        block, padding = image._peek_block(image.position, image.term_length)
        if len(block):
            image._take(image.position + len(block) + padding)
            await asyncio.sleep(0)
        else:
            await image.subscription._wait_for_progress()


# Stop positions that the catalog does not hold yet.

TRY_AGAIN_SECONDS: Final = 1.0

log: Final = get_logger(__name__)


@final
class RecordingEnds:
    """Stop positions of recordings that are still active in the catalog.

    Args:
        resources: Resources of the archive.
        on_written: Called after a delayed write of a stop position has ended.
    """

    def __init__(self, resources: ArchiveResources, on_written: Callable[[], object]) -> None:
        self._resources = resources
        self._on_written = on_written
        self._positions: dict[int, int] = {}

    def position(self, recording_id: int) -> int | None:
        """Return the stop position of a recording that the catalog still lacks; else None."""
        return self._positions.get(recording_id)

    def forget(self, recording_id: int) -> None:
        """Drop the pending stop position of a recording that is being extended."""
        self._positions.pop(recording_id, None)

    async def write(self, recording_id: int, position: int) -> ArchiveError | None:
        """Write a stop position to the catalog, now or as soon as the disk accepts it.

        Returns:
            Why it could not be written now, or None. If it is never written, recovery derives it
                from the segment files when the archive is opened again.
        """
        now_ms = self._resources.aeron.clock.epoch_ms()
        self._positions[recording_id] = position
        try:
            await self._try_writing(recording_id, position, now_ms)
        except ArchiveError as error:
            fields = {"recording_id": recording_id, "position": position}
            log.error("stop_not_written", error=str(error), **fields)  # noqa: TRY400 - a traceback adds nothing
            self._resources.tasks.start(
                self._write_later(recording_id, position, now_ms),
                f"aeron-archive-end-of-recording-{recording_id}",
            )
            return error
        return None

    async def _write_later(self, recording_id: int, position: int, now_ms: int) -> None:
        while self._positions.get(recording_id) == position:
            await asyncio.sleep(TRY_AGAIN_SECONDS)
            with suppress(ArchiveError):
                await self._try_writing(recording_id, position, now_ms)
        self._on_written()

    async def _try_writing(self, recording_id: int, position: int, now_ms: int) -> None:
        await self._resources.catalog.call(self._write, recording_id, position, now_ms)
        if self._positions.get(recording_id) == position:
            # An extension may have ended during the await; its stop position is still to be
            # written.
            del self._positions[recording_id]

    def _write(self, recording_id: int, position: int, now_ms: int) -> None:
        """Write a stop position, under the lock of the catalog, if it is still wanted."""
        catalog = self._resources.catalog.blocking
        # A write that reported a failure may have succeeded, and the entry may have changed since.
        if (
            self._positions.get(recording_id) == position
            and recording_id in catalog
            and catalog.get(recording_id).stop_position in (ACTIVE, position)
        ):
            catalog.update(recording_id, stop_position=position, stop_timestamp_ms=now_ms)


# Catalog entries.


@final
class RecordingEntries:
    """Writes catalog entries for recordings that start or are extended.

    Args:
        resources: Resources of the archive.
        ends: Stop positions that the catalog does not hold yet.
        active: Ids of the recordings that have a session.

    Attributes:
        extending: Join positions of extensions whose session is not open yet, in bytes, by
            recording id.
    """

    def __init__(
        self, resources: ArchiveResources, ends: RecordingEnds, active: Container[int]
    ) -> None:
        self._resources = resources
        self._ends = ends
        self._active = active
        self.extending: dict[int, int] = {}

    async def begin(self, request: RecordingRequest, image: Image) -> RecordingDescriptor:
        """Return the catalog entry for an image: a new one, or that of the extended recording.

        Raises:
            ArchiveError: The image does not begin where the extended recording stopped.
            StorageError: The disk is full, or failed.
        """
        resources = self._resources
        if request.recording_id is not None:
            return await self._extended(request, request.recording_id, image)
        return await resources.catalog.add(
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
            descriptor = await self._resources.catalog.call(
                self._extend, request, recording_id, image, stops
            )
        except BaseException:
            if stops:
                # The entry may be partly written: without its stop position it would look active.
                await self._ends.write(recording_id, stops[0])
            raise
        self.extending[recording_id] = image.join_position
        return descriptor

    def _extend(
        self, request: RecordingRequest, recording_id: int, image: Image, stops: list[int]
    ) -> RecordingDescriptor:
        """Mark an entry as active again, under the lock of the catalog.

        Args:
            request: The request to extend.
            recording_id: Id of the recording.
            image: Image that extends it.
            stops: Receives the old stop position just before the entry is overwritten.
        """
        catalog = self._resources.catalog.blocking
        descriptor = catalog.get(recording_id)
        if recording_id in self._active or descriptor.is_active:
            message = f"cannot extend active recording {recording_id}"
            raise ArchiveError(message, code=ArchiveErrorCode.ACTIVE_RECORDING)
        check_extension(descriptor, image)
        # If the archive died during a truncation, old frames remain behind the stop position and
        # would lie behind the newly recorded ones.
        clear_behind_stop(self._resources.directory, catalog, recording_id)
        stops.append(descriptor.stop_position)
        self._ends.forget(recording_id)
        return catalog.update(
            recording_id,
            control_session_id=request.control_session_id,
            # Never 0, which a recording has that was not extended: readers tell by that.
            correlation_id=max(request.correlation_id, 1),
            stop_timestamp_ms=-1,
            session_id=image.session_id,
            stop_position=-1,
        )

    async def give_up(self, recording_id: int, position: int) -> None:
        """Write the stop position of a recording whose session could not be opened.

        Without it the entry in the catalog would look active.
        """
        self.extending.pop(recording_id, None)
        await self._ends.write(recording_id, position)


async def check_room(resources: ArchiveResources) -> None:
    """Refuse to record if the disk has too little free space.

    Raises:
        ArchiveError: Free space is below `low_storage_threshold`.
    """
    least = resources.context.low_storage_threshold
    free = await resources.free_space.measure()
    if free is not None and free < least:
        message = (
            f"low storage threshold={least} > usable space={free} in "
            f"{resources.directory.path}: make room, or lower low_storage_threshold"
        )
        raise ArchiveError(message, code=ArchiveErrorCode.STORAGE_SPACE)


# All recordings of one archive.


@final
class Recordings:
    """All active recordings of one archive.

    Attributes:
        sessions: Recording sessions by recording id.
        generation: Counts starts and stops, so that a reader notices a change.
        refused_images: Sources that were not recorded because `max_recorded_images` was reached.
        failed_count: Recordings that ended too early because the disk failed.
    """

    def __init__(self, resources: ArchiveResources) -> None:
        self._resources = resources
        self._requests: dict[str, RecordingRequest] = {}
        self.generation: int = 0
        self.refused_images: int = 0
        self.failed_count: int = 0
        self._ended_bytes = 0
        self._image_count = 0
        self.sessions: dict[int, RecordingSession] = {}
        self._stopping: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._ends = RecordingEnds(resources, self.on_changed)
        self._entries = RecordingEntries(resources, self._ends, self.sessions)
        # Remote senders can cause these lines, so they have a log budget.
        self._peer_log = within(resources.aeron.driver.conductor.log_budget, log)
        driver = resources.aeron.driver
        hint_ns, budget = driver.context.waiting_hint_ns, driver.conductor.log_budget
        self._hints = StalledRecordingWarner(
            resources.signals, hint_ns=hint_ns, is_elsewhere=False, log_budget=budget
        )

    @property
    def recorded_bytes(self) -> int:
        """Return how much was written since the archive was opened, in bytes."""
        return self._ended_bytes + sum(each.recorded_bytes for each in self.sessions.values())

    def recorded_position(self, descriptor: RecordingDescriptor) -> int:
        """Return the position up to which a recording is written, active or not."""
        session = self.sessions.get(descriptor.recording_id)
        if session is not None:
            return session.position
        if not descriptor.is_active:
            return descriptor.stop_position
        end = self._ends.position(descriptor.recording_id)
        if end is not None:
            return end
        # The entry is in the catalog, but its session is not open yet.
        return self._entries.extending.get(descriptor.recording_id, descriptor.start_position)

    def is_beginning(self, descriptor: RecordingDescriptor) -> bool:
        """Return whether a recording is in the catalog, but its session is not open yet."""
        recording_id = descriptor.recording_id
        is_ended = not descriptor.is_active or self._ends.position(recording_id) is not None
        return not is_ended and recording_id not in self.sessions

    def on_changed(self) -> None:
        """Wake the replays that follow a recording."""
        self.generation += 1
        self._resources.changed.notify()

    # Starting a recording.

    async def start(
        self,
        channel: str | ChannelUri,
        stream_id: int,
        *,
        source_location: SourceLocation,
        auto_stop: bool,
        recording_id: int | None = None,
        correlation_id: int = -1,
        control_session_id: int = 0,
        on_failed: Callable[[ArchiveError], object] | None = None,
    ) -> int:
        """Record a stream, and return the id of the subscription; see `Archive.start_recording`."""
        uri = subscription_uri(channel, check_stream_id(stream_id))
        await self._check_may_start(recording_id, stream_id)
        # No await from here until the request is registered: another request may have started
        # during the await above.
        self._check_open()
        self._check_count()
        key = recording_key(uri, stream_id)
        if key in self._requests:
            message = (
                f"recording exists for streamId={stream_id} channel={channel}: stop it first, or "
                "let one request record all its sources"
            )
            raise ArchiveError(message, code=ArchiveErrorCode.ACTIVE_SUBSCRIPTION)
        request = self._requests[key] = RecordingRequest(
            key=key,
            stream_id=stream_id,
            original_channel=str(channel),
            stripped_channel=stripped_channel(uri),
            recording_id=recording_id,
            auto_stop=auto_stop,
            correlation_id=correlation_id,
            control_session_id=control_session_id,
            on_failed=on_failed,
        )
        try:
            await self._subscribe(request, source_location, uri)
        except BaseException:
            self._requests.pop(key, None)
            raise
        subscription = request.subscription
        return self._hints.expect(
            request.subscription_id,
            channel,
            stream_id,
            source_location,
            explain=None if subscription is None else subscription._explain,
        )

    async def _subscribe(
        self, request: RecordingRequest, source_location: SourceLocation, uri: ChannelUri
    ) -> None:
        is_spy = source_location is SourceLocation.LOCAL and uri.media is Media.UDP
        wanted = ChannelUri.parse(request.stripped_channel).replace(is_spy=is_spy)
        early: list[Image] = []

        def on_image(image: Image) -> None:
            # Images that exist already are announced before `add_subscription` returns.
            if request.subscription is None:
                early.append(image)
            else:
                self._on_image(request, image)

        request.subscription = await self._resources.aeron.add_subscription(
            wanted, request.stream_id, on_available_image=on_image
        )
        if request.is_stopping:
            self._close_subscription(request)
            self._check_open()
        for image in early:
            self._on_image(request, image)

    def _check_open(self) -> None:
        if self._is_closed:
            message = f"the archive of {self._resources.directory.path} is closed"
            raise ClosedError(message)

    def _check_count(self) -> None:
        limit = self._resources.context.max_concurrent_recordings
        if max(len(self.sessions), len(self._requests)) >= limit:
            message = (
                f"max concurrent recordings reached {limit}: raise max_concurrent_recordings, "
                "or stop some"
            )
            raise ArchiveError(message, code=ArchiveErrorCode.MAX_RECORDINGS)

    async def _check_may_start(self, recording_id: int | None, stream_id: int) -> None:
        if recording_id is not None:
            descriptor = await self._resources.catalog.get(recording_id)
            if descriptor.stream_id != stream_id:
                # The official archive answers the same: no recording has that id and that stream.
                message = (
                    f"cannot extend recording {recording_id} with streamId={stream_id} for "
                    f"existing streamId={descriptor.stream_id}"
                )
                raise UnknownRecordingError(message)
            if recording_id in self.sessions:
                message = f"cannot extend active recording {recording_id} streamId={stream_id}"
                raise ArchiveError(message, code=ArchiveErrorCode.ACTIVE_RECORDING)
        await check_room(self._resources)

    # Stopping a recording.

    async def stop_channel(self, channel: str | ChannelUri, stream_id: int) -> None:
        """Stop the request with that channel and stream."""
        uri = subscription_uri(channel, check_stream_id(stream_id))
        request = self._requests.get(recording_key(uri, stream_id))
        if request is None or request.subscription is None:
            message = f"no recording found for streamId={stream_id} channel={channel}"
            raise ArchiveError(message, code=ArchiveErrorCode.UNKNOWN_SUBSCRIPTION)
        await self._stop(request)

    async def stop_subscription(self, subscription_id: int) -> None:
        """Stop the request with that subscription id."""
        for request in self._requests.values():
            if request.subscription_id == subscription_id:
                await self._stop(request)
                return
        message = f"no recording subscription found for {subscription_id}"
        raise ArchiveError(message, code=ArchiveErrorCode.UNKNOWN_SUBSCRIPTION)

    async def stop_identity(self, recording_id: int) -> bool:
        """Stop the subscription that records one recording; return whether there was one."""
        if recording_id not in self._resources.catalog:
            message = f"unknown recording id: {recording_id}"
            raise UnknownRecordingError(message)
        session = self.sessions.get(recording_id)
        if session is None:
            return False
        await self.stop_subscription(session.subscription.registration_id)
        return True

    async def _stop(self, request: RecordingRequest) -> None:
        """Stop a request even if the caller is cancelled, and raise the error of its recording.

        Differs: Aeron stops at its current position; here data that has arrived is still recorded.
        """
        self._requests.pop(request.key, None)
        name = f"aeron-archive-stop-{request.subscription_id}"
        task = self._resources.tasks.start(self._finish(request), name)
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)
        await asyncio.shield(task)
        if request.error is not None:
            raise request.error

    async def _finish(self, request: RecordingRequest) -> None:
        aeron = self._resources.aeron
        with suppress(AeronError):
            # Else the driver is gone, and the recording ends with what has come.
            await aeron.driver.conductor.catch_up(aeron.client_id)
        request.is_stopping = True
        for session in self._sessions_of(request):
            session.stop()
        if request.subscription is not None:
            request.subscription._progress.notify()
        if request.tasks:
            await asyncio.wait(request.tasks)
        self._close_subscription(request)

    async def aclose(self) -> None:
        """Stop all recordings, and refuse new ones."""
        self._is_closed = True
        self._hints.close()
        for request in list(self._requests.values()):
            try:
                await self._stop(request)
            except ArchiveError as error:
                log.warning("recording_not_begun", error=str(error))
        if self._stopping:
            # Wait also for requests that other callers are stopping, so that these are recorded to
            # their end.
            await asyncio.wait(self._stopping)

    def requests(self) -> list[RecordingRequest]:
        """Return the requests that have a subscription and have not ended."""
        return [each for each in self._requests.values() if each.subscription is not None]

    def _sessions_of(self, request: RecordingRequest) -> list[RecordingSession]:
        return [
            each for each in self.sessions.values() if each.subscription is request.subscription
        ]

    def _close_subscription(self, request: RecordingRequest) -> None:
        self._requests.pop(request.key, None)
        self._hints.forget(request.subscription_id)
        if request.subscription is not None:
            request.subscription.close()

    # Images.

    def _on_image(self, request: RecordingRequest, image: Image) -> None:
        if request.is_stopping or (request.auto_stop and request.tasks):
            return
        name = f"aeron-archive-recording-{image.session_id}"
        request.add(self._resources.tasks.start(self._record(request, image), name))

    async def _record(self, request: RecordingRequest, image: Image) -> None:
        """Record one image; an image that cannot be recorded does not affect the others."""
        try:
            is_whole = await self._record_whole(request, image)
        finally:
            request.active_count -= 1
        if request.auto_stop or (request.is_lacking and not request.active_count):
            # A new request for the stream then receives the images that were passed over.
            self._close_subscription(request)
        elif not is_whole:
            await pass_over(image, request)

    async def _record_whole(self, request: RecordingRequest, image: Image) -> bool:
        """Record one image from beginning to end; return whether it was recorded completely.

        Differs: Aeron records any number of images at once; here each may cost a thread.
        """
        limit = self._resources.context.max_recorded_images
        if self._image_count >= limit:
            self.refused_images += 1
            message = (
                f"session {image.session_id} of stream {image.stream_id} is not recorded: {limit} "
                "sources are already; raise max_recorded_images, or stop some"
            )
            refusal = ArchiveError(message, code=ArchiveErrorCode.MAX_RECORDINGS)
            # The request stays open: there may be room for later images.
            return self._not_begun(request, image, refusal, is_lacking=False)
        self._image_count += 1
        try:
            session = await self._begin(request, image)
        except (AeronError, OSError) as error:
            self._image_count -= 1
            return self._not_begun(request, image, error)
        except BaseException:
            self._image_count -= 1
            raise
        try:
            await session.run()
        finally:
            self._image_count -= 1
            await self._end(request, session)
        return session.error is None

    def _not_begun(
        self, request: RecordingRequest, image: Image, error: Exception, *, is_lacking: bool = True
    ) -> bool:
        """Report that an image is not recorded, and return False."""
        # If the recording has a session already, this is a second source that was not asked for.
        if request.recording_id not in self.sessions:
            request.is_lacking = request.is_lacking or is_lacking
            request.fail(error if isinstance(error, ArchiveError) else ArchiveError(str(error)))
        fields = {"stream_id": image.stream_id, "session_id": image.session_id}
        self._peer_log.warning("recording_not_begun", **fields, error=str(error))
        return False

    async def _begin(self, request: RecordingRequest, image: Image) -> RecordingSession:
        descriptor = await self._entries.begin(request, image)
        try:
            session = await open_session(self._resources, image, descriptor)
        except BaseException:
            await self._entries.give_up(descriptor.recording_id, image.join_position)
            self.on_changed()
            raise
        self.sessions[descriptor.recording_id] = session
        self._entries.extending.pop(descriptor.recording_id, None)
        if request.is_stopping:
            session.stop()
        signal = RecordingSignal.START
        if request.recording_id is not None:
            # The recording is extended now: an earlier refusal of another source no longer matters.
            request.error, request.is_lacking = None, False
            signal = RecordingSignal.EXTEND
        self._tell(request, descriptor.recording_id, image.join_position, signal)
        return session

    async def _end(self, request: RecordingRequest, session: RecordingSession) -> None:
        """Write the stop position of a session, and send the stop signal."""
        request.is_lacking = request.is_lacking or session.error is not None
        recording_id = session.recording_id
        error = await self._ends.write(recording_id, session.position)
        if self.sessions.pop(recording_id, None) is not None:
            self._ended_bytes += session.recorded_bytes
        self.failed_count += session.error is not None
        # Fail the request before the stop signal: a caller that takes the signal for the end has
        # the error by then.
        request.fail(session.error or error)
        self._tell(request, recording_id, session.position, RecordingSignal.STOP)
        session.close_counter()

    def _tell(
        self,
        request: RecordingRequest,
        recording_id: int,
        position: int,
        signal: RecordingSignal,
    ) -> None:
        self.on_changed()
        self._resources.signals.tell(
            RecordingSignalEvent(
                recording_id=recording_id,
                subscription_id=request.subscription_id,
                position=position,
                signal=signal,
                correlation_id=request.correlation_id,
            )
        )
