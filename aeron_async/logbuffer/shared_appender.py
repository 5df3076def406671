"""Appending to a log that several publications write to.

Source: Aeron `ConcurrentPublication`.
"""

from __future__ import annotations

from typing import final

from aeron_async.logbuffer.appender import Appender, AppendResult
from aeron_async.logbuffer.frame import write_padding
from aeron_async.logbuffer.metadata import ACTIVE_TERM_COUNT_INDEX
from aeron_async.logbuffer.position import (
    PARTITION_COUNT,
    UINT32_MASK,
    compute_position,
    unpack_tail,
)
from aeron_async.logbuffer.rotation import rotate_log

__all__ = ["SharedAppender"]


@final
class SharedAppender(Appender):
    """One of any number of writers; all state is in the log.

    The writers of one process share its event loop, so that a plain load and store stand for
    Aeron's fetch-and-add: nothing can come between them. Across processes they could not.
    """

    __slots__ = ()

    @property
    def position(self) -> int:
        """Where the next message would start, in bytes."""
        metadata = self._metadata
        tail = metadata.tail(metadata.active_term_count % PARTITION_COUNT)
        term_id, offset = unpack_tail(tail, term_length=self._term_length)
        return compute_position(
            term_id, offset, initial_term_id=self._initial_term_id, bits=self._bits
        )

    def _reserve(self, size: int, length: int, limit: int) -> int:
        tails = self._tails
        count = self._metadata_words[ACTIVE_TERM_COUNT_INDEX]
        tail = tails[count % PARTITION_COUNT]
        if ((tail >> 32) - self._initial_term_id - count) & UINT32_MASK:
            # Somebody has rotated the tail and not yet the count.
            return AppendResult.ADMIN_ACTION
        offset = tail & UINT32_MASK
        position = (count << self._bits) + offset
        if position < limit and offset + size <= self._term_length:
            tails[count % PARTITION_COUNT] = tail + size
            return position
        position += min(offset, self._term_length) - offset
        if position >= limit:
            return self._refuse(position, length)
        tails[count % PARTITION_COUNT] = tail + size
        return self._end_of_log(tail, size)

    def _end_of_log(self, tail: int, size: int) -> int:
        """Pad the rest of a full term, if it is ours, and rotate."""
        term_id, offset = unpack_tail(tail, term_length=self._term_length)
        begin = compute_position(term_id, 0, initial_term_id=self._initial_term_id, bits=self._bits)
        if offset < self._term_length:
            # Whoever crosses the end pads; all who come later find the offset beyond it.
            self._enter_term(begin)
            rest = self._term_length - offset
            write_padding(self._words, self._longs, offset, self._session, self._stream, rest)
        if begin + offset + size >= self.max_position:
            return AppendResult.MAX_POSITION_EXCEEDED
        rotate_log(self._metadata, term_count=begin >> self._bits, term_id=term_id)
        return AppendResult.ADMIN_ACTION
