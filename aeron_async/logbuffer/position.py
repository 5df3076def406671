"""Positions: conversion from and to term id and term offset, and limits on lengths.

A *position* is absolute in the stream and never wraps; a *term id* is a signed 32-bit integer and
does wrap; an *offset* lies inside one term. The rest of the package converts between them by these
functions.

Source: Aeron `LogBufferDescriptor`.
"""

from __future__ import annotations

from typing import Final

from aeron_async.errors import ConfigurationError
from aeron_async.protocol.header import (
    DATA_HEADER_LENGTH,
    FRAME_ALIGNMENT,
    MAX_UDP_PAYLOAD_LENGTH,
    TERM_MAX_LENGTH,
    TERM_MIN_LENGTH,
    align_frame,
    wrap_int32,
)

__all__ = [
    "MAX_MESSAGE_LENGTH",
    "PAGE_SIZE_MAX",
    "PAGE_SIZE_MIN",
    "PARTITION_COUNT",
    "check_mtu",
    "check_page_size",
    "check_term_length",
    "compute_position",
    "framed_length",
    "max_message_length",
    "max_payload_length",
    "max_position",
    "pack_tail",
    "partition_index",
    "position_bits",
    "term_id_at",
    "term_offset_at",
    "unpack_tail",
]

PARTITION_COUNT: Final = 3
PAGE_SIZE_MIN: Final = 4096
PAGE_SIZE_MAX: Final = 1024 * 1024 * 1024
MAX_MESSAGE_LENGTH: Final = 16 * 1024 * 1024
MESSAGES_PER_TERM_MIN: Final = 8
UINT32_MASK: Final = 0xFFFF_FFFF
FIRST_NEGATIVE_TERM: Final = -(2**31)


def position_bits(term_length: int) -> int:
    """Return log2 of the term length, the shift that turns a position into a count of terms."""
    return term_length.bit_length() - 1


def compute_position(term_id: int, term_offset: int, *, initial_term_id: int, bits: int) -> int:
    """Return the absolute position of an offset in a term, in bytes.

    Term ids wrap at 32 bits, so their difference does too; a position is 64 bits wide. A term
    before the first has a negative position.

    Differs: the end of the position space, at which a stream that has used up all its terms stops,
    has the term id of a term before the first. Offset 0 of that term can only mean this end.
    """
    position = (wrap_int32(term_id - initial_term_id) << bits) + term_offset
    if position == FIRST_NEGATIVE_TERM << bits:
        return -position
    return position


def term_id_at(position: int, *, initial_term_id: int, bits: int) -> int:
    """Return the id of the term that holds a position, as a signed 32-bit integer."""
    return wrap_int32(initial_term_id + (position >> bits))


def term_offset_at(position: int, *, term_length: int) -> int:
    """Return the offset of a position in its term, in bytes."""
    return position & (term_length - 1)


def partition_index(position: int, *, bits: int) -> int:
    """Return which of the three terms of a log holds a position: 0, 1 or 2."""
    return (position >> bits) % PARTITION_COUNT


def pack_tail(term_id: int, term_offset: int) -> int:
    """Return a tail counter: term id in the high half, offset in the low, signed 64 bits."""
    return (wrap_int32(term_id) << 32) | term_offset


def unpack_tail(tail: int, *, term_length: int) -> tuple[int, int]:
    """Return the term id and offset of a tail counter.

    Every publisher that found no room has added its length to the low half, which may therefore be
    far beyond the term; the returned offset never is.
    """
    return tail >> 32, min(tail & UINT32_MASK, term_length)


def max_message_length(term_length: int) -> int:
    """Return the length of the longest message of a log: an eighth of a term, 16 MiB at most."""
    return min(term_length // MESSAGES_PER_TERM_MIN, MAX_MESSAGE_LENGTH)


def max_payload_length(mtu_length: int) -> int:
    """Return how many bytes of a message one frame carries at most."""
    return mtu_length - DATA_HEADER_LENGTH


def max_position(term_length: int) -> int:
    """Return the position at which a stream has used up its 2^31 terms."""
    return term_length << 31


def framed_length(length: int, *, max_payload_length: int) -> int:
    """Return how many bytes of log a message takes, with headers and alignment."""
    if length <= max_payload_length:
        return align_frame(length + DATA_HEADER_LENGTH)
    full, rest = divmod(length, max_payload_length)
    framed = full * (max_payload_length + DATA_HEADER_LENGTH)
    return framed + align_frame(rest + DATA_HEADER_LENGTH) if rest else framed


def check_term_length(term_length: int) -> None:
    """Refuse a term length that no Aeron driver accepts.

    Raises:
        ConfigurationError: Not a power of two from 64 KiB to 1 GiB.
    """
    _check_power_of_two(
        term_length,
        "term length",
        minimum=TERM_MIN_LENGTH,
        maximum=TERM_MAX_LENGTH,
        key="term-length",
    )


def check_page_size(page_size: int) -> None:
    """Refuse a page size that no Aeron driver accepts.

    Raises:
        ConfigurationError: Not a power of two from 4 KiB to 1 GiB.
    """
    _check_power_of_two(
        page_size,
        "page size",
        minimum=PAGE_SIZE_MIN,
        maximum=PAGE_SIZE_MAX,
        key="aeron.file.page.size",
    )


def check_mtu(mtu_length: int) -> None:
    """Refuse an MTU that no Aeron driver accepts.

    Raises:
        ConfigurationError: Not a multiple of 32 above 32 and up to 65 504.
    """
    if (
        not DATA_HEADER_LENGTH < mtu_length <= MAX_UDP_PAYLOAD_LENGTH
        or mtu_length % FRAME_ALIGNMENT
    ):
        msg = (
            f"mtu of {mtu_length} bytes must be a multiple of {FRAME_ALIGNMENT} above "
            f"{DATA_HEADER_LENGTH} and at most {MAX_UDP_PAYLOAD_LENGTH}: set mtu="
        )
        raise ConfigurationError(msg)


def _check_power_of_two(value: int, what: str, *, minimum: int, maximum: int, key: str) -> None:
    if not minimum <= value <= maximum or value & (value - 1):
        msg = f"{what} of {value} must be a power of two from {minimum} to {maximum}: set {key}="
        raise ConfigurationError(msg)
