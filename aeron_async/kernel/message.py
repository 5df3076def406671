"""What a subscription delivers: one small object a message, not frozen, without a dictionary."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from aeron_async.client.image import Image

__all__ = ["Message", "MessageSource"]

MessageSource: TypeAlias = "Image"
"""What a message came from: all that this floor knows of it is that it has the two ids."""


class Message:
    """One message, reassembled.

    Attributes:
        data: The payload, a copy of its own.
        position: Where the message ends in its stream, in bytes.
        reserved_value: What the publisher put beside it; 0 by default.
        image: The source it came from.
    """

    __slots__ = ("data", "image", "position", "reserved_value")

    def __init__(self, data: bytes, position: int, reserved_value: int, image: Image) -> None:
        self.data = data
        self.position = position
        self.reserved_value = reserved_value
        self.image = image

    @property
    def session_id(self) -> int:
        """Return the session of the publication it came from."""
        return self.image.session_id

    @property
    def stream_id(self) -> int:
        """Return the stream it came on."""
        return self.image.stream_id

    def __bytes__(self) -> bytes:
        return self.data

    def __len__(self) -> int:
        return len(self.data)

    def __repr__(self) -> str:
        return (
            f"<Message of {len(self.data)} bytes at position {self.position}, "
            f"session {self.session_id}, stream {self.stream_id}>"
        )
