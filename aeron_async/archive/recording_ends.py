"""Writes into the catalog where recordings have ended, again and again where the disk fails."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final, final

from aeron_async.archive.disk.descriptor import ACTIVE
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

    def forget(self, recording_id: int) -> None:
        """Write no end any more of a recording that goes on."""
        self._positions.pop(recording_id, None)

    async def write(self, recording_id: int, position: int) -> ArchiveError | None:
        """Write where a recording has ended, now or as soon as the disk lets that happen.

        Returns:
            Why it could not be written now. If it never can, recovery finds it out from the files
            when the archive opens the next time.
        """
        now_ms = self._resources.aeron.clock.epoch_ms()
        self._positions[recording_id] = position
        try:
            await self._try_writing(recording_id, position, now_ms)
        except ArchiveError as error:
            fields = {"recording_id": recording_id, "position": position}
            log.error("stop_not_written", error=str(error), **fields)  # noqa: TRY400 - one line says all
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
        await self._resources.desk.call(self._write, recording_id, position, now_ms)
        if self._positions.get(recording_id) == position:
            # Another end may have come meanwhile, of an extension, and is still to be written.
            del self._positions[recording_id]

    def _write(self, recording_id: int, position: int, now_ms: int) -> None:
        """Write an end while nobody else works on the catalog, if it still is one."""
        catalog = self._resources.desk.catalog
        # What was said to have failed may have been written, and been changed since.
        if (
            self._positions.get(recording_id) == position
            and recording_id in catalog
            and catalog.get(recording_id).stop_position in (ACTIVE, position)
        ):
            catalog.update(recording_id, stop_position=position, stop_timestamp_ms=now_ms)
