"""The conductor: the agent that executes client commands, one at a time.

Source: Aeron `DriverConductor`, `ClientCommandAdapter`.
"""

from __future__ import annotations

import asyncio
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeVar

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
from aeron_async.driver.driver_stats import StatsTaker
from aeron_async.driver.dump import Dump
from aeron_async.driver.ipc_publications import IpcPublications
from aeron_async.driver.media.channel_resolver import (
    numeric_publication,
    numeric_subscription,
    resolve_publication,
    resolve_subscription,
)
from aeron_async.driver.name_resolution import NameWatch
from aeron_async.driver.publication_table import PublicationTable
from aeron_async.driver.publications import Publications
from aeron_async.driver.receiver import Receiver
from aeron_async.driver.responses import Responses
from aeron_async.driver.sender import Sender
from aeron_async.driver.subscriptions import Subscriptions
from aeron_async.protocol.channel_uri import Media

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

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

from aeron_async.driver.command_queue import CommandQueue, undo_nothing
from aeron_async.driver.destinations import Destinations

__all__ = ["Conductor"]

T = TypeVar("T")


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
        self._started_ns = resources.clock.epoch_ns()
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

    @cached_property
    def stats(self) -> StatsTaker:
        """Return what takes the statistics of the driver."""
        return StatsTaker(
            self._resources,
            self._table,
            self._subscriptions,
            self._publications.endpoints,
            started_ns=self._started_ns,
        )

    def dump(self) -> Dump:
        """Return the counters, errors and losses of the driver, to be written as files."""
        return Dump.of(self._resources)

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

    def give_up_look_ups(self, callers: Iterable[asyncio.Task[Any]]) -> None:
        """Cancel those of these tasks that wait for a name, as their client has gone."""
        self._queue.give_up(callers)

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

        await self._queue.submit(client_id, execute, undo_nothing)

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

    def original_id(self, registration_id: int) -> int:
        """Return the id of the first request for the publication that is held under an id.

        Ids of anything else are returned as they are.
        """
        publication = self._table.find(registration_id)
        return registration_id if publication is None else publication.registration_id

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

    def _on_look_up(self, task: asyncio.Task[Any] | None) -> bool:
        return self.adapter is not None and self.adapter.on_look_up(task)

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
