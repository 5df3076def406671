"""Every publication of one driver, of any kind, and which client holds which.

A publication that several clients share is released when the last of them closes it. It stays in
the table until it has drained and its log is freed.

Invariant: besides this table, only the sender's schedule holds a publication, for a network
publication the dispatcher of its endpoint, and what takes statistics, until `on_removed`.

Source: Aeron `PublicationLink`, `DriverConductor.onRemovePublication`.
"""

from __future__ import annotations

from operator import add
from typing import TYPE_CHECKING, Any

import attrs

from aeron_async.driver.core.ipc_publication import IpcPublication
from aeron_async.driver.core.network_publication import NetworkPublication
from aeron_async.driver.core.rare_changes import RARE_CHANGES
from aeron_async.errors import ErrorCode, PublicationError, RegistrationError
from aeron_async.stats import BLOCKED_BY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from aeron_async.driver.commands import PublicationErrorFrame, PublicationListener
    from aeron_async.driver.core.publication import SubscribablePublication
    from aeron_async.driver.core.udp_channel import UdpChannel
    from aeron_async.driver.media.endpoint import SendChannelEndpoint
    from aeron_async.driver.resources import DriverResources
    from aeron_async.driver.sender import Sender

__all__ = ["PublicationLink", "PublicationTable"]


@attrs.define(kw_only=True, eq=False)
class PublicationLink:
    """One client's hold on one publication."""

    registration_id: int
    client_id: int
    publication: SubscribablePublication
    listener: PublicationListener


@attrs.define(eq=False)
class GoneOffers:
    """What clients that hold a publication no more have offered; see `OfferWaiters`.

    `has_others` says whether one of them was not in this loop, which nobody has counted.
    """

    message_count: int = 0
    blocked_ns: tuple[int, ...] = (0,) * len(BLOCKED_BY)
    has_others: bool = False

    @property
    def is_nothing(self) -> bool:
        """Return whether no client has gone that had offered anything, or was not counted."""
        return not (self.message_count or self.has_others or any(self.blocked_ns))

    def add(self, listener: Any) -> None:
        """Add the client that this listener is of."""
        offers = getattr(listener, "offers", None)
        if offers is None:
            self.has_others = True
            return
        if listener.appender is not None:
            self.message_count += listener.appender.message_count
        self.blocked_ns = tuple(map(add, self.blocked_ns, offers.blocked_ns))


@attrs.frozen(eq=False)
class PublicationEntry:
    """Where one publication sends from, None for IPC, and the clients that hold it, or did."""

    endpoint: SendChannelEndpoint | None
    links: list[PublicationLink] = attrs.field(factory=list)
    gone: GoneOffers = attrs.field(factory=GoneOffers)


def describe_rejection(error: PublicationErrorFrame) -> str:
    """Return the text of a rejection for the log of distinct errors, in Aeron's words."""
    fields = {
        "registrationId": error.registration_id,
        "destinationRegistrationId": error.destination_registration_id,
        "sessionId": error.session_id,
        "streamId": error.stream_id,
        "receiverId": error.receiver_id,
        "groupId": error.group_tag,
        "errorCode": error.code,
        "errorMessage": error.message,
    }
    return "onPublicationError: " + ", ".join(
        f"{key}={-1 if value is None else value}" for key, value in fields.items()
    )


class PublicationTable:
    """The publications of one driver, in the order in which they were added.

    Args:
        resources: What the driver's parts share.
        sender: Polls the publications.

    Attributes:
        on_removed: Called with each publication that is removed; None before statistics are taken.
    """

    def __init__(self, resources: DriverResources, sender: Sender) -> None:
        self._resources = resources
        self._sender = sender
        self._entries: dict[SubscribablePublication, PublicationEntry] = {}
        # Publications by the id of their first request, and holds by theirs, in all and by client.
        self._originals: dict[int, SubscribablePublication] = {}
        self._links: dict[int, PublicationLink] = {}
        self._client_links: dict[int, dict[int, PublicationLink]] = {}
        self.on_removed: Callable[[SubscribablePublication], object] | None = None

    def __iter__(self) -> Iterator[SubscribablePublication]:
        return iter(tuple(self._entries))

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def entries(self) -> Mapping[SubscribablePublication, PublicationEntry]:
        """Return each publication with its endpoint and the clients that hold it."""
        return self._entries

    @property
    def network(self) -> tuple[NetworkPublication, ...]:
        """Return the network publications, lingering ones included."""
        return tuple(self.each_network())

    def each_network(self) -> Iterator[NetworkPublication]:
        """Return the same one by one: there may be thousands, of which one is looked for."""
        return (each for each in self._entries if isinstance(each, NetworkPublication))

    @property
    def ipc(self) -> tuple[IpcPublication, ...]:
        """Return the IPC publications, draining ones included."""
        return tuple(each for each in self._entries if isinstance(each, IpcPublication))

    def add(
        self, publication: SubscribablePublication, endpoint: SendChannelEndpoint | None
    ) -> None:
        """Add a new publication, which no client holds yet; `endpoint` is None for IPC."""
        self._entries[publication] = PublicationEntry(endpoint)
        self._originals[publication.registration_id] = publication

    def endpoint(self, publication: NetworkPublication) -> SendChannelEndpoint:
        """Return the endpoint that a network publication sends from."""
        endpoint = self._entries[publication].endpoint
        assert endpoint is not None, "only an IPC publication has none"
        return endpoint

    def channel(self, publication: SubscribablePublication) -> UdpChannel | None:
        """Return the channel that a publication sends to; None for IPC."""
        endpoint = self._entries[publication].endpoint
        return None if endpoint is None else endpoint.channel

    def remove(self, publication: SubscribablePublication) -> None:
        """Remove a publication that is done; if it failed, notify the clients that hold it."""
        links = self._entries.pop(publication).links
        if self.on_removed is not None:
            self.on_removed(publication)
        publication.window_listeners.clear()
        if self._originals.get(publication.registration_id) is publication:
            # Once nobody holds a publication, a client may take its id for another one.
            del self._originals[publication.registration_id]
        for link in links:
            self._forget(link.registration_id)
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

    # Holds of clients.

    def hold(
        self,
        publication: SubscribablePublication,
        registration_id: int,
        *,
        client_id: int,
        listener: PublicationListener,
    ) -> None:
        """Let a client hold a publication under an id of its own."""
        link = PublicationLink(
            registration_id=registration_id,
            client_id=client_id,
            publication=publication,
            listener=listener,
        )
        self._links[link.registration_id] = link
        self._client_links.setdefault(client_id, {})[registration_id] = link
        self._entries[publication].links.append(link)
        RARE_CHANGES.note()
        publication.window_listeners.append(listener)

    def find(self, registration_id: int) -> SubscribablePublication | None:
        """Return the publication that is held under an id, or None."""
        link = self._links.get(registration_id)
        if link is not None:
            return link.publication
        # Clients of other processes name a shared publication by its first request.
        original = self._originals.get(registration_id)
        return original if original is not None and self._entries[original].links else None

    def get(self, registration_id: int) -> SubscribablePublication:
        """Return the publication that is held under an id.

        Raises:
            RegistrationError: UNKNOWN_PUBLICATION; no client holds it any more.
        """
        publication = self.find(registration_id)
        if publication is None:
            message = f"unknown publication: {registration_id}: it was closed"
            raise RegistrationError(message, code=ErrorCode.UNKNOWN_PUBLICATION)
        return publication

    def get_held(self, registration_id: int, client_id: int) -> SubscribablePublication:
        """Return the publication that a client holds, by the id of its hold or of the first one.

        Raises:
            RegistrationError: UNKNOWN_PUBLICATION; the client does not hold it.
        """
        publication = self.get(registration_id)
        if all(link.client_id != client_id for link in self._entries[publication].links):
            message = f"unknown publication: {registration_id}: client {client_id} holds none such"
            raise RegistrationError(message, code=ErrorCode.UNKNOWN_PUBLICATION)
        return publication

    def release(self, registration_id: int) -> None:
        """Remove one client's hold; after the last one the publication drains."""
        link = self._forget(registration_id)
        if link is None:
            return
        publication = link.publication
        entry = self._entries[publication]
        entry.gone.add(link.listener)
        links = entry.links
        links.remove(link)
        RARE_CHANGES.note()
        publication.window_listeners.remove(link.listener)
        if not links:
            publication.release(self._resources.clock.now_ns())
            self._sender.on_activity(publication)

    def revoke(self, registration_id: int) -> None:
        """Revoke an exclusive publication, and remove the client's hold."""
        publication = self.find(registration_id)
        if publication is not None and publication.params.is_exclusive:
            publication.revoke(self._resources.clock.now_ns())
        self.release(registration_id)

    def release_client(self, client_id: int) -> None:
        """Remove all holds of a client."""
        for registration_id in tuple(self._client_links.get(client_id, ())):
            self.release(registration_id)

    def _forget(self, registration_id: int) -> PublicationLink | None:
        """Remove a hold from where it is found by its id and by its client."""
        link = self._links.pop(registration_id, None)
        if link is not None:
            of_client = self._client_links[link.client_id]
            del of_client[registration_id]
            if not of_client:
                del self._client_links[link.client_id]
        return link

    def on_publication_error(
        self, publication: SubscribablePublication, error: PublicationErrorFrame
    ) -> None:
        """Notify every client that holds the publication, each with its own registration id.

        A rejection is recorded. A refusal is an error of the receiver, whose driver records it.
        """
        if error.code == ErrorCode.IMAGE_REJECTED:
            self._resources.system_counters.note_error(
                ErrorCode.IMAGE_REJECTED, describe_rejection(error)
            )
        for link in tuple(self._entries[publication].links):
            link.listener.on_publication_error(
                attrs.evolve(error, registration_id=link.registration_id)
            )
