"""Which client holds which publication, of any kind.

A publication that several clients share is released when the last of them closes it.

Source: Aeron `PublicationLink`, `DriverConductor.onRemovePublication`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from aeron_async.errors import ErrorCode, PublicationError, RegistrationError

if TYPE_CHECKING:
    from aeron_async.driver.commands import PublicationErrorFrame, PublicationListener
    from aeron_async.driver.core.publication import SubscribablePublication
    from aeron_async.driver.resources import DriverResources
    from aeron_async.driver.sender import Sender

__all__ = ["PublicationLink", "PublicationLinks"]


@attrs.define(kw_only=True, eq=False)
class PublicationLink:
    """One client's hold on one publication."""

    registration_id: int
    client_id: int
    publication: SubscribablePublication
    listener: PublicationListener


class PublicationLinks:
    """The holds of all clients on all publications of one driver.

    Args:
        resources: What the driver's parts share.
        sender: Polls the publications.
    """

    def __init__(self, resources: DriverResources, sender: Sender) -> None:
        self._resources = resources
        self._sender = sender
        self._links: dict[int, PublicationLink] = {}
        self._holders: dict[SubscribablePublication, list[PublicationLink]] = {}

    def add(
        self,
        publication: SubscribablePublication,
        *,
        client_id: int,
        listener: PublicationListener,
    ) -> int:
        """Let a client hold a publication; return the registration id of that hold."""
        link = PublicationLink(
            registration_id=self._resources.next_id(),
            client_id=client_id,
            publication=publication,
            listener=listener,
        )
        self._links[link.registration_id] = link
        self._holders.setdefault(publication, []).append(link)
        publication.window_listeners.append(listener)
        return link.registration_id

    def find(self, registration_id: int) -> SubscribablePublication | None:
        """Return the publication that is held under an id, or None."""
        link = self._links.get(registration_id)
        return None if link is None else link.publication

    def get(self, registration_id: int) -> SubscribablePublication:
        """Return the publication that is held under an id.

        Raises:
            RegistrationError: UNKNOWN_PUBLICATION; no client holds it any more.
        """
        publication = self.find(registration_id)
        if publication is None:
            message = f"publication {registration_id} is not there: it was closed"
            raise RegistrationError(message, code=ErrorCode.UNKNOWN_PUBLICATION)
        return publication

    def remove(self, registration_id: int) -> None:
        """Remove one client's hold; after the last one the publication drains."""
        link = self._links.pop(registration_id, None)
        if link is None:
            return
        publication = link.publication
        self._holders[publication].remove(link)
        publication.window_listeners.remove(link.listener)
        if not self._holders[publication]:
            publication.release(self._resources.clock.now_ns())
            self._sender.on_activity(publication)

    def revoke(self, registration_id: int) -> None:
        """Revoke an exclusive publication, and remove the client's hold."""
        publication = self.find(registration_id)
        if publication is not None and publication.params.is_exclusive:
            publication.revoke(self._resources.clock.now_ns())
        self.remove(registration_id)

    def remove_client(self, client_id: int) -> None:
        """Remove all holds of a client."""
        for link in list(self._links.values()):
            if link.client_id == client_id:
                self.remove(link.registration_id)

    def forget(self, publication: SubscribablePublication) -> None:
        """Remove all holds on a publication that is done; if it failed, notify its clients."""
        links = self._holders.pop(publication, ())
        publication.window_listeners.clear()
        for link in links:
            self._links.pop(link.registration_id, None)
        failure = publication.failure
        if failure is not None:
            message = (
                f"publication on {publication.channel} stream {publication.stream_id} failed in "
                f"its driver, {publication.cause_of_failure(failure)}"
            )
            error = PublicationError(message)
            error.__cause__ = failure
            for link in links:
                link.listener.on_publication_failed(error)

    # Events for the clients.

    def on_publication_error(
        self, publication: SubscribablePublication, error: PublicationErrorFrame
    ) -> None:
        """Notify every client that holds the publication, each with its own registration id."""
        for link in list(self._holders.get(publication, ())):
            link.listener.on_publication_error(
                attrs.evolve(error, registration_id=link.registration_id)
            )
