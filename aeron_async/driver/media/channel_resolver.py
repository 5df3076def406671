"""From a channel URI to addresses: the only part of adding a stream that waits for the world.

Source: Aeron `UdpChannel.parse`, `NameResolver`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aeron_async.driver.core.udp_channel import UdpChannel, check_is_unicast
from aeron_async.errors import ErrorCode, RegistrationError

if TYPE_CHECKING:
    from aeron_async.driver.core.outbox import Address
    from aeron_async.driver.media.network import Network
    from aeron_async.protocol.channel_uri import ChannelUri

__all__ = ["resolve_publication", "resolve_subscription"]


async def resolve_publication(network: Network, uri: ChannelUri) -> UdpChannel:
    """Return the channel of a sender with its addresses resolved.

    Raises:
        RegistrationError: A name does not resolve, or the channel is of a kind we have not.
    """
    check_is_unicast(uri)
    assert uri.endpoint is not None
    endpoint = await network.resolve(uri.endpoint.host, uri.endpoint.port)
    local: Address | None = None
    if uri.control is not None:
        local = await network.resolve(uri.control.host, uri.control.port)
    elif uri.interface is not None:
        local = await _resolve_interface(network, uri)
    if local is not None and (":" in local[0]) != (":" in endpoint[0]):
        message = f"the local address {local[0]} and the endpoint {endpoint[0]} mix IPv4 and IPv6"
        raise RegistrationError(message, code=ErrorCode.INVALID_CHANNEL)
    return UdpChannel.for_publication(uri, endpoint=endpoint, local=local)


async def resolve_subscription(
    network: Network, uri: ChannelUri, *, unique_suffix: str
) -> UdpChannel:
    """Return the channel of a receiver with its endpoint resolved.

    Raises:
        RegistrationError: A name does not resolve, or the channel is of a kind we have not.
    """
    check_is_unicast(uri)
    assert uri.endpoint is not None
    if uri.control is not None:
        message = f"a subscription with control= is not supported by this driver: {uri}"
        raise RegistrationError(message, code=ErrorCode.NOT_SUPPORTED)
    endpoint = await network.resolve(uri.endpoint.host, uri.endpoint.port)
    return UdpChannel.for_subscription(uri, endpoint=endpoint, unique_suffix=unique_suffix)


async def _resolve_interface(network: Network, uri: ChannelUri) -> Address:
    interface = uri.interface
    assert interface is not None
    if interface.host is None or interface.prefix_length is not None:
        message = (
            f"interface={interface} is not supported by this driver for unicast: give the local "
            "address itself, without a prefix length"
        )
        raise RegistrationError(message, code=ErrorCode.NOT_SUPPORTED)
    return await network.resolve(interface.host, interface.port)
