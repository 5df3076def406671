"""Makes network publications: their session, their log, their counters, and the way they send.

Source: Aeron `DriverConductor.newNetworkPublication`.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from aeron_async.driver.core.flow_control import flow_control
from aeron_async.driver.core.network_publication import NetworkPublication
from aeron_async.driver.core.outbox import ResponseOutbox
from aeron_async.driver.core.stream_counters import PublicationCounters
from aeron_async.driver.core.stream_params import chosen_session_id
from aeron_async.driver.core.system_counters import DriverCounterId
from aeron_async.driver.core.timestamps import SendTimestamps
from aeron_async.driver.log_creation import create_log, publication_log_spec, with_channel_settings
from aeron_async.errors import ErrorCode, RegistrationError

if TYPE_CHECKING:
    from aeron_async.driver.core.flow_control import FlowControl
    from aeron_async.driver.core.network_publication import PublicationListener
    from aeron_async.driver.core.stream_params import PublicationParams, SessionIds
    from aeron_async.driver.core.subscriber_position import SubscribableListener
    from aeron_async.driver.media.send_channel_endpoint import SendChannelEndpoint
    from aeron_async.driver.resources import DriverResources
    from aeron_async.protocol.channel_uri import ChannelUri

__all__ = ["PublicationFactory"]


class PublicationFactory:
    """Makes the network publications of one driver.

    Args:
        resources: What the driver's parts share.
        listener: Hears what they decide.
        readers: Tells the clients of subscriptions that read their logs.
        session_ids: Where those come from that no channel asks for.
    """

    def __init__(
        self,
        resources: DriverResources,
        listener: PublicationListener,
        readers: SubscribableListener,
        session_ids: SessionIds,
    ) -> None:
        self._resources = resources
        self._listener = listener
        self._readers = readers
        self._session_ids = session_ids

    def make(
        self,
        endpoint: SendChannelEndpoint,
        uri: ChannelUri,
        params: PublicationParams,
        *,
        stream_id: int,
        client_id: int,
    ) -> NetworkPublication:
        """Return a new publication that its endpoint hears for.

        Args:
            endpoint: Where it sends from.
            uri: The channel as its first client wrote it.
            params: What that and the context say of it.
            stream_id: Within the channel.
            client_id: Of its first client.

        Raises:
            RegistrationError: The session is taken, or there is no memory or counter left.
            ConfigurationError: What the factory of the flow control made is none.
        """
        resources = self._resources
        _check_sndbuf(endpoint, params)
        control = self._flow_control(uri, params)
        ids = {
            "registration_id": resources.next_id(),
            "session_id": self._session_id(endpoint, params, stream_id),
            "stream_id": stream_id,
        }
        spec = publication_log_spec(resources, uri, params, **ids)
        response_outbox = None
        if endpoint.channel.is_response:
            withheld = resources.system_counters[DriverCounterId.HANDSHAKE_SENDS_WITHHELD]
            response_outbox = ResponseOutbox(endpoint.send_to, endpoint.send_runs_to, withheld)
        with ExitStack() as undo:
            log = create_log(with_channel_settings(spec, uri, endpoint, resources.context))
            undo.callback(log.close)
            counters = self._counters(endpoint, params, control, client_id=client_id, **ids)
            undo.callback(counters.close)
            publication = NetworkPublication(
                registration_id=ids["registration_id"],
                channel=str(endpoint.channel.uri),
                log=log,
                params=params,
                context=resources.context,
                flow_control=control,
                counters=counters,
                system_counters=resources.system_counters,
                outbox=endpoint if response_outbox is None else response_outbox,
                listener=self._listener,
                readers=self._readers,
                now_ns=resources.clock.now_ns(),
                timestamps=self._timestamps(endpoint),
            )
            undo.pop_all()
        endpoint.dispatcher.add(publication, response_outbox)
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

    def _timestamps(self, endpoint: SendChannelEndpoint) -> SendTimestamps | None:
        """Return what writes the time of sending: all that send from one endpoint agree on it."""
        offset = endpoint.channel.uri.channel_send_timestamp_offset
        return None if offset is None else SendTimestamps(offset, self._resources.clock.epoch_ns)

    def _session_id(
        self, endpoint: SendChannelEndpoint, params: PublicationParams, stream_id: int
    ) -> int:
        return chosen_session_id(
            self._session_ids,
            params,
            lambda session_id: endpoint.dispatcher.is_session_in_use(session_id, stream_id),
            where=f"stream {stream_id} on {endpoint.channel.uri}",
        )


def _check_sndbuf(endpoint: SendChannelEndpoint, params: PublicationParams) -> None:
    granted_length = endpoint.granted_sndbuf_length
    if 0 < granted_length < params.mtu_length:
        message = (
            f"mtu of {params.mtu_length} bytes exceeds the socket's send buffer of "
            f"{granted_length}: raise so-sndbuf or net.core.wmem_max, or lower mtu"
        )
        raise RegistrationError(message, code=ErrorCode.INVALID_CHANNEL)
