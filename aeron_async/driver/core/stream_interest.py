"""Who wants which sessions of one stream, and the images of those that are here.

Source: Aeron `DataPacketDispatcher.StreamInterest`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aeron_async.driver.core.publication_image import PublicationImage

__all__ = ["StreamInterest"]


class StreamInterest:
    """The sessions of one stream on one endpoint.

    Attributes:
        images: Active images by session id.
        is_all_sessions: Whether some subscription takes every session.
        session_ids: Sessions that subscriptions ask for by id.
    """

    def __init__(self) -> None:
        self.images: dict[int, PublicationImage] = {}
        self.is_all_sessions = False
        self.session_ids: set[int] = set()

    @property
    def is_wanted(self) -> bool:
        """Return whether any subscription is left."""
        return self.is_all_sessions or bool(self.session_ids)

    def wants(self, session_id: int) -> bool:
        """Return whether some subscription takes this session."""
        return self.is_all_sessions or session_id in self.session_ids

    def forget_unwanted_images(self) -> None:
        """Drop the images of sessions that no subscription takes."""
        self.images = {key: image for key, image in self.images.items() if self.wants(key)}
