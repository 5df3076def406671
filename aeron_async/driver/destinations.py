"""What clients ask about destinations: more places to send to, or to receive at, and fewer.

Source: Aeron `DriverConductor.onAddSendDestination`, `onAddRcvDestination` and their neighbours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aeron_async.driver.media.channel_resolver import (
    resolve_receive_destination,
    resolve_send_destination,
)
from aeron_async.errors import ErrorCode, RegistrationError
from aeron_async.protocol.channel_uri import Media

if TYPE_CHECKING:
    from aeron_async.driver.command_queue import CommandQueue
    from aeron_async.driver.core.outbox import Address
    from aeron_async.driver.core.udp_channel import UdpChannel
    from aeron_async.driver.publications import Publications
    from aeron_async.driver.resources import DriverResources
    from aeron_async.driver.subscriptions import Subscriptions
    from aeron_async.protocol.channel_uri import ChannelUri

__all__ = ["Destinations"]


class Destinations:
    """The requests of one driver's clients that are about destinations.

    Args:
        resources: What the driver's parts share.
        queue: Carries them out.
        publications: Those that send to destinations.
        subscriptions: Those that receive at destinations.
    """

    def __init__(
        self,
        resources: DriverResources,
        queue: CommandQueue,
        publications: Publications,
        subscriptions: Subscriptions,
    ) -> None:
        self._network = resources.network
        self._queue = queue
        self._publications = publications
        self._subscriptions = subscriptions

    async def add_to_publication(
        self, client_id: int, registration_id: int, uri: ChannelUri
    ) -> int:
        """Let a publication send to one more receiver; return the id of that destination.

        Raises:
            RegistrationError: It cannot be had.
            ClosedError: The driver or the client is closed.
        """
        self._queue.check_open()
        address = await self._address(uri)

        async def execute() -> int:
            return self._publications.add_destination(registration_id, uri, address)

        return await self._queue.submit(
            client_id,
            execute,
            lambda added_id: self._publications.undo_destination(registration_id, added_id),
        )

    async def remove_from_publication(
        self, client_id: int, registration_id: int, destination: ChannelUri | int
    ) -> None:
        """Let a publication send to a receiver no more.

        Args:
            client_id: Who asks.
            registration_id: Of the publication.
            destination: Its channel, or the id it was given.

        Raises:
            RegistrationError: There is no such publication or destination.
            ClosedError: The driver or the client is closed.
        """
        self._queue.check_open()
        address = None if isinstance(destination, int) else await self._address(destination)

        async def execute() -> None:
            self._publications.remove_destination(registration_id, destination, address=address)

        await self._queue.submit(client_id, execute, _undo_nothing)

    async def add_to_subscription(
        self, client_id: int, registration_id: int, uri: ChannelUri
    ) -> int:
        """Let a subscription receive at one more place; return the id of that destination.

        Raises:
            RegistrationError: It cannot be had.
            ClosedError: The driver or the client is closed.
        """
        self._queue.check_open()
        channel = await self._channel(uri)

        async def execute() -> int:
            return await self._subscriptions.add_destination(registration_id, uri, channel)

        return await self._queue.submit(
            client_id,
            execute,
            lambda added_id: self._subscriptions.undo_destination(registration_id, added_id),
        )

    async def remove_from_subscription(
        self, client_id: int, registration_id: int, destination: ChannelUri | int
    ) -> None:
        """Let a subscription receive at a place no more.

        Args:
            client_id: Who asks.
            registration_id: Of the subscription.
            destination: Its channel, or the id it was given.

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
                # As it is written, it is told by its text; names may have gone since.
                if error.code is not ErrorCode.UNKNOWN_HOST:
                    raise
                channel = None
            form = None if channel is None or channel.uri.is_spy else channel.canonical_form

        async def execute() -> None:
            self._subscriptions.remove_destination(
                registration_id, destination, canonical_form=form
            )

        await self._queue.submit(client_id, execute, _undo_nothing)

    async def _channel(self, uri: ChannelUri) -> UdpChannel | None:
        """Return where to receive, or what to spy upon; None for IPC."""
        if uri.media is Media.IPC:
            return None
        return await self._queue.look_up(resolve_receive_destination(self._network, uri))

    async def _address(self, uri: ChannelUri) -> Address | None:
        """Return where a receiver is; None where its name leads nowhere yet, but may."""
        try:
            channel = await self._queue.look_up(resolve_send_destination(self._network, uri))
        except RegistrationError as error:
            if error.code is not ErrorCode.UNKNOWN_HOST:
                raise
            return None
        return channel.remote_data


def _undo_nothing(result: None) -> None:
    """Leave a removal be whose caller no longer waits."""
