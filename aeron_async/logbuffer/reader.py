"""One reader of a log: its position, and the messages that it reads from there on.

Source: Aeron `FragmentAssembler`, `Image`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

from aeron_async.errors import ConfigurationError
from aeron_async.logbuffer.frame import FLAGS_SHIFT, HEADER, TYPE_SHIFT
from aeron_async.logbuffer.message import Message, open_batch, read_whole
from aeron_async.logbuffer.position import PARTITION_COUNT, max_message_length
from aeron_async.protocol.header import FRAME_ALIGNMENT, DataFlags

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.logbuffer.log_buffers import LogBuffers
    from aeron_async.logbuffer.message import Batch, MessageSource

__all__ = [
    "FragmentAssembler",
    "ReadMessage",
    "TermReader",
    "begins",
]

ReadMessage: TypeAlias = tuple[bytes, int, int]
"""Payload, end position, and reserved value of the first frame."""

FLAGS_BITS: Final = DataFlags.UNFRAGMENTED << FLAGS_SHIFT
BEGIN_BIT: Final = DataFlags.BEGIN_FRAGMENT << FLAGS_SHIFT
END_BIT: Final = DataFlags.END_FRAGMENT << FLAGS_SHIFT
NO_OFFSET: Final = -1


def begins(words: memoryview, offset: int, end: int) -> bool:
    """Return whether the first of several fragments lies here, complete and not beyond `end`."""
    if offset >= end or not 0 < words[offset >> 2] <= end - offset:
        return False
    word = words[(offset >> 2) + 1]
    return word >> TYPE_SHIFT != 0 and word & FLAGS_BITS == BEGIN_BIT


@final
class FragmentAssembler:
    """Assembles the fragments of one image's messages, one message at a time.

    It holds one message at most, up to the longest that the log allows. A fragment that does not
    follow the one before it drops the message: the image was joined in the middle of a message, or
    a gap was filled with padding.

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
        self.discarded_fragments: int = 0

    @property
    def longest(self) -> int:
        """Length of the longest message that could begin now, in bytes; 0 while in one."""
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
        """Read fragments up to the end of one message; return the offset behind the last.

        Stops also at a frame that is no fragment, is missing, or extends beyond `end`.

        Args:
            log: The log with the fragments.
            index: Index of the partition.
            offset: Where to begin; start of a frame.
            end: Offset not to be passed.
            begin_position: Position of the term.
            out: Receives the message once it is complete; see `read_whole`.
            image: The source, for a `Message`.
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
                self.drop()
                self._reserved_value = log.term_longs[index][(offset >> 3) + 3]
            elif offset != self._expected_offset:
                self.drop()
                self.discarded_fragments += 1
                offset = following
                continue
            self._fragments += 1
            if len(message) + frame_length > limit:
                self.drop()
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

    def drop(self) -> None:
        """Drop the message of which some fragments were read, and count them."""
        self.discarded_fragments += self._fragments
        self._reset()

    def _reset(self) -> None:
        self._message.clear()
        self._fragments = 0
        self._expected_offset = NO_OFFSET


if TYPE_CHECKING:
    FragmentHandler: TypeAlias = Callable[[memoryview, int, int, int], object]


@final
class TermReader:
    """Reads a log from one position on; moves only forward.

    One call reads within one term at most; the next call continues in the next term. A frame that
    extends beyond the limit position is left for later.

    Differs: Aeron's bounded poll delivers the frame that straddles its limit.
    """

    __slots__ = ("_assembler", "_log", "_position")

    def __init__(self, log: LogBuffers, position: int) -> None:
        self._log = log
        self._position = position
        self._assembler = FragmentAssembler(max_message_length(log.term_length))

    @property
    def position(self) -> int:
        """End of the last frame read, padding included, in bytes."""
        return self._position

    @position.setter
    def position(self, position: int) -> None:
        """Skip forward to the start of a frame in this term.

        Raises:
            ConfigurationError: Behind the position, beyond the term, or not a multiple of 32.
        """
        term_length = self._log.term_length
        term_end = (self._position & -term_length) + term_length
        if not self._position <= position <= term_end or position % FRAME_ALIGNMENT:
            msg = (
                f"position {position} must be a multiple of {FRAME_ALIGNMENT} from "
                f"{self._position} up to the end of its term, {term_end}"
            )
            raise ConfigurationError(msg)
        self._position = position

    @property
    def discarded_fragments(self) -> int:
        """How many fragments belonged to no complete message, or to one that was too long."""
        return self._assembler.discarded_fragments

    def drop_begun(self) -> None:
        """Drop the fragments of a message whose end has not been read; they are counted."""
        self._assembler.drop()

    def open_batch(self, *, limit: int, limit_position: int, image: MessageSource) -> Batch[Any]:
        """Return the next messages that consist of one frame each, as a batch.

        Args:
            limit: Most messages.
            limit_position: Position not to be passed.
            image: The source of the messages.
        """
        log = self._log
        index, offset, end, begin_position = self._place(limit_position)
        term, words, longs = log.terms[index], log.term_words[index], log.term_longs[index]
        batch, offset = open_batch(term, words, longs, offset, end, begin_position, limit, image)
        self._position = begin_position + offset
        return batch

    def read_messages(
        self,
        out: list[Any],
        *,
        limit: int,
        limit_position: int | None = None,
        image: MessageSource | None = None,
    ) -> int:
        """Append complete messages to `out`; return how many.

        Args:
            out: Receives a `Message` each, or without an image a tuple (payload, end position,
                reserved value of the first fragment).
            limit: Most messages to read.
            limit_position: Position not to be passed; `None` reads all that is committed.
            image: The source of the messages.
        """
        log = self._log
        index, offset, end, begin_position = self._place(limit_position)
        term, words, longs = log.terms[index], log.term_words[index], log.term_longs[index]
        assembler = self._assembler
        start, target = len(out), len(out) + limit
        while True:
            longest = assembler.longest
            offset = read_whole(
                term, words, longs, offset, end, begin_position, target - len(out), out, image,
                longest,
            )  # fmt: skip
            if len(out) >= target:
                break
            # The message that begins here may be complete by the next read, and then costs one
            # call. It is assembled from fragments only by a read that finds nothing else.
            if longest and len(out) > start and begins(words, offset, end):
                break
            behind = assembler.assemble(log, index, offset, end, begin_position, out, image)
            if behind == offset:
                offset = self._skip_overrun(words, offset, end)
                break
            offset = behind
        self._position = begin_position + offset
        return limit - target + len(out)

    def poll(
        self,
        handler: FragmentHandler,
        *,
        fragment_limit: int,
        limit_position: int | None = None,
    ) -> int:
        """Call a handler with each frame as it lies in the log; return how many.

        An exception of the handler reaches the caller after the position has moved past its frame.

        Args:
            handler: Called with payload, end position, flags and reserved value. The payload is a
                read-only view of the log; copy it to keep it beyond the next poll.
            fragment_limit: Most frames to deliver.
            limit_position: Position not to be passed; `None` reads all that is committed.
        """
        log = self._log
        index, offset, end, begin_position = self._place(limit_position)
        words, longs = log.term_words[index], log.term_longs[index]
        # The log has other readers, and may be that of the publisher.
        term = log.terms[index].toreadonly()
        fragments = 0
        try:
            while fragments < fragment_limit and offset < end:
                frame = offset
                frame_length = words[frame >> 2]
                following = (frame + frame_length + 31) & -32
                if frame_length <= 0 or following > end:
                    offset = self._skip_overrun(words, frame, end)
                    break
                offset = following
                word = words[(frame >> 2) + 1]
                if word >> TYPE_SHIFT:
                    fragments += 1
                    handler(
                        term[frame + HEADER : frame + frame_length],
                        begin_position + following,
                        word >> FLAGS_SHIFT & 0xFF,
                        longs[(frame >> 3) + 3],
                    )
        finally:
            self._position = begin_position + offset
        return fragments

    def _place(self, limit_position: int | None) -> tuple[int, int, int, int]:
        """Return the partition, the offset, the end offset and the position of the term."""
        log = self._log
        position = self._position
        end = log.term_length
        offset = position & (end - 1)
        begin_position = position - offset
        if limit_position is not None:
            end = min(end, limit_position - begin_position)
        return (position >> log.position_bits) % PARTITION_COUNT, offset, end, begin_position

    def _skip_overrun(self, words: memoryview, offset: int, end: int) -> int:
        """Return the end of the term if the frame here claims to extend beyond it, else its offset.

        No publisher writes such a frame and no driver should accept it, but a reader that waited
        for the rest of it would never continue.
        """
        term_length = self._log.term_length
        if offset < end == term_length and offset + words[offset >> 2] > term_length:
            self._assembler.discarded_fragments += 1
            return term_length
        return offset
