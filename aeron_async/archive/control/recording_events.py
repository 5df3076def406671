"""Tells everybody who listens which recordings begin, how far they are, and that they have ended.

Nobody is waited for: an event that finds no room is skipped, and the next progress says more.

Source: Aeron `RecordingEventsProxy`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, final

from aeron_async.archive.api import RecordingSignal
from aeron_async.archive.control.messages import (
    CODEC,
    RecordingProgress,
    RecordingStarted,
    RecordingStopped,
)
from aeron_async.errors import ArchiveError
from aeron_async.logs import get_logger, within

if TYPE_CHECKING:
    from aeron_async.archive.api import RecordingSignalEvent
    from aeron_async.archive.control.sbe import Message
    from aeron_async.archive.recording_session import RecordingSession
    from aeron_async.client.publication import Publication
    from aeron_async.logs import LogBudget

__all__ = ["RecordingEvents"]

log = get_logger(__name__)


@final
class RecordingEvents:
    """Publishes what becomes of recordings.

    Args:
        archive: Whose recordings.
        publication: Where it is told.
        log_budget: For lines that clients of the archive can cause; None is without limit.

    Attributes:
        skipped_events: Events that found no room, or nobody who listens.
    """

    def __init__(
        self, archive: Any, publication: Publication, log_budget: LogBudget | None = None
    ) -> None:
        self._archive = archive
        self._peer_log = within(log_budget, log)
        self._publication = publication
        self._begun: dict[int, int] = {}
        self.skipped_events = 0

    async def run(self) -> None:
        """Tell of everything, until the archive closes."""
        async with asyncio.TaskGroup() as group:
            async for event in self._archive.signals():
                if event.signal in {RecordingSignal.START, RecordingSignal.EXTEND}:
                    await self._tell_of_start(event)
                    session = self._archive.recording_sessions.get(event.recording_id)
                    if session is not None:
                        group.create_task(self._follow(session))
                elif event.signal is RecordingSignal.STOP:
                    self._tell_of_stop(event)

    async def _tell_of_start(self, event: RecordingSignalEvent) -> None:
        try:
            descriptor = await self._archive.describe(event.recording_id)
        except ArchiveError as error:
            # Purged again before its turn came, or the disk failed: the others are told of.
            self._peer_log.info(
                "recording_event_not_told", recording_id=event.recording_id, reason=str(error)
            )
            return
        self._begun[event.recording_id] = event.position
        self._tell(
            RecordingStarted(
                recording_id=event.recording_id,
                start_position=event.position,
                session_id=descriptor.session_id,
                stream_id=descriptor.stream_id,
                channel=descriptor.original_channel,
                source_identity=descriptor.source_identity,
            )
        )

    async def _follow(self, session: RecordingSession) -> None:
        """Tell how far a recording is, whenever more was written."""
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

    def _tell_of_stop(self, event: RecordingSignalEvent) -> None:
        begun = self._begun.pop(event.recording_id, None)
        if begun is not None:
            self._tell(
                RecordingStopped(
                    recording_id=event.recording_id,
                    start_position=begun,
                    stop_position=event.position,
                )
            )

    def _tell(self, message: Message) -> bool:
        is_told = isinstance(self._publication.try_offer(CODEC.encode(message)), int)
        self.skipped_events += not is_told
        return is_told
