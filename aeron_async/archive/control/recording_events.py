"""Recording events: starts, progress and stops of recordings, published for any subscriber.

The publisher never waits: an event that finds no room is skipped, and the next progress event makes
up for it. If signals of the archive come too fast and some are lost, the sessions and the catalog
show which recordings have started and stopped.

Source: Aeron `RecordingEventsProxy`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, final

import attrs

from aeron_async.archive.api import RecordingSignal
from aeron_async.archive.control.messages import (
    CODEC,
    RecordingProgress,
    RecordingStarted,
    RecordingStopped,
)
from aeron_async.errors import ArchiveError, ClosedError, UnknownRecordingError
from aeron_async.logs import get_logger, within

if TYPE_CHECKING:
    from aeron_async.archive.api import RecordingSignalEvent
    from aeron_async.archive.control.sbe import SbeMessage
    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.archive.recording_session import RecordingSession
    from aeron_async.client.publication import Publication
    from aeron_async.logs import LogBudget

__all__ = ["RecordingEvents"]

log: Final = get_logger(__name__)


@attrs.frozen
class Begun:
    """A recording whose start was published, and its stop not yet.

    Attributes:
        start_position: Where this session of the recording began.
        session: Session that writes it; None if it had ended when its start was published.
    """

    start_position: int
    session: RecordingSession | None


@final
class RecordingEvents:
    """Publishes the events of recordings.

    Args:
        archive: Archive whose recordings are published.
        publication: Publication for the events.
        log_budget: Budget of log lines that clients of the archive can cause; None is unlimited.

    Attributes:
        skipped_events: Events that found no room, or no subscriber.
    """

    def __init__(
        self, archive: Any, publication: Publication, log_budget: LogBudget | None = None
    ) -> None:
        self._archive = archive
        self._peer_log = within(log_budget, log)
        self._publication = publication
        # By recording id; removed with the stop event.
        self._begun: dict[int, Begun] = {}
        self.skipped_events: int = 0

    async def run(self) -> None:
        """Publish all events until the archive closes."""
        is_behind = False
        async with asyncio.TaskGroup() as group:
            while True:
                # Open the reader before catching up: no signal is lost from here on.
                signals = self._archive.signals()
                try:
                    if is_behind:
                        await self._catch_up(group)
                    async for event in signals:
                        await self._take(event, group)
                except ArchiveError as error:
                    self._peer_log.warning("recording_events_fell_behind", reason=str(error))
                    is_behind = True
                    await asyncio.sleep(0)
                else:
                    return

    async def _take(self, event: RecordingSignalEvent, group: asyncio.TaskGroup) -> None:
        if event.signal in {RecordingSignal.START, RecordingSignal.EXTEND}:
            # Skip a start that was published while catching up.
            begun = self._begun.get(event.recording_id)
            if begun is None or begun.start_position != event.position:
                await self._tell_of_start(event.recording_id, event.position, group)
        elif event.signal is RecordingSignal.STOP:
            self._tell_of_stop(event.recording_id, event.position)

    async def _catch_up(self, group: asyncio.TaskGroup) -> None:
        """Publish the starts and stops whose signals were lost."""
        sessions = dict(self._archive.recording_sessions)
        for recording_id, begun in list(self._begun.items()):
            session = sessions.get(recording_id)
            if session is not None and session.start_position == begun.start_position:
                continue
            if begun.session is not None:
                # The position of an ended session is the stop position, even of a purged recording.
                self._tell_of_stop(recording_id, begun.session.position)
            elif session is not None:
                # The recording has stopped, and was extended from there.
                self._tell_of_stop(recording_id, session.start_position)
            else:
                await self._look_for_stop(recording_id, begun)
        for recording_id, session in sessions.items():
            if recording_id not in self._begun:
                await self._tell_of_start(recording_id, session.start_position, group)

    async def _look_for_stop(self, recording_id: int, begun: Begun) -> None:
        """Publish the stop of a recording if the catalog has it; else its signal will come."""
        try:
            descriptor: RecordingDescriptor = await self._archive.describe(recording_id)
        except UnknownRecordingError:
            # Purged: its stop position is not known any more.
            self._tell_of_stop(recording_id, begun.start_position)
        except ArchiveError as error:
            self._not_told(recording_id, error)
        else:
            if not descriptor.is_active:
                self._tell_of_stop(recording_id, descriptor.stop_position)

    def _not_told(self, recording_id: int, error: ArchiveError) -> None:
        # It was purged before its turn, or the disk failed; the other events are still published.
        self._peer_log.info(
            "recording_event_not_told", recording_id=recording_id, reason=str(error)
        )

    async def _describe(self, recording_id: int) -> RecordingDescriptor | None:
        try:
            found: RecordingDescriptor = await self._archive.describe(recording_id)
        except ArchiveError as error:
            self._not_told(recording_id, error)
            return None
        return found

    async def _tell_of_start(
        self, recording_id: int, position: int, group: asyncio.TaskGroup
    ) -> None:
        """Publish a start, and follow the recording while it is written."""
        session = self._archive.recording_sessions.get(recording_id)
        if session is not None and session.start_position != position:
            # The recording has been extended since; that start has its own signal.
            session = None
        descriptor = await self._describe(recording_id)
        if descriptor is not None:
            self._begun[recording_id] = Begun(position, session)
            self._tell(
                RecordingStarted(
                    recording_id=recording_id,
                    start_position=position,
                    session_id=descriptor.session_id,
                    stream_id=descriptor.stream_id,
                    channel=descriptor.original_channel,
                    source_identity=descriptor.source_identity,
                )
            )
        # If the session has ended during the await, the stop signal comes next and nothing after
        # it.
        if session is not None and self._archive.recording_sessions.get(recording_id) is session:
            group.create_task(self._follow(session))

    async def _follow(self, session: RecordingSession) -> None:
        """Publish a progress event whenever more was written."""
        told = session.start_position
        while True:
            position = session.position
            if position > told and self._tell(
                RecordingProgress(
                    recording_id=session.recording_id,
                    start_position=session.start_position,
                    position=position,
                )
            ):
                told = position
            if session.is_over:
                return
            await session.progress.wait()

    def _tell_of_stop(self, recording_id: int, position: int) -> None:
        begun = self._begun.pop(recording_id, None)
        if begun is not None:
            self._tell(
                RecordingStopped(
                    recording_id=recording_id,
                    start_position=begun.start_position,
                    stop_position=position,
                )
            )

    def _tell(self, message: SbeMessage) -> bool:
        try:
            is_told = isinstance(self._publication.try_offer(CODEC.encode(message)), int)
        except ClosedError:
            # The server is being closed, and this task runs once more before it is cancelled.
            is_told = False
        self.skipped_events += not is_told
        return is_told
