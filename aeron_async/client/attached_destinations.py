"""Destinations of the streams that a client has added to a driver of another process.

Invariant: an id that a user was given means one destination, for as long as the client lives; ids
that a driver has given are used with that driver only.

Source: Aeron `ClientConductor.addDestination`, `removeDestination`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from aeron_async.client.attached_streams import AttachedPublication, Destination
from aeron_async.errors import ErrorCode, RegistrationError
from aeron_async.protocol.channel_uri import Media
from aeron_async.protocol.control_protocol import (
    NO_ID,
    AddDestination,
    AddReceiveDestination,
    OperationSucceeded,
    RemoveDestination,
    RemoveDestinationById,
    RemoveReceiveDestination,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.client.attached_streams import AttachedSubscription, AwayIds
    from aeron_async.client.driver_proxy import DriverProxy
    from aeron_async.protocol.channel_uri import ChannelUri
    from aeron_async.protocol.control_protocol import ClientCommand

__all__ = ["AttachedDestinations", "Owner"]

Owner: TypeAlias = "AttachedPublication | AttachedSubscription"


class AttachedDestinations:
    """Commands about destinations, to a driver in another process; see `Destinations`.

    Args:
        owner: Returns the publication or the subscription with an id; None if there is none.
        proxy_for: Returns what takes commands about it; raises if the driver does not have it.
        away_ids: Has the ids of what a driver after the first has added.
    """

    def __init__(
        self,
        owner: Callable[[int], Owner | None],
        proxy_for: Callable[[Owner | None], DriverProxy],
        away_ids: AwayIds,
    ) -> None:
        self._owner = owner
        self._proxy_for = proxy_for
        self._away_ids = away_ids

    async def add_to_publication(
        self, client_id: int, registration_id: int, uri: ChannelUri
    ) -> int:
        """Add a destination to a publication; return the id of the destination."""
        del client_id
        return await self._add(AddDestination, registration_id, uri)

    async def remove_from_publication(
        self, client_id: int, registration_id: int, destination: ChannelUri | int
    ) -> None:
        """Remove a destination from a publication, by its channel or its id."""
        del client_id
        if not isinstance(destination, int):
            await self._remove(RemoveDestination, registration_id, destination)
            return
        owner = self._owner(registration_id)
        destinations = {} if owner is None else owner.destinations
        known = destinations.get(destination)
        driver_id = destination if known is None else known.driver_id
        if driver_id is None:
            del destinations[destination]
            return
        proxy = self._proxy_for(owner)
        if known is None and self._away_ids.are_needed:
            # The next driver may have given this number to another destination.
            raise RegistrationError(not_a_destination(destination, owner))
        command = RemoveDestinationById(
            client_id=proxy.client_id,
            correlation_id=proxy.next_id(),
            registration_id=id_for_driver(registration_id, owner),
            destination_registration_id=driver_id,
        )
        await ask_to_remove(proxy, command, destinations, destination)

    async def add_to_subscription(
        self, client_id: int, registration_id: int, uri: ChannelUri
    ) -> int:
        """Add a destination to a subscription; return the id of the destination."""
        del client_id
        return await self._add(AddReceiveDestination, registration_id, uri)

    async def remove_from_subscription(
        self, client_id: int, registration_id: int, destination: ChannelUri | int
    ) -> None:
        """Remove a destination from a subscription, by its channel or its id.

        The driver has a command for the channel only.

        Raises:
            RegistrationError: It has no such destination.
        """
        del client_id
        owner = self._owner(registration_id)
        message = not_a_destination(destination, owner)
        if not isinstance(destination, int):
            try:
                await self._remove(RemoveReceiveDestination, registration_id, destination)
            except RegistrationError as error:
                is_local = destination.is_spy or destination.media is Media.IPC
                if is_local and owner is not None and error.code is ErrorCode.UNKNOWN_SUBSCRIPTION:
                    # Drivers say so of a stream of their own that the subscription does not read.
                    raise RegistrationError(message) from error
                raise
            return
        known = None if owner is None else owner.destinations.get(destination)
        if owner is None or known is None:
            raise RegistrationError(message)
        await self._remove_known(RemoveReceiveDestination, registration_id, owner, destination)

    async def add_again(self, owner: Owner, key: int) -> None:
        """Add a destination to the driver that the client has come back to.

        Args:
            owner: The publication or the subscription.
            key: The id of the destination, as its user knows it.
        """
        destination = owner.destinations[key]
        is_sent_to = isinstance(owner, AttachedPublication)
        kind = AddDestination if is_sent_to else AddReceiveDestination
        registration_id = owner.ready.registration_id if owner.ready is not None else NO_ID
        driver_id = await self._ask(kind, registration_id, destination.uri)
        if owner.destinations.get(key) is destination:
            destination.driver_id = driver_id
            return
        # Its user has removed it in the meantime.
        undo = RemoveDestination if is_sent_to else RemoveReceiveDestination
        await self._ask(undo, registration_id, destination.uri)

    async def _add(self, kind: type[AddDestination], registration_id: int, uri: ChannelUri) -> int:
        driver_id = await self._ask(kind, registration_id, uri)
        # The next driver counts its ids from the start.
        added_id = self._away_ids.next() if self._away_ids.are_needed else driver_id
        owner = self._owner(registration_id)
        if owner is not None:
            owner.destinations[added_id] = Destination(uri, driver_id)
        return added_id

    async def _remove(
        self, kind: type[AddDestination], registration_id: int, uri: ChannelUri
    ) -> None:
        owner = self._owner(registration_id)
        found = {} if owner is None else owner.destinations
        key = next((key for key, each in found.items() if each.uri == uri), None)
        if owner is None or key is None:
            await self._ask(kind, registration_id, uri)
        else:
            await self._remove_known(kind, registration_id, owner, key)

    async def _remove_known(
        self, kind: type[AddDestination], registration_id: int, owner: Owner, key: int
    ) -> None:
        """Remove a destination that the client has added, by its channel."""
        known = owner.destinations[key]
        if known.driver_id is None:
            del owner.destinations[key]
            return
        proxy = self._proxy_for(owner)
        command = command_about(kind, proxy, registration_id, owner, known.uri)
        await ask_to_remove(proxy, command, owner.destinations, key)

    async def _ask(self, kind: type[AddDestination], registration_id: int, uri: ChannelUri) -> int:
        owner = self._owner(registration_id)
        proxy = self._proxy_for(owner)
        command = command_about(kind, proxy, registration_id, owner, uri)
        undo = taking_back(command, proxy.next_id())
        await proxy.ask(command, OperationSucceeded, undo)
        return command.correlation_id


async def ask_to_remove(
    proxy: DriverProxy, command: ClientCommand, destinations: dict[int, Destination], key: int
) -> None:
    """Ask for a removal; what was removed is not added again, whether or not anybody waits."""
    known = destinations.get(key)
    try:
        await proxy.ask(command, OperationSucceeded, on_written=lambda: destinations.pop(key, None))
    except RegistrationError:
        if known is not None:
            destinations[key] = known
        raise


def command_about(
    kind: type[AddDestination],
    proxy: DriverProxy,
    registration_id: int,
    owner: Owner | None,
    uri: ChannelUri,
) -> AddDestination:
    """Return a command about the destination with a channel."""
    return kind(
        client_id=proxy.client_id,
        correlation_id=proxy.next_id(),
        registration_id=id_for_driver(registration_id, owner),
        channel=str(uri).encode(),
    )


def not_a_destination(destination: ChannelUri | int, owner: Owner | None) -> str:
    """Return the words that refuse to remove what is not there."""
    uri = "the stream" if owner is None else owner.uri
    return f"{destination} is not a destination of {uri}"


def taking_back(added: AddDestination, correlation_id: int) -> ClientCommand | None:
    """Return the command that takes back a destination for which nobody waits any more.

    Args:
        added: The command that has added it, or one that has removed it, which nothing takes back.
        correlation_id: That of the command to return.
    """
    if type(added) is AddDestination:
        return RemoveDestinationById(
            client_id=added.client_id,
            correlation_id=correlation_id,
            registration_id=added.registration_id,
            destination_registration_id=added.correlation_id,
        )
    if isinstance(added, AddReceiveDestination):
        return RemoveReceiveDestination(
            client_id=added.client_id,
            correlation_id=correlation_id,
            registration_id=added.registration_id,
            channel=added.channel,
        )
    return None


def id_for_driver(registration_id: int, owner: Owner | None) -> int:
    """Return the id by which a driver knows a publication that several requests share."""
    if isinstance(owner, AttachedPublication):
        return owner.ready.original_registration_id
    return registration_id
