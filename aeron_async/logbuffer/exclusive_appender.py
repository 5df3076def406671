"""Appending to a log that has one writer.

Source: Aeron `ExclusivePublication`.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, final

from aeron_async.errors import ConfigurationError, MessageTooLongError
from aeron_async.logbuffer.appender import Appender, AppendResult, byte_view
from aeron_async.logbuffer.cleaner import zero
from aeron_async.logbuffer.frame import DATA_WORD, TYPE_SHIFT, write_padding
from aeron_async.logbuffer.position import (
    PARTITION_COUNT,
    UINT32_MASK,
    framed_length,
    pack_tail,
    unpack_tail,
)
from aeron_async.protocol.arguments import check_number
from aeron_async.protocol.header import (
    DATA_HEADER_LENGTH,
    FRAME_ALIGNMENT,
    align_frame,
    wrap_int32,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from aeron_async.logbuffer.term_log import LogBuffers

__all__ = ["ExclusiveAppender"]

FRAME_HEADER: Final = Struct("<8i")
FIRST_WORD: Final = Struct("<q")


@final
class ExclusiveAppender(Appender):
    """The only writer of its log: where it stands is its own, and the tail only tells others."""

    __slots__ = ("_index", "_offset", "_term_id")

    def __init__(self, log: LogBuffers) -> None:
        super().__init__(log)
        self._index = self._metadata.active_term_count % PARTITION_COUNT
        self._term_id, self._offset = unpack_tail(
            self._metadata.tail(self._index), term_length=log.term_length
        )

    @property
    def position(self) -> int:
        """Where the next message would start, in bytes."""
        return self._term_begin + self._look_up_offset()

    def append_padding(self, length: int, *, limit: int) -> int:
        """Append `length` bytes that readers step over; return the end position or `AppendResult`.

        Args:
            length: Of the padding behind its frame header, in bytes.
            limit: Position at which the log is full for now.

        Raises:
            MessageTooLongError: Longer than the longest message takes with all its headers.
            ConfigurationError: The length is negative.
        """
        length = self.check_padding(length)
        frame_length = length + DATA_HEADER_LENGTH
        size = align_frame(frame_length)
        start = self._reserve(size, length, limit)
        if start < 0:
            return start
        offset = start - self._term_begin
        zero(self._term, offset + DATA_HEADER_LENGTH, offset + size)
        self._write_padding(offset, frame_length)
        return start + size

    def check_padding(self, length: int) -> int:
        """Return the length of padding.

        Raises:
            MessageTooLongError: Longer than the longest message takes with all its headers.
            ConfigurationError: It is no whole number of bytes.
        """
        length = check_number(length, "length", minimum=0, why=" bytes")
        max_length = framed_length(
            self.max_message_length, max_payload_length=self.max_payload_length
        )
        if length > max_length:
            msg = (
                f"padding of {length} bytes is longer than {max_length} bytes, the most for terms "
                f"of {self._term_length} bytes: append it in parts, or raise term-length="
            )
            raise MessageTooLongError(msg)
        return length

    def offer_block(self, block: Buffer, *, limit: int) -> int:
        """Append frames made for exactly this place; return the end position or `AppendResult`.

        Only the first header is checked. The block must fit into the rest of the term; a full term
        is rotated first.

        Args:
            block: Whole frames, aligned, the first of them data.
            limit: Position at which the log is full for now.

        Raises:
            ConfigurationError: Length or first header of the block do not fit here.
        """
        view = byte_view(block)
        length = view.nbytes
        if self._look_up_offset() == self._term_length and (result := self._next_term()) < 0:
            return result
        start = self.position
        if start >= limit:
            return self._refuse(start, length)
        self._check_block(view)
        offset = self._offset
        self._offset = end = offset + length
        self._tails[self._index] = pack_tail(self._term_id, end)
        self._term[offset + 8 : end] = view[8:]
        # The word that holds the first length goes last: until then a reader sees nothing.
        self._longs[offset >> 3] = FIRST_WORD.unpack_from(view)[0]
        return start + length

    def _look_up_offset(self) -> int:
        """Return where the term is filled to: the kernel may have appended since the last time."""
        if self.writer is not None:
            self._offset = min(self._tails[self._index] & UINT32_MASK, self._term_length)
        return self._offset

    def _reserve(self, size: int, length: int, limit: int) -> int:
        offset = self._look_up_offset()
        start = self._term_begin + offset
        if start >= limit:
            return self._refuse(start, length)
        end = offset + size
        self._tails[self._index] = (self._term_id << 32) + end
        if end > self._term_length:
            return self._end_of_term()
        self._offset = end
        return start

    def _end_of_term(self) -> int:
        """Pad the rest of a full term and go on to the next."""
        if self._offset < self._term_length:
            self._write_padding(self._offset, self._term_length - self._offset)
            self._offset = self._term_length
        return self._next_term() or AppendResult.ADMIN_ACTION

    def _next_term(self) -> int:
        """Rotate; return 0, or `MAX_POSITION_EXCEEDED` when this term was the last."""
        begin = self._term_begin + self._term_length
        if begin >= self.max_position:
            return AppendResult.MAX_POSITION_EXCEEDED
        self._enter_term(begin)
        self._index = (self._index + 1) % PARTITION_COUNT
        self._term_id = wrap_int32(self._term_id + 1)
        self._offset = 0
        self._tails[self._index] = pack_tail(self._term_id, 0)
        self._metadata.active_term_count = begin >> self._bits
        return 0

    def _write_padding(self, offset: int, frame_length: int) -> None:
        write_padding(self._words, self._longs, offset, self._session, self._stream, frame_length)

    def _check_block(self, block: memoryview) -> None:
        length = block.nbytes
        rest = self._term_length - self._offset
        if not DATA_HEADER_LENGTH <= length <= rest or length % FRAME_ALIGNMENT:
            msg = (
                f"block of {length} bytes must be a multiple of {FRAME_ALIGNMENT}, and not longer "
                f"than the {rest} bytes left in the term"
            )
            raise ConfigurationError(msg)
        _, second, *found, _, _ = FRAME_HEADER.unpack_from(block)
        wanted = [self._offset, self._log.session_id, self._log.stream_id, self._term_id]
        if found != wanted or second >> TYPE_SHIFT != DATA_WORD >> TYPE_SHIFT:
            msg = (
                f"block begins with frame type {second >> TYPE_SHIFT & 0xFFFF} and (term offset, "
                f"session id, stream id, term id) {found}: must be type 1 and {wanted}"
            )
            raise ConfigurationError(msg)
