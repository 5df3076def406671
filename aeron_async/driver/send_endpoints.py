"""The conductor's hand on send endpoints: find or open one, give it destinations, close it.

Source: Aeron `DriverConductor.getOrCreateSendChannelEndpoint`, `onAddSendDestination`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aeron_async.driver.core.control_packet_dispatcher import ControlPacketDispatcher
from aeron_async.driver.core.destination_tracker import DestinationTracker
from aeron_async.driver.core.system_counters import DriverCounterId
from aeron_async.driver.endpoint_opening import (
    allocate_destination_count,
    check_can_share_socket,
    find_endpoint,
    open_send_endpoint,
)
from aeron_async.driver.invalid_datagrams import InvalidDatagramLog
from aeron_async.driver.media.send_channel_endpoint import SendChannelEndpoint
from aeron_async.errors import ErrorCode, RegistrationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aeron_async.counters import Counter
    from aeron_async.driver.core.network_publication import NetworkPublication
    from aeron_async.driver.core.outbox import Address
    from aeron_async.driver.core.udp_channel import UdpChannel
    from aeron_async.driver.resources import DriverResources
    from aeron_async.driver.sender import Sender
    from aeron_async.protocol.channel_uri import ChannelUri

__all__ = ["SendEndpoints"]


class SendEndpoints:
    """Every send endpoint of one driver.

    Args:
        resources: What the driver's parts share.
        sender: Polls the publications.
        on_response_setup: Told of a publication whose responses will come with a session id.
    """

    def __init__(
        self,
        resources: DriverResources,
        sender: Sender,
        on_response_setup: Callable[[NetworkPublication, int], None],
    ) -> None:
        self._resources = resources
        self._sender = sender
        sender.endpoints = self
        self._on_response_setup = on_response_setup
        self._endpoints: list[SendChannelEndpoint] = []
        self._invalid_datagrams = InvalidDatagramLog(resources.log_budget)

    def __iter__(self) -> Iterator[SendChannelEndpoint]:
        return iter(tuple(self._endpoints))

    async def get(self, channel: UdpChannel) -> SendChannelEndpoint:
        """Return the endpoint of a channel, opened now if it is the first to want it.

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
                f"no publication of this driver has the channel tag of {channel.uri}: add that one "
                "first, or give endpoint, control, or control-mode=manual"
            )
            raise RegistrationError(message, code=ErrorCode.INVALID_CHANNEL)
        endpoint = self._make(channel)
        await open_send_endpoint(self._resources, endpoint)
        self._endpoints.append(endpoint)
        return endpoint

    def _make(self, channel: UdpChannel) -> SendChannelEndpoint:
        resources = self._resources
        count = destinations = None
        if channel.is_multi_destination and not channel.is_multicast:
            count = allocate_destination_count(resources, channel)
            destinations = self._destinations(channel, count)
        dispatcher = ControlPacketDispatcher(
            resources.system_counters,
            self._sender.on_activity,
            self._invalid_datagrams.on_invalid_datagram,
            destinations=destinations,
            on_response_setup=self._on_response_setup,
            now_ns=resources.clock.now_ns(),
        )
        endpoint = SendChannelEndpoint(
            channel,
            resources.clock,
            resources.system_counters,
            dispatcher,
            self._on_writable,
            self._sender.on_reading,
        )
        if count is not None:
            endpoint.counters.append(count)
        return endpoint

    def _destinations(self, channel: UdpChannel, count: Counter) -> DestinationTracker:
        resources = self._resources
        return DestinationTracker(
            is_manual=channel.is_manual,
            limit=resources.context.max_destinations,
            count=count,
            refused=resources.system_counters[DriverCounterId.DESTINATIONS_REFUSED],
        )

    def add_destination(
        self,
        endpoint: SendChannelEndpoint,
        uri: ChannelUri,
        address: Address | None,
        registration_id: int,
    ) -> None:
        """Send to one more receiver from now on.

        Raises:
            RegistrationError: The channel has no destinations to be added, or too many.
        """
        destinations = _manual_destinations(endpoint)
        destinations.add(uri, address, registration_id, self._resources.clock.now_ns())
        self._on_writable(endpoint)

    def remove_destination(
        self,
        endpoint: SendChannelEndpoint,
        *,
        uri: ChannelUri | None = None,
        address: Address | None = None,
        registration_id: int = 0,
    ) -> bool:
        """Send to a receiver no more; False where it was none.

        Raises:
            RegistrationError: The channel has no destinations to be removed.
        """
        return _manual_destinations(endpoint).remove(
            uri=uri, address=address, registration_id=registration_id
        )

    def close_if_unused(self, endpoint: SendChannelEndpoint) -> None:
        """Close an endpoint that no publication sends from any more."""
        if len(endpoint.dispatcher) == 0 and endpoint in self._endpoints:
            self._endpoints.remove(endpoint)
            endpoint.close()

    def _on_writable(self, endpoint: SendChannelEndpoint) -> None:
        for publication in endpoint.dispatcher.publications:
            self._sender.on_activity(publication)


def _manual_destinations(endpoint: SendChannelEndpoint) -> DestinationTracker:
    destinations = endpoint.destinations
    if destinations is None or not destinations.is_manual:
        message = (
            f"destinations of {endpoint.channel.uri} are not the application's to choose: "
            "use control-mode=manual for that"
        )
        raise RegistrationError(message, code=ErrorCode.INVALID_CHANNEL)
    return destinations
