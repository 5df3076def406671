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
BEGIN_BIT: Final = DataFlags.BEGIN_FRAGMENT << FLAGS_SHIFT
END_BIT: Final = DataFlags.END_FRAGMENT << FLAGS_SHIFT


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
    longest: int = 0,
) -> int:
    """Read messages that are there whole; return the offset behind the last frame and its padding.

    Stops at a fragment of anything else, at a frame that is missing or reaches beyond `end`, and
    after `limit` messages.

    Args:
        term: The term as bytes.
        words: It as 32-bit words.
        longs: It as 64-bit words.
        offset: Where to begin; start of a frame.
        end: Offset not to be passed.
        begin_position: Of the term.
        limit: Most messages to read.
        out: Where they go: a `Message` each, or where there is no image (payload, end position,
            reserved value).
        image: The source they came from.
        longest: Longest message that may be put together of fragments, in bytes; 0 stops at any.

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
        elif word >> TYPE_SHIFT:
            data, following = _join(term, words, offset, end, longest)
            if not following:
                break
        else:
            offset = following
            continue
        reserved_value, offset = longs[(offset >> 3) + 3], following
        position = begin_position + following
        if image is None:
            append((data, position, reserved_value))
        else:
            append(Message(data, position, reserved_value, image))
        limit -= 1
    return offset


def _join(
    term: memoryview, words: memoryview, offset: int, end: int, longest: int
) -> tuple[bytes, int]:
    """Return the message whose fragments begin here, and the offset behind it; 0 where it is not.

    Every fragment has to be there, one behind the other, from the first to the last.
    """
    pieces = []
    length, expected = 0, BEGIN_BIT
    while offset < end:
        index = offset >> 2
        frame_length = words[index]
        word = words[index + 1]
        following = (offset + frame_length + 31) & -32
        length += frame_length - HEADER
        if (
            frame_length < HEADER
            or following > end
            or word & BEGIN_BIT != expected
            or not word >> TYPE_SHIFT
            or length > longest
        ):
            break
        pieces.append(term[offset + HEADER : offset + frame_length])
        if word & END_BIT:
            return b"".join(pieces), following
        offset, expected = following, 0
    return b"", 0
