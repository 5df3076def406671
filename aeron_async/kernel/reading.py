"""Whole messages out of frames, at full speed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aeron_async.kernel.message import Message
from aeron_async.logbuffer.frame import FLAGS_SHIFT, HEADER, TYPE_SHIFT, UNFRAGMENTED_WORD
from aeron_async.protocol.header import DataFlags

if TYPE_CHECKING:
    from aeron_async.kernel.message import MessageSource

__all__ = ["read_whole"]

FLAGS_BITS: Final = DataFlags.UNFRAGMENTED << FLAGS_SHIFT


def read_whole(
    term: memoryview,
    words: memoryview,
    longs: memoryview,
    offset: int,
    end: int,
    begin_position: int,
    limit: int,
    out: list[Any],
    image: MessageSource | None = None,
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
        out: Where they go: a `Message` each, or where there is no image (payload, end position,
            reserved value).
        image: The source they came from.

    Source: Aeron `TermReader`.
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
            data = bytes(term[offset + HEADER : offset + frame_length])
            reserved_value = longs[(offset >> 3) + 3]
            position = begin_position + following
            if image is None:
                append((data, position, reserved_value))
            else:
                append(Message(data, position, reserved_value, image))
            limit -= 1
        elif word >> TYPE_SHIFT:
            break
        offset = following
    return offset
