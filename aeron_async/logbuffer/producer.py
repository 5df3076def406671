"""Where the publishers of a log stand, as its metadata says.

Source: Aeron `LogBufferDescriptor`, `NetworkPublication.producerPosition`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aeron_async.logbuffer.position import PARTITION_COUNT, compute_position, unpack_tail

if TYPE_CHECKING:
    from aeron_async.logbuffer.term_log import LogBuffers

__all__ = ["producer_position"]


def producer_position(log: LogBuffers) -> int:
    """Return up to where publishers have claimed the log, in bytes, committed or not.

    The tail of a full term runs beyond its end; the position does not.
    """
    metadata = log.metadata
    tail = metadata.tail(metadata.active_term_count % PARTITION_COUNT)
    term_id, offset = unpack_tail(tail, term_length=log.term_length)
    return compute_position(
        term_id, offset, initial_term_id=log.initial_term_id, bits=log.position_bits
    )
