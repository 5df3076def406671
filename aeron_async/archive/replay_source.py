"""What messages of a replay came from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast, final

from aeron_async.kernel import Cell, Doorbell, Taking

if TYPE_CHECKING:
    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.kernel.message import MessageSource

__all__ = ["ReplaySource"]

NEVER: Final = (1 << 63) - 1


@final
class ReplaySource(Taking):
    """Stands in a message where an image does.

    Attributes:
        session_id: Of the publication that was recorded last.
        stream_id: That was recorded.
        source_identity: Where the stream came from.
    """

    def __init__(
        self, *, position: int, session_id: int, stream_id: int, source_identity: str
    ) -> None:
        self.session_id = session_id
        self.stream_id = stream_id
        self.source_identity = source_identity
        self._position = position
        # Nobody wants to hear of any progress.
        self._trigger = NEVER
        self._is_closed = False
        self._attach(Cell(memoryview(bytearray(8)).cast("q")), Doorbell())

    @property
    def position(self) -> int:
        """Return where the message ends that was taken last, in bytes."""
        return self._position

    def move_trigger(self) -> None:
        """Do nothing: nobody waits for a position of a replay."""

    @classmethod
    def of(cls, descriptor: RecordingDescriptor, position: int) -> MessageSource:
        """Return the source of a replay that begins at a position, in bytes."""
        source = cls(
            position=position,
            session_id=descriptor.session_id,
            stream_id=descriptor.stream_id,
            source_identity=descriptor.source_identity,
        )
        # All that a message asks of its image is there.
        return cast("MessageSource", source)

    def __repr__(self) -> str:
        return f"<ReplaySource of session {self.session_id}, stream {self.stream_id}>"
