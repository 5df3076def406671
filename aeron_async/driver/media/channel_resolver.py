"""Channel resolution: from a channel URI to numeric addresses and a local interface.

Source: Aeron `NetworkUtil`, `InterfaceSearchAddress`, `aeron_netutil.c`, `UdpChannel.parse`,
`NameResolver`.
"""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, NoReturn

from aeron_async.driver.core.udp_channel import Interface, UdpChannel, wildcard_like
from aeron_async.driver.media.sockets import is_group, literal
from aeron_async.errors import ErrorCode, RegistrationError
from aeron_async.protocol.address import usual_spelling

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aeron_async.driver.core.outbox import Address
    from aeron_async.driver.media.network import InterfaceAddress, Network
    from aeron_async.protocol.address import Address as WrittenAddress
    from aeron_async.protocol.channel_uri import ChannelUri

__all__ = [
    "find_interface",
    "find_named_interface",
    "numeric_publication",
    "numeric_receive_destination",
    "numeric_send_destination",
    "numeric_subscription",
    "resolve_address",
    "resolve_publication",
    "resolve_receive_destination",
    "resolve_send_destination",
    "resolve_subscription",
]


def find_interface(
    table: Sequence[InterfaceAddress], host: str, *, prefix_length: int | None = None, port: int = 0
) -> Interface:
    """Return the best interface whose address shares a prefix with a numeric host.

    Of the interfaces that can carry multicast, the one with the longest netmask is the best, and
    the first of several. Loopback is used only if no other matches.

    Args:
        table: The addresses of this machine, in its own order.
        host: Numeric; with a prefix length of 0 only its family counts.
        prefix_length: How many bits must be equal; None means all.
        port: Stored in the result.

    Raises:
        RegistrationError: INVALID_CHANNEL; lists the interfaces there are.
    """
    wanted = ip_address(host)
    length = wanted.max_prefixlen if prefix_length is None else prefix_length
    network = ip_network(f"{wanted}/{length}", strict=False)
    best: InterfaceAddress | None = None
    best_length = 0
    for each in table:
        ip = ip_address(each.address)
        if not each.is_up or ip.version != wanted.version or ip not in network:
            continue
        if each.is_loopback and best is None:
            best = each
        elif each.is_multicast and (best is None or each.prefix_length > best_length):
            best, best_length = each, each.prefix_length
    if best is None:
        _refuse(f"no interface that is up matches {host}/{length}", table)
    return _chosen(best, port)


def find_named_interface(
    table: Sequence[InterfaceAddress], name: str, *, is_ipv6: bool, port: int = 0
) -> Interface:
    """Return the first address of a family of the interface with this name.

    Args:
        table: The addresses of this machine, in its own order.
        name: Exactly as the system spells it.
        is_ipv6: The family.
        port: Stored in the result.

    Raises:
        RegistrationError: INVALID_CHANNEL; lists the interfaces there are.
    """
    for each in table:
        if each.name == name and each.is_up and (":" in each.address) is is_ipv6:
            return _chosen(each, port)
    if any(each.name == name and each.is_up for each in table):
        family = "IPv6" if is_ipv6 else "IPv4"
        _refuse(f"interface {name} has no {family} address", table)
    return _refuse(f"unknown interface {name}, or it is down", table)


def _chosen(found: InterfaceAddress, port: int) -> Interface:
    return Interface(address=found.address, index=found.index, name=found.name, port=port)


def _refuse(reason: str, table: Iterable[InterfaceAddress]) -> NoReturn:
    there = "; ".join(str(each) for each in table) or "none"
    message = f"{reason}: check interface= of the channel; there are: {there}"
    raise RegistrationError(message, code=ErrorCode.INVALID_CHANNEL)


def numeric_publication(uri: ChannelUri, *, unique_suffix: str = "") -> UdpChannel | None:
    """Return the channel of a sender whose addresses are numeric; None if it must be resolved.

    A channel with `interface=`, or with a multicast group, must: it depends on the interfaces there
    are. The suffix is that of `resolve_publication`.
    """
    found = _numeric_addresses(uri)
    if found is None:
        return None
    endpoint, control = found
    return UdpChannel.for_publication(
        uri, endpoint=endpoint, control=control, interface=None, unique_suffix=unique_suffix
    )


def numeric_subscription(uri: ChannelUri, *, unique_suffix: str) -> UdpChannel | None:
    """Return the channel of a receiver whose addresses are numeric; see `numeric_publication`."""
    found = _numeric_addresses(uri)
    if found is None:
        return None
    endpoint, control = found
    return UdpChannel.for_subscription(
        uri, endpoint=endpoint, control=control, interface=None, unique_suffix=unique_suffix
    )


def numeric_send_destination(uri: ChannelUri) -> UdpChannel | None:
    """Return the channel of a publication's destination; see `numeric_publication`."""
    found = _numeric_addresses(uri)
    if found is None or (endpoint := found[0]) is None:
        return None
    return UdpChannel.for_send_destination(uri, endpoint=endpoint, interface=None)


def numeric_receive_destination(uri: ChannelUri) -> UdpChannel | None:
    """Return the channel of a subscription's destination; see `numeric_publication`."""
    found = _numeric_addresses(uri)
    if found is None:
        return None
    endpoint, control = found
    return UdpChannel.for_receive_destination(
        uri, endpoint=endpoint, control=control, interface=None
    )


def _numeric_addresses(uri: ChannelUri) -> tuple[Address | None, Address | None] | None:
    found: list[Address | None] = []
    for written in (uri.endpoint, uri.control):
        if written is not None and literal(written.host) is None:
            return None
        found.append(None if written is None else _spelled(written.host, written.port, written))
    endpoint, control = found
    if uri.interface is not None or (endpoint is not None and is_group(endpoint[0])):
        return None
    return endpoint, control


async def resolve_publication(
    network: Network, uri: ChannelUri, *, unique_suffix: str = ""
) -> UdpChannel:
    """Return the channel of a sender with its addresses resolved.

    Args:
        network: Resolves names, and lists the interfaces.
        uri: A UDP channel.
        unique_suffix: Keeps two channels apart for which the system chooses the port.

    Raises:
        RegistrationError: A name does not resolve, no interface matches, or families mix.
    """
    endpoint, control = await _addresses(network, uri)
    return UdpChannel.for_publication(
        uri,
        endpoint=endpoint,
        control=control,
        interface=await _interface(network, uri, endpoint, control),
        unique_suffix=unique_suffix,
    )


async def resolve_subscription(
    network: Network, uri: ChannelUri, *, unique_suffix: str
) -> UdpChannel:
    """Return the channel of a receiver with its addresses resolved.

    Args:
        network: Resolves names, and lists the interfaces.
        uri: A UDP channel.
        unique_suffix: Keeps two channels apart for which the system chooses the port.

    Raises:
        RegistrationError: A name does not resolve, no interface matches, or families mix.
    """
    endpoint, control = await _addresses(network, uri)
    return UdpChannel.for_subscription(
        uri,
        endpoint=endpoint,
        control=control,
        interface=await _interface(network, uri, endpoint, control),
        unique_suffix=unique_suffix,
    )


async def resolve_send_destination(network: Network, uri: ChannelUri) -> UdpChannel:
    """Return the channel of a publication's destination with its endpoint resolved.

    Raises:
        RegistrationError: A name does not resolve, or no interface matches.
    """
    assert uri.endpoint is not None
    endpoint = await resolve_address(network, uri.endpoint)
    return UdpChannel.for_send_destination(
        uri, endpoint=endpoint, interface=await _interface(network, uri, endpoint, None)
    )


async def resolve_receive_destination(network: Network, uri: ChannelUri) -> UdpChannel:
    """Return the channel of a subscription's destination with its addresses resolved.

    Raises:
        RegistrationError: A name does not resolve, no interface matches, or families mix.
    """
    endpoint, control = await _addresses(network, uri)
    return UdpChannel.for_receive_destination(
        uri,
        endpoint=endpoint,
        control=control,
        interface=await _interface(network, uri, endpoint, control),
    )


async def resolve_address(
    network: Network, written: WrittenAddress, *, is_re_resolution: bool = False
) -> Address:
    """Return the address of a host and port in a channel.

    Args:
        network: Resolves the name.
        written: The endpoint or control address.
        is_re_resolution: Whether it was resolved before, and may have changed since.

    Raises:
        RegistrationError: UNKNOWN_HOST.
    """
    host, port = await network.resolve(
        written.host, written.port, is_re_resolution=is_re_resolution
    )
    return _spelled(host, port, written)


def _spelled(host: str, port: int, written: WrittenAddress) -> Address:
    """Return a numeric address in its usual spelling, with the scope that the channel has given."""
    host = usual_spelling(host)
    # Differs: Aeron removes the scope, and so cannot reach a link-local address.
    if written.scope is not None and ip_address(host).is_link_local:
        host = f"{host}%{written.scope}"
    return host, port


async def _addresses(network: Network, uri: ChannelUri) -> tuple[Address | None, Address | None]:
    control = None if uri.control is None else await resolve_address(network, uri.control)
    endpoint = None if uri.endpoint is None else await resolve_address(network, uri.endpoint)
    return endpoint, control


async def _interface(
    network: Network, uri: ChannelUri, endpoint: Address | None, control: Address | None
) -> Interface | None:
    spec = uri.interface
    is_multicast = endpoint is not None and is_group(endpoint[0])
    if spec is None and not is_multicast:
        return None
    any_address = wildcard_like(endpoint or control or ("0.0.0.0", 0))  # noqa: S104 - the family counts
    if spec is None:
        table = await network.interfaces()
        return find_interface(table, any_address[0], prefix_length=0)
    if spec.host is None:
        assert spec.interface_name is not None
        is_ipv6 = ":" in any_address[0]
        table = await network.interfaces()
        return find_named_interface(table, spec.interface_name, is_ipv6=is_ipv6, port=spec.port)
    host, port = await _interface_address(network, spec.host, spec.port)
    if not is_multicast and (host, 0) == wildcard_like((host, 0)):
        return Interface(address=host, port=port)
    table = await network.interfaces()
    return find_interface(table, host, prefix_length=spec.prefix_length, port=port)


async def _interface_address(network: Network, host: str, port: int) -> Address:
    try:
        found, port = await network.resolve(host, port)
    except RegistrationError as error:
        if error.code is not ErrorCode.UNKNOWN_HOST:
            raise
        message = f"{error}; to name an interface, put it in braces: interface={{{host}}}"
        raise RegistrationError(message, code=error.code) from None
    return usual_spelling(found), port
