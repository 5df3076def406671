"""The channel endpoints of one driver: find, open, share, add destinations, close.

Source: Aeron `DriverConductor.getOrCreateSendChannelEndpoint`, `onAddSendDestination`,
`DriverConductor.getOrCreateReceiveChannelEndpoint`, `onAddRcvDestination` and their neighbours;
counter types 6, 7, 14 and 18.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

import attrs

from aeron_async.driver.core.control_packet_dispatcher import ControlPacketDispatcher
from aeron_async.driver.core.data_packet_dispatcher import DataPacketDispatcher
from aeron_async.driver.core.destination_tracker import DestinationTracker
from aeron_async.driver.core.status_message_sender import SetupElicitor
from aeron_async.driver.core.stream_counters import (
    ChannelCounterType,
    ChannelStatus,
    LocalAddressType,
    allocate_channel_counter,
    allocate_local_address,
)
from aeron_async.driver.core.system_counters import DriverCounterId, SystemCounterId
from aeron_async.driver.core.timestamps import ReceiveTimestamps
from aeron_async.driver.core.udp_channel import format_address
from aeron_async.driver.media.endpoint import (
    ChannelEndpoint,
    ReceiveChannelEndpoint,
    ReceiveDestinationTransport,
    SendChannelEndpoint,
)
from aeron_async.driver.media.sockets import receive_socket_spec, send_socket_specs
from aeron_async.errors import ConfigurationError, ErrorCode, RegistrationError
from aeron_async.logs import get_logger
from aeron_async.protocol.datagram import classify

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from aeron_async.counters import Counter
    from aeron_async.driver.core.network_publication import NetworkPublication
    from aeron_async.driver.core.outbox import Address, ReceiveDestination
    from aeron_async.driver.core.publication_image import PublicationImage
    from aeron_async.driver.core.udp_channel import UdpChannel
    from aeron_async.driver.images import Images
    from aeron_async.driver.receiver import Receiver
    from aeron_async.driver.resources import DriverResources
    from aeron_async.driver.sender import Sender
    from aeron_async.logs import LogBudget
    from aeron_async.protocol.channel_uri import ChannelUri
    from aeron_async.protocol.setup import Setup

__all__ = [
    "InvalidDatagramLog",
    "ReceiveEndpoints",
    "SendEndpoints",
    "allocate_destination_count",
    "check_can_share_socket",
    "find_endpoint",
    "open_destination",
    "open_receive_endpoint",
    "open_send_endpoint",
]

SHOWN_LENGTH: Final = 16

log: Final = get_logger(__name__)


class InvalidDatagramLog:
    """Logs invalid datagrams, after they were counted.

    Args:
        budget: The driver's log budget; it allows each source one line a second.
    """

    def __init__(self, budget: LogBudget) -> None:
        self._budget = budget

    def on_invalid_datagram(self, datagram: memoryview, source: Address, now_ns: int) -> None:
        """Log the source, the length and the first bytes of a datagram."""
        if not self._budget.allows("datagram_invalid", source, now_ns):
            return
        kind = classify(datagram)
        log.warning(
            "datagram_invalid",
            source=format_address(source),
            length=len(datagram),
            first_bytes=bytes(datagram[:SHOWN_LENGTH]).hex(" "),
            reason=(
                "no frame of Aeron"
                if kind is None
                else f"a {kind.name} frame with an impossible version, length or value"
            ),
        )


Endpoint = TypeVar("Endpoint", bound=ChannelEndpoint)


def find_endpoint(endpoints: Iterable[Endpoint], channel: UdpChannel) -> Endpoint | None:
    """Return the endpoint of a channel: the one with its tag, or with its canonical form.

    Raises:
        RegistrationError: INVALID_CHANNEL; the tag belongs to a channel of another kind.

    Source: Aeron `UdpChannel.matchesTag`.
    """
    tag = channel.uri.channel_tag
    untagged = None
    for endpoint in endpoints:
        its_channel = endpoint.channel
        its_tag = its_channel.uri.channel_tag
        if tag is not None and its_tag == tag:
            _check_same_kind(channel, its_channel)
            return endpoint
        is_same = its_channel.canonical_form == channel.canonical_form
        if is_same and (tag is None or its_tag is None):
            untagged = untagged or endpoint
    return untagged


def _check_same_kind(channel: UdpChannel, existing: UdpChannel) -> None:
    is_same_mode = channel.control_mode in {None, existing.control_mode}
    ours, theirs = channel.uri, existing.uri
    is_same_place = (
        channel.is_wildcard
        or (channel.remote_data, channel.local_data) == (existing.remote_data, existing.local_data)
        # The endpoint goes where its name leads, so the same name is the same place.
        or (ours.endpoint, ours.control, ours.interface)
        == (theirs.endpoint, theirs.control, theirs.interface)
    )
    if not is_same_mode or not is_same_place:
        message = (
            f"channel {channel.uri} has mismatched endpoint or control: its tag is that of "
            f"{existing.uri}; leave out address and control-mode, or choose another tag"
        )
        raise RegistrationError(message, code=ErrorCode.INVALID_CHANNEL)


async def open_send_endpoint(resources: DriverResources, endpoint: SendChannelEndpoint) -> None:
    """Open the sockets of a send endpoint and allocate its counters, or neither.

    Raises:
        RegistrationError: A socket cannot be opened, or the counter table is full.
    """
    _note_buffer_lengths(resources, endpoint)
    data, control = send_socket_specs(
        endpoint.channel, resources.context, ports=resources.sender_ports
    )
    try:
        await resources.network.open(lambda: endpoint.data, data)
        if control is not None and endpoint.control is not None:
            member = endpoint.control
            await resources.network.open(lambda: member, control)
        address = endpoint.local_address
        _allocate_status(
            resources, endpoint, ChannelCounterType.SEND_CHANNEL_STATUS, address=address
        )
        endpoint.counters.append(
            _allocate_address(resources, endpoint, LocalAddressType.SEND, address)
        )
    except BaseException:
        endpoint.close()
        raise


async def open_receive_endpoint(
    resources: DriverResources,
    endpoint: ReceiveChannelEndpoint,
    destination: ReceiveDestinationTransport | None,
) -> None:
    """Allocate the counters of a receive endpoint, and open the socket of its destination, if any.

    Raises:
        RegistrationError: The socket cannot be opened, or the counter table is full.
    """
    _note_buffer_lengths(resources, endpoint)
    try:
        if destination is not None:
            spec = receive_socket_spec(
                endpoint.channel, resources.context, ports=resources.receiver_ports
            )
            await resources.network.open(lambda: destination, spec)
            endpoint.destinations.append(destination)
        _allocate_status(
            resources,
            endpoint,
            ChannelCounterType.RECEIVE_CHANNEL_STATUS,
            address=endpoint.local_address,
        )
        if destination is not None:
            _show_destination(resources, endpoint, destination)
    except BaseException:
        endpoint.close()
        raise


async def open_destination(
    resources: DriverResources,
    endpoint: ReceiveChannelEndpoint,
    destination: ReceiveDestinationTransport,
) -> None:
    """Open the socket of another destination of a receive endpoint, and allocate its counter.

    Raises:
        RegistrationError: The socket cannot be opened, or the counter table is full.
    """
    spec = receive_socket_spec(
        destination.channel,
        resources.context,
        ports=resources.receiver_ports,
        owner=endpoint.channel,
    )
    await resources.network.open(lambda: destination, spec)
    try:
        _show_destination(resources, endpoint, destination)
    except BaseException:
        destination.close()
        raise
    endpoint.destinations.append(destination)


def allocate_destination_count(
    resources: DriverResources, channel: UdpChannel, registration_id: int
) -> Counter:
    """Allocate the counter for the number of destinations of a channel.

    Raises:
        RegistrationError: The counter table is full.
    """
    return allocate_channel_counter(
        resources.counters_manager,
        ChannelCounterType.MDC_NUM_DESTINATIONS,
        registration_id=registration_id,
        channel=str(channel.uri),
    )


def check_can_share_socket(uri: ChannelUri, endpoint: ChannelEndpoint) -> None:
    """Refuse a channel whose socket settings differ from those the endpoint was opened with.

    Raises:
        ConfigurationError: The channel gives another buffer length or timestamp offset.

    Source: Aeron `DriverConductor.validateChannelBufferLength`.
    """
    theirs = endpoint.channel.uri
    pairs = (
        ("so-sndbuf", uri.socket_sndbuf_length, endpoint.socket_sndbuf_length),
        ("so-rcvbuf", uri.socket_rcvbuf_length, endpoint.socket_rcvbuf_length),
        (
            "channel-rcv-ts-offset",
            uri.channel_receive_timestamp_offset,
            theirs.channel_receive_timestamp_offset,
        ),
        (
            "media-rcv-ts-offset",
            uri.media_receive_timestamp_offset,
            theirs.media_receive_timestamp_offset,
        ),
        (
            "channel-snd-ts-offset",
            uri.channel_send_timestamp_offset,
            theirs.channel_send_timestamp_offset,
        ),
    )
    for key, asked, actual in pairs:
        is_offset = key.endswith("-ts-offset")
        # A channel that is only a tag is of the kind of the channel with that tag.
        is_meant = asked is not None or uri.endpoint is not None or uri.control is not None
        if (asked or (is_offset and is_meant)) and asked != actual:
            shown = "none" if is_offset else "the system's default"
            message = (
                f"option conflicts: {key}={'none' if asked is None else asked} differs from "
                f"{actual or shown}, which the socket of {endpoint.channel.uri} already has: give "
                "both channels the same value"
            )
            raise ConfigurationError(message)


def _note_buffer_lengths(resources: DriverResources, endpoint: ChannelEndpoint) -> None:
    uri, context = endpoint.channel.uri, resources.context
    endpoint.socket_sndbuf_length = uri.socket_sndbuf_length or context.socket_sndbuf_length
    endpoint.socket_rcvbuf_length = uri.socket_rcvbuf_length or context.socket_rcvbuf_length


def _allocate_status(
    resources: DriverResources,
    endpoint: ChannelEndpoint,
    counter_type: ChannelCounterType,
    *,
    address: str,
) -> None:
    endpoint.status = allocate_channel_counter(
        resources.counters_manager,
        counter_type,
        registration_id=endpoint.registration_id,
        channel=str(endpoint.channel.uri),
        bound_address=address,
    )
    endpoint.status.set(ChannelStatus.ACTIVE)
    endpoint.counters.append(endpoint.status)


def _show_destination(
    resources: DriverResources,
    endpoint: ReceiveChannelEndpoint,
    destination: ReceiveDestinationTransport,
) -> None:
    destination.counters.append(
        _allocate_address(resources, endpoint, LocalAddressType.RECEIVE, destination.local_address)
    )


def _allocate_address(
    resources: DriverResources,
    endpoint: ChannelEndpoint,
    counter_type: LocalAddressType,
    address: str,
) -> Counter:
    counter = allocate_local_address(
        resources.counters_manager,
        counter_type,
        registration_id=endpoint.registration_id,
        channel_status_id=endpoint.status.id,
        address=address,
    )
    counter.set(ChannelStatus.ACTIVE)
    return counter


class SendEndpoints:
    """Every send endpoint of one driver.

    Args:
        resources: What the driver's parts share.
        sender: Polls the publications.
        on_response_setup: Called with a publication and the session id of its responses.
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
        self._held: SendChannelEndpoint | None = None
        self._invalid_datagrams = InvalidDatagramLog(resources.log_budget)

    def __iter__(self) -> Iterator[SendChannelEndpoint]:
        return iter(tuple(self._endpoints))

    async def get(self, channel: UdpChannel, *, registration_id: int) -> SendChannelEndpoint:
        """Return the endpoint of a channel, opened first if there is none.

        Args:
            channel: With resolved addresses.
            registration_id: Of the publication, for the counters of a new endpoint.

        Raises:
            RegistrationError: The socket cannot be opened, or no channel has the tag.
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
        endpoint = self._make(channel, registration_id)
        await open_send_endpoint(self._resources, endpoint)
        self._endpoints.append(endpoint)
        return endpoint

    def _make(self, channel: UdpChannel, registration_id: int) -> SendChannelEndpoint:
        resources = self._resources
        count = destinations = None
        if channel.is_multi_destination and not channel.is_multicast:
            count = allocate_destination_count(resources, channel, registration_id)
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
        endpoint.registration_id = registration_id
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
        """Send to one more destination from now on.

        Raises:
            RegistrationError: The channel takes no destinations, or has too many.
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
        """Stop sending to a destination; return False if there is none such.

        Raises:
            RegistrationError: The destinations of the channel cannot be removed.
        """
        return _manual_destinations(endpoint).remove(
            uri=uri, address=address, registration_id=registration_id
        )

    @contextmanager
    def hold(self, endpoint: SendChannelEndpoint) -> Iterator[None]:
        """Keep an endpoint open while a publication is made that will send from it."""
        assert self._held is None, "commands are executed one by one"
        self._held = endpoint
        try:
            yield
        finally:
            self._held = None

    def close_if_unused(self, endpoint: SendChannelEndpoint) -> None:
        """Close an endpoint from which no publication sends any more, nor is about to."""
        is_unused = len(endpoint.dispatcher) == 0 and endpoint is not self._held
        if is_unused and endpoint in self._endpoints:
            self._endpoints.remove(endpoint)
            endpoint.close()

    def _on_writable(self, endpoint: SendChannelEndpoint) -> None:
        for publication in endpoint.dispatcher.publications:
            self._sender.on_activity(publication)


def _manual_destinations(endpoint: SendChannelEndpoint) -> DestinationTracker:
    destinations = endpoint.destinations
    if destinations is None or not destinations.is_manual:
        message = (
            f"the application cannot choose destinations of {endpoint.channel.uri}: "
            "use control-mode=manual"
        )
        raise RegistrationError(message, code=ErrorCode.INVALID_CHANNEL)
    return destinations


@attrs.define(eq=False)
class EndpointListener:
    """Passes what one dispatcher found to the receiver, the images and the log."""

    receiver: Receiver
    images: Images
    invalid_datagrams: InvalidDatagramLog
    endpoint: ReceiveChannelEndpoint = attrs.field(init=False)
    on_image_activity: Callable[[PublicationImage], None] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        # Bound directly, since it is called for every segment batch.
        self.on_image_activity = self.receiver.on_arrival

    def on_create_image(
        self, setup: Setup, source: Address, destination: ReceiveDestination
    ) -> None:
        """Ask `Images` to make the image."""
        self.images.on_create_image(self.endpoint, setup, source, destination)

    def on_invalid_datagram(self, datagram: memoryview, source: Address, now_ns: int) -> None:
        """Log the datagram."""
        self.invalid_datagrams.on_invalid_datagram(datagram, source, now_ns)


class ReceiveEndpoints:
    """Every receive endpoint of one driver.

    Args:
        resources: What the driver's parts share.
        receiver: Polls the images and the SETUP elicitors.
        images: Makes the images of new streams.
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

    async def get(
        self, channel: UdpChannel, group_tag: int | None, *, registration_id: int
    ) -> ReceiveChannelEndpoint:
        """Return the endpoint of a channel, opened first if there is none.

        Args:
            channel: With resolved addresses.
            group_tag: Sent in the status messages of a new endpoint.
            registration_id: Of the subscription, for the counters of a new endpoint.

        Raises:
            RegistrationError: The socket cannot be opened, or no channel has the tag.
            ConfigurationError: The channel contradicts the socket it would share.
        """
        endpoint = find_endpoint(self._endpoints, channel)
        if endpoint is not None:
            check_can_share_socket(channel.uri, endpoint)
            return endpoint
        has_address = channel.has_explicit_endpoint or channel.has_explicit_control
        if not (has_address or channel.is_manual or channel.is_response):
            message = (
                f"no subscription of this driver has the channel tag of {channel.uri}: add that "
                "one first, or give endpoint, control, or control-mode=manual"
            )
            raise RegistrationError(message, code=ErrorCode.INVALID_CHANNEL)
        endpoint = self._make(channel, group_tag)
        endpoint.registration_id = registration_id
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
        """Refuse a destination beyond the limit.

        Args:
            endpoint: Endpoint of the subscription.
            uri: The destination to be added.
            also: How many destinations it has in addition to its sockets.

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
            RegistrationError: The socket cannot be opened, or another socket has its port.
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
        """Close the socket of a destination, given its channel or the id of the request."""
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
        """Close an endpoint that is no longer used."""
        if endpoint in self._endpoints:
            self._endpoints.remove(endpoint)
            for destination in endpoint.destinations:
                self._stop_eliciting(destination)
            endpoint.close()

    def close_all(self) -> None:
        """Close every endpoint at once."""
        for endpoint in tuple(self._endpoints):
            self.close(endpoint)

    # SETUP requests.

    def take_interest(
        self, endpoint: ReceiveChannelEndpoint, stream_id: int, session_id: int | None
    ) -> None:
        """Receive one session of a stream, or all sessions, and request their SETUPs."""
        endpoint.dispatcher.add_subscription(stream_id, session_id)
        self.on_interest(endpoint, stream_id, session_id)

    def on_interest(
        self, endpoint: ReceiveChannelEndpoint, stream_id: int, session_id: int | None
    ) -> None:
        """Request the SETUP of what is now wanted, from each control address."""
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
