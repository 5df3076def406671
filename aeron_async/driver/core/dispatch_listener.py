"""Who hears what a dispatcher of data has found.

Source: Aeron `DataPacketDispatcher`, `Receiver`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from aeron_async.driver.core.outbox import Address, ReceiveDestination
    from aeron_async.driver.core.publication_image import PublicationImage
    from aeron_async.protocol.setup import Setup

__all__ = ["DispatchListener"]


class DispatchListener(Protocol):
    """Who hears what a dispatcher has found."""

    def on_image_activity(self, image: PublicationImage) -> None:
        """Something was placed in the image; it wants to be polled."""
        ...

    def on_create_image(
        self, setup: Setup, source: Address, destination: ReceiveDestination
    ) -> None:
        """A wanted stream begins; an image is to be made and added."""
        ...

    def on_invalid_datagram(self, datagram: memoryview, source: Address, now_ns: int) -> None:
        """Something that cannot be meant arrived, and has been counted."""
        ...
