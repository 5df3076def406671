"""Messages of a recording whose fragments do not lie in one block.

Source: Aeron `FragmentAssembler`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from aeron_async.archive.disk.segment_scan import ScanBuffer
from aeron_async.kernel import Message
from aeron_async.logbuffer.frame import FLAGS_SHIFT, HEADER, TYPE_SHIFT
from aeron_async.protocol.header import DataFlags

if TYPE_CHECKING:
    from aeron_async.kernel.message import MessageSource

__all__ = ["ReplayAssembler", "ReplayBuffer"]

BEGIN_BIT: Final = DataFlags.BEGIN_FRAGMENT << FLAGS_SHIFT
END_BIT: Final = DataFlags.END_FRAGMENT << FLAGS_SHIFT


@final
class ReplayBuffer(ScanBuffer):
    """Memory for a block, in one more view of the same bytes: as 64-bit words."""

    def __init__(self) -> None:
        super().__init__()
        self.longs = self.bytes.cast("q")


@final
class ReplayAssembler:
    """Puts one message together at a time; frames come in their order, without a gap.

    Args:
        longest: Longest message, in bytes.

    Attributes:
        is_under_way: Whether a message has begun, and not ended.
    """

    __slots__ = ("_message", "_reserved_value", "is_under_way", "longest")

    def __init__(self, longest: int) -> None:
        self.longest = longest
        self._message = bytearray()
        self._reserved_value = 0
        self.is_under_way = False

    def take(
        self, memory: ReplayBuffer, offset: int, end: int, base: int, source: MessageSource
    ) -> tuple[Message | None, int]:
        """Take fragments up to the end of a message or of the block; return it, and where that is.

        A fragment whose message did not begin here is passed over.

        Args:
            memory: That holds the frames.
            offset: Of the first.
            end: Behind the last.
            base: Position of the memory's beginning.
            source: Of the message.
        """
        words = memory.words
        while offset < end:
            index = offset >> 2
            frame_length, word = words[index], words[index + 1]
            following = (offset + frame_length + 31) & -32
            if word >> TYPE_SHIFT == 0:
                return None, following
            if word & BEGIN_BIT:
                self._message.clear()
                self._reserved_value = memory.longs[(offset >> 3) + 3]
                self.is_under_way = True
            if self.is_under_way:
                self._message += memory.bytes[offset + HEADER : offset + frame_length]
                if len(self._message) > self.longest:
                    self.is_under_way = False
            offset = following
            if word & END_BIT:
                if not self.is_under_way:
                    return None, offset
                self.is_under_way = False
                data = bytes(self._message)
                return Message(data, base + offset, self._reserved_value, source), offset
        return None, offset
