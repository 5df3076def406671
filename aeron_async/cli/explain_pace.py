"""What a channel says of pace and repair: who is waited for, when it is connected, how loss is met.

Source: Aeron `FlowControl`, `FeedbackDelayGenerator`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aeron_async.cli.explain_settings import is_for_group
from aeron_async.driver.core.flow_control import (
    FlowControlParams,
    GroupFlowControl,
    MaxMulticastFlowControl,
    MinMulticastFlowControl,
    TaggedMulticastFlowControl,
    flow_control,
)
from aeron_async.protocol.channel_uri import ControlMode, Media
from aeron_async.protocol.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aeron_async.driver.core.context import DriverContext
    from aeron_async.driver.core.flow_control import FlowControl
    from aeron_async.driver.core.stream_params import SubscriptionParams
    from aeron_async.protocol.channel_uri import ChannelUri

__all__ = ["pace_facts", "repair_facts"]


def pace_facts(uri: ChannelUri, context: DriverContext) -> Iterator[tuple[str, str]]:
    """Yield who sets the pace of a publication, and who must be there for it to be connected.

    Raises:
        AeronError: The channel or the context asks for a strategy that cannot be had.
    """
    if uri.media is Media.IPC:
        yield "paced by", "the slowest of its subscriptions"
        yield "connected", "when a subscription of this driver is there"
        return
    if uri.endpoint is None and uri.control_mode is None:
        yield "paced by", "those whom the endpoint of its tag sends to"
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
    """Return whom a strategy waits for."""
    patience = format_duration(params.group_settings()["receiver_timeout_ns"])
    silent = f"; a silent one is waited for {patience}"
    if isinstance(strategy, TaggedMulticastFlowControl):
        return f"the slowest receiver with gtag={params.group_tag}{silent} (tagged)"
    if isinstance(strategy, MinMulticastFlowControl):
        return f"the slowest receiver{silent} (min)"
    if isinstance(strategy, MaxMulticastFlowControl):
        return "the fastest receiver; nobody is waited for (max)"
    if type(strategy).__module__.startswith("aeron_async."):
        return "its one receiver"
    return f"a strategy of another package, {type(strategy).__name__}"


def repair_facts(
    uri: ChannelUri, params: SubscriptionParams, context: DriverContext
) -> Iterator[tuple[str, str]]:
    """Yield when a subscription asks for what is lost."""
    if uri.media is Media.IPC or uri.is_spy:
        return
    if not params.is_reliable:
        yield "repairs", "nothing: what is lost is skipped"
        return
    delay_ns = context.nak_unicast_delay_ns if params.nak_delay_ns is None else params.nak_delay_ns
    again_ns = max(delay_ns, 1_000) * context.nak_unicast_retry_delay_ratio
    alone = f"after {format_duration(delay_ns)} and again every {format_duration(again_ns)}"
    longest = format_duration(context.nak_multicast_max_backoff_ns)
    in_group = f"after up to {longest}, at random, for others may miss the same"
    is_group = params.is_group
    if is_group is None and uri.endpoint is not None and uri.endpoint.is_multicast:
        is_group = True
    if is_group is None and uri.control_mode is ControlMode.DYNAMIC:
        is_group = True
    if is_group is None:
        yield "repairs", f"asks {alone}; where the publisher says it has a group, {in_group}"
    else:
        yield "repairs", f"asks {in_group if is_group else alone}"
