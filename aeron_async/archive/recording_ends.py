"""Writes into the catalog where recordings have ended, again and again where the disk fails."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, final

from aeron_async.errors import ArchiveError
from aeron_async.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.archive.resources import ArchiveResources

__all__ = ["RecordingEnds"]

TRY_AGAIN_SECONDS: Final = 1.0

log = get_logger(__name__)


@final
class RecordingEnds:
    """Where recordings have ended that the catalog still takes for active.

    Args:
        resources: Of the archive.
        on_written: Called when the catalog has come to know of one late.
    """

    def __init__(self, resources: ArchiveResources, on_written: Callable[[], object]) -> None:
        self._resources = resources
        self._on_written = on_written
        self._positions: dict[int, int] = {}

    def position(self, recording_id: int) -> int | None:
        """Return where a recording has ended whose entry does not say so; None for all others."""
        return self._positions.get(recording_id)

    async def write(self, recording_id: int, position: int) -> ArchiveError | None:
        """Write where a recording has ended, now or as soon as the disk lets that happen.

        Returns:
            Why it could not be written now. If it never can, recovery finds it out from the files
            when the archive opens the next time.
        """
        now_ms = self._resources.aeron.clock.epoch_ms()
        try:
            await self._update(recording_id, position, now_ms)
        except ArchiveError as error:
            fields = {"recording_id": recording_id, "position": position}
            log.error("stop_not_written", exc_info=error, **fields)  # noqa: TRY400 - it is given the error
            self._positions[recording_id] = position
            self._resources.tasks.start(
                self._write_later(recording_id, position, now_ms),
                f"aeron-archive-end-of-recording-{recording_id}",
            )
            return error
        return None

    async def _write_later(self, recording_id: int, position: int, now_ms: int) -> None:
        while True:
            await asyncio.sleep(TRY_AGAIN_SECONDS)
            try:
                await self._update(recording_id, position, now_ms)
            except ArchiveError:
                continue
            del self._positions[recording_id]
            self._on_written()
            log.info("stop_written", recording_id=recording_id, position=position)
            return

    async def _update(self, recording_id: int, position: int, now_ms: int) -> None:
        await self._resources.desk.update(
            recording_id, stop_position=position, stop_timestamp_ms=now_ms
        )
