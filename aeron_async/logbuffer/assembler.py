"""Messages that travelled in several frames, put together.

Source: Aeron `FragmentAssembler`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

from aeron_async.kernel import Message
from aeron_async.logbuffer.frame import FLAGS_SHIFT, HEADER, TYPE_SHIFT
from aeron_async.protocol.header import DataFlags

if TYPE_CHECKING:
    from aeron_async.kernel.message import MessageSource
    from aeron_async.logbuffer.term_log import LogBuffers

__all__ = ["FragmentAssembler", "ReadMessage", "begins"]

ReadMessage: TypeAlias = tuple[bytes, int, int]
"""Payload, end position, and reserved value of the first frame."""

FLAGS_BITS: Final = DataFlags.UNFRAGMENTED << FLAGS_SHIFT
BEGIN_BIT: Final = DataFlags.BEGIN_FRAGMENT << FLAGS_SHIFT
END_BIT: Final = DataFlags.END_FRAGMENT << FLAGS_SHIFT
NO_OFFSET: Final = -1


def begins(words: memoryview, offset: int, end: int) -> bool:
    """Return whether the first of several fragments lies here, whole and not beyond `end`."""
    if offset >= end or not 0 < words[offset >> 2] <= end - offset:
        return False
    word = words[(offset >> 2) + 1]
    return word >> TYPE_SHIFT != 0 and word & FLAGS_BITS == BEGIN_BIT


@final
class FragmentAssembler:
    """Puts the fragments of one image's messages together, one message at a time.

    It holds one message at most, of the longest length that the log allows. A fragment that does
    not follow the one before it, because the image was joined in the middle of a message or a gap
    was filled with padding, drops the message.

    Attributes:
        discarded_fragments: How many fragments were dropped.
    """

    __slots__ = (
        "_expected_offset",
        "_fragments",
        "_max_message_length",
        "_message",
        "_reserved_value",
        "discarded_fragments",
    )

    def __init__(self, max_message_length: int) -> None:
        self._max_message_length = max_message_length
        self._message = bytearray()
        self._reserved_value = 0
        self._expected_offset = NO_OFFSET
        self._fragments = 0
        self.discarded_fragments = 0

    @property
    def longest(self) -> int:
        """Length of the longest message that could begin now, in bytes; 0 in the midst of one."""
        return 0 if self._fragments else self._max_message_length

    def assemble(
        self,
        log: LogBuffers,
        index: int,
        offset: int,
        end: int,
        begin_position: int,
        out: list[Any],
        image: MessageSource | None = None,
    ) -> int:
        """Take a run of fragments, up to the end of one message; return the offset behind it.

        Stops also at a frame that is no fragment, that is missing or that reaches beyond `end`.

        Args:
            log: That holds them.
            index: Of the partition.
            offset: Where to begin; start of a frame.
            end: Offset not to be passed.
            begin_position: Of the term.
            out: Where a message goes once it is complete; see `read_whole`.
            image: The source it came from, for a `Message`.
        """
        term = log.terms[index]
        words = log.term_words[index]
        message = self._message
        limit = self._max_message_length + HEADER
        while offset < end:
            frame_length = words[offset >> 2]
            following = (offset + frame_length + 31) & -32
            if frame_length <= 0 or following > end:
                break
            word = words[(offset >> 2) + 1]
            if word >> TYPE_SHIFT == 0 or word & FLAGS_BITS == FLAGS_BITS:
                break
            if word & BEGIN_BIT:
                self._discard()
                self._reserved_value = log.term_longs[index][(offset >> 3) + 3]
            elif offset != self._expected_offset:
                self._discard()
                self.discarded_fragments += 1
                offset = following
                continue
            self._fragments += 1
            if len(message) + frame_length > limit:
                self._discard()
            else:
                message += term[offset + HEADER : offset + frame_length]
                self._expected_offset = following
                if word & END_BIT:
                    position, reserved_value = begin_position + following, self._reserved_value
                    out.append(
                        (bytes(message), position, reserved_value)
                        if image is None
                        else Message(bytes(message), position, reserved_value, image)
                    )
                    self._reset()
                    return following
            offset = following
        return offset

    def _discard(self) -> None:
        self.discarded_fragments += self._fragments
        self._reset()

    def _reset(self) -> None:
        self._message.clear()
        self._fragments = 0
        self._expected_offset = NO_OFFSET
