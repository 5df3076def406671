"""What a subscription delivers: a whole message, or a raw fragment with its header.

A message is made by the kernel that reads it.

Source: Aeron `Header`, `FragmentHandler`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from aeron_async.kernel import Message
from aeron_async.protocol.header import DataFlags

if TYPE_CHECKING:
    from aeron_async.client.image import Image

__all__ = ["FragmentHeader", "Message"]


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
