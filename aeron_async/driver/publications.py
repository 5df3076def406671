"""The conductor's hand on publications: add, share, release, and let go of endpoints.

Source: Aeron `DriverConductor.onAddNetworkPublication` and its neighbours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from aeron_async.driver.commands import PublicationReady
from aeron_async.driver.core.control_packet_dispatcher import ControlPacketDispatcher
from aeron_async.driver.core.flow_control import flow_control, flow_control_supplier
from aeron_async.driver.core.network_publication import NetworkPublication
from aeron_async.driver.core.publication_counters import PublicationCounters
from aeron_async.driver.core.publication_params import (
    PublicationParams,
    StartPosition,
    check_can_share,
)
from aeron_async.driver.core.publication_state import PublicationState
from aeron_async.driver.core.session_ids import SessionIds
from aeron_async.driver.core.stream_counters import (
    ChannelCounterType,
    LocalAddressType,
)
from aeron_async.driver.endpoint_opening import check_can_share_socket, open_endpoint
from aeron_async.driver.invalid_datagrams import InvalidDatagramLog
from aeron_async.driver.log_creation import create_log, with_channel_settings
from aeron_async.driver.media.endpoint import SendChannelEndpoint
from aeron_async.errors import ErrorCode, RegistrationError
from aeron_async.logbuffer.log_spec import LogSpec
from aeron_async.logbuffer.metadata import LogType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aeron_async.driver.commands import PublicationListener
    from aeron_async.driver.core.subscriber_positions import SubscribableListener
    from aeron_async.driver.core.udp_channel import UdpChannel
    from aeron_async.driver.resources import DriverResources
    from aeron_async.driver.sender import Sender
    from aeron_async.protocol.channel_uri import ChannelUri
    from aeron_async.protocol.error import ErrorFrame

__all__ = ["Publications"]


@attrs.define(kw_only=True, eq=False)
class PublicationLink:
    """One client's hold on a publication."""

    registration_id: int
    client_id: int
    publication: NetworkPublication
    listener: PublicationListener


class Publications:
    """Every publication of one driver, with the endpoints they send from.

    Args:
        resources: What the driver's parts share.
        sender: Polls the publications.
        readers: Tells the clients of subscriptions that read the log of a publication.
        on_done: Called whenever a publication is gone.
    """

    def __init__(
        self,
        resources: DriverResources,
        sender: Sender,
        readers: SubscribableListener,
        on_done: Callable[[], None],
    ) -> None:
        self._resources = resources
        self._sender = sender
        self._readers = readers
        self._on_done = on_done
        self._endpoints: dict[str, SendChannelEndpoint] = {}
        self._publications: dict[NetworkPublication, SendChannelEndpoint] = {}
        self._links: dict[int, PublicationLink] = {}
        self._holders: dict[NetworkPublication, list[PublicationLink]] = {}
        self._invalid_datagrams = InvalidDatagramLog()
        context = resources.context
        self._session_ids = SessionIds(
            resources.random_int32(),
            reserved_low=context.publication_reserved_session_id_low,
            reserved_high=context.publication_reserved_session_id_high,
        )

    def __iter__(self) -> Iterator[NetworkPublication]:
        return iter(tuple(self._publications))

    def __len__(self) -> int:
        return len(self._publications)

    async def add(
        self,
        channel: UdpChannel,
        *,
        stream_id: int,
        is_exclusive: bool,
        client_id: int,
        listener: PublicationListener,
    ) -> PublicationReady:
        """Add a publication, or share the one that is there.

        Raises:
            RegistrationError: The session is taken, or the socket cannot be had.
            ConfigurationError: The channel contradicts the publication or socket it would share.
        """
        uri, context = channel.uri, self._resources.context
        params = PublicationParams.of(uri, context, is_exclusive=is_exclusive)
        flow_control_supplier(uri, context, is_group=params.has_group_semantics)
        endpoint = await self._endpoint(channel)
        try:
            publication = None if is_exclusive else self._find_shared(endpoint, stream_id)
            if publication is None:
                publication = self._create(endpoint, uri, params, stream_id, client_id)
            else:
                check_can_share(
                    uri,
                    publication.params,
                    session_id=publication.session_id,
                    start=publication.start,
                )
        except BaseException:
            self._close_if_unused(endpoint)
            raise
        link = PublicationLink(
            registration_id=self._resources.next_id(),
            client_id=client_id,
            publication=publication,
            listener=listener,
        )
        self._links[link.registration_id] = link
        self._holders[publication].append(link)
        return self._ready(link, channel, endpoint)

    def remove(self, registration_id: int) -> None:
        """Let one client's hold go; the last one lets the publication drain."""
        link = self._links.pop(registration_id, None)
        if link is None:
            return
        publication = link.publication
        self._holders[publication].remove(link)
        if not self._holders[publication]:
            publication.release(self._resources.clock.now_ns())
            self._sender.on_activity(publication)

    def revoke(self, registration_id: int) -> None:
        """Let an exclusive publication go, and take back what has not arrived yet."""
        link = self._links.get(registration_id)
        if link is not None and link.publication.params.is_exclusive:
            link.publication.revoke(self._resources.clock.now_ns())
        self.remove(registration_id)

    def remove_client(self, client_id: int) -> None:
        """Let everything go that a client holds."""
        for link in list(self._links.values()):
            if link.client_id == client_id:
                self.remove(link.registration_id)

    def hasten(self) -> None:
        """Do not linger for receivers that are not there: the driver is closing."""
        for publication in list(self._publications):
            publication.hasten()
            self._sender.on_activity(publication)

    def on_publication_done(self, publication: NetworkPublication) -> None:
        """Free what a publication used; called by the sender."""
        endpoint = self._publications.pop(publication)
        del self._holders[publication]
        endpoint.dispatcher.remove(publication)
        publication.counters.close()
        publication.log.close()
        self._close_if_unused(endpoint)
        self._on_done()

    def close(self) -> None:
        """Free everything at once, sent or not."""
        self._links.clear()
        for publication in list(self._publications):
            self._sender.remove(publication)
            self.on_publication_done(publication)

    # What the cores say.

    def on_window_changed(self, publication: NetworkPublication) -> None:
        """Tell every client that holds the publication."""
        for link in self._holders[publication]:
            link.listener.on_window_changed()

    def on_publication_error(self, publication: NetworkPublication, error: ErrorFrame) -> None:
        """Tell every client that holds the publication."""
        message = error.message.decode("utf-8", "replace")
        for link in list(self._holders[publication]):
            link.listener.on_publication_error(error.error_code, message)

    def _on_writable(self, endpoint: SendChannelEndpoint) -> None:
        for publication in endpoint.dispatcher.publications:
            self._sender.on_activity(publication)

    # How they are made.

    async def _endpoint(self, channel: UdpChannel) -> SendChannelEndpoint:
        endpoint = self._endpoints.get(channel.canonical_form)
        if endpoint is not None:
            check_can_share_socket(channel.uri, endpoint)
            return endpoint
        resources = self._resources
        endpoint = SendChannelEndpoint(
            channel,
            resources.clock,
            resources.system_counters,
            ControlPacketDispatcher(
                resources.system_counters,
                self._sender.on_activity,
                self._invalid_datagrams.on_invalid_datagram,
            ),
            self._on_writable,
        )
        await open_endpoint(
            resources, endpoint, ChannelCounterType.SEND_CHANNEL_STATUS, LocalAddressType.SEND
        )
        self._endpoints[channel.canonical_form] = endpoint
        return endpoint

    def _find_shared(
        self, endpoint: SendChannelEndpoint, stream_id: int
    ) -> NetworkPublication | None:
        for publication in endpoint.dispatcher.publications:
            if (
                publication.stream_id == stream_id
                and not publication.params.is_exclusive
                and publication.state is PublicationState.ACTIVE
            ):
                return publication
        return None

    def _create(
        self,
        endpoint: SendChannelEndpoint,
        uri: ChannelUri,
        params: PublicationParams,
        stream_id: int,
        client_id: int,
    ) -> NetworkPublication:
        resources, channel = self._resources, str(endpoint.channel.uri)
        registration_id = resources.next_id()
        session_id = self._session_id(endpoint, params, stream_id)
        self._check_sndbuf(endpoint, params)
        control = flow_control(uri, resources.context, is_group=params.has_group_semantics)
        spec = self._log_spec(params, registration_id, session_id, stream_id)
        if uri.entity_tag is not None:
            spec = attrs.evolve(spec, entity_tag=uri.entity_tag)
        log = create_log(with_channel_settings(spec, uri, endpoint, resources.context))
        counters = PublicationCounters.allocate(
            resources.counters_manager,
            registration_id=registration_id,
            session_id=session_id,
            stream_id=stream_id,
            channel=channel,
            client_id=client_id,
            is_exclusive=params.is_exclusive,
            is_tracking_receivers=control.receiver_count() is not None,
        )
        publication = NetworkPublication(
            registration_id=registration_id,
            channel=channel,
            log=log,
            params=params,
            context=resources.context,
            flow_control=control,
            counters=counters,
            system_counters=resources.system_counters,
            outbox=endpoint,
            listener=self,
            readers=self._readers,
            now_ns=resources.clock.now_ns(),
        )
        self._publications[publication] = endpoint
        self._holders[publication] = []
        endpoint.dispatcher.add(publication)
        self._sender.on_activity(publication)
        return publication

    def _session_id(
        self, endpoint: SendChannelEndpoint, params: PublicationParams, stream_id: int
    ) -> int:
        def is_in_use(session_id: int) -> bool:
            return endpoint.dispatcher.is_session_in_use(session_id, stream_id)

        if params.session_id is None:
            return self._session_ids.take(is_in_use)
        if is_in_use(params.session_id):
            message = (
                f"session-id={params.session_id} is in use by another publication of stream "
                f"{stream_id} on {endpoint.channel.uri}: choose another, or leave session-id out"
            )
            raise RegistrationError(message, code=ErrorCode.INVALID_CHANNEL)
        return params.session_id

    def _check_sndbuf(self, endpoint: SendChannelEndpoint, params: PublicationParams) -> None:
        granted_length = endpoint.granted_sndbuf_length
        if 0 < granted_length < params.mtu_length:
            message = (
                f"mtu of {params.mtu_length} bytes exceeds the socket's send buffer of "
                f"{granted_length}: raise so-sndbuf or net.core.wmem_max, or lower mtu"
            )
            raise RegistrationError(message, code=ErrorCode.INVALID_CHANNEL)

    def _log_spec(
        self, params: PublicationParams, registration_id: int, session_id: int, stream_id: int
    ) -> LogSpec:
        start = params.start
        if start is None:
            term_id = self._resources.random_int32()
            start = StartPosition(initial_term_id=term_id, term_id=term_id, term_offset=0)
        return LogSpec(
            session_id=session_id,
            stream_id=stream_id,
            initial_term_id=start.initial_term_id,
            start_term_id=start.term_id,
            start_term_offset=start.term_offset,
            term_length=params.term_length,
            mtu_length=params.mtu_length,
            log_type=(
                LogType.EXCLUSIVE_PUBLICATION
                if params.is_exclusive
                else LogType.CONCURRENT_PUBLICATION
            ),
            correlation_id=registration_id,
            publication_window_length=params.publication_window_length,
            max_resend=params.max_resend,
            linger_timeout_ns=params.linger_timeout_ns,
            sparse=params.is_sparse,
            signal_eos=params.signal_eos,
            spies_simulate_connection=params.spies_simulate_connection,
        )

    def _ready(
        self, link: PublicationLink, channel: UdpChannel, endpoint: SendChannelEndpoint
    ) -> PublicationReady:
        publication = link.publication
        return PublicationReady(
            registration_id=link.registration_id,
            original_registration_id=publication.registration_id,
            uri=channel.uri,
            session_id=publication.session_id,
            stream_id=publication.stream_id,
            log=publication.log,
            publisher_limit=publication.counters.publisher_limit,
            sender_position=publication.counters.sender_position,
            channel_status=endpoint.counters[0],
            local_address=endpoint.local_address,
            is_exclusive=publication.params.is_exclusive,
            wake_sender=lambda: self._sender.on_activity(publication),
            slowest_receiver=publication.flow_control.slowest_receiver,
        )

    def _close_if_unused(self, endpoint: SendChannelEndpoint) -> None:
        if len(endpoint.dispatcher) == 0:
            self._endpoints.pop(endpoint.channel.canonical_form, None)
            endpoint.close()
