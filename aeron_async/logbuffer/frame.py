"""The stores that write one frame, in an order that is safe for readers at any moment.

A frame is opened with its negative length, filled, and committed with its positive length; a reader
that finds zero or less stops there. These functions are the write half of the log buffer: they use
plain views and integers, so that compiled twins can replace them.

A header is written as 64-bit words: length, version, flags and type; term offset and session id;
stream id and term id; reserved value. `session_word` and `stream_word` make the parts that do not
change from frame to frame.

Source: Aeron `HeaderWriter`, `FrameDescriptor`.
"""

from __future__ import annotations

from typing import Final

from aeron_async.protocol.header import DATA_HEADER_LENGTH, DataFlags, FrameType

__all__ = [
    "DATA_WORD",
    "OPEN_UNFRAGMENTED",
    "TYPE_SHIFT",
    "UNFRAGMENTED_WORD",
    "session_word",
    "stream_word",
    "write_frame",
    "write_message",
    "write_padding",
]

HEADER: Final = DATA_HEADER_LENGTH
TYPE_SHIFT: Final = 16
FLAGS_SHIFT: Final = 8

# The second 32-bit word of a header: version 0, flags, type.
DATA_WORD: Final = FrameType.DATA << TYPE_SHIFT
BEGIN_WORD: Final = DATA_WORD | DataFlags.BEGIN_FRAGMENT << FLAGS_SHIFT
END_WORD: Final = DATA_WORD | DataFlags.END_FRAGMENT << FLAGS_SHIFT
UNFRAGMENTED_WORD: Final = DATA_WORD | DataFlags.UNFRAGMENTED << FLAGS_SHIFT
PADDING_WORD: Final = FrameType.PAD << TYPE_SHIFT | DataFlags.UNFRAGMENTED << FLAGS_SHIFT

# The first 64-bit word of a header, to subtract the frame length from: 2^32 minus a length is its
# negative, as 32 bits, in the low half.
OPEN_BEGIN: Final = (BEGIN_WORD + 1) << 32
OPEN_MIDDLE: Final = (DATA_WORD + 1) << 32
OPEN_END: Final = (END_WORD + 1) << 32
OPEN_UNFRAGMENTED: Final = (UNFRAGMENTED_WORD + 1) << 32
OPEN_PADDING: Final = (PADDING_WORD + 1) << 32


def session_word(session_id: int) -> int:
    """Return the second 64-bit word of a header, without the term offset."""
    return session_id << 32


def stream_word(*, stream_id: int, term_id: int) -> int:
    """Return the third 64-bit word of a header."""
    return term_id << 32 | stream_id & 0xFFFF_FFFF


def write_frame(
    term: memoryview,
    words: memoryview,
    longs: memoryview,
    offset: int,
    opening: int,
    session: int,
    stream: int,
    data: bytes | memoryview,
    length: int,
    reserved_value: int,
) -> None:
    """Write one data frame and commit it; the term must be zero from `offset` on.

    Args:
        term: The term as bytes.
        words: The term as 32-bit words.
        longs: The term as 64-bit words.
        offset: Where the frame starts; a multiple of 32.
        opening: One of the `OPEN_` constants: flags and type.
        session: See `session_word`.
        stream: See `stream_word`.
        data: The payload; bytes, or a view of single bytes.
        length: Length of the payload, in bytes.
        reserved_value: Signed 64 bits.
    """
    frame_length = length + HEADER
    index = offset >> 3
    longs[index] = opening - frame_length
    longs[index + 1] = session + offset
    longs[index + 2] = stream
    if reserved_value:
        # Otherwise it is zero already: a term is cleaned before it is written again.
        longs[index + 3] = reserved_value
    term[offset + HEADER : offset + frame_length] = data
    words[offset >> 2] = frame_length


def write_message(
    term: memoryview,
    words: memoryview,
    longs: memoryview,
    offset: int,
    session: int,
    stream: int,
    data: memoryview,
    length: int,
    max_payload_length: int,
    reserved_value: int,
) -> None:
    """Write a message longer than one frame; commit each fragment before beginning the next."""
    full_length = max_payload_length + HEADER
    opening = OPEN_BEGIN
    start = 0
    last_start = length - max_payload_length
    while start < last_start:
        end = start + max_payload_length
        write_frame(
            term, words, longs, offset, opening, session, stream,
            data[start:end], max_payload_length, reserved_value,
        )  # fmt: skip
        opening = OPEN_MIDDLE
        offset += full_length
        start = end
    write_frame(
        term, words, longs, offset, OPEN_END, session, stream,
        data[start:], length - start, reserved_value,
    )  # fmt: skip


def write_padding(
    words: memoryview, longs: memoryview, offset: int, session: int, stream: int, frame_length: int
) -> None:
    """Write a padding frame, which readers skip: only its header, whatever lies behind it.

    Args:
        words: The term as 32-bit words.
        longs: The term as 64-bit words.
        offset: Where the frame starts; a multiple of 32.
        session: See `session_word`.
        stream: See `stream_word`.
        frame_length: Length of header and padding together, in bytes.
    """
    index = offset >> 3
    longs[index] = OPEN_PADDING - frame_length
    longs[index + 1] = session + offset
    longs[index + 2] = stream
    words[offset >> 2] = frame_length
