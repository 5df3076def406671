"""Network publications of one driver: add, share, give destinations, release.

Source: Aeron `DriverConductor.onAddNetworkPublication`, `DriverConductor.newNetworkPublication`
and their neighbours.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

import attrs

from aeron_async.driver.commands import PublicationErrorFrame, PublicationReady
from aeron_async.driver.core.flow_control import flow_control, flow_control_supplier
from aeron_async.driver.core.network_publication import NetworkPublication
from aeron_async.driver.core.outbox import ResponseOutbox
from aeron_async.driver.core.publication import PublicationState
from aeron_async.driver.core.shared_logs import CheckedNetworkPublication
from aeron_async.driver.core.stream_counters import PublicationCounters
from aeron_async.driver.core.stream_params import (
    PublicationParams,
    check_can_share,
    chosen_session_id,
)
from aeron_async.driver.core.system_counters import DriverCounterId
from aeron_async.driver.core.timestamps import SendTimestamps
from aeron_async.driver.core.udp_channel import format_address
from aeron_async.driver.endpoints import SendEndpoints
from aeron_async.driver.log_creation import (
    create_log,
    publication_log_spec,
    with_channel_settings,
    with_tagged_session,
)
from aeron_async.errors import ErrorCode, RegistrationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.driver.commands import PublicationListener
    from aeron_async.driver.core.flow_control import FlowControl
    from aeron_async.driver.core.outbox import Address
    from aeron_async.driver.core.stream_params import SessionIds
    from aeron_async.driver.core.suppliers import FlowControlSupplier
    from aeron_async.driver.core.udp_channel import UdpChannel
    from aeron_async.driver.media.endpoint import SendChannelEndpoint
    from aeron_async.driver.publication_table import PublicationTable
    from aeron_async.driver.resources import DriverResources
    from aeron_async.driver.responses import Responses
    from aeron_async.driver.sender import Sender
    from aeron_async.driver.subscriptions import Subscriptions
    from aeron_async.protocol.channel_uri import ChannelUri
    from aeron_async.protocol.error import ErrorFrame

__all__ = [
    "Publications",
]


def _check_sndbuf(endpoint: SendChannelEndpoint, params: PublicationParams) -> None:
    granted_length = endpoint.granted_sndbuf_length
    if 0 < granted_length < params.mtu_length:
        message = (
            f"mtu of {params.mtu_length} bytes exceeds the socket's send buffer of "
            f"{granted_length}: raise so-sndbuf or net.core.wmem_max, or lower mtu"
        )
        raise RegistrationError(message, code=ErrorCode.INVALID_CHANNEL)


class Publications:
    """The network publications of one driver, with the endpoints they send from.

    Args:
        resources: What the driver's parts share.
        sender: Polls the publications.
        table: The publications of the driver.
        subscriptions: The subscriptions that read the log of a publication, or its responses.
        responses: Records which publication answers which image.
        session_ids: The source of session ids that no channel gives.
        on_done: Called after a publication was freed.

    Attributes:
        endpoints: The send endpoints.
    """

    def __init__(
        self,
        resources: DriverResources,
        sender: Sender,
        table: PublicationTable,
        subscriptions: Subscriptions,
        responses: Responses,
        session_ids: SessionIds,
        on_done: Callable[[], None],
    ) -> None:
        self._resources = resources
        self._sender = sender
        self._table = table
        self._on_done = on_done
        self._subscriptions = subscriptions
        self._responses = responses
        self.endpoints: SendEndpoints = SendEndpoints(
            resources, sender, self._on_response_setup_heard
        )
        self._session_ids = session_ids

    async def add(
        self,
        channel: UdpChannel,
        *,
        registration_id: int,
        stream_id: int,
        is_exclusive: bool,
        client_id: int,
        listener: PublicationListener,
        flow_control: FlowControlSupplier | None = None,
        handshake_length: int | None = None,
    ) -> PublicationReady:
        """Add a publication, or share an existing one; see `Aeron.add_publication`.

        Raises:
            RegistrationError: The session is taken, or the socket cannot be opened.
            ConfigurationError: The channel contradicts the publication or socket it would share.
        """
        context = self._resources.context
        uri = with_tagged_session(channel.uri, self._table.each_network())
        params = PublicationParams.of(uri, context, is_exclusive=is_exclusive)
        if flow_control is None:
            # Before a socket is opened: an unknown strategy is refused at no cost.
            flow_control_supplier(uri, context, is_group=channel.has_group_semantics)
        endpoint = await self.endpoints.get(channel, registration_id=registration_id)
        params = attrs.evolve(
            params,
            # A channel that is only a tag is of the kind of the channel with that tag.
            has_group_semantics=endpoint.channel.has_group_semantics,
            is_unicast=not endpoint.channel.has_group_semantics,
            flow_control=flow_control,
            handshake_length=handshake_length,
        )
        with ExitStack() as undo:
            undo.callback(self.endpoints.close_if_unused, endpoint)
            undo.enter_context(self.endpoints.hold(endpoint))
            self._responses.check(params)
            publication = None if is_exclusive else self._find_shared(endpoint, stream_id, params)
            if publication is None:
                publication = await self._make(
                    endpoint,
                    uri,
                    params,
                    registration_id=registration_id,
                    stream_id=stream_id,
                    client_id=client_id,
                )
            else:
                check_can_share(
                    uri,
                    publication.params,
                    session_id=publication.session_id,
                    start=publication.start,
                    flow_control=flow_control,
                )
        self._table.hold(publication, registration_id, client_id=client_id, listener=listener)
        return self._ready(registration_id, publication, channel, endpoint)

    # Making a publication.

    async def _make(
        self,
        endpoint: SendChannelEndpoint,
        uri: ChannelUri,
        params: PublicationParams,
        *,
        registration_id: int,
        stream_id: int,
        client_id: int,
    ) -> NetworkPublication:
        """Return a new publication, which the sender polls from now on.

        Raises:
            RegistrationError: The session is taken, there is no memory or counter left, or it
                answers an image that has ended.
            ConfigurationError: The supplier returned something that is no flow control.
        """
        resources = self._resources
        _check_sndbuf(endpoint, params)
        control = self._flow_control(uri, params)
        ids = {
            "registration_id": registration_id,
            "session_id": self._session_id(endpoint, params, stream_id),
            "stream_id": stream_id,
        }
        spec = publication_log_spec(resources, uri, params, **ids)
        response_outbox = self._response_outbox(endpoint, params)
        with ExitStack() as undo:
            log = await create_log(
                resources.storage, with_channel_settings(spec, uri, endpoint, resources.context)
            )
            undo.callback(log.close)
            # Once more: the image that this publication answers may have ended in the meantime.
            self._responses.check(params)
            counters = self._counters(endpoint, params, control, client_id=client_id, **ids)
            undo.callback(counters.close)
            kind = CheckedNetworkPublication if log.file else NetworkPublication
            publication = kind(
                registration_id=ids["registration_id"],
                channel=str(endpoint.channel.uri),
                log=log,
                params=params,
                context=resources.context,
                flow_control=control,
                counters=counters,
                system_counters=resources.system_counters,
                outbox=endpoint if response_outbox is None else response_outbox,
                listener=self,
                readers=self._subscriptions.readers,
                now_ns=resources.clock.now_ns(),
                timestamps=self._timestamps(endpoint),
            )
            undo.pop_all()
        endpoint.dispatcher.add(publication, response_outbox)
        self._table.add(publication, endpoint)
        self._responses.on_publication_added(publication)
        self._subscriptions.local.on_accepting_subscriptions(publication)
        self._sender.on_activity(publication)
        return publication

    def _counters(
        self,
        endpoint: SendChannelEndpoint,
        params: PublicationParams,
        control: FlowControl,
        **ids: int,
    ) -> PublicationCounters:
        return PublicationCounters.allocate(
            self._resources.counters_manager,
            **ids,
            channel=str(endpoint.channel.uri),
            is_exclusive=params.is_exclusive,
            is_tracking_receivers=control.receiver_count() is not None,
        )

    def _flow_control(self, uri: ChannelUri, params: PublicationParams) -> FlowControl:
        return flow_control(
            uri,
            self._resources.context,
            is_group=params.has_group_semantics,
            supplier=params.flow_control,
        )

    def _response_outbox(
        self, endpoint: SendChannelEndpoint, params: PublicationParams
    ) -> ResponseOutbox | None:
        if not endpoint.channel.is_response:
            return None
        withheld = self._resources.system_counters[DriverCounterId.HANDSHAKE_SENDS_WITHHELD]
        host = self._responses.host_of(params)
        return ResponseOutbox(endpoint.send_to, endpoint.send_batches_to, withheld, host)

    def _timestamps(self, endpoint: SendChannelEndpoint) -> SendTimestamps | None:
        """Return the writer of send timestamps, the same for all that send from one endpoint."""
        offset = endpoint.channel.uri.channel_send_timestamp_offset
        return None if offset is None else SendTimestamps(offset, self._resources.clock.epoch_ns)

    def _session_id(
        self, endpoint: SendChannelEndpoint, params: PublicationParams, stream_id: int
    ) -> int:
        return chosen_session_id(
            self._session_ids,
            params,
            lambda session_id: endpoint.dispatcher.is_session_in_use(session_id, stream_id),
            self._resources.random_int32,
            where=f"stream {stream_id} on {endpoint.channel.uri}",
        )

    # Destinations.

    def add_destination(
        self,
        registration_id: int,
        uri: ChannelUri,
        address: Address | None,
        *,
        destination_id: int,
        client_id: int,
    ) -> int:
        """Add a destination to a publication; return the id of the destination.

        Raises:
            RegistrationError: UNKNOWN_PUBLICATION: the client holds none with this id; or its
                channel takes no more destinations.
        """
        endpoint = self._table.endpoint(self._network_publication(registration_id, client_id))
        self.endpoints.add_destination(endpoint, uri, address, destination_id)
        return destination_id

    def remove_destination(
        self,
        registration_id: int,
        destination: ChannelUri | int,
        *,
        address: Address | None,
        client_id: int,
        missing_ok: bool = False,
    ) -> None:
        """Remove a destination from a publication.

        Args:
            registration_id: Registration id of the publication.
            destination: Its channel, or the id returned when it was added.
            address: The resolved address of the channel; None if an id is given.
            client_id: The client that asks for it.
            missing_ok: Do nothing if it has no such destination.

        Raises:
            RegistrationError: UNKNOWN_PUBLICATION: the client holds none with this id; or it has
                no such destination.
        """
        publication = self._network_publication(registration_id, client_id)
        is_removed = self._remove_destination(publication, destination, address)
        if not (is_removed or missing_ok):
            message = f"{destination} is not a destination of {publication.channel}"
            raise RegistrationError(message)

    def undo_destination(self, registration_id: int, destination_id: int) -> None:
        """Remove a destination whose caller no longer waits for it."""
        publication = self._table.find(registration_id)
        if isinstance(publication, NetworkPublication):
            self._remove_destination(publication, destination_id, None)

    def _remove_destination(
        self,
        publication: NetworkPublication,
        destination: ChannelUri | int,
        address: Address | None,
    ) -> bool:
        return self.endpoints.remove_destination(
            self._table.endpoint(publication),
            uri=None if isinstance(destination, int) else destination,
            address=address,
            registration_id=destination if isinstance(destination, int) else 0,
        )

    def skip_linger(self) -> None:
        """Skip the linger for receivers that are gone: the driver is closing."""
        for publication in self._table.network:
            publication.skip_linger()
            self._sender.on_activity(publication)

    def on_publication_done(self, publication: NetworkPublication) -> None:
        """Free what a publication used; called by the sender."""
        endpoint = self._table.endpoint(publication)
        # First, so that no frame reaches a publication that is not in the table.
        endpoint.dispatcher.remove(publication)
        self._table.remove(publication)
        self._subscriptions.local.on_publication_done(publication)
        self._responses.on_publication_done(publication)
        publication.counters.close()
        publication.log.close()
        self.endpoints.close_if_unused(endpoint)
        self._on_done()

    def close(self) -> None:
        """Free everything at once, sent or not."""
        for publication in self._table.network:
            self._sender.remove(publication)
            self.on_publication_done(publication)

    # Events from the cores.

    def on_publication_error(
        self,
        publication: NetworkPublication,
        error: ErrorFrame,
        source: Address | None,
        destination_id: int | None,
    ) -> None:
        """Notify every client that holds the publication."""
        self._table.on_publication_error(
            publication,
            PublicationErrorFrame(
                code=error.error_code,
                message=error.message,
                session_id=error.session_id,
                stream_id=error.stream_id,
                receiver_id=error.receiver_id,
                group_tag=error.group_tag if error.has_group_tag else None,
                source_address=None if source is None else format_address(source),
                registration_id=publication.registration_id,
                destination_registration_id=destination_id,
            ),
        )

    def _network_publication(self, registration_id: int, client_id: int) -> NetworkPublication:
        # Differs: Aeron lets a client change the destinations of what another one has added.
        publication = self._table.get_held(registration_id, client_id)
        if not isinstance(publication, NetworkPublication):
            message = (
                f"destinations of {publication.channel} cannot be added or removed: a publication "
                "has them with aeron:udp and control-mode=manual only"
            )
            raise RegistrationError(message, code=ErrorCode.INVALID_CHANNEL)
        return publication

    def _on_response_setup_heard(
        self, publication: NetworkPublication, response_session_id: int
    ) -> None:
        subscription_id = publication.params.response_correlation_id
        if publication.params.is_response_requested and subscription_id is not None:
            self._subscriptions.responses.on_response_setup(subscription_id, response_session_id)

    # Look-up.

    def _find_shared(
        self, endpoint: SendChannelEndpoint, stream_id: int, params: PublicationParams
    ) -> NetworkPublication | None:
        for publication in endpoint.dispatcher.of_stream(stream_id):
            theirs = publication.params
            if (
                not theirs.is_exclusive
                and publication.state is PublicationState.ACTIVE
                and theirs.response_correlation_id == params.response_correlation_id
            ):
                return publication
        return None

    def _ready(
        self,
        registration_id: int,
        publication: NetworkPublication,
        channel: UdpChannel,
        endpoint: SendChannelEndpoint,
    ) -> PublicationReady:
        # What another process may write is checked before it is sent, and timestamps are written.
        is_plain = type(publication) is NetworkPublication and self._timestamps(endpoint) is None
        publication.wake_flag.callback = self._sender.offer_callback(
            publication,
            endpoint.data if is_plain else None,
            is_response=endpoint.channel.is_response,
        )
        return PublicationReady(
            registration_id=registration_id,
            original_registration_id=publication.registration_id,
            uri=channel.uri,
            session_id=publication.session_id,
            stream_id=publication.stream_id,
            log=publication.log,
            publisher_limit=publication.counters.publisher_limit,
            sender_position=publication.counters.sender_position,
            sender_limit=publication.counters.sender_limit,
            channel_status=endpoint.status,
            local_address=endpoint.local_address,
            is_exclusive=publication.params.is_exclusive,
            wake_flag=publication.wake_flag,
            slowest_receiver=publication.flow_control.slowest_receiver,
            seen=partial(
                self._subscriptions.sightings.of_network_publication, publication, endpoint
            ),
        )
