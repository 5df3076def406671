"""The conductor: the one task that changes what a driver consists of.

Requests of clients are carried out one after the other, so that nothing else moves while a socket
is being opened. A request whose client no longer waits is undone at once.

Source: Aeron `DriverConductor`, `ClientCommandAdapter`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, TypeVar

import attrs

from aeron_async.driver.agent import Agent
from aeron_async.driver.core.loss_detector import NEVER_NS
from aeron_async.driver.core.system_counters import SystemCounterId
from aeron_async.driver.core.udp_channel import needs_unique_suffix
from aeron_async.driver.core.unsupported import check_has_no_control, check_is_unicast
from aeron_async.driver.media.channel_resolver import resolve_publication, resolve_subscription
from aeron_async.driver.publications import Publications
from aeron_async.driver.receiver import Receiver
from aeron_async.driver.sender import Sender
from aeron_async.driver.subscriptions import Subscriptions
from aeron_async.errors import ClosedError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from aeron_async.driver.commands import (
        ClientListener,
        PublicationListener,
        PublicationReady,
        SubscriptionListener,
        SubscriptionReady,
    )
    from aeron_async.driver.core.network_publication import NetworkPublication
    from aeron_async.driver.core.publication_image import PublicationImage
    from aeron_async.driver.core.udp_channel import UdpChannel
    from aeron_async.driver.resources import DriverResources
    from aeron_async.protocol.channel_uri import ChannelUri

__all__ = ["Conductor"]

T = TypeVar("T")


@attrs.frozen(eq=False)
class Command:
    """One request: what to do, who waits for it, and how to undo it if nobody does."""

    client_id: int
    execute: Callable[[], Awaitable[Any]]
    undo: Callable[[Any], None]
    result: asyncio.Future[Any]


class Conductor(Agent):
    """The task that adds and removes, and the two agents it adds to.

    Args:
        resources: What the driver's parts share.

    Attributes:
        sender: Polls the publications.
        receiver: Polls the images.
    """

    role_name = "conductor"

    def __init__(self, resources: DriverResources) -> None:
        context = resources.context
        super().__init__(
            clock=resources.clock,
            system_counters=resources.system_counters,
            max_cycle_time=SystemCounterId.CONDUCTOR_MAX_CYCLE_TIME,
            threshold_exceeded=SystemCounterId.CONDUCTOR_CYCLE_TIME_THRESHOLD_EXCEEDED,
            cycle_threshold_ns=context.conductor_cycle_threshold_ns,
            lag_threshold_ns=context.loop_lag_threshold_ns,
        )
        self._resources = resources
        self._commands: deque[Command] = deque()
        # A dictionary for its order: closing must be the same every time.
        self._lookups: dict[asyncio.Future[UdpChannel], None] = {}
        self._clients: dict[int, ClientListener] = {}
        self._is_closed = False
        self._drained: asyncio.Future[None] | None = None
        self.sender = Sender(
            context, resources.clock, resources.system_counters, self._on_publication_done
        )
        self.receiver = Receiver(context, resources.clock, resources.system_counters, self)
        self._subscriptions = Subscriptions(resources, self.receiver)
        self._publications = Publications(
            resources,
            self.sender,
            self._subscriptions.images,
            self._check_drained,
            self._subscriptions.on_response_setup,
        )

    @property
    def network_publications(self) -> tuple[NetworkPublication, ...]:
        """Return the publications there are, lingering ones included; for those who watch."""
        return tuple(self._publications)

    @property
    def publication_images(self) -> tuple[PublicationImage, ...]:
        """Return the images there are, lingering ones included; for those who watch."""
        return tuple(self._subscriptions.images)

    # What clients ask.

    def add_client(self, listener: ClientListener) -> int:
        """Take a client in, and return its id.

        Raises:
            ClosedError: The driver is closed.
        """
        self._check_open()
        client_id = self._resources.next_id()
        self._clients[client_id] = listener
        return client_id

    def remove_client(self, client_id: int) -> None:
        """Let a client go, and everything it holds."""
        if self._clients.pop(client_id, None) is not None:
            self._publications.remove_client(client_id)
            self._subscriptions.remove_client(client_id)

    async def add_publication(
        self,
        client_id: int,
        uri: ChannelUri,
        stream_id: int,
        *,
        is_exclusive: bool,
        listener: PublicationListener,
    ) -> PublicationReady:
        """Add a publication, or share the one that is there.

        Raises:
            RegistrationError: It cannot be had.
            ClosedError: The driver or the client is closed.
        """
        self._check_open()
        check_is_unicast(uri)
        suffix = str(self._resources.next_id()) if needs_unique_suffix(uri) else ""
        channel = await self._look_up(
            resolve_publication(self._resources.network, uri, unique_suffix=suffix)
        )

        async def execute() -> PublicationReady:
            return await self._publications.add(
                channel,
                stream_id=stream_id,
                is_exclusive=is_exclusive,
                client_id=client_id,
                listener=listener,
            )

        return await self._submit(
            client_id, execute, lambda ready: self._publications.remove(ready.registration_id)
        )

    async def add_subscription(
        self, client_id: int, uri: ChannelUri, stream_id: int, *, listener: SubscriptionListener
    ) -> SubscriptionReady:
        """Add a subscription.

        Raises:
            RegistrationError: It cannot be had.
            ClosedError: The driver or the client is closed.
        """
        self._check_open()
        check_is_unicast(uri)
        check_has_no_control(uri)
        suffix = str(self._resources.next_id())
        channel = await self._look_up(
            resolve_subscription(self._resources.network, uri, unique_suffix=suffix)
        )

        async def execute() -> SubscriptionReady:
            return await self._subscriptions.add(
                channel, stream_id=stream_id, client_id=client_id, listener=listener
            )

        return await self._submit(
            client_id, execute, lambda ready: self._subscriptions.remove(ready.registration_id)
        )

    def remove_publication(self, registration_id: int) -> None:
        """Let a publication go; what is left to send is still sent."""
        self._publications.remove(registration_id)

    def revoke_publication(self, registration_id: int) -> None:
        """Let an exclusive publication go; what has not arrived yet is lost."""
        self._publications.revoke(registration_id)

    def remove_subscription(self, registration_id: int) -> None:
        """Let a subscription go."""
        self._subscriptions.remove(registration_id)

    # What the other agents say.

    def on_image_drained(self, image: PublicationImage) -> None:
        """Take an image out of sight."""
        self._subscriptions.images.on_image_drained(image)

    def on_image_done(self, image: PublicationImage) -> None:
        """Free an image."""
        self._subscriptions.images.on_image_done(image)

    # How it lives and ends.

    async def do_work(self, now_ns: int) -> int:
        """Carry out what clients asked for."""
        del now_ns
        while self._commands:
            await self._carry_out(self._commands.popleft())
        return NEVER_NS

    async def drain(self) -> None:
        """Say goodbye to sources, and wait until every publication has sent what it was given."""
        self._subscriptions.images.say_goodbye()
        self._publications.hasten()
        if len(self._publications):
            self._drained = asyncio.get_running_loop().create_future()
            await self._drained

    def release_clients(self, error: Exception | None) -> None:
        """Take no more requests, and let every client go."""
        self._is_closed = True
        # First tell everybody, for what comes after may fail if the driver has.
        for listener in self._clients.values():
            listener.on_driver_closed(error)
        for lookup in self._lookups:
            lookup.cancel()
        while self._commands:
            command = self._commands.popleft()
            if not command.result.done():
                closed = ClosedError("the media driver was closed")
                closed.__cause__ = error
                command.result.set_exception(closed)
        for client_id in list(self._clients):
            self.remove_client(client_id)

    def close(self) -> None:
        """Free everything at once."""
        self._publications.close()
        self._subscriptions.close()

    async def _look_up(self, resolving: Coroutine[Any, Any, UdpChannel]) -> UdpChannel:
        """Resolve the names of a channel, unless the driver closes first: it may take long."""
        # A task of its own, awaited right here, so that closing can end it and not the caller.
        lookup = asyncio.ensure_future(resolving)
        self._lookups[lookup] = None
        try:
            return await lookup
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if self._is_closed and caller is not None and not caller.cancelling():
                message = "the media driver was closed while a name was looked up"
                raise ClosedError(message) from None
            raise
        finally:
            self._lookups.pop(lookup, None)

    async def _submit(
        self, client_id: int, execute: Callable[[], Awaitable[T]], undo: Callable[[T], None]
    ) -> T:
        self._check_open()
        result: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._commands.append(Command(client_id, execute, undo, result))
        self.wake()
        try:
            return await result
        except asyncio.CancelledError:
            # Carried out, but the caller was cancelled before it could take the result.
            if result.done() and not result.cancelled() and result.exception() is None:
                undo(result.result())
            raise

    async def _carry_out(self, command: Command) -> None:
        if command.result.done():
            return
        try:
            self._check_client(command.client_id)
            value = await command.execute()
        except Exception as error:  # noqa: BLE001 - whoever asked gets it; others share this driver
            if not command.result.done():
                command.result.set_exception(error)
            return
        except asyncio.CancelledError:
            # The end of the driver: nobody may wait for an answer for ever.
            if not command.result.done():
                command.result.set_exception(ClosedError("the media driver was closed meanwhile"))
            raise
        if command.client_id not in self._clients:
            # Closed while the socket was being opened: what it asked for came after its end.
            command.undo(value)
            if not command.result.done():
                command.result.set_exception(ClosedError("the client was closed meanwhile"))
        elif command.result.done():
            command.undo(value)
        else:
            command.result.set_result(value)

    def _on_publication_done(self, publication: Any) -> None:
        self._publications.on_publication_done(publication)

    def _check_drained(self) -> None:
        if self._drained is not None and not len(self._publications) and not self._drained.done():
            self._drained.set_result(None)

    def _check_open(self) -> None:
        if self._is_closed:
            message = "the media driver is closed"
            raise ClosedError(message)

    def _check_client(self, client_id: int) -> None:
        if client_id not in self._clients:
            message = "the client was closed while the request was under way"
            raise ClosedError(message)
