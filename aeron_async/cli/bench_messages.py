"""What the messages of a measurement hold, so that each can be told from every other and from none.

A message begins with its number, eight bytes little endian, and goes on with bytes that follow from
it. Numbers come round after a prime count, which no batch, datagram or term holds a multiple of;
that none was lost or doubled by whole rounds is told by the count that a mark carries.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from aeron_async.errors import AeronError

__all__ = ["BenchError", "check_mark", "make_mark", "make_messages", "messages_per_datagram"]

NUMBER: Final = Struct("<q")
MARK: Final = Struct("<qq")
"""The end of a part: -1, and how many messages it had."""
SHORT_LENGTH: Final = 1_000
SHORT_ROUND: Final = 1_021
LONG_ROUND: Final = 251
FRAME_HEADER_LENGTH: Final = 32
FRAME_ALIGNMENT: Final = 32


class BenchError(AeronError):
    """A message was not the one that was due, or a process that measures failed."""


def make_messages(length: int) -> tuple[bytes, ...]:
    """Return one round of messages of a length, in bytes; at least the 8 of a number.

    Raises:
        BenchError: They would be shorter.
    """
    if length < NUMBER.size:
        message = f"messages of {length} bytes must have {NUMBER.size}: they begin with a number"
        raise BenchError(message)
    count = SHORT_ROUND if length <= SHORT_LENGTH else LONG_ROUND
    rest = length - NUMBER.size
    pattern = bytes(range(256)) * (rest // 256 + 2)
    starts = ((number, number % 256) for number in range(count))
    return tuple(NUMBER.pack(number) + pattern[at : at + rest] for number, at in starts)


def make_mark(count: int) -> bytes:
    """Return the message that ends a part of so many."""
    return MARK.pack(-1, count)


def check_mark(data: bytes, count: int) -> None:
    """Take a message that was not the one due: it must end a part, and the part must be whole.

    Args:
        data: The message.
        count: Messages of the part that have arrived.

    Raises:
        BenchError: It is no mark, or messages are missing, or came twice.
    """
    if len(data) != MARK.size or MARK.unpack(data)[0] != -1:
        message = f"message {count} of this part begins with {data[:8].hex()}: not the one due"
        raise BenchError(message)
    offered = MARK.unpack(data)[1]
    if offered != count:
        message = f"{offered} messages were offered and {count} have arrived"
        raise BenchError(message)


def framed_length(length: int) -> int:
    """Return what a message takes of a datagram that holds it whole, in bytes."""
    return -(-(FRAME_HEADER_LENGTH + length) // FRAME_ALIGNMENT) * FRAME_ALIGNMENT


def messages_per_datagram(length: int, mtu_length: int) -> float:
    """Return how many messages a full datagram carries; less than one where it takes several."""
    framed = framed_length(length)
    if framed <= mtu_length:
        return float(mtu_length // framed)
    return 1 / -(-length // (mtu_length - FRAME_HEADER_LENGTH))
