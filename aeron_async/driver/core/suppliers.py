"""Suppliers of strategies and name resolvers, and their parameters.

Source: Aeron `Configuration`, `aeron_driver_context.c`, `NameResolver`, `aeron_name_resolver.c`,
`FlowControlSupplier`, `DefaultMulticastFlowControlSupplier`, `CongestionControl`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import attrs

from aeron_async.driver.core.csv_table_name_resolver import CsvTableNameResolver, parse_table
from aeron_async.driver.core.strategies import NAME_RESOLVER_GROUP, find_registered
from aeron_async.errors import ConfigurationError

if TYPE_CHECKING:
    from aeron_async.counters import CountersManager
    from aeron_async.driver.core.congestion_control.base import CongestionControl
    from aeron_async.driver.core.context import DriverContext
    from aeron_async.driver.core.flow_control.base import FlowControl
    from aeron_async.driver.core.outbox import Address
    from aeron_async.protocol.channel_uri import ChannelUri, FlowControlOptions

__all__ = [
    "CongestionControlParams",
    "CongestionControlSupplier",
    "FlowControlParams",
    "FlowControlSupplier",
    "NameResolver",
    "NameResolverSupplier",
    "name_resolver",
    "receiver_window_length",
]

# Names that the official drivers accept: functions of the C driver, classes of the Java driver.

FLOW_CONTROL_SYNONYMS: Final = {
    "aeron_unicast_flow_control_strategy_supplier": "unicast_max",
    "aeron_max_multicast_flow_control_strategy_supplier": "multicast_max",
    "aeron_min_flow_control_strategy_supplier": "multicast_min",
    "aeron_tagged_flow_control_strategy_supplier": "multicast_tagged",
    "io.aeron.driver.DefaultUnicastFlowControlSupplier": "unicast_max",
    "io.aeron.driver.DefaultMulticastFlowControlSupplier": "multicast_max",
    "io.aeron.driver.MaxMulticastFlowControlSupplier": "multicast_max",
    "io.aeron.driver.MinMulticastFlowControlSupplier": "multicast_min",
    "io.aeron.driver.TaggedMulticastFlowControlSupplier": "multicast_tagged",
    "io.aeron.driver.PreferredMulticastFlowControlSupplier": "multicast_tagged",
}
CONGESTION_CONTROL_SYNONYMS: Final = {
    "aeron_congestion_control_default_strategy_supplier": "default",
    "aeron_static_window_congestion_control_strategy_supplier": "static",
    "aeron_cubic_congestion_control_strategy_supplier": "cubic",
    "io.aeron.driver.DefaultCongestionControlSupplier": "default",
    "io.aeron.driver.ext.CubicCongestionControlSupplier": "cubic",
}

# Name resolvers.

SYSTEM_NAME_RESOLVER: Final = "default"
CSV_TABLE_NAME_RESOLVER: Final = "csv_table"
DRIVER_NAME_RESOLVER: Final = "driver"
NAME_RESOLVER_SYNONYMS: Final = {
    "aeron_default_name_resolver_supplier": SYSTEM_NAME_RESOLVER,
    "aeron_csv_table_name_resolver_supplier": CSV_TABLE_NAME_RESOLVER,
    "aeron_driver_name_resolver_supplier": DRIVER_NAME_RESOLVER,
}


class NameResolver(Protocol):
    """Resolves names to addresses."""

    async def resolve(self, host: str, port: int, *, is_re_resolution: bool = False) -> Address:
        """Return the numeric address of a host, and its port.

        Called in the driver's event loop, so it must not block. It is never called for a numeric
        host.

        Args:
            host: The name in the channel.
            port: The port in the channel; return it, unless the name stands for another port.
            is_re_resolution: Whether it was resolved before, and may have changed since.

        Raises:
            Exception: The name has no address now. The client that adds the stream gets
                `UNKNOWN_HOST`, with this exception as the cause.
        """
        ...


NameResolverSupplier = Callable[[], NameResolver]
"""Makes a resolver for one driver, when it starts."""


def name_resolver(
    context: DriverContext, default: NameResolver, counters_manager: CountersManager
) -> NameResolver:
    """Return the resolver that a context asks for; it may not know the names of drivers yet.

    Args:
        context: The settings.
        default: The resolver of the network.
        counters_manager: The driver's counters.

    Raises:
        ConfigurationError: A factory returned an object that has no method `resolve`.
        RegistrationError: There is no counter left.
    """
    wanted: object = context.name_resolver_supplier
    if wanted in {SYSTEM_NAME_RESOLVER, DRIVER_NAME_RESOLVER}:
        return default
    if wanted == CSV_TABLE_NAME_RESOLVER:
        rows = parse_table(context.name_resolver_init_args or "")
        return CsvTableNameResolver(rows, counters_manager, default.resolve)
    if isinstance(wanted, str):
        wanted = find_registered(NAME_RESOLVER_GROUP, wanted)
    # A class also has the method, but is a factory.
    if isinstance(wanted, type) or not hasattr(wanted, "resolve"):
        wanted = cast("NameResolverSupplier", wanted)()
    if not callable(getattr(wanted, "resolve", None)):
        message = f"name_resolver_supplier gave {wanted!r}, which has no method resolve"
        raise ConfigurationError(message)
    return cast("NameResolver", wanted)


# Flow control.

FlowControlSupplier = Callable[["FlowControlParams"], "FlowControl"]
"""Makes the strategy of one publication."""


@attrs.frozen(kw_only=True)
class FlowControlParams:
    """What a factory gets to make the flow control of a publication.

    Values in the channel override those of the context.

    Attributes:
        uri: The channel.
        context: The driver's settings.
        is_group: Whether there may be several receivers.
    """

    uri: ChannelUri
    context: DriverContext
    is_group: bool

    @property
    def options(self) -> FlowControlOptions | None:
        """Return what follows `fc=` in the channel."""
        return self.uri.flow_control

    @property
    def raw_options(self) -> tuple[str, ...]:
        """Return the options of a strategy that is not ours, as written in the channel."""
        return () if self.options is None else self.options.raw_options

    @property
    def group_tag(self) -> int:
        """Return the tag that identifies members of the group."""
        given = None if self.options is None else self.options.group_tag
        return self.context.flow_control_group_tag if given is None else given

    @property
    def retransmit_receiver_window_multiple(self) -> int:
        """Return how many default receiver windows one NAK may ask for."""
        context, options = self.context, self.options
        if options is not None and options.retransmit_receiver_window_multiple is not None:
            return options.retransmit_receiver_window_multiple
        if self.is_group:
            return context.multicast_flow_control_rrwm
        return context.unicast_flow_control_rrwm

    def group_settings(self) -> dict[str, Any]:
        """Return the arguments of a `GroupFlowControl`."""
        context, options = self.context, self.options
        timeout_ns = None if options is None else options.receiver_timeout_ns
        min_size = None if options is None else options.group_min_size
        return {
            "receiver_timeout_ns": (
                context.flow_control_receiver_timeout_ns if timeout_ns is None else timeout_ns
            ),
            "group_min_size": context.flow_control_group_min_size if min_size is None else min_size,
            "retransmit_receiver_window_multiple": self.retransmit_receiver_window_multiple,
            "max_receivers": context.max_flow_control_receivers,
        }


# Congestion control.

CongestionControlSupplier = Callable[["CongestionControlParams"], "CongestionControl"]
"""Makes the strategy of one image."""


def nothing_dropped() -> int:
    """Return 0: nobody has said what was dropped."""
    return 0


@attrs.frozen(kw_only=True)
class CongestionControlParams:
    """What a factory gets to make the congestion control of an image; lengths in bytes.

    Attributes:
        context: The driver's settings.
        configured_window_length: The window that the channel or the context allows; the first one
            if the window grows.
        term_length: Term length of the stream.
        mtu_length: MTU of its sender, the length of its longest datagram.
        now_ns: The time now.
        granted_rcvbuf_length: Length of the socket's receive buffer; 0 if unknown.
        drop_count: Returns how many datagrams the system has dropped because it was full.
    """

    context: DriverContext
    configured_window_length: int
    term_length: int
    mtu_length: int
    now_ns: int
    granted_rcvbuf_length: int = 0
    drop_count: Callable[[], int] = nothing_dropped

    @property
    def window_length(self) -> int:
        """Return the largest window that may be advertised."""
        return receiver_window_length(
            configured_length=self.configured_window_length, term_length=self.term_length
        )


def receiver_window_length(*, configured_length: int, term_length: int) -> int:
    """Return the window a receiver may use: the configured one, at most half a term."""
    return min(configured_length, term_length // 2)
