"""The conductor: the agent that executes client commands, one at a time.

Invariant: `CommandQueue` starts a command only when the one before it has ended, so nothing else
changes while a socket is being opened. If the caller of a command no longer waits for its result,
the command is undone at once.

`Destinations` puts the commands about destinations into the queue; `Conductor` runs the queue.

Source: Aeron `DriverConductor`, `ClientCommandAdapter`, `DriverConductor.onAddSendDestination`,
`onAddRcvDestination` and their neighbours.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio
import attrs

from aeron_async.clock import NEVER_NS
from aeron_async.counters import Counter
from aeron_async.driver.agent import Agent
from aeron_async.driver.client_counters import ClientCounters
from aeron_async.driver.commands import AddedCounter
from aeron_async.driver.core.ipc_publication import IpcPublication
from aeron_async.driver.core.publication import PublicationState
from aeron_async.driver.core.stream_params import SessionIds, check_is_supported
from aeron_async.driver.core.system_counters import DriverCounterId, SystemCounterId
from aeron_async.driver.core.udp_channel import needs_unique_suffix
from aeron_async.driver.ipc_publications import IpcPublications
from aeron_async.driver.media.channel_resolver import (
    numeric_publication,
    numeric_subscription,
    resolve_publication,
    resolve_receive_destination,
    resolve_send_destination,
    resolve_subscription,
)
from aeron_async.driver.name_resolution import NameWatch
from aeron_async.driver.publication_table import PublicationTable
from aeron_async.driver.publications import Publications
from aeron_async.driver.receiver import Receiver
from aeron_async.driver.responses import Responses
from aeron_async.driver.sender import Sender
from aeron_async.driver.subscriptions import Subscriptions
from aeron_async.errors import AeronError, ClosedError, ErrorCode, RegistrationError
from aeron_async.protocol.channel_uri import Media
from aeron_async.tasks import TaskOwner

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Container, Coroutine

    from aeron_async.driver.client_command_adapter import ClientCommandAdapter
    from aeron_async.driver.commands import (
        ClientListener,
        PublicationListener,
        PublicationReady,
        SubscriptionListener,
        SubscriptionReady,
    )
    from aeron_async.driver.core.network_publication import NetworkPublication
    from aeron_async.driver.core.outbox import Address
    from aeron_async.driver.core.publication import SubscribablePublication
    from aeron_async.driver.core.publication_image import PublicationImage
    from aeron_async.driver.core.suppliers import CongestionControlSupplier, FlowControlSupplier
    from aeron_async.driver.core.udp_channel import UdpChannel
    from aeron_async.driver.name_resolver_agent import NameResolverAgent
    from aeron_async.driver.resources import DriverResources
    from aeron_async.logs import LogBudget
    from aeron_async.protocol.channel_uri import ChannelUri

__all__ = [
    "CommandQueue",
    "Conductor",
    "Destinations",
]

T = TypeVar("T")


# The queue of commands.


@attrs.frozen(eq=False)
class Command:
    """One command: its client, its work, its result, and how to undo it if no caller waits."""

    client_id: int
    execute: Callable[[], Awaitable[Any]]
    undo: Callable[[Any], None]
    result: asyncio.Future[Any]


LOOK_UP_END_S: Final = 1.0
"""How long a cancelled look-up may clean up before closing goes on without it."""


class CommandQueue:
    """The commands that clients of one driver wait for.

    Args:
        wake: Called when there is a command to execute.
        clients: The ids of all connected clients.
        on_look_up: Called with the task that begins to wait for a name.
    """

    def __init__(
        self,
        wake: Callable[[], None],
        clients: Container[int],
        on_look_up: Callable[[asyncio.Task[Any] | None], object],
    ) -> None:
        self._wake = wake
        self._on_look_up = on_look_up
        self._clients = clients
        self._commands: deque[Command] = deque()
        self._lookups = TaskOwner()
        self._is_closed = False
        self._error: Exception | None = None

    def check_open(self) -> None:
        """Refuse a command if the driver is closed.

        Raises:
            ClosedError: The driver is closed.
        """
        if self._is_closed:
            message = "the media driver is closed"
            raise ClosedError(message) from self._error

    def stop(self, error: Exception | None) -> None:
        """Accept no more commands; `error` is the reason, if there is one."""
        self._is_closed = True
        self._error = error

    def close(self) -> None:
        """Cancel the name look-ups, and fail every command that was not executed."""
        self._lookups.cancel()
        while self._commands:
            command = self._commands.popleft()
            if not command.result.done():
                closed = ClosedError("the media driver was closed")
                closed.__cause__ = self._error
                command.result.set_exception(closed)

    def __len__(self) -> int:
        return len(self._commands)

    async def carry_out(self) -> None:
        """Execute the commands in order.

        Differs: Aeron's C driver makes a log in another thread, and executes others meanwhile. Here
        all of them wait for a slow disk, which zeroes a log with `sparse=false`.
        """
        while self._commands:
            await self._carry_out(self._commands.popleft())

    async def look_up(self, resolving: Coroutine[Any, Any, T]) -> T:
        """Resolve names, which may take long; closing the driver ends it."""
        # In a task of its own, so that closing the driver cancels it once, and without the caller.
        # A cancel scope would cancel it again in every turn, also while it cleans up.
        lookup = self._lookups.start(resolving, "aeron-look-up")
        caller = asyncio.current_task()
        self._on_look_up(caller)
        try:
            return await lookup
        except asyncio.CancelledError:
            if self._is_closed and caller is not None and not caller.cancelling():
                message = "the media driver was closed while a name was looked up"
                raise ClosedError(message) from self._error
            raise

    async def wait_closed(self) -> None:
        """Wait until all look-ups have ended, for a second at most; called after `close`."""
        with anyio.move_on_after(LOOK_UP_END_S):
            await self._lookups.wait()

    async def submit(
        self, client_id: int, execute: Callable[[], Awaitable[T]], undo: Callable[[T], None]
    ) -> T:
        """Queue a command, wait for its execution, and return its result.

        Args:
            client_id: The client; once it has gone, nothing is done for it.
            execute: Executes the command.
            undo: Undoes it, if the caller no longer waits for the result.

        Raises:
            ClosedError: The driver or the client was closed, before or during the call.
        """
        self.check_open()
        result: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._commands.append(Command(client_id, execute, undo, result))
        self._wake()
        try:
            return await result
        except asyncio.CancelledError:
            # Executed, but the caller was cancelled before it could take the result.
            if result.done() and not result.cancelled() and result.exception() is None:
                undo(result.result())
            raise

    async def _carry_out(self, command: Command) -> None:
        if command.result.done():
            return
        try:
            self._check_client(command.client_id)
            value = await command.execute()
        except Exception as error:  # noqa: BLE001 - its caller gets it; other clients share this driver
            if isinstance(error, AeronError):
                # A refusal says itself what to do: ten frames of the driver would hide that.
                error.with_traceback(None)
            if not command.result.done():
                command.result.set_exception(error)
            return
        except asyncio.CancelledError:
            # The driver ends: no caller may wait for an answer without end.
            if not command.result.done():
                command.result.set_exception(
                    ClosedError("the media driver was closed before the command was executed")
                )
            raise
        if command.client_id not in self._clients:
            # The client was closed while the command ran: undo what it has asked for.
            command.undo(value)
            if not command.result.done():
                command.result.set_exception(
                    ClosedError("the client was closed before the command was executed")
                )
        elif command.result.done():
            command.undo(value)
        else:
            command.result.set_result(value)

    def _check_client(self, client_id: int) -> None:
        if client_id not in self._clients:
            message = "the client was closed while the request was under way"
            raise ClosedError(message)


# Commands about destinations.


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

        await self._queue.submit(client_id, execute, _undo_nothing)

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

        await self._queue.submit(client_id, execute, _undo_nothing)

    async def _channel(self, uri: ChannelUri) -> UdpChannel | None:
        """Return the resolved channel of a destination; None for IPC."""
        if uri.media is Media.IPC:
            return None
        return await self._queue.look_up(resolve_receive_destination(self._resources.network, uri))

    async def _address(self, uri: ChannelUri) -> Address | None:
        """Return the address of a receiver; None if its name does not resolve yet."""
        try:
            channel = await self._queue.look_up(
                resolve_send_destination(self._resources.network, uri)
            )
        except RegistrationError as error:
            if error.code is not ErrorCode.UNKNOWN_HOST:
                raise
            return None
        return channel.remote_data


# The agent.


def _undo_nothing(result: None) -> None:
    """Keep a removal although its caller no longer waits: there is nothing to undo."""


class Conductor(Agent):
    """The agent that executes the commands of clients; it owns the other two agents.

    Args:
        resources: What the driver's parts share.

    Attributes:
        sender: Polls the publications.
        receiver: Polls the images.
        destinations: Adds and removes destinations.
        client_counters: The counters that clients have added.
        adapter: Serves the clients of other processes; None if there can be none.
        resolver_agent: Tells other drivers the name of this one; None if it has none.
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
        )
        self._resources = resources
        self._log_budget = resources.log_budget
        self._log_budget.on_left_out = self.wake
        self._log_lines_left_out = resources.system_counters[DriverCounterId.LOG_LINES_LEFT_OUT]
        self._clients: dict[int, ClientListener] = {}
        self.adapter: ClientCommandAdapter | None = None
        self.resolver_agent: NameResolverAgent | None = None
        self._queue = CommandQueue(self.wake, self._clients, self._on_look_up)
        self._drained: asyncio.Future[None] | None = None
        self.sender: Sender = Sender(
            context, resources.clock, resources.system_counters, self._on_publication_done
        )
        self.receiver: Receiver = Receiver(
            context, resources.clock, resources.system_counters, self
        )
        self._table = PublicationTable(resources, self.sender)
        self._subscriptions = Subscriptions(
            resources, self.receiver, self.sender, self._table, self.wake
        )
        self._subscriptions.responses.is_asked = self._is_asked
        session_ids = self._session_ids = SessionIds(
            resources.random_int32(),
            reserved_low=context.publication_reserved_session_id_low,
            reserved_high=context.publication_reserved_session_id_high,
        )
        self._publications = Publications(
            resources,
            self.sender,
            self._table,
            self._subscriptions,
            Responses(self._subscriptions, self.receiver),
            session_ids,
            self._check_drained,
        )
        self._ipc_publications = IpcPublications(
            resources,
            self.sender,
            self._table,
            self._subscriptions,
            session_ids,
            self._check_drained,
        )
        self.destinations: Destinations = Destinations(
            resources, self._queue, self._publications, self._subscriptions
        )
        self.client_counters: Final = ClientCounters(resources.counters_manager)
        self._names = NameWatch(
            resources, self._publications.endpoints, self._subscriptions.endpoints, self.wake
        )

    @property
    def network_publications(self) -> tuple[NetworkPublication, ...]:
        """Return all network publications, lingering ones included; for monitoring."""
        return self._table.network

    @property
    def ipc_publications(self) -> tuple[IpcPublication, ...]:
        """Return all IPC publications, draining ones included; for monitoring."""
        return self._table.ipc

    @property
    def publication_images(self) -> tuple[PublicationImage, ...]:
        """Return all images, lingering ones included; for monitoring."""
        return tuple(self._subscriptions.images)

    # Commands of clients.

    def add_client(self, listener: ClientListener, client_id: int | None = None) -> int:
        """Add a client, and return its id, which is `client_id` if given.

        Raises:
            ClosedError: The driver is closed.
        """
        self._queue.check_open()
        added_id = self._new_id(self._clients.__contains__) if client_id is None else client_id
        self._clients[added_id] = listener
        return added_id

    def _new_id(self, is_in_use: Callable[[int], bool]) -> int:
        """Return an id for a client of this process, or for what it adds."""
        while True:
            found = self._resources.next_id()
            # Clients of other processes choose theirs, and can forge the counter.
            if self.adapter is None or not is_in_use(found):
                return found

    def remove_client(self, client_id: int) -> None:
        """Remove a client, and release its publications and subscriptions."""
        if self._clients.pop(client_id, None) is not None:
            self._table.release_client(client_id)
            self._subscriptions.remove_client(client_id)
            self.client_counters.remove_client(client_id)

    async def add_publication(
        self,
        client_id: int,
        uri: ChannelUri,
        stream_id: int,
        *,
        is_exclusive: bool,
        listener: PublicationListener,
        registration_id: int | None = None,
        flow_control: FlowControlSupplier | None = None,
        handshake_length: int | None = None,
    ) -> PublicationReady:
        """Add a publication, or share an existing one; see `Aeron.add_publication`.

        Args:
            client_id: The client.
            uri: The channel.
            stream_id: Within the channel.
            is_exclusive: Whether no other request may share it.
            listener: Called when it changes.
            registration_id: The id of the request, if the client has chosen it.
            flow_control: Overrides channel and context.
            handshake_length: Most bytes to send before a receiver has answered.

        Raises:
            RegistrationError: The publication cannot be added.
            ClosedError: The driver or the client is closed.
        """
        self._queue.check_open()
        check_is_supported(uri)
        channel = await self._resolve_publication(uri)
        added_id = self._new_id(self.has) if registration_id is None else registration_id

        async def execute() -> PublicationReady:
            if channel is None:
                return await self._ipc_publications.add(
                    uri,
                    registration_id=added_id,
                    stream_id=stream_id,
                    is_exclusive=is_exclusive,
                    client_id=client_id,
                    listener=listener,
                )
            return await self._publications.add(
                channel,
                registration_id=added_id,
                stream_id=stream_id,
                is_exclusive=is_exclusive,
                client_id=client_id,
                listener=listener,
                flow_control=flow_control,
                handshake_length=handshake_length,
            )

        return await self._queue.submit(
            client_id, execute, lambda ready: self._table.release(ready.registration_id)
        )

    async def look_up(self, host: str, port: int) -> Address:
        """Resolve a host to a numeric address, as channels of this driver do.

        Raises:
            RegistrationError: UNKNOWN_HOST.
            ClosedError: The driver is closed, or was during the call.
        """
        self._queue.check_open()
        return await self._queue.look_up(self._resources.network.resolve(host, port))

    async def _resolve_publication(self, uri: ChannelUri) -> UdpChannel | None:
        """Return a channel with resolved addresses; None for IPC, which has none."""
        if uri.media is Media.IPC:
            return None
        suffix = str(self._resources.next_id()) if needs_unique_suffix(uri) else ""
        return numeric_publication(uri, unique_suffix=suffix) or await self._queue.look_up(
            resolve_publication(self._resources.network, uri, unique_suffix=suffix)
        )

    async def add_subscription(
        self,
        client_id: int,
        uri: ChannelUri,
        stream_id: int,
        *,
        listener: SubscriptionListener,
        registration_id: int | None = None,
        congestion_control: CongestionControlSupplier | None = None,
    ) -> SubscriptionReady:
        """Add a subscription; see `Aeron.add_subscription`, and `add_publication` for the id.

        Raises:
            RegistrationError: The subscription cannot be added.
            ClosedError: The driver or the client is closed.
        """
        self._queue.check_open()
        check_is_supported(uri)
        channel = None
        if uri.media is not Media.IPC:
            suffix = str(self._resources.next_id())
            channel = numeric_subscription(uri, unique_suffix=suffix) or await self._queue.look_up(
                resolve_subscription(self._resources.network, uri, unique_suffix=suffix)
            )

        added_id = self._new_id(self.has) if registration_id is None else registration_id

        async def execute() -> SubscriptionReady:
            return await self._subscriptions.add(
                uri,
                channel,
                registration_id=added_id,
                stream_id=stream_id,
                client_id=client_id,
                listener=listener,
                congestion_control=congestion_control,
            )

        return await self._queue.submit(
            client_id, execute, lambda ready: self._subscriptions.remove(ready.registration_id)
        )

    async def catch_up(self, client_id: int) -> None:
        """Return when the client has heard of all images that its streams have by now."""
        del client_id
        # An image that was joined is announced in the next iteration of the loop.
        await asyncio.sleep(0)

    async def reject_image(self, client_id: int, image_id: int, reason: str) -> None:
        """Reject an image: it takes no more data, and its sources get the reason.

        Raises:
            RegistrationError: No image has this id.
            ClosedError: The driver or the client is closed.
        """

        async def execute() -> None:
            if not self._ipc_publications.reject(image_id, reason):
                self._subscriptions.images.reject(image_id, reason)

        await self._queue.submit(client_id, execute, _undo_nothing)

    def remove_publication(self, registration_id: int) -> None:
        """Release a client's publication; offered data is still sent."""
        self._table.release(registration_id)

    def revoke_publication(self, registration_id: int) -> None:
        """Revoke and release an exclusive publication; undelivered data is lost."""
        self._table.revoke(registration_id)

    def remove_subscription(self, registration_id: int) -> None:
        """Remove a subscription."""
        self._subscriptions.remove(registration_id)

    async def add_counter(
        self,
        client_id: int,
        type_id: int,
        *,
        key: bytes,
        label: str,
        static_registration_id: int | None = None,
    ) -> AddedCounter:
        """Add a counter of a client; see `Aeron.add_counter` and `Aeron.add_static_counter`.

        Args:
            client_id: The client.
            type_id: Type of the counter.
            key: At most 112 bytes.
            label: At most 380 bytes of UTF-8.
            static_registration_id: Identifies a static counter; None for one of the client.

        Raises:
            RegistrationError: No counter is left, or a client owns the one that should be static.
            ClosedError: The driver or the client is closed.
        """
        added_id = self._new_id(self.has)
        counters, manager = self.client_counters, self._resources.counters_manager
        is_static = static_registration_id is not None
        registration_id = added_id if static_registration_id is None else static_registration_id

        async def execute() -> AddedCounter:
            if is_static:
                counter_id = counters.add_static(
                    added_id, registration_id, type_id, key=key, label=label
                )
            else:
                counter_id = counters.add(client_id, added_id, type_id, key=key, label=label)
            return AddedCounter(
                correlation_id=added_id,
                registration_id=registration_id,
                is_static=is_static,
                counter=Counter.mapped(manager, counter_id, manager.word(counter_id)),
            )

        def undo(added: AddedCounter) -> None:
            added.counter.invalidate()
            self.remove_counter(added.correlation_id)

        return await self._queue.submit(client_id, execute, undo)

    def remove_counter(self, correlation_id: int) -> None:
        """Free a client's counter, by the id of the request that added it; a static one stays."""
        self.client_counters.remove(correlation_id)

    # What clients of other processes ask for by id.

    @property
    def client_count(self) -> int:
        """How many clients this driver has, in this process and in others."""
        return len(self._clients)

    def has_client(self, client_id: int) -> bool:
        """Return whether a client of this or another process has an id."""
        return client_id in self._clients

    def has(self, registration_id: int) -> bool:
        """Return whether a client holds something under an id."""
        return (
            self._table.find(registration_id) is not None
            or self._subscriptions.has(registration_id)
            or self.client_counters.has(registration_id)
        )

    def publication(self, registration_id: int) -> SubscribablePublication:
        """Return the publication that is held under an id.

        Raises:
            RegistrationError: UNKNOWN_PUBLICATION; no client holds it any more.
        """
        return self._table.get(registration_id)

    def next_session_id(self, stream_id: int) -> int:
        """Return a session id that no publication of a stream has."""
        taken = {each.session_id for each in self._table if each.stream_id == stream_id}
        return self._session_ids.take(taken.__contains__)

    @property
    def log_budget(self) -> LogBudget:
        """Return the limit on log lines that peers can cause."""
        return self._log_budget

    # Events from the other agents.

    def on_image_drained(self, image: PublicationImage) -> None:
        """Remove a drained image from its dispatcher and from its readers."""
        self._subscriptions.images.on_image_drained(image)

    def on_image_resumed(self, image: PublicationImage) -> None:
        """Let waiting subscriptions join a stream that continues after a false end."""
        self._subscriptions.images.on_image_resumed(image)

    def on_image_done(self, image: PublicationImage) -> None:
        """Free an image."""
        self._subscriptions.images.on_image_done(image)

    # Life and end of the driver.

    async def do_work(self, now_ns: int) -> int:
        """Execute the queued commands, and do the timed work of the parts."""
        # A command may wait for a name: that time must not count as a stall of the loop.
        self._clock.expect(self, NEVER_NS)
        adapter_at_ns = NEVER_NS if self.adapter is None else self.adapter.poll(now_ns)
        if self.adapter is not None and len(self._queue):
            with self.adapter.alive():
                await self._queue.carry_out()
        else:
            await self._queue.carry_out()
        said_at_ns = self._log_budget.poll(now_ns)
        self._log_lines_left_out.set(self._log_budget.left_out_count)
        answered_at_ns = self._subscriptions.responses.poll(now_ns)
        resolver = self.resolver_agent
        told_at_ns = NEVER_NS if resolver is None else resolver.poll(now_ns)
        named_at_ns = self._names.poll(now_ns)
        return min(named_at_ns, told_at_ns, answered_at_ns, said_at_ns, adapter_at_ns)

    async def drain(self) -> None:
        """Say goodbye to sources, and wait until every publication has sent all its data."""
        self._subscriptions.images.send_eos_status_messages()
        # All subscriptions have been removed by now, so no idle reader can block this.
        self._publications.skip_linger()
        if len(self._table):
            self._drained = asyncio.get_running_loop().create_future()
            await self._drained

    def release_clients(self, error: Exception | None) -> None:
        """Accept no more commands, and remove every client."""
        self._queue.stop(error)
        # Notify all clients first: the steps after it may fail if the driver has failed.
        for listener in self._clients.values():
            listener.on_driver_closed(error)
        self._queue.close()
        for client_id in list(self._clients):
            self.remove_client(client_id)
        if self.adapter is not None:
            self.adapter.stop()

    def close(self) -> None:
        """Free everything at once, sent and consumed or not."""
        if self.adapter is not None:
            # The release of the clients may have failed before it came to this.
            self.adapter.stop()
        if self._clock.stall_log is not None:
            self._clock.stall_log.close()
        self._names.close()
        self._publications.close()
        self._ipc_publications.close()
        self._subscriptions.close()
        self._log_budget.close()

    async def wait_closed(self) -> None:
        """Wait until all tasks have ended, and memory is free; to be called after `close`."""
        await self._queue.wait_closed()
        if self.adapter is not None:
            await self.adapter.wait_closed()
        await self._subscriptions.images.wait_closed()
        await self._names.wait_closed()
        if self.resolver_agent is not None:
            await self.resolver_agent.wait_closed()
        await self._resources.storage.wait_closed()

    def _on_look_up(self, task: asyncio.Task[Any] | None) -> None:
        if self.adapter is not None:
            self.adapter.on_look_up(task)

    def _on_publication_done(self, publication: Any) -> None:
        if isinstance(publication, IpcPublication):
            self._ipc_publications.on_publication_done(publication)
        else:
            self._publications.on_publication_done(publication)

    def _is_asked(self, registration_id: int) -> bool:
        """Return whether a publication requests the responses that a subscription receives."""
        return any(
            each.params.response_correlation_id == registration_id
            and each.params.is_response_requested
            and each.state is PublicationState.ACTIVE
            for each in self._table.network
        )

    def _check_drained(self) -> None:
        drained = self._drained
        if drained is not None and not len(self._table) and not drained.done():
            drained.set_result(None)
