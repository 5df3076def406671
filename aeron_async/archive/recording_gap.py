"""Where a recording has stopped and its stream has gone on: what lies between is nowhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, final, get_args

import attrs

from aeron_async.errors import ConfigurationError

if TYPE_CHECKING:
    from aeron_async.archive.api import Archive
    from aeron_async.archive.live_stream import LiveStream

__all__ = ["OnGap", "RecordingGap", "check_on_gap", "end_behind"]

OnGap = Literal["raise", "report"]
"""What becomes of an iteration that comes to a gap."""


@final
@attrs.frozen
class RecordingGap:
    """A part of a stream that was neither recorded nor received.

    Attributes:
        recording_id: Of the recording.
        start_position: Where the recording, or what was read of its stream, ends; in bytes.
        end_position: Where the live stream goes on, in bytes.
    """

    recording_id: int
    start_position: int
    end_position: int


def check_on_gap(on_gap: object) -> None:
    """Refuse what is no way to treat a gap.

    Raises:
        ConfigurationError: Names the ways.
    """
    if on_gap not in get_args(OnGap):
        message = f'on_gap is {on_gap!r}, and must be "raise" or "report"'
        raise ConfigurationError(message)


async def end_behind(
    archive: Archive, recording_id: int, live: LiveStream | None, position: int | None
) -> int | None:
    """Return where a recording has stopped, if nothing of it lies behind a position.

    None also where its stream is not received: then there is nothing to go over to.

    Args:
        archive: Where it is recorded.
        recording_id: Of the recording.
        live: Its stream.
        position: Up to where it was replayed, in bytes; None for not at all.
    """
    if live is None or live.join_position is None:
        return None
    descriptor = await archive.describe(recording_id)
    if descriptor.is_active or descriptor.session_id != live.session_id:
        return None
    stop = descriptor.stop_position
    begin = descriptor.start_position if position is None else position
    if begin < stop:
        # Padding may lie there, or what the disk is slow to give: only reading tells.
        rest = archive.replay(recording_id, begin, stop)
        try:
            async for _ in rest:
                return None
        finally:
            await rest.aclose()
    return stop
