"""The commands of clients about destinations of their publications and subscriptions.

Source: Aeron `DriverConductor.onAddSendDestination`, `onAddRcvDestination` and their neighbours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aeron_async.driver.media.channel_resolver import (
    numeric_receive_destination,
    numeric_send_destination,
    resolve_receive_destination,
    resolve_send_destination,
)
from aeron_async.errors import ErrorCode, RegistrationError
from aeron_async.protocol.channel_uri import Media

if TYPE_CHECKING:
    from aeron_async.driver.core.outbox import Address
    from aeron_async.driver.core.udp_channel import UdpChannel
    from aeron_async.driver.publications import Publications
    from aeron_async.driver.resources import DriverResources
    from aeron_async.driver.subscriptions import Subscriptions
    from aeron_async.protocol.channel_uri import ChannelUri

from aeron_async.driver.command_queue import CommandQueue, undo_nothing

__all__ = ["Destinations"]


class Destinations:
    """The commands of clients about destinations.

    Args:
        resources: What the driver's parts share.
        queue: Executes the commands.
        publications: The publications that send to destinations.
        subscriptions: The subscriptions that receive at destinations.
    """

    def __init__(
        self,
        resources: DriverResources,
        queue: CommandQueue,
        publications: Publications,
        subscriptions: Subscriptions,
    ) -> None:
        self._resources = resources
        self._queue = queue
        self._publications = publications
        self._subscriptions = subscriptions

    async def add_to_publication(
        self,
        client_id: int,
        registration_id: int,
        uri: ChannelUri,
        *,
        destination_id: int | None = None,
    ) -> int:
        """Add a destination to a publication; return its id, which is `destination_id` if given.

        Raises:
            RegistrationError: The destination cannot be added.
            ClosedError: The driver or the client is closed.
        """
        self._queue.check_open()
        address = await self._address(uri)
        added_id = self._resources.next_id() if destination_id is None else destination_id

        async def execute() -> int:
            return self._publications.add_destination(
                registration_id,
                uri,
                address,
                destination_id=added_id,
                client_id=client_id,
            )

        return await self._queue.submit(
            client_id,
            execute,
            lambda _: self._publications.undo_destination(registration_id, added_id),
        )

    async def remove_from_publication(
        self,
        client_id: int,
        registration_id: int,
        destination: ChannelUri | int,
        *,
        missing_ok: bool = False,
    ) -> None:
        """Remove a destination from a publication.

        Args:
            client_id: The client.
            registration_id: Registration id of the publication.
            destination: Its channel, or the id returned when it was added.
            missing_ok: Do nothing if it has no such destination.

        Raises:
            RegistrationError: There is no such publication or destination.
            ClosedError: The driver or the client is closed.
        """
        self._queue.check_open()
        address = None if isinstance(destination, int) else await self._address(destination)

        async def execute() -> None:
            self._publications.remove_destination(
                registration_id,
                destination,
                address=address,
                client_id=client_id,
                missing_ok=missing_ok,
            )

        await self._queue.submit(client_id, execute, undo_nothing)

    async def add_to_subscription(
        self,
        client_id: int,
        registration_id: int,
        uri: ChannelUri,
        *,
        destination_id: int | None = None,
    ) -> int:
        """Add a destination to a subscription; return its id, which is `destination_id` if given.

        Raises:
            RegistrationError: The destination cannot be added.
            ClosedError: The driver or the client is closed.
        """
        self._queue.check_open()
        channel = await self._channel(uri)
        added_id = self._resources.next_id() if destination_id is None else destination_id

        async def execute() -> int:
            return await self._subscriptions.add_destination(
                registration_id,
                uri,
                channel,
                destination_id=added_id,
                client_id=client_id,
            )

        return await self._queue.submit(
            client_id,
            execute,
            lambda _: self._subscriptions.undo_destination(registration_id, added_id),
        )

    async def remove_from_subscription(
        self,
        client_id: int,
        registration_id: int,
        destination: ChannelUri | int,
        *,
        missing_ok: bool = False,
    ) -> None:
        """Remove a destination from a subscription.

        Args:
            client_id: The client.
            registration_id: Registration id of the subscription.
            destination: Its channel, or the id returned when it was added.
            missing_ok: Do nothing if no socket of it is such a destination.

        Raises:
            RegistrationError: There is no such subscription or destination.
            ClosedError: The driver or the client is closed.
        """
        self._queue.check_open()
        form = None
        if not isinstance(destination, int):
            try:
                channel = await self._channel(destination)
            except RegistrationError as error:
                # It can still be found by its text; a name may have gone since it was added.
                if error.code is not ErrorCode.UNKNOWN_HOST:
                    raise
                channel = None
            form = None if channel is None or channel.uri.is_spy else channel.canonical_form

        async def execute() -> None:
            self._subscriptions.remove_destination(
                registration_id,
                destination,
                canonical_form=form,
                client_id=client_id,
                missing_ok=missing_ok,
            )

        await self._queue.submit(client_id, execute, undo_nothing)

    async def _channel(self, uri: ChannelUri) -> UdpChannel | None:
        """Return the resolved channel of a destination; None for IPC."""
        if uri.media is Media.IPC:
            return None
        return numeric_receive_destination(uri) or await self._queue.look_up(
            resolve_receive_destination(self._resources.network, uri)
        )

    async def _address(self, uri: ChannelUri) -> Address | None:
        """Return the address of a receiver; None if its name does not resolve yet."""
        try:
            channel = numeric_send_destination(uri)
            if channel is None:
                channel = await self._queue.look_up(
                    resolve_send_destination(self._resources.network, uri)
                )
        except RegistrationError as error:
            if error.code is not ErrorCode.UNKNOWN_HOST:
                raise
            return None
        return channel.remote_data
