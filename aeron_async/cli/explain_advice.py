"""The classic mistakes: what a channel says that is seldom meant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aeron_async.cli.explain_settings import is_for_group, keys_without_effect
from aeron_async.protocol.channel_uri import Media
from aeron_async.protocol.units import format_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aeron_async.driver.core.context import DriverContext
    from aeron_async.protocol.address import Address, InterfaceSpec
    from aeron_async.protocol.channel_uri import ChannelUri

__all__ = ["advice"]

PRIVILEGED_PORTS: Final = range(1, 1024)
EPHEMERAL_PORTS: Final = range(32_768, 61_000)
# What is left of an Ethernet frame of 1500 bytes behind the headers of IPv4 and UDP.
ETHERNET_PAYLOAD_LENGTH: Final = 1_472
ONE_SIDED_KEYS: Final = {"fc": "publications", "gtag": "subscriptions"}
"""Parameters of a group that go into the channel of one side, and are accepted in both."""
LARGE_TERM_LENGTH: Final = 128 * 1024 * 1024


def advice(uri: ChannelUri, context: DriverContext) -> Iterator[str]:
    """Yield a sentence for each thing worth a second look."""
    if uri.endpoint is not None and not uri.is_spy:
        yield from endpoint_advice(uri.endpoint)
    if uri.media is Media.UDP:
        yield from interface_advice(uri.interface)
        yield from length_advice(uri, context)
    if uri.is_reliable is False:
        yield "reliable=false: what is lost is skipped and never asked for again"
    if uri.linger_timeout_ns == 0:
        yield "linger=0ns: a closed publication repairs nothing that is still missing"
    if isinstance(uri.session_id, int):
        yield (
            f"session-id={uri.session_id}: a second publication with it on this channel and stream "
            "is refused, and a subscription hears no other session"
        )
    for key, reason in keys_without_effect(uri):
        yield f"{key} has no effect: {reason}"
    if is_for_group(uri):
        for key, roles in ONE_SIDED_KEYS.items():
            if key in uri.parameters:
                yield f"{key} counts for {roles} only: the other side ignores it, as Aeron's does"


def endpoint_advice(endpoint: Address) -> Iterator[str]:
    """Yield what is odd about where data goes."""
    ip, port = endpoint.ip, endpoint.port
    if ip is not None and ip.is_unspecified:
        yield (
            f"endpoint={endpoint} is the wildcard address: a subscription listens on every address "
            "of its machine; a publication reaches its own machine at most: name the subscriber's"
        )
    if is_this_machine(endpoint):
        yield f"endpoint={endpoint} is this machine: nobody else can send or listen there"
    if endpoint.host == "localhost":
        yield (
            f"localhost:{port} and 127.0.0.1:{port} are two channels that need one port: write it "
            "one way everywhere"
        )
    if port == 0:
        yield (
            "port 0: nobody can know the port before the subscription is there; read it from "
            "subscription.local_address"
        )
    if port in PRIVILEGED_PORTS:
        yield f"port {port} is below 1024: binding it needs privileges"
    if port in EPHEMERAL_PORTS:
        yield (
            f"port {port} is one of those that Linux hands out by itself "
            f"({EPHEMERAL_PORTS.start} to {EPHEMERAL_PORTS.stop - 1}): another program may have it"
        )


def interface_advice(interface: InterfaceSpec | None) -> Iterator[str]:
    """Yield what is odd about the local interface."""
    if interface is None or interface.host is None or interface.ip is not None:
        return
    host = interface.host
    if host != "localhost" and "." not in host:
        yield (
            f"interface={interface} is looked up as the name of a host; the name of an interface "
            f"stands in braces: interface={{{host}}}"
        )


def length_advice(uri: ChannelUri, context: DriverContext) -> Iterator[str]:
    """Yield what is odd about lengths that must fit each other."""
    mtu = uri.mtu_length or context.mtu_length
    term = uri.term_length or context.term_buffer_length
    window = uri.receiver_window_length or context.initial_window_length
    receive_buffer = uri.socket_rcvbuf_length
    if receive_buffer is None:
        receive_buffer = context.socket_rcvbuf_length
    is_local = uri.endpoint is not None and is_this_machine(uri.endpoint)
    if mtu > ETHERNET_PAYLOAD_LENGTH and not is_local:
        yield (
            f"mtu={format_size(mtu)} exceeds {ETHERNET_PAYLOAD_LENGTH}, what Ethernet usually "
            "carries: IP splits each datagram, and one lost part loses it all"
        )
    if uri.receiver_window_length is not None and window > term // 2:
        yield (
            f"rcv-wnd={format_size(window)} exceeds half of term-length={format_size(term)}: a "
            f"receiver grants {format_size(term // 2)} only"
        )
    if receive_buffer and window > receive_buffer:
        yield (
            f"rcv-wnd={format_size(window)} exceeds so-rcvbuf={format_size(receive_buffer)}: the "
            "system drops what it cannot keep; raise so-rcvbuf, and net.core.rmem_max with it"
        )
    if mtu > window:
        yield (
            f"mtu={format_size(mtu)} exceeds rcv-wnd={format_size(window)}: no receiver with that "
            "window joins the stream"
        )
    if term >= LARGE_TERM_LENGTH:
        yield (
            f"term-length={format_size(term)}: three terms may take {format_size(3 * term)} of "
            "memory at the publisher, and at each subscriber"
        )


def is_this_machine(endpoint: Address) -> bool:
    """Return whether the address can only be this machine's own."""
    return endpoint.host == "localhost" or (endpoint.ip is not None and endpoint.ip.is_loopback)
