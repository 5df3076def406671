"""The conductor's hand on subscriptions: add, join what is there, release, close endpoints.

Source: Aeron `DriverConductor.onAddNetworkSubscription` and its neighbours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from aeron_async.driver.commands import SubscriptionReady
from aeron_async.driver.core.congestion_control import congestion_control_supplier
from aeron_async.driver.core.data_packet_dispatcher import DataPacketDispatcher
from aeron_async.driver.core.stream_counters import ChannelCounterType, LocalAddressType
from aeron_async.driver.core.subscription_params import SubscriptionParams
from aeron_async.driver.endpoint_opening import check_can_share_socket, open_endpoint
from aeron_async.driver.images import Images, SubscriptionLink
from aeron_async.driver.invalid_datagrams import InvalidDatagramLog
from aeron_async.driver.media.endpoint import ReceiveChannelEndpoint
from aeron_async.errors import ErrorCode, RegistrationError

if TYPE_CHECKING:
    from aeron_async.driver.commands import SubscriptionListener
    from aeron_async.driver.core.outbox import Address
    from aeron_async.driver.core.publication_image import PublicationImage
    from aeron_async.driver.core.udp_channel import UdpChannel
    from aeron_async.driver.receiver import Receiver
    from aeron_async.driver.resources import DriverResources
    from aeron_async.protocol.setup import Setup

__all__ = ["Subscriptions"]


@attrs.frozen(eq=False)
class EndpointListener:
    """Says which endpoint a dispatcher speaks of."""

    endpoint: ReceiveChannelEndpoint
    receiver: Receiver
    images: Images
    invalid_datagrams: InvalidDatagramLog

    def on_image_activity(self, image: PublicationImage) -> None:
        """Let the receiver poll the image."""
        self.receiver.on_activity(image)

    def on_create_image(self, setup: Setup, source: Address) -> None:
        """Let the image be made."""
        self.images.on_create_image(self.endpoint, setup, source)

    def on_invalid_datagram(self, datagram: memoryview, source: Address, now_ns: int) -> None:
        """Let it be logged."""
        self.invalid_datagrams.on_invalid_datagram(datagram, source, now_ns)


class Subscriptions:
    """Every subscription of one driver, with the endpoints they receive at.

    Args:
        resources: What the driver's parts share.
        receiver: Polls the images.
    """

    def __init__(self, resources: DriverResources, receiver: Receiver) -> None:
        self._resources = resources
        self._receiver = receiver
        self._links: dict[int, SubscriptionLink] = {}
        self._endpoints: dict[str, ReceiveChannelEndpoint] = {}
        self._next_receiver_id = resources.random_int64()
        self._invalid_datagrams = InvalidDatagramLog()
        self.images = Images(resources, receiver, self._links, self._close_if_unused)

    async def add(
        self,
        channel: UdpChannel,
        *,
        stream_id: int,
        client_id: int,
        listener: SubscriptionListener,
    ) -> SubscriptionReady:
        """Add a subscription; images that are there are made available to it before this returns.

        Raises:
            RegistrationError: The socket cannot be had, or buffers less than the window.
            ConfigurationError: The channel contradicts a subscription of the same stream, or the
                socket it would share.
        """
        uri = channel.uri
        params = SubscriptionParams.of(uri, self._resources.context)
        congestion_control_supplier(params.congestion_control)
        self._check_same_stream(channel, params, stream_id)
        endpoint = await self._endpoint(channel, params)
        link = SubscriptionLink(
            registration_id=self._resources.next_id(),
            client_id=client_id,
            endpoint=endpoint,
            uri=uri,
            stream_id=stream_id,
            params=params,
            listener=listener,
        )
        try:
            self._check_window(endpoint, params)
        except RegistrationError:
            self._close_if_unused(endpoint)
            raise
        self._links[link.registration_id] = link
        endpoint.dispatcher.add_subscription(stream_id, params.session_id)
        try:
            self.images.join_existing(link)
        except RegistrationError:
            self.remove(link.registration_id)
            raise
        return SubscriptionReady(
            registration_id=link.registration_id,
            uri=uri,
            stream_id=stream_id,
            channel_status=endpoint.counters[0],
            local_address=endpoint.local_address,
        )

    def remove(self, registration_id: int) -> None:
        """Let a subscription go; images without readers say goodbye to their sources."""
        link = self._links.pop(registration_id, None)
        if link is None:
            return
        self.images.leave(link)
        session_id = link.params.session_id
        is_still_wanted = any(
            other.endpoint is link.endpoint
            and other.stream_id == link.stream_id
            and other.params.session_id == session_id
            for other in self._links.values()
        )
        if not is_still_wanted:
            link.endpoint.dispatcher.remove_subscription(link.stream_id, session_id)
        self._close_if_unused(link.endpoint)

    def remove_client(self, client_id: int) -> None:
        """Let everything go that a client holds."""
        for link in list(self._links.values()):
            if link.client_id == client_id:
                self.remove(link.registration_id)

    def close(self) -> None:
        """Free everything at once, consumed or not."""
        self._links.clear()
        self.images.close()
        for endpoint in self._endpoints.values():
            endpoint.close()
        self._endpoints.clear()

    async def _endpoint(
        self, channel: UdpChannel, params: SubscriptionParams
    ) -> ReceiveChannelEndpoint:
        endpoint = self._endpoints.get(channel.canonical_form)
        if endpoint is not None:
            check_can_share_socket(channel.uri, endpoint)
            return endpoint
        resources = self._resources
        self._next_receiver_id = (self._next_receiver_id + 1 + 2**63) % 2**64 - 2**63
        endpoint = ReceiveChannelEndpoint(
            channel,
            resources.clock,
            resources.system_counters,
            receiver_id=self._next_receiver_id,
            on_received=self._receiver.on_received,
        )
        endpoint.dispatcher = DataPacketDispatcher(
            context=resources.context,
            system_counters=resources.system_counters,
            receiver_id=endpoint.receiver_id,
            group_tag=params.group_tag,
            outbox=endpoint,
            listener=EndpointListener(
                endpoint, self._receiver, self.images, self._invalid_datagrams
            ),
        )
        endpoint.group_tag = params.group_tag
        await open_endpoint(
            resources, endpoint, ChannelCounterType.RECEIVE_CHANNEL_STATUS, LocalAddressType.RECEIVE
        )
        self._endpoints[channel.canonical_form] = endpoint
        return endpoint

    def _check_same_stream(
        self, channel: UdpChannel, params: SubscriptionParams, stream_id: int
    ) -> None:
        for link in self._links.values():
            if (
                link.stream_id == stream_id
                and link.endpoint.channel.canonical_form == channel.canonical_form
            ):
                params.check_same_stream(link.params, stream_id=stream_id)

    def _check_window(self, endpoint: ReceiveChannelEndpoint, params: SubscriptionParams) -> None:
        granted_length = endpoint.granted_rcvbuf_length
        window_length = params.receiver_window_length
        if 0 < granted_length < window_length:
            message = (
                f"receiver window of {window_length} bytes exceeds the socket's receive buffer of "
                f"{granted_length}: raise so-rcvbuf and net.core.rmem_max, or lower rcv-wnd"
            )
            raise RegistrationError(message, code=ErrorCode.INVALID_CHANNEL)

    def _close_if_unused(self, endpoint: ReceiveChannelEndpoint) -> None:
        is_used = any(link.endpoint is endpoint for link in self._links.values())
        if not is_used and not self.images.are_at(endpoint):
            self._endpoints.pop(endpoint.channel.canonical_form, None)
            endpoint.close()
