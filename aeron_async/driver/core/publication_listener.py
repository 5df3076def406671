"""Who hears what a network publication has decided.

Source: Aeron `NetworkPublication`, `ClientProxy`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from aeron_async.driver.core.network_publication import NetworkPublication
    from aeron_async.driver.core.outbox import Address
    from aeron_async.protocol.error import ErrorFrame

__all__ = ["PublicationListener"]


class PublicationListener(Protocol):
    """Who hears what a publication has decided."""

    def on_window_changed(self, publication: NetworkPublication) -> None:
        """The publisher limit rose, data was sent, or the connection came or went."""
        ...

    def on_publication_error(
        self,
        publication: NetworkPublication,
        error: ErrorFrame,
        source: Address | None,
        destination_id: int | None,
    ) -> None:
        """A live receiver rejected the stream."""
        ...
