"""Clearing the way after a publisher that reserved room in a log and never finished.

Four things can have been left behind: a term that is full and was not rotated, a frame that was
opened and not committed, room that was reserved and not opened, and the end of a term that was
crossed and not padded. Each becomes padding or a rotation, so that readers can go on.

Source: Aeron `LogBufferUnblocker`, `TermUnblocker`.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, final

from aeron_async.logbuffer.frame import session_word, stream_word, write_padding
from aeron_async.logbuffer.position import partition_index, term_offset_at, unpack_tail
from aeron_async.logbuffer.rebuilder import is_hole
from aeron_async.logbuffer.rotation import rotate_log
from aeron_async.protocol.header import FRAME_ALIGNMENT

if TYPE_CHECKING:
    from aeron_async.logbuffer.term_log import LogBuffers

__all__ = ["UnblockResult", "unblock"]


@final
class UnblockResult(Enum):
    """What unblocking came to."""

    NO_ACTION = auto()
    UNBLOCKED = auto()
    UNBLOCKED_TO_END = auto()


def unblock(log: LogBuffers, blocked_position: int) -> UnblockResult:
    """Turn what blocks the readers of a shared publication into padding, if anything does.

    Call only when the position has not moved for the publication unblock timeout although the
    producer is ahead: a publisher still at work would lose its message.
    """
    metadata = log.metadata
    term_length = log.term_length
    term_count = blocked_position >> log.position_bits
    offset = term_offset_at(blocked_position, term_length=term_length)
    active = metadata.active_term_count
    if active == term_count - 1 and offset == 0:
        previous = partition_index(blocked_position - 1, bits=log.position_bits)
        rotate_log(metadata, term_count=active, term_id=metadata.tail(previous) >> 32)
        return UnblockResult.UNBLOCKED

    index = partition_index(blocked_position, bits=log.position_bits)
    term_id, tail_offset = unpack_tail(metadata.tail(index), term_length=term_length)
    words = log.term_words[index]
    frame_length = words[offset >> 2]
    result = UnblockResult.UNBLOCKED
    if frame_length < 0:
        # Whatever the frame was to be, it cannot have been more than the rest of the term.
        end = min(offset - frame_length, term_length)
    elif frame_length > 0:
        return UnblockResult.NO_ACTION
    else:
        end = offset + FRAME_ALIGNMENT
        while end < tail_offset and not words[end >> 2]:
            end += FRAME_ALIGNMENT
        if end >= tail_offset and tail_offset < term_length:
            # Nothing behind the hole says how long it is.
            return UnblockResult.NO_ACTION
        if end == term_length:
            result = UnblockResult.UNBLOCKED_TO_END
        # A publisher of another process may have woken up during the scan.
        if not is_hole(words, offset, end):
            return UnblockResult.NO_ACTION
    write_padding(
        words,
        log.term_longs[index],
        offset,
        session_word(log.session_id),
        stream_word(stream_id=log.stream_id, term_id=term_id),
        end - offset,
    )
    if result is UnblockResult.UNBLOCKED_TO_END:
        rotate_log(metadata, term_count=term_count, term_id=term_id)
    return result
