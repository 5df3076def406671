"""Opening an endpoint, with the counters that show it, and the check of who may share it.

Source: Aeron `DriverConductor.getOrCreateSendChannelEndpoint` and its neighbours; counter types 6,
7 and 14.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aeron_async.driver.core.stream_counters import (
    ChannelStatus,
    LocalAddressType,
    allocate_channel_counter,
    allocate_local_address,
)
from aeron_async.driver.media.socket_spec import receive_socket_spec, send_socket_specs
from aeron_async.errors import ConfigurationError

if TYPE_CHECKING:
    from aeron_async.counters import Counter, CountersManager
    from aeron_async.driver.core.stream_counters import ChannelCounterType
    from aeron_async.driver.media.endpoint import ChannelEndpoint
    from aeron_async.driver.resources import DriverResources
    from aeron_async.protocol.channel_uri import ChannelUri

__all__ = ["check_can_share_socket", "open_endpoint"]


async def open_endpoint(
    resources: DriverResources,
    endpoint: ChannelEndpoint,
    channel_type: ChannelCounterType,
    address_type: LocalAddressType,
) -> None:
    """Give an endpoint its socket and its counters, or neither.

    Raises:
        RegistrationError: The socket cannot be had, or the counter table is full.
    """
    channel, context = endpoint.channel, resources.context
    uri = channel.uri
    endpoint.socket_sndbuf_length = uri.socket_sndbuf_length or context.socket_sndbuf_length
    endpoint.socket_rcvbuf_length = uri.socket_rcvbuf_length or context.socket_rcvbuf_length
    if address_type is LocalAddressType.SEND:
        spec, _ = send_socket_specs(channel, context, ports=resources.sender_ports)
    else:
        spec = receive_socket_spec(channel, context, ports=resources.receiver_ports)
    await resources.network.open(lambda: endpoint, spec)
    try:
        endpoint.counters = allocate_endpoint_counters(
            resources.counters_manager,
            channel_type,
            address_type,
            registration_id=resources.next_id(),
            channel=str(uri),
            address=endpoint.local_address,
        )
    except BaseException:
        endpoint.close()
        raise


def check_can_share_socket(uri: ChannelUri, endpoint: ChannelEndpoint) -> None:
    """Refuse a channel that wants other socket buffers than the endpoint was opened with.

    Raises:
        ConfigurationError: The channel gives a length, and it is another one.

    Source: Aeron `DriverConductor.validateChannelBufferLength`.
    """
    pairs = (
        ("so-sndbuf", uri.socket_sndbuf_length, endpoint.socket_sndbuf_length),
        ("so-rcvbuf", uri.socket_rcvbuf_length, endpoint.socket_rcvbuf_length),
    )
    for key, asked_length, actual_length in pairs:
        if asked_length and asked_length != actual_length:
            actual = f"{actual_length}" if actual_length else "the system's default"
            message = (
                f"{key}={asked_length} differs from {actual}, which the socket of "
                f"{endpoint.channel.uri} already has: leave {key} out, or give it the same value"
            )
            raise ConfigurationError(message)


def allocate_endpoint_counters(
    manager: CountersManager,
    channel_type: ChannelCounterType,
    address_type: LocalAddressType,
    *,
    registration_id: int,
    channel: str,
    address: str,
) -> list[Counter]:
    """Return the channel status, then the local address, both active.

    Raises:
        RegistrationError: The counter table is full; none of them is left allocated.
    """
    status = allocate_channel_counter(
        manager,
        channel_type,
        registration_id=registration_id,
        channel=channel,
        bound_address=address,
    )
    try:
        local = allocate_local_address(
            manager,
            address_type,
            registration_id=registration_id,
            channel_status_id=status.id,
            address=address,
        )
    except BaseException:
        status.close()
        raise
    for counter in (status, local):
        counter.set(ChannelStatus.ACTIVE)
    return [status, local]
