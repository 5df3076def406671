"""What publications and subscriptions ask of the driver, by way of their client."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from aeron_async.client.closed_meanwhile import closed_meanwhile

if TYPE_CHECKING:
    from aeron_async.driver.media_driver import MediaDriver
    from aeron_async.protocol.channel_uri import ChannelUri

__all__ = ["ClientRequests"]


class ClientRequests(ABC):
    """A client, as its publications and subscriptions use it after they were added.

    Attributes:
        driver: The media driver it uses.
    """

    driver: MediaDriver

    @property
    @abstractmethod
    def client_id(self) -> int:
        """Return the id by which the driver knows this client."""

    async def add_publication_destination(self, registration_id: int, uri: ChannelUri) -> int:
        """Let a publication send to one more receiver; see `Publication.add_destination`."""
        with closed_meanwhile():
            return await self.driver.conductor.destinations.add_to_publication(
                self.client_id, registration_id, uri
            )

    async def remove_publication_destination(
        self, registration_id: int, destination: ChannelUri | int
    ) -> None:
        """Let a publication send to a receiver no more."""
        with closed_meanwhile():
            await self.driver.conductor.destinations.remove_from_publication(
                self.client_id, registration_id, destination
            )

    async def add_subscription_destination(self, registration_id: int, uri: ChannelUri) -> int:
        """Let a subscription receive at one more place; see `Subscription.add_destination`."""
        with closed_meanwhile():
            return await self.driver.conductor.destinations.add_to_subscription(
                self.client_id, registration_id, uri
            )

    async def remove_subscription_destination(
        self, registration_id: int, destination: ChannelUri | int
    ) -> None:
        """Let a subscription receive at a place no more."""
        with closed_meanwhile():
            await self.driver.conductor.destinations.remove_from_subscription(
                self.client_id, registration_id, destination
            )

    async def reject_image(self, image_id: int, reason: str) -> None:
        """Let an image take nothing more; see `Image.reject`."""
        await self.driver.conductor.reject_image(self.client_id, image_id, reason)
