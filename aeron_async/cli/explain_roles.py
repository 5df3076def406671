"""Meaning of a channel as a publication and as a subscription.

Nothing is resolved and nothing is opened: names stay names, as in a channel's identity.

Source: Aeron `FlowControl`, `FeedbackDelayGenerator`, `UdpChannel`, `SendChannelEndpoint`,
`ReceiveChannelEndpoint`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import attrs

from aeron_async.cli.explain_settings import is_for_group
from aeron_async.driver.core.congestion_control import congestion_control_supplier
from aeron_async.driver.core.flow_control import (
    FlowControlParams,
    GroupFlowControl,
    MaxMulticastFlowControl,
    MinMulticastFlowControl,
    TaggedMulticastFlowControl,
    flow_control,
)
from aeron_async.driver.core.stream_params import (
    PublicationParams,
    SubscriptionParams,
    check_is_supported,
)
from aeron_async.driver.core.udp_channel import Interface, UdpChannel
from aeron_async.errors import AeronError, ConfigurationError, RegistrationError
from aeron_async.protocol.address import Address, multicast_control_address
from aeron_async.protocol.channel_uri import (
    PROTOTYPE_CORRELATION_ID,
    ControlMode,
    Media,
    check_publication,
    check_subscription,
)
from aeron_async.protocol.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aeron_async.driver.core.context import DriverContext
    from aeron_async.driver.core.flow_control import FlowControl
    from aeron_async.driver.core.suppliers import CongestionControlSupplier
    from aeron_async.protocol.channel_uri import ChannelUri

__all__ = [
    "Fact",
    "RoleExplanation",
    "explain_publication",
    "explain_subscription",
    "pace_facts",
    "repair_facts",
]


def pace_facts(uri: ChannelUri, context: DriverContext) -> Iterator[tuple[str, str]]:
    """Yield which receiver sets the pace of a publication, and what makes it connected.

    Raises:
        AeronError: The channel or the context asks for a strategy that does not exist.
    """
    if uri.media is Media.IPC:
        yield "paced by", "the slowest of its subscriptions"
        yield "connected", "when a subscription of this driver is there"
        return
    if uri.endpoint is None and uri.control_mode is None:
        yield "paced by", "the receivers of the endpoint with its tag"
        return
    params = FlowControlParams(uri=uri, context=context, is_group=is_for_group(uri))
    strategy = flow_control(uri, context, is_group=params.is_group)
    yield "paced by", pacer(params, strategy)
    members, size = "receivers", 0
    if isinstance(strategy, GroupFlowControl):
        size = params.group_settings()["group_min_size"]
        if isinstance(strategy, TaggedMulticastFlowControl):
            members = f"receivers with gtag={params.group_tag}"
    needed = f"{size} {members} are there" if size else "a receiver is there"
    is_simulated = uri.spies_simulate_connection
    if is_simulated is None:
        is_simulated = context.spies_simulate_connection
    yield "connected", f"when {needed}{', or a spy' if is_simulated else ''}"


def pacer(params: FlowControlParams, strategy: FlowControl) -> str:
    """Return the receiver that a strategy waits for."""
    patience = format_duration(params.group_settings()["receiver_timeout_ns"])
    silent = f"; it waits for a silent one for {patience}"
    if isinstance(strategy, TaggedMulticastFlowControl):
        return f"the slowest receiver with gtag={params.group_tag}{silent} (tagged)"
    if isinstance(strategy, MinMulticastFlowControl):
        return f"the slowest receiver{silent} (min)"
    if isinstance(strategy, MaxMulticastFlowControl):
        return "the fastest receiver; it waits for no other (max)"
    if type(strategy).__module__.startswith("aeron_async."):
        return "its one receiver"
    return f"a strategy of another package, {type(strategy).__name__}"


def repair_facts(
    uri: ChannelUri, params: SubscriptionParams, context: DriverContext
) -> Iterator[tuple[str, str]]:
    """Yield when a subscription requests retransmission of lost data."""
    if uri.media is Media.IPC or uri.is_spy:
        return
    if not params.is_reliable:
        yield "repairs", "nothing: what is lost is skipped"
        return
    delay_ns = context.nak_unicast_delay_ns if params.nak_delay_ns is None else params.nak_delay_ns
    again_ns = max(delay_ns, 1_000) * context.nak_unicast_retry_delay_ratio
    alone = f"after {format_duration(delay_ns)} and again every {format_duration(again_ns)}"
    longest = format_duration(context.nak_multicast_max_backoff_ns)
    in_group = f"after up to {longest}, at random, because others may miss the same"
    is_group = params.is_group
    if is_group is None and uri.endpoint is not None and uri.endpoint.is_multicast:
        is_group = True
    if is_group is None and uri.control_mode is ControlMode.DYNAMIC:
        is_group = True
    if is_group is None:
        yield "repairs", f"asks {alone}; where the publisher says it has a group, {in_group}"
    else:
        yield "repairs", f"asks {in_group if is_group else alone}"


Fact = tuple[str, str]
"""Kind of a fact, such as "binds", and its text."""

NO_CORRELATION_ID: Final = -1
IPC_BINDS: Final = (
    "nothing: messages stay in memory that clients of one driver share; with another driver, such "
    "as that of another process, it never connects"
)
ANY_PORT: Final = ", a port of the system's choice"


@final
@attrs.frozen(kw_only=True)
class RoleExplanation:
    """A channel in one of its two roles.

    Attributes:
        facts: What would be bound, connected, joined and sent, in that order.
        refusal: Why every driver refuses the channel in this role; then there are no facts.
        unsupported: What this version lacks to support it; None if it is supported.
    """

    facts: tuple[Fact, ...] = ()
    refusal: str | None = None
    unsupported: str | None = None


def explain_publication(uri: ChannelUri, context: DriverContext) -> RoleExplanation:
    """Explain the channel as a publication."""
    try:
        check_publication(uri, None)
        if uri.media is Media.UDP:
            PublicationParams.of(uri, context, is_exclusive=True)
    except ConfigurationError as error:
        return RoleExplanation(refusal=str(error))
    facts = [*publication_facts(uri), *tag_facts(uri)]
    unsupported = lacking(uri)
    try:
        facts += pace_facts(uri, context)
    except AeronError as error:
        unsupported = unsupported or str(error)
    return RoleExplanation(facts=tuple(facts), unsupported=unsupported)


def explain_subscription(uri: ChannelUri, context: DriverContext) -> RoleExplanation:
    """Explain the channel as a subscription."""
    try:
        check_subscription(uri, None)
    except ConfigurationError as error:
        return RoleExplanation(refusal=str(error))
    params = SubscriptionParams.of(uri, context)
    return RoleExplanation(
        facts=(
            *subscription_facts(uri),
            *tag_facts(uri),
            *repair_facts(uri, params, context),
        ),
        unsupported=lacking_for_subscription(uri, params.congestion_control),
    )


def lacking_for_subscription(
    uri: ChannelUri, congestion_control: str | CongestionControlSupplier
) -> str | None:
    """Return what this version lacks for a subscription; None if it is supported."""
    reason = lacking(uri)
    if reason is None:
        try:
            congestion_control_supplier(congestion_control)
        except AeronError as error:
            reason = str(error)
    return reason


def lacking(uri: ChannelUri) -> str | None:
    """Return what this version lacks in either role; None if it is supported."""
    try:
        check_is_supported(uri)
    except RegistrationError as error:
        return str(error).partition(f": {uri}")[0]
    return None


def publication_facts(uri: ChannelUri) -> Iterator[Fact]:
    """Yield what a publication binds, connects, joins and sends."""
    endpoint, control = uri.endpoint, uri.control
    if uri.media is Media.IPC:
        yield "binds", IPC_BINDS
        yield from response_facts(uri)
    elif endpoint is not None and endpoint.is_multicast:
        yield from multicast_publication_facts(uri, endpoint)
    elif uri.control_mode is ControlMode.MANUAL:
        yield "binds", str(control) if control else f"the wildcard address{ANY_PORT}"
        yield "sends", "everything to each destination that is added with add_destination"
        yield "hears", "status messages and NAKs of all of them"
    elif uri.control_mode is ControlMode.DYNAMIC:
        yield "binds", str(control)
        yield "sends", "everything to each subscriber that has reported there in the last 5 s"
        yield "hears", "status messages and NAKs of all of them"
    elif uri.control_mode is ControlMode.RESPONSE:
        yield "binds", str(control) if control else f"the wildcard address{ANY_PORT}"
        yield "sends", "everything to the one subscriber whose request is answered"
        yield "hears", "status messages and NAKs of that one"
        yield from response_facts(uri)
    elif endpoint is None:
        yield "binds", "nothing of its own: it uses the endpoint that has the same channel tag"
    else:
        yield from unicast_publication_facts(uri, endpoint)


def unicast_publication_facts(uri: ChannelUri, endpoint: Address) -> Iterator[Fact]:
    """Yield what a unicast publication binds, connects and sends."""
    local = local_address(uri)
    if local is not None:
        any_port = ANY_PORT if local.port == 0 else ""
        yield "binds", f"{local}{any_port}"
    elif uri.interface is not None:
        yield "binds", f"the best address of interface {uri.interface}"
    else:
        yield "binds", f"{wildcard(endpoint)}{ANY_PORT}"
    yield "connects", f"to {endpoint}, and takes datagrams from no other address"
    yield "sends", f"SETUP, data and heartbeats to {endpoint}"
    yield "hears", f"status messages and NAKs from {endpoint}"
    yield from response_facts(uri)
    form = publication_identity(uri, endpoint)
    if form is not None:
        yield "identity", f"{form}; publications of that identity share the socket"


def response_facts(uri: ChannelUri) -> Iterator[Fact]:
    """Yield which responses a publication asks for, or which publisher it answers."""
    number = uri.response_correlation_id
    if number is None or number == NO_CORRELATION_ID:
        return
    if uri.control_mode is not ControlMode.RESPONSE:
        yield "asks", f"to be answered on the subscription with registration_id {number}"
    elif number == PROTOTYPE_CORRELATION_ID:
        yield "answers", "no client yet: it is created in advance"
    else:
        yield "answers", f"the publisher of the image with correlation_id {number}"


def tag_facts(uri: ChannelUri) -> Iterator[Fact]:
    """Yield the tags of the endpoint and the stream."""
    if uri.channel_tag is not None:
        yield (
            "is called",
            f"{uri.channel_tag}: channels with tags={uri.channel_tag} share its socket",
        )
    if uri.entity_tag is not None:
        yield (
            "is called",
            f"{uri.entity_tag}: session-id=tag:{uri.entity_tag} takes a publication's session",
        )


def publication_identity(uri: ChannelUri, endpoint: Address) -> str | None:
    """Return the canonical form, unless only the system knows the local address."""
    local = local_address(uri)
    interface = None
    if uri.control is None and uri.interface is not None:
        if local is None:
            return None
        interface = Interface(address=local.host, port=local.port)
    channel = UdpChannel.for_publication(
        uri,
        endpoint=(endpoint.host, endpoint.port),
        control=None if uri.control is None else (uri.control.host, uri.control.port),
        interface=interface,
        unique_suffix="N",
    )
    return channel.canonical_form


def multicast_publication_facts(uri: ChannelUri, group: Address) -> Iterator[Fact]:
    """Yield what a multicast publication binds, joins, connects and sends."""
    control = multicast_control_address(group)
    interface = uri.interface or "the best multicast interface"
    yield "binds", f"port {group.port} for control, and {interface}{ANY_PORT} for data"
    yield "joins", f"the control group {control}"
    yield "connects", f"the socket for data to the data group {group}"
    yield "sends", f"SETUP, data and heartbeats to {group}"
    yield "hears", f"status messages and NAKs sent to {control}"


def subscription_facts(uri: ChannelUri) -> Iterator[Fact]:
    """Yield what a subscription binds, joins, hears and sends."""
    endpoint, control = uri.endpoint, uri.control
    if uri.media is Media.IPC:
        yield "binds", IPC_BINDS
    elif uri.is_spy:
        yield "binds", "nothing: it reads the log of the publication of this driver on the channel"
        yield "hears", "what is sent, from the sender's position on"
    elif endpoint is not None and endpoint.is_multicast:
        yield "binds", f"the wildcard address, port {endpoint.port}"
        yield "joins", f"{endpoint} on {uri.interface or 'the best multicast interface'}"
        yield "hears", f"SETUP, data and heartbeats sent to {endpoint}"
        yield "sends", f"status messages and NAKs to {multicast_control_address(endpoint)}"
    elif uri.control_mode is ControlMode.MANUAL:
        yield "binds", "nothing, until destinations are added: one socket for each"
        yield "hears", "SETUP, data and heartbeats at all of them; one session makes one image"
        yield "sends", "status messages and NAKs to every source, each from the socket it came to"
    elif uri.control_mode is ControlMode.RESPONSE:
        yield "binds", str(endpoint) if endpoint else f"the wildcard address{ANY_PORT}"
        yield "sends", f"status messages and NAKs to {control or 'where the answers come from'}"
        yield "hears", "only the session that answers a publication which names this subscription"
    elif control is not None:
        yield "binds", str(endpoint) if endpoint else f"the wildcard address{ANY_PORT}"
        yield "sends", f"status messages and NAKs to {control}, and every second asks it for SETUP"
        yield "hears", "SETUP, data and heartbeats from there"
    elif endpoint is None:
        yield "binds", "nothing of its own: it uses the endpoint that has the same channel tag"
    else:
        yield from unicast_subscription_facts(uri, endpoint)


def unicast_subscription_facts(uri: ChannelUri, endpoint: Address) -> Iterator[Fact]:
    """Yield what a unicast subscription binds, hears and sends."""
    channel = UdpChannel.for_subscription(
        uri, endpoint=(endpoint.host, endpoint.port), unique_suffix="1"
    )
    yield "binds", f"{endpoint}{ANY_PORT if endpoint.port == 0 else ''}"
    yield "hears", "SETUP, data and heartbeats of any number of publications"
    yield "sends", "status messages and NAKs from that same port to where each stream comes from"
    form = channel.canonical_form
    sharing = "; subscriptions of that identity share the socket"
    if endpoint.port == 0 and uri.channel_tag is None:
        form, sharing = (
            form.removesuffix("1") + "N",
            ", N counting up: it shares its socket with none",
        )
    yield "identity", f"{form}{sharing}"


def local_address(uri: ChannelUri) -> Address | None:
    """Return the local address in a unicast publication's channel; None if it has none."""
    if uri.control is not None:
        return uri.control
    interface = uri.interface
    if interface is None or interface.host is None or interface.prefix_length is not None:
        return None
    return Address.of(interface.host, interface.port)


def wildcard(endpoint: Address) -> str:
    """Return the wildcard address of the endpoint's family, which is unknown for a host name."""
    if endpoint.ip is None:
        return f"every local address of the family that {endpoint.host} resolves to"
    return "[::]" if endpoint.ip.version == 6 else "0.0.0.0"  # noqa: PLR2004, S104 - IPv6; Aeron binds the wildcard too
