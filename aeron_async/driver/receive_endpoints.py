"""The conductor's hand on receive endpoints: find or open one, give it destinations, close it.

Source: Aeron `DriverConductor.getOrCreateReceiveChannelEndpoint`, `onAddRcvDestination`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from aeron_async.driver.core.data_packet_dispatcher import DataPacketDispatcher
from aeron_async.driver.core.status_message_sender import SetupElicitor
from aeron_async.driver.core.system_counters import SystemCounterId
from aeron_async.driver.core.timestamps import ReceiveTimestamps
from aeron_async.driver.endpoint_opening import (
    check_can_share_socket,
    find_endpoint,
    open_destination,
    open_receive_endpoint,
)
from aeron_async.driver.invalid_datagrams import InvalidDatagramLog
from aeron_async.driver.media.receive_channel_endpoint import (
    ReceiveChannelEndpoint,
    ReceiveDestinationTransport,
)
from aeron_async.errors import ErrorCode, RegistrationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aeron_async.driver.core.outbox import Address, ReceiveDestination
    from aeron_async.driver.core.publication_image import PublicationImage
    from aeron_async.driver.core.udp_channel import UdpChannel
    from aeron_async.driver.images import Images
    from aeron_async.driver.receiver import Receiver
    from aeron_async.driver.resources import DriverResources
    from aeron_async.protocol.channel_uri import ChannelUri
    from aeron_async.protocol.setup import Setup

__all__ = ["ReceiveEndpoints"]


@attrs.define(eq=False)
class EndpointListener:
    """Says which endpoint a dispatcher speaks of."""

    receiver: Receiver
    images: Images
    invalid_datagrams: InvalidDatagramLog
    endpoint: ReceiveChannelEndpoint = attrs.field(init=False)
    on_image_activity: Callable[[PublicationImage], None] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        # Called for every run of datagrams: not by way of a method that only passes it on.
        self.on_image_activity = self.receiver.on_arrival

    def on_create_image(
        self, setup: Setup, source: Address, destination: ReceiveDestination
    ) -> None:
        """Let the image be made."""
        self.images.on_create_image(self.endpoint, setup, source, destination)

    def on_invalid_datagram(self, datagram: memoryview, source: Address, now_ns: int) -> None:
        """Let it be logged."""
        self.invalid_datagrams.on_invalid_datagram(datagram, source, now_ns)


class ReceiveEndpoints:
    """Every receive endpoint of one driver.

    Args:
        resources: What the driver's parts share.
        receiver: Polls the images, and asks for SETUPs.
        images: Told of streams that begin.
    """

    def __init__(self, resources: DriverResources, receiver: Receiver, images: Images) -> None:
        self._resources = resources
        self._receiver = receiver
        receiver.endpoints = self
        self._images = images
        self._endpoints: list[ReceiveChannelEndpoint] = []
        self._elicitors: dict[ReceiveDestinationTransport, SetupElicitor] = {}
        self._next_receiver_id = resources.random_int64()
        self._invalid_datagrams = InvalidDatagramLog(resources.log_budget)

    def __iter__(self) -> Iterator[ReceiveChannelEndpoint]:
        return iter(tuple(self._endpoints))

    async def get(self, channel: UdpChannel, group_tag: int | None) -> ReceiveChannelEndpoint:
        """Return the endpoint of a channel, opened now if it is the first to want it.

        Args:
            channel: With its addresses.
            group_tag: For the status messages of a new one.

        Raises:
            RegistrationError: The socket cannot be had, or a tag stands for nothing.
            ConfigurationError: The channel contradicts the socket it would share.
        """
        endpoint = find_endpoint(self._endpoints, channel)
        if endpoint is not None:
            check_can_share_socket(channel.uri, endpoint)
            return endpoint
        if not (channel.has_explicit_endpoint or channel.has_explicit_control or channel.is_manual):
            message = (
                f"no subscription of this driver has the channel tag of {channel.uri}: add that "
                "one first, or give endpoint, control, or control-mode=manual"
            )
            raise RegistrationError(message, code=ErrorCode.INVALID_CHANNEL)
        endpoint = self._make(channel, group_tag)
        destination = None if channel.is_manual else self._make_destination(endpoint, channel, 0)
        await open_receive_endpoint(self._resources, endpoint, destination)
        self._endpoints.append(endpoint)
        if destination is not None:
            self._start_eliciting(endpoint, destination)
        return endpoint

    def _make(self, channel: UdpChannel, group_tag: int | None) -> ReceiveChannelEndpoint:
        resources = self._resources
        self._next_receiver_id = (self._next_receiver_id + 1 + 2**63) % 2**64 - 2**63
        listener = EndpointListener(self._receiver, self._images, self._invalid_datagrams)
        dispatcher = DataPacketDispatcher(
            context=resources.context,
            system_counters=resources.system_counters,
            receiver_id=self._next_receiver_id,
            group_tag=group_tag,
            listener=listener,
        )
        listener.endpoint = ReceiveChannelEndpoint(
            channel,
            resources.system_counters,
            receiver_id=self._next_receiver_id,
            group_tag=group_tag,
            dispatcher=dispatcher,
            on_received=self._receiver.on_received,
            on_reading=self._receiver.on_reading,
            timestamps=ReceiveTimestamps.of(channel.uri, resources.clock.epoch_ns),
        )
        return listener.endpoint

    def _make_destination(
        self, endpoint: ReceiveChannelEndpoint, channel: UdpChannel, registration_id: int
    ) -> ReceiveDestinationTransport:
        return ReceiveDestinationTransport(
            endpoint, channel, self._resources.clock, registration_id=registration_id
        )

    def check_destination_count(
        self, endpoint: ReceiveChannelEndpoint, uri: ChannelUri, *, also: int
    ) -> None:
        """Refuse one destination too many.

        Args:
            endpoint: Of the subscription.
            uri: The destination to be added.
            also: How many it has beside its sockets.

        Raises:
            RegistrationError: RESOURCE_TEMPORARILY_UNAVAILABLE; the limit is reached.
        """
        limit = self._resources.context.max_destinations
        number = len(endpoint.destinations) + also + 1
        if number > limit:
            message = (
                f"destination {uri} would be number {number}, and the limit is {limit}: remove "
                "others, or raise max_destinations"
            )
            raise RegistrationError(message, code=ErrorCode.RESOURCE_TEMPORARILY_UNAVAILABLE)

    async def add_destination(
        self, endpoint: ReceiveChannelEndpoint, channel: UdpChannel, registration_id: int
    ) -> None:
        """Receive at one more socket from now on.

        Raises:
            RegistrationError: The socket cannot be had, or another has its port.
        """
        destination = self._make_destination(endpoint, channel, registration_id)
        await open_destination(self._resources, endpoint, destination)
        self._images.on_destination_added(endpoint, destination)
        self._start_eliciting(endpoint, destination)

    def remove_destination(
        self,
        endpoint: ReceiveChannelEndpoint,
        *,
        uri: ChannelUri | None = None,
        canonical_form: str | None = None,
        registration_id: int = 0,
    ) -> bool:
        """Receive at a socket no more, named by its channel or by the request that added it."""
        for destination in endpoint.destinations:
            if destination.registration_id and (
                destination.registration_id == registration_id
                or destination.channel.uri == uri
                or destination.channel.canonical_form == canonical_form
            ):
                self._stop_eliciting(destination)
                endpoint.remove(destination)
                self._images.on_destination_removed(endpoint, destination)
                return True
        return False

    def close(self, endpoint: ReceiveChannelEndpoint) -> None:
        """Close an endpoint that nobody uses any more."""
        if endpoint in self._endpoints:
            self._endpoints.remove(endpoint)
            for destination in endpoint.destinations:
                self._stop_eliciting(destination)
            endpoint.close()

    def close_all(self) -> None:
        """Close every endpoint at once."""
        for endpoint in tuple(self._endpoints):
            self.close(endpoint)

    # Asking for SETUPs.

    def take_interest(
        self, endpoint: ReceiveChannelEndpoint, stream_id: int, session_id: int | None
    ) -> None:
        """Want one session of a stream from now on, or all of them, and ask for them."""
        endpoint.dispatcher.add_subscription(stream_id, session_id)
        self.on_interest(endpoint, stream_id, session_id)

    def on_interest(
        self, endpoint: ReceiveChannelEndpoint, stream_id: int, session_id: int | None
    ) -> None:
        """Ask for what somebody wants from now on, where there is a control address to ask."""
        for destination in endpoint.destinations:
            elicitor = self._elicitors.get(destination)
            if elicitor is None:
                continue
            self._receiver.on_eliciting(elicitor)
            if session_id is not None:
                elicitor.elicit(stream_id=stream_id, session_id=session_id)

    def _start_eliciting(
        self, endpoint: ReceiveChannelEndpoint, destination: ReceiveDestinationTransport
    ) -> None:
        if not destination.channel.has_explicit_control:
            return
        elicitor = SetupElicitor(
            destination,
            receiver_id=endpoint.receiver_id,
            group_tag=endpoint.group_tag,
            is_wanted=lambda: endpoint.dispatcher.has_interest,
            short_sends=self._resources.system_counters[SystemCounterId.SHORT_SENDS],
        )
        self._elicitors[destination] = elicitor
        self._receiver.on_eliciting(elicitor)

    def _stop_eliciting(self, destination: ReceiveDestinationTransport) -> None:
        elicitor = self._elicitors.pop(destination, None)
        if elicitor is not None:
            self._receiver.remove_elicitor(elicitor)
