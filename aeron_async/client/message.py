"""What a subscription delivers: a whole message, or a raw fragment with its header.

One small object a message, and no more: no frozen class, no dictionary.

Source: Aeron `Header`, `FragmentHandler`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from aeron_async.protocol.header import DataFlags

if TYPE_CHECKING:
    from aeron_async.client.image import Image

__all__ = ["FragmentHeader", "Message"]


@final
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


@final
class FragmentHeader:
    """What is known of one fragment; the same object every time, so copy what is to be kept.

    Attributes:
        position: Where the fragment ends in its stream, in bytes, alignment included.
        flags: Whether it begins or ends a message.
        reserved_value: What the publisher put beside it.
        image: The source it came from.
    """

    __slots__ = ("flags", "image", "position", "reserved_value")

    def __init__(self, image: Image) -> None:
        self.image = image
        self.position = 0
        self.flags = 0
        self.reserved_value = 0

    @property
    def is_begin(self) -> bool:
        """Return whether a message begins with this fragment."""
        return bool(self.flags & DataFlags.BEGIN_FRAGMENT)

    @property
    def is_end(self) -> bool:
        """Return whether a message ends with this fragment."""
        return bool(self.flags & DataFlags.END_FRAGMENT)
