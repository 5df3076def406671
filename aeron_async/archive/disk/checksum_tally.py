"""Which frames of a recording have no checksum: nothing on the disk says so, but for the frames."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from aeron_async.archive.disk.checksums import kind_of

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["ChecksumTally"]


@final
class ChecksumTally:
    """Knows the sessions of one recording, which lie where frames without a checksum have them.

    Args:
        session_id: Of the recording, as the catalog says it.

    Attributes:
        without: Frames so far that have no checksum.
    """

    def __init__(self, session_id: int) -> None:
        self.without = 0
        self._sessions = {0, session_id}

    def has_none(self, stored: int, payload: Buffer, *, following: int | None) -> bool:
        """Return whether a frame has no checksum, which is not its own if it has.

        A recording that was extended has frames of earlier sessions, which nobody remembers. Those
        are told by the next frame, which has the same one; checksums differ.

        Args:
            stored: Where its session is, or its checksum.
            payload: Behind its header.
            following: The same of the next frame; None where that is not at hand.
        """
        if stored not in self._sessions:
            if stored != following or kind_of(payload, stored) is not None:
                return False
            self._sessions.add(stored)
        self.without += 1
        return True
