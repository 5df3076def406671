"""What a subscription delivers: one small object a message, not frozen, without a dictionary."""

from __future__ import annotations

from typing import Any, Protocol

__all__ = ["Message", "MessageSource"]


class MessageSource(Protocol):
    """What a message came from: an `Image`, or a recording that is replayed.

    Attributes:
        session_id: Of the publication.
        stream_id: Within its channel.
        source_identity: Where the stream comes from, as `host:port`.
    """

    session_id: int
    stream_id: int
    source_identity: str


class Message:
    """One message, reassembled.

    Attributes:
        data: The payload, a copy of its own.
        position: Where the message ends in its stream, in bytes.
        reserved_value: What the publisher put beside it; 0 by default.
        image: The source it came from.
    """

    __slots__ = ("data", "image", "position", "reserved_value")

    def __init__(
        self, data: bytes, position: int, reserved_value: int, image: MessageSource
    ) -> None:
        self.data = data
        self.position = position
        self.reserved_value = reserved_value
        # A log knows no images: `client.image` says what it is.
        self.image: Any = image

    @property
    def session_id(self) -> int:
        """Return the session of the publication it came from."""
        session_id: int = self.image.session_id
        return session_id

    @property
    def stream_id(self) -> int:
        """Return the stream it came on."""
        stream_id: int = self.image.stream_id
        return stream_id

    def __bytes__(self) -> bytes:
        return self.data

    def __len__(self) -> int:
        return len(self.data)

    def __repr__(self) -> str:
        return (
            f"<Message of {len(self.data)} bytes at position {self.position}, "
            f"session {self.session_id}, stream {self.stream_id}>"
        )
