"""Opening endpoints, with the counters that show them, and the check of who may share them.

Source: Aeron `DriverConductor.getOrCreateSendChannelEndpoint` and its neighbours; counter types 6,
7, 14 and 18.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from aeron_async.driver.core.stream_counters import (
    ChannelCounterType,
    ChannelStatus,
    LocalAddressType,
    allocate_channel_counter,
    allocate_local_address,
)
from aeron_async.driver.media.endpoint import ChannelEndpoint
from aeron_async.driver.media.socket_spec import receive_socket_spec, send_socket_specs
from aeron_async.errors import ConfigurationError, ErrorCode, RegistrationError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aeron_async.counters import Counter
    from aeron_async.driver.core.udp_channel import UdpChannel
    from aeron_async.driver.media.receive_channel_endpoint import (
        ReceiveChannelEndpoint,
        ReceiveDestinationTransport,
    )
    from aeron_async.driver.media.send_channel_endpoint import SendChannelEndpoint
    from aeron_async.driver.resources import DriverResources
    from aeron_async.protocol.channel_uri import ChannelUri

__all__ = [
    "allocate_destination_count",
    "check_can_share_socket",
    "find_endpoint",
    "open_destination",
    "open_receive_endpoint",
    "open_send_endpoint",
]

Endpoint = TypeVar("Endpoint", bound=ChannelEndpoint)


def find_endpoint(endpoints: Iterable[Endpoint], channel: UdpChannel) -> Endpoint | None:
    """Return the endpoint that a channel means: by its tag, or by its canonical form.

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
    is_same_place = channel.is_wildcard or (
        channel.remote_data == existing.remote_data and channel.local_data == existing.local_data
    )
    if not is_same_mode or not is_same_place:
        message = (
            f"channel {channel.uri} has the tag of {existing.uri}, and another address or "
            "control-mode: leave those out, or choose another tag"
        )
        raise RegistrationError(message, code=ErrorCode.INVALID_CHANNEL)


async def open_send_endpoint(resources: DriverResources, endpoint: SendChannelEndpoint) -> None:
    """Give a send endpoint its sockets and its counters, or neither.

    Raises:
        RegistrationError: A socket cannot be had, or the counter table is full.
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
    """Give a receive endpoint its counters, and its socket unless it has destinations to come.

    Raises:
        RegistrationError: The socket cannot be had, or the counter table is full.
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
    """Give one more destination of a receive endpoint its socket and its counter.

    Raises:
        RegistrationError: The socket cannot be had, or the counter table is full.
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


def allocate_destination_count(resources: DriverResources, channel: UdpChannel) -> Counter:
    """Return the counter that shows how many destinations a channel has.

    Raises:
        RegistrationError: The counter table is full.
    """
    return allocate_channel_counter(
        resources.counters_manager,
        ChannelCounterType.MDC_NUM_DESTINATIONS,
        registration_id=resources.next_id(),
        channel=str(channel.uri),
    )


def check_can_share_socket(uri: ChannelUri, endpoint: ChannelEndpoint) -> None:
    """Refuse a channel that wants other socket buffers than the endpoint was opened with.

    Raises:
        ConfigurationError: The channel gives a length, and it is another one.

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
        if (asked or (is_offset and asked is not None)) and asked != actual:
            shown = f"{actual}" if actual else "the system's default"
            message = (
                f"{key}={asked} differs from {shown}, which the socket of "
                f"{endpoint.channel.uri} already has: leave {key} out, or give it the same value"
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
    endpoint.registration_id = resources.next_id()
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
