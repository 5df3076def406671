"""Whether a replay of an archive that is elsewhere may begin and end where it is asked to."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import attrs

from aeron_async.errors import InvalidPositionError
from aeron_async.protocol.header import FRAME_ALIGNMENT

if TYPE_CHECKING:
    from aeron_async.archive.disk.descriptor import RecordingDescriptor

__all__ = ["ReplayPlaces", "straddles"]


@final
@attrs.frozen
class ReplayPlaces:
    """From where to where a recording is to be replayed.

    Attributes:
        recording_id: Of the recording.
        from_position: Where to begin, in bytes; its start when None.
        to_position: Where to end, in bytes; where it ends when None.
    """

    recording_id: int
    from_position: int | None
    to_position: int | None

    def begin(self, descriptor: RecordingDescriptor, *, is_following: bool) -> int:
        """Return where to begin.

        Args:
            descriptor: Of the recording.
            is_following: Whether the replay goes on as the recording does.

        Raises:
            InvalidPositionError: That, or where to end, is outside of the recording.
        """
        start = descriptor.start_position
        begin = start if self.from_position is None else self.from_position
        last = None if descriptor.is_active else descriptor.stop_position
        for name, position in (("from", begin), ("to", self.to_position)):
            if position is None:
                continue
            nearest = max(start, position - position % FRAME_ALIGNMENT)
            if last is not None and not is_following:
                nearest = min(nearest, last)
            if position != nearest:
                message = (
                    f"{name}_position {position} is outside of recording {self.recording_id}, "
                    f"which is from {start} to {'now' if last is None else last}, or no "
                    f"multiple of {FRAME_ALIGNMENT}: {nearest} is the nearest"
                )
                raise InvalidPositionError(message, nearest=nearest)
        if self.to_position is not None and self.to_position < begin:
            message = f"the replay would end at {self.to_position}, before it begins at {begin}"
            raise InvalidPositionError(message, nearest=begin)
        return begin

    def check_recorded(self, begin: int, recorded: int, *, is_resumed: bool) -> None:
        """Refuse to begin where nothing has been recorded: that is no replay without messages.

        Args:
            begin: Where the replay is to begin, in bytes.
            recorded: Up to where there is something, in bytes.
            is_resumed: Whether it has come to there by replaying.

        Raises:
            InvalidPositionError: It would; or the recording was cut off since it was read so far.
        """
        if begin <= recorded:
            return
        if is_resumed:
            what = f"was cut off at {recorded}, and had been replayed up to {begin}"
        else:
            what = f"is recorded up to {recorded}, and its replay would begin at {begin}"
        message = f"recording {self.recording_id} {what}"
        raise InvalidPositionError(message, nearest=recorded)


def straddles(recording_id: int, to_position: int, frame_end: int) -> InvalidPositionError:
    """Return the error of a replay that would have to end in the middle of a frame.

    Differs: Aeron hands such a frame out.
    """
    message = (
        f"position {to_position} is in the middle of a frame of recording {recording_id}, which "
        f"ends at {frame_end}"
    )
    return InvalidPositionError(message, nearest=frame_end)
