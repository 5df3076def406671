"""Messages out of frames: whole ones at full speed, fragmented ones put together.

`read_whole` is the read half of the kernel, plain views and integers. It stops at the first
fragment, which `FragmentAssembler` takes on from there.

Source: Aeron `FragmentAssembler`, `TermReader`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias, final

from aeron_async.logbuffer.frame import FLAGS_SHIFT, HEADER, TYPE_SHIFT, UNFRAGMENTED_WORD
from aeron_async.protocol.header import DataFlags

if TYPE_CHECKING:
    from aeron_async.logbuffer.term_log import LogBuffers

__all__ = ["FragmentAssembler", "ReadMessage", "read_whole"]

ReadMessage: TypeAlias = tuple[bytes, int, int]
"""Payload, end position, and reserved value of the first frame."""

FLAGS_BITS: Final = DataFlags.UNFRAGMENTED << FLAGS_SHIFT
BEGIN_BIT: Final = DataFlags.BEGIN_FRAGMENT << FLAGS_SHIFT
END_BIT: Final = DataFlags.END_FRAGMENT << FLAGS_SHIFT
NO_OFFSET: Final = -1


def read_whole(
    term: memoryview,
    words: memoryview,
    longs: memoryview,
    offset: int,
    end: int,
    begin_position: int,
    limit: int,
    out: list[ReadMessage],
) -> int:
    """Read unfragmented messages; return the offset behind the last frame, padding included.

    Stops at a fragment, at a frame that is missing or reaches beyond `end`, and after `limit`
    messages.

    Args:
        term: The term as bytes.
        words: The term as 32-bit words.
        longs: The term as 64-bit words.
        offset: Where to begin; start of a frame.
        end: Offset not to be passed.
        begin_position: Of the term.
        limit: Most messages to read.
        out: Where they go.
    """
    append = out.append
    while limit > 0 and offset < end:
        index = offset >> 2
        frame_length = words[index]
        if frame_length <= 0:
            break
        following = (offset + frame_length + 31) & -32
        if following > end:
            break
        word = words[index + 1]
        # The first comparison settles all but the rare frame with further flags.
        if word == UNFRAGMENTED_WORD or (word >> TYPE_SHIFT and word & FLAGS_BITS == FLAGS_BITS):
            append((
                bytes(term[offset + HEADER : offset + frame_length]),
                begin_position + following,
                longs[(offset >> 3) + 3],
            ))  # fmt: skip
            limit -= 1
        elif word >> TYPE_SHIFT:
            break
        offset = following
    return offset


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

    def assemble(
        self,
        log: LogBuffers,
        index: int,
        offset: int,
        end: int,
        begin_position: int,
        out: list[ReadMessage],
    ) -> int:
        """Take a run of fragments, up to the end of one message; return the offset behind it.

        Stops also at a frame that is no fragment, that is missing or that reaches beyond `end`.

        Args:
            log: That holds them.
            index: Of the partition.
            offset: Where to begin; start of a frame.
            end: Offset not to be passed.
            begin_position: Of the term.
            out: Where a message goes once it is complete.
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
                    out.append((bytes(message), begin_position + following, self._reserved_value))
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
