"""The step from a full term to the next, which anyone who finds the term full may take.

Source: Aeron `LogBufferDescriptor.rotateLog`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aeron_async.logbuffer.position import PARTITION_COUNT, pack_tail
from aeron_async.protocol.header import wrap_int32

if TYPE_CHECKING:
    from aeron_async.logbuffer.metadata import LogMetadata

__all__ = ["rotate_log"]


def rotate_log(metadata: LogMetadata, *, term_count: int, term_id: int) -> None:
    """Make the term after `term_id` the active one, unless somebody has.

    Differs: Aeron compares and swaps, for its publishers are threads. Ours share one event loop,
    and nothing can come between the load and the store.

    Args:
        metadata: Of the log.
        term_count: How many terms after the initial one the full term is.
        term_id: Of the full term.
    """
    following = (term_count + 1) % PARTITION_COUNT
    # The slot must still hold the term of three rotations ago, or the work is done already.
    if metadata.tail(following) >> 32 == wrap_int32(term_id + 1 - PARTITION_COUNT):
        metadata.set_tail(following, pack_tail(term_id + 1, 0))
    if metadata.active_term_count == term_count:
        metadata.active_term_count = term_count + 1
