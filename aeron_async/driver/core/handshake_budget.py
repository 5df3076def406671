"""How many bytes may leave for a receiver that has not answered yet.

The address of such a receiver was named by a stranger, and may be another host's. So it is sent at
most three times the bytes that asked for it, as by a QUIC server before a path is validated.

Differs: Aeron sends a SETUP every 100 ms for as long as the publication lives. A publication with
a budget of its own lets the pauses grow, so that the budget lasts for seconds.

Source: RFC 9000, section 8.1.
"""

from __future__ import annotations

from typing import Final

__all__ = ["SENT_PER_BYTE", "HandshakeBudget"]

SENT_PER_BYTE: Final = 3
"""Bytes that may be sent for each byte that was received."""


class HandshakeBudget:
    """The bytes that are left to one receiver.

    Args:
        length: To begin with, in bytes.
    """

    __slots__ = ("length",)

    def __init__(self, length: int = 0) -> None:
        self.length = length

    def on_received(self, length: int) -> None:
        """Allow three times the bytes that the receiver sent."""
        self.length += SENT_PER_BYTE * length

    def try_take(self, length: int) -> bool:
        """Return whether so many bytes may leave now, and take note that they do."""
        if length > self.length:
            return False
        self.length -= length
        return True
