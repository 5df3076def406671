"""Send a range of a log again, as far as the log still holds it.

Source: Aeron `aeron_network_publication_resend`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aeron_async.kernel import scan_for_send
from aeron_async.logbuffer.position import (
    compute_position,
    max_message_length,
    partition_index,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.logbuffer.term_log import LogBuffers

__all__ = ["resend_range"]


def resend_range(
    log: LogBuffers,
    send: Callable[[memoryview], bool],
    *,
    sender_position: int,
    term_id: int,
    term_offset: int,
    length: int,
) -> int:
    """Send whole frames of a range again, and return how many bytes of the stream that covered.

    A range that begins before the resend window (half a term and the longest message behind the
    sender) or beyond what was sent brings nothing; nor does one shorter than its first frame.

    Args:
        log: Where the frames are.
        send: Takes a datagram, and says whether it could leave.
        sender_position: Up to where data has been sent, in bytes.
        term_id: Term of the range.
        term_offset: Where it begins, in bytes.
        length: How long it is, in bytes.
    """
    position = compute_position(
        term_id, term_offset, initial_term_id=log.initial_term_id, bits=log.position_bits
    )
    bottom = sender_position - log.term_length // 2 - max_message_length(log.term_length)
    if not bottom <= position < sender_position:
        return 0
    index = partition_index(position, bits=log.position_bits)
    term, words = log.terms[index], log.term_words[index]
    # Differs: C goes on into what has not been sent yet, past the sender limit.
    sent_length = sender_position - position
    offset, end = term_offset, min(term_offset + min(length, sent_length), log.term_length)
    while offset < end:
        limit = min(end - offset, log.mtu_length)
        available, padding = scan_for_send(term, words, offset, limit=limit)
        if available == 0 or not send(term[offset : offset + available]):
            break
        offset += available + padding
    return offset - term_offset
