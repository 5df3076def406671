"""The settings of a media driver, checked once and never changed.

Invariant: a `DriverContext` that exists is consistent. No later code checks a setting again,
except for what only the operating system knows, such as the socket buffer lengths it grants.

Source: Aeron `MediaDriver.Context`, `Configuration`, `PreferredMulticastFlowControl`,
`aeron_driver_context.c`; names beginning `aeron_async.` are ours.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar, Final, final

import attrs

from aeron_async.door_socket import check_path
from aeron_async.driver.core.csv_table_name_resolver import parse_table
from aeron_async.driver.core.directory_settings import GIB, KIB, MIB, MS, SECOND, US
from aeron_async.driver.core.loss_generator import LossGenerators
from aeron_async.driver.core.strategies import (
    CONGESTION_CONTROL_GROUP,
    FLOW_CONTROL_GROUP,
    NAME_RESOLVER_GROUP,
    supplier,
)
from aeron_async.driver.core.stream_settings import TERM_MAX_LENGTH, TERM_MIN_LENGTH, StreamSettings
from aeron_async.driver.core.suppliers import (
    CONGESTION_CONTROL_SYNONYMS,
    CSV_TABLE_NAME_RESOLVER,
    DRIVER_NAME_RESOLVER,
    FLOW_CONTROL_SYNONYMS,
    NAME_RESOLVER_SYNONYMS,
    SYSTEM_NAME_RESOLVER,
)
from aeron_async.errors import ConfigurationError
from aeron_async.idle_strategy import idle_strategy_of
from aeron_async.protocol.address import InterfaceSpec
from aeron_async.protocol.resolution import NAME_LENGTH_MAX
from aeron_async.protocol.units import INT32_MAX, INT64_MAX, parse_duration_ns
from aeron_async.settings import (
    choice,
    duration,
    flag,
    integer,
    port_range,
    size,
    text,
)

if TYPE_CHECKING:
    from aeron_async.driver.core.suppliers import (
        CongestionControlSupplier,
        FlowControlSupplier,
        NameResolver,
        NameResolverSupplier,
    )

__all__ = [
    "DESTINATION_TIMEOUT_NS",
    "EOS_STATUS_MESSAGE_COUNT",
    "GIB",
    "HEARTBEAT_INTERVAL_NS",
    "KIB",
    "MIB",
    "MS",
    "PENDING_SETUP_TIMEOUT_NS",
    "SECOND",
    "SETUP_INTERVAL_NS",
    "US",
    "DriverContext",
    "DriverSettings",
    "StreamSettings",
    "parse_neighbors",
]

FLOW_CONTROLS: Final = ("unicast_max", "multicast_max", "multicast_min", "multicast_tagged")
CONGESTION_CONTROLS: Final = ("default", "static", "cubic")
TRANSPORTS: Final = ("auto", "socket", "loop")
THREADING_MODES: Final = ("SHARED", "SHARED_NETWORK", "DEDICATED", "INVOKER")
OLD_FLOW_CONTROLS: Final = FLOW_CONTROL_SYNONYMS | {
    "max": "multicast_max",
    "min": "multicast_min",
    "tagged": "multicast_tagged",
    "io.aeron.driver.MaxMulticastFlowControl": "multicast_max",
    "io.aeron.driver.MinMulticastFlowControl": "multicast_min",
    "io.aeron.driver.TaggedMulticastFlowControl": "multicast_tagged",
}
TAG_LENGTH: Final = 8
BOOTSTRAP_NEIGHBORS_MAX: Final = 20


def parse_old_flow_control(text: str) -> str:
    """Return the flow control that an old variable names."""
    return OLD_FLOW_CONTROLS.get(text, text)


def parse_old_tag(text: str) -> int:
    """Parse eight bytes of feedback, in hexadecimal and in wire order.

    Raises:
        ConfigurationError: The text is something else.
    """
    if re.fullmatch(r"[0-9A-Fa-f]{16}", text) is None:
        message = f"{text!r} is not {TAG_LENGTH} bytes in hexadecimal"
        raise ConfigurationError(message)
    return int.from_bytes(bytes.fromhex(text), "little", signed=True)


def parse_neighbors(text: str | None) -> tuple[str, ...]:
    """Return the bootstrap neighbors of a list with commas, each as `host:port`."""
    return tuple(filter(None, (text or "").split(",")))


@attrs.frozen(kw_only=True)
class DriverSettings(StreamSettings):
    """The settings of a whole driver: loss repair, flow control, names, sockets and limits."""

    # Loss and retransmission.
    nak_unicast_delay_ns: int = duration(
        "aeron.nak.unicast.delay",
        US,
        "Delay of the first NAK for a gap on a unicast channel; 0 means at once.",
        minimum=0,
        uri_key="nak-delay",
    )
    nak_unicast_retry_delay_ratio: int = integer(
        "aeron.nak.unicast.retry.delay.ratio",
        100,
        "Delay before a unicast NAK is repeated, as a multiple of the first delay.",
        minimum=1,
    )
    nak_multicast_group_size: int = integer(
        "aeron.nak.multicast.group.size",
        10,
        "Number of receivers for which the random delay of multicast NAKs is tuned.",
        minimum=1,
        maximum=INT32_MAX,
    )
    nak_multicast_max_backoff_ns: int = duration(
        "aeron.nak.multicast.max.backoff",
        10 * MS,
        "Longest random delay of a multicast NAK.",
        minimum=US,
    )
    retransmit_unicast_delay_ns: int = duration(
        "aeron.retransmit.unicast.delay",
        0,
        "Delay before a publication answers a NAK, on any channel.",
    )
    retransmit_unicast_linger_ns: int = duration(
        "aeron.retransmit.unicast.linger",
        10 * MS,
        "How long at most a publication ignores NAKs for data that it has just resent.",
        minimum=US,
    )
    max_resend: int = integer(
        "aeron.max.resend",
        16,
        "Maximum number of concurrent retransmissions on a group channel; not used on unicast.",
        minimum=1,
        maximum=256,
        uri_key="max-resend",
    )
    unicast_flow_control_rrwm: int = integer(
        "aeron.unicast.flow.control.rrwm",
        16,
        "Maximum length that one NAK may request on unicast, in receiver windows.",
        minimum=1,
        maximum=INT32_MAX,
    )
    multicast_flow_control_rrwm: int = integer(
        "aeron.multicast.flow.control.rrwm",
        4,
        "Maximum length that one NAK may request on multicast, in receiver windows.",
        minimum=1,
        maximum=INT32_MAX,
        uri_key="fc",
    )

    # Flow and congestion control.
    unicast_flow_control_supplier: str | FlowControlSupplier = supplier(
        "aeron.unicast.FlowControl.supplier",
        "unicast_max",
        "Flow control strategy of unicast publications.",
        choices=FLOW_CONTROLS,
        synonyms=FLOW_CONTROL_SYNONYMS,
        group=FLOW_CONTROL_GROUP,
    )
    multicast_flow_control_supplier: str | FlowControlSupplier = supplier(
        "aeron.multicast.FlowControl.supplier",
        "multicast_max",
        "Flow control strategy of multicast and multi-destination publications.",
        choices=FLOW_CONTROLS,
        synonyms=FLOW_CONTROL_SYNONYMS,
        group=FLOW_CONTROL_GROUP,
        uri_key="fc",
        old_variables={"AERON_MULTICAST_FLOW_CONTROL_STRATEGY": parse_old_flow_control},
    )
    flow_control_receiver_timeout_ns: int = duration(
        "aeron.flow.control.receiver.timeout",
        5 * SECOND,
        "How long a silent receiver still limits a publication with min or tagged flow control.",
        uri_key="fc",
        old_variables={"AERON_MIN_MULTICAST_FLOW_CONTROL_RECEIVER_TIMEOUT": parse_duration_ns},
    )
    flow_control_group_tag: int = integer(
        "aeron.flow.control.group.tag",
        -1,
        "Tag of the receivers that limit a publication with tagged flow control.",
        uri_key="fc",
        old_variables={"AERON_PREFERREDMULTICASTFLOWCONTROL_ASF": parse_old_tag},
    )
    flow_control_group_min_size: int = integer(
        "aeron.flow.control.group.min.size",
        0,
        "Number of receivers without which min or tagged flow control does not connect.",
        minimum=0,
        maximum=INT32_MAX,
        uri_key="fc",
    )
    receiver_group_tag: int | None = integer(
        "aeron.receiver.group.tag",
        None,
        "Tag that this driver's receivers send in their status messages.",
        uri_key="gtag",
        old_variables={"AERON_FLOW_CONTROL_SM_APPLICATIONSPECIFICFEEDBACK": parse_old_tag},
    )
    congestion_control_supplier: str | CongestionControlSupplier = supplier(
        "aeron.CongestionControl.supplier",
        "default",
        "Congestion control strategy of images; `default` is static unless the channel has `cc`.",
        choices=CONGESTION_CONTROLS,
        synonyms=CONGESTION_CONTROL_SYNONYMS,
        group=CONGESTION_CONTROL_GROUP,
        uri_key="cc",
    )
    cubic_congestion_control_measure_rtt: bool = flag(
        "aeron.CubicCongestionControl.measureRtt",
        False,
        "Whether cubic congestion control measures the round-trip time.",
    )
    cubic_congestion_control_initial_rtt_ns: int = duration(
        "aeron.CubicCongestionControl.initialRtt",
        100 * US,
        "Round-trip time that cubic congestion control assumes at the start.",
        minimum=US,
    )
    cubic_congestion_control_tcp_mode: bool = flag(
        "aeron.CubicCongestionControl.tcpMode",
        False,
        "Whether cubic congestion control grows its window at least as fast as TCP.",
    )

    # Names.
    name_resolver_supplier: str | NameResolver | NameResolverSupplier = supplier(
        "aeron.name.resolver.supplier",
        SYSTEM_NAME_RESOLVER,
        "Resolver of names: the system's, a table, a registered one, a resolver, or its factory.",
        choices=(SYSTEM_NAME_RESOLVER, CSV_TABLE_NAME_RESOLVER, DRIVER_NAME_RESOLVER),
        synonyms=NAME_RESOLVER_SYNONYMS,
        group=NAME_RESOLVER_GROUP,
        instance_method="resolve",
    )
    name_resolver_init_args: str | None = text(
        "aeron_async.name.resolver.init.args",
        None,
        "Table of `csv_table`: rows `name,host,other host`, by `|`; counters switch the hosts.",
        env_name="AERON_NAME_RESOLVER_INIT_ARGS",
    )
    reresolution_check_interval_ns: int = duration(
        "aeron.driver.reresolution.check.interval",
        SECOND,
        "How often the driver resolves the names of silent endpoints again; 0 means never.",
    )
    name_resolver_threshold_ns: int = duration(
        "aeron.name.resolver.threshold",
        5 * SECOND,
        "How long the resolution of a name may take before the driver counts it as slow.",
        env_name="AERON_DRIVER_NAME_RESOLVER_THRESHOLD",
    )

    resolver_name: str | None = text(
        "aeron.driver.resolver.name",
        None,
        "Name by which other drivers resolve this one.",
    )
    resolver_interface: str | None = text(
        "aeron.driver.resolver.interface",
        None,
        "Address and port at which drivers tell each other their names; without one they do not.",
    )
    resolver_bootstrap_neighbor: str | None = text(
        "aeron.driver.resolver.bootstrap.neighbor",
        None,
        "Drivers to tell first, `host:port` of their resolvers, separated by commas; at most 20.",
    )
    resolver_neighbor_timeout_ns: int = duration(
        "aeron.driver.resolver.neighbor.timeout",
        10 * SECOND,
        "How long a driver's name is known after the driver was last heard.",
        minimum=MS,
    )
    resolver_self_resolution_interval_ns: int = duration(
        "aeron.driver.resolver.self.resolution.interval",
        SECOND,
        "How often the driver tells its neighbors its name.",
        minimum=MS,
    )
    resolver_neighbor_resolution_interval_ns: int = duration(
        "aeron.driver.resolver.neighbor.resolution.interval",
        2 * SECOND,
        "How often the driver tells its neighbors the names of others.",
        minimum=MS,
    )
    resolver_bootstrap_neighbor_resolution_interval_ns: int = duration(
        "aeron.driver.resolver.bootstrap.neighbor.resolution.interval",
        10 * SECOND,
        "How often the driver resolves the bootstrap neighbors that it does not hear.",
        minimum=MS,
    )

    # Sockets and cycles.
    driver_connect: bool = flag(
        "aeron.driver.connect",
        True,
        "Whether the driver connects sockets that send to one address.",
    )
    sender_wildcard_port_range: tuple[int, int] = port_range(
        "aeron.sender.wildcard.port.range",
        "Local ports of publications whose channel names none; 0 0 lets the system choose.",
    )
    receiver_wildcard_port_range: tuple[int, int] = port_range(
        "aeron.receiver.wildcard.port.range",
        "Local ports of subscriptions to port 0; 0 0 lets the system choose.",
    )
    receiver_io_vector_capacity: int = integer(
        "aeron.receiver.io.vector.capacity",
        4,
        "Maximum number of datagrams in one receive call, if the system has such a call.",
        minimum=1,
        maximum=16,
        has_effect=False,
    )
    network_publication_max_messages_per_send: int = integer(
        "aeron.network.publication.max.messages.per.send",
        4,
        "Segment batches, of up to 64 datagrams, that a publication sends in one turn.",
        minimum=1,
        maximum=16,
    )
    # Differs: `aeronmd` has DEDICATED; it shows in the labels of counters alone.
    threading_mode: str = choice(
        "aeron.threading.mode",
        "SHARED",
        "Threading mode in the labels of counters; all agents share one event loop in any case.",
        choices=THREADING_MODES,
    )
    conductor_cycle_threshold_ns: int = duration(
        "aeron.driver.conductor.cycle.threshold",
        100 * MS,
        "How long a cycle of the conductor may take before the driver counts it as slow.",
    )
    sender_cycle_threshold_ns: int = duration(
        "aeron.driver.sender.cycle.threshold",
        100 * MS,
        "How long a cycle of the sender may take before the driver counts it as slow.",
    )
    receiver_cycle_threshold_ns: int = duration(
        "aeron.driver.receiver.cycle.threshold",
        100 * MS,
        "How long a cycle of the receiver may take before the driver counts it as slow.",
    )
    # Differs: from here on the settings are ours; Aeron has none like them.
    transport: str = choice(
        "aeron_async.transport",
        "auto",
        "Transport of datagrams: batching sockets, the event loop's, or the better one of both.",
        choices=TRANSPORTS,
    )
    datagram_burst_limit: int = integer(
        "aeron_async.datagram.burst.limit",
        64,
        "Datagrams read from a socket in one turn of the event loop; 8 of a batch count as one.",
        minimum=1,
        maximum=INT32_MAX,
    )
    receiver_window_auto: bool = flag(
        "aeron_async.rcv.window.auto",
        True,
        "Whether an image's window of 128k grows while its readers take it fast; no effect with "
        "another initial_window_length.",
    )
    socket_batching: bool = flag(
        "aeron_async.socket.batching",
        True,
        "Whether one system call may send or receive many datagrams; on Linux only.",
    )
    loop_lag_threshold_ns: int = duration(
        "aeron_async.loop.lag.threshold",
        100 * MS,
        "How late the event loop may wake the driver before the driver counts it as lag.",
    )
    close_linger_timeout_ns: int = duration(
        "aeron_async.close.linger.timeout",
        5 * SECOND,
        "How long a driver that closes waits until its publications are drained.",
    )

    stats_socket: str | None = text(
        "aeron_async.stats.socket",
        None,
        "Unix socket at which tools read statistics, or `off`; with an Aeron directory by default "
        "`stats.sock` in it.",
    )

    # Differs: the C driver has variables for these, and Aeron has no properties.
    udp_channel_incoming_interceptors: str | None = text(
        "aeron_async.udp.channel.incoming.interceptors",
        None,
        "Loss for tests, by commas: `loss`, `fixed-loss`, `multi-gap-loss` drop what arrives.",
        env_name="AERON_UDP_CHANNEL_INCOMING_INTERCEPTORS",
    )
    udp_channel_loss_args: str | None = text(
        "aeron_async.udp.channel.loss.args",
        None,
        "Random loss: `rate=0.1|seed=7|recv-msg-mask=0x2`; the mask has a bit for each frame type.",
        env_name="AERON_UDP_CHANNEL_TRANSPORT_BINDINGS_LOSS_ARGS",
    )
    udp_channel_fixed_loss_args: str | None = text(
        "aeron_async.udp.channel.fixed.loss.args",
        None,
        "Loss of one range in each stream: `term-id=0|term-offset=1024|length=4096`.",
        env_name="AERON_UDP_CHANNEL_TRANSPORT_BINDINGS_FIXED_LOSS_ARGS",
    )
    udp_channel_multi_gap_loss_args: str | None = text(
        "aeron_async.udp.channel.multi.gap.loss.args",
        None,
        "Loss of ranges in each stream: `term-id=0|gap-radix=8192|gap-length=1024|total-gaps=4`.",
        env_name="AERON_UDP_CHANNEL_TRANSPORT_BINDINGS_MULTI_GAP_LOSS_ARGS",
    )

    # Limits on what a hostile peer can cause.
    max_destinations: int = integer(
        "aeron_async.max.destinations",
        256,
        "Maximum number of destinations of one channel, added by clients or by status messages.",
        minimum=1,
        maximum=INT32_MAX,
    )
    max_pending_setups: int = integer(
        "aeron_async.max.pending.setups",
        256,
        "Maximum number of sessions that wait for their SETUP frame at the same time.",
        minimum=1,
        maximum=INT32_MAX,
    )
    max_elicited_setups_per_second: int = integer(
        "aeron_async.max.elicited.setups.per.second",
        256,
        "SETUP frames that an endpoint requests per second, and refused publishers it informs.",
        minimum=1,
        maximum=INT32_MAX,
    )
    max_session_states: int = integer(
        "aeron_async.max.session.states",
        4_096,
        "Maximum number of sessions without an image that a receiving endpoint remembers.",
        minimum=1,
        maximum=INT32_MAX,
    )
    max_images_per_stream: int = integer(
        "aeron_async.max.images.per.stream",
        64,
        "Maximum number of images of one stream on one endpoint, like `stream_session_limit`.",
        minimum=1,
        maximum=INT32_MAX,
    )
    max_image_term_length: int = size(
        "aeron_async.max.image.term.length",
        64 * MIB,
        "Longest term that a remote publisher can make this driver allocate.",
        minimum=TERM_MIN_LENGTH,
        maximum=TERM_MAX_LENGTH,
        power_of_two=True,
    )
    image_log_budget_length: int = size(
        "aeron_async.image.log.budget.length",
        GIB,
        "Address space for the log buffers of all images; they use memory only as they fill.",
        minimum=4 * TERM_MIN_LENGTH,
        maximum=INT64_MAX,
    )
    max_naks_per_second: int = integer(
        "aeron_async.max.naks.per.second",
        1_000,
        "NAKs per second that an image may repeat, or send for loss that no later data proves.",
        minimum=10,
        maximum=INT32_MAX,
    )
    max_rtt_replies_per_second: int = integer(
        "aeron_async.max.rtt.replies.per.second",
        100,
        "Round-trip measurements that one end of a stream answers per second.",
        minimum=0,
        maximum=INT32_MAX,
    )
    max_rtt_replies_per_source: int = integer(
        "aeron_async.max.rtt.replies.per.source",
        50,
        "Round-trip measurements answered per second for one source or one receiver id.",
        minimum=0,
        maximum=INT32_MAX,
    )
    max_retransmit_burst_length: int = size(
        "aeron_async.max.retransmit.burst.length",
        2 * MIB,
        "Length that a publication may retransmit at once after a while without retransmissions.",
        minimum=64 * KIB,
    )
    max_retransmit_base_count: int = integer(
        "aeron_async.max.retransmit.base.count",
        128,
        "Full datagrams that a publication may retransmit per second, at least a receiver window.",
        minimum=0,
        maximum=INT32_MAX,
    )
    max_retransmit_percent: int = integer(
        "aeron_async.max.retransmit.percent",
        50,
        "Retransmissions allowed in addition, in percent of the data sent for the first time.",
        minimum=0,
        maximum=10_000,
    )
    max_retransmit_linger_length: int = size(
        "aeron_async.max.retransmit.linger.length",
        16 * MIB,
        "Length that a publication may retransmit within one retransmit linger, in any case.",
        minimum=64 * KIB,
    )
    max_lingering_ranges: int = integer(
        "aeron_async.max.lingering.ranges",
        16,
        "Resent ranges that a unicast publication remembers, to ignore further NAKs for them.",
        minimum=1,
        maximum=256,
    )
    max_flow_control_receivers: int = integer(
        "aeron_async.max.flow.control.receivers",
        1_024,
        "Receivers that min or tagged flow control tracks; it does not wait for any beyond these.",
        minimum=1,
        maximum=INT32_MAX,
    )
    max_resolver_neighbors: int = integer(
        "aeron_async.max.resolver.neighbors",
        256,
        "Drivers, and names of drivers, that the name resolver knows; it learns of no more.",
        minimum=1,
        maximum=INT32_MAX,
    )
    max_resolutions_per_second: int = integer(
        "aeron_async.max.resolutions.per.second",
        4_096,
        "Names that the resolver reads a second from its neighbors; from others a quarter of that.",
        minimum=4,
        maximum=INT32_MAX,
    )
    max_error_frames_per_second: int = integer(
        "aeron_async.max.error.frames.per.second",
        10,
        "Rejections by receivers that one publication accepts per second.",
        minimum=0,
        maximum=INT32_MAX,
    )


# Times that Aeron fixes, because both ends of a stream rely on them.
SETUP_INTERVAL_NS: Final = 100 * MS
HEARTBEAT_INTERVAL_NS: Final = 100 * MS
PENDING_SETUP_TIMEOUT_NS: Final = SECOND
DESTINATION_TIMEOUT_NS: Final = 5 * SECOND
# Status messages that an image still sends after the end of its stream.
EOS_STATUS_MESSAGE_COUNT: Final = 5

# (larger, smaller): what is checked at every tick must last longer than a tick, and no frame of a
# client is unblocked while the client may still be alive.
_MORE_THAN: Final = (
    ("publication_unblock_timeout_ns", "client_liveness_timeout_ns"),
    ("client_liveness_timeout_ns", "timer_interval_ns"),
    ("untethered_window_limit_timeout_ns", "timer_interval_ns"),
    ("untethered_linger_timeout_ns", "timer_interval_ns"),
    ("untethered_resting_timeout_ns", "timer_interval_ns"),
)
# (smaller, larger): a datagram must fit the window and the buffers it passes through.
_AT_MOST: Final = (
    ("mtu_length", "initial_window_length"),
    ("mtu_length", "socket_sndbuf_length"),
    ("initial_window_length", "socket_rcvbuf_length"),
    ("publication_reserved_session_id_low", "publication_reserved_session_id_high"),
)
DOOR_OFF: Final = "off"
"""What `stats_socket` is for a driver without a door."""
# 0 in one of these means the system's default, known only once a socket is open.
_SYSTEM_DEFAULT_IF_ZERO: Final = frozenset({"socket_sndbuf_length", "socket_rcvbuf_length"})


@final
@attrs.frozen(kw_only=True)
class DriverContext(DriverSettings):
    """The settings of a media driver; a setting that is not given has Aeron's default.

    Sizes are in bytes and durations in the unit at the end of their name. Either may also be given
    as text as in a channel (`"64k"`, `"5s"`); the field then holds the number. The environment is
    read only by `from_environment`. The reference page of settings and `DriverContext.settings()`
    describe every field.

    Raises:
        ConfigurationError: a value is out of its limits or contradicts another; names both.

    Source: Aeron `MediaDriver.Context.conclude`.
    """

    # `ArchiveContext` reads the variables of archives.
    _OTHER_PREFIX: ClassVar[str] = "AERON_ARCHIVE_"

    def __attrs_post_init__(self) -> None:
        for larger, smaller in _MORE_THAN:
            value = getattr(self, larger)
            if value is not None and value <= getattr(self, smaller):
                self._refuse(larger, "must be more than", smaller)
        for smaller, larger in _AT_MOST:
            limit = getattr(self, larger)
            if limit == 0 and larger in _SYSTEM_DEFAULT_IF_ZERO:
                continue
            if getattr(self, smaller) > limit:
                self._refuse(smaller, "must be at most", larger)
        low = self.publication_reserved_session_id_low
        if self.publication_reserved_session_id_high - low > INT32_MAX:
            self._refuse(
                "publication_reserved_session_id_high",
                f"must be at most {INT32_MAX} more than",
                "publication_reserved_session_id_low",
            )
        if self.nak_unicast_retry_delay_ns > INT64_MAX:
            self._refuse(
                "nak_unicast_retry_delay_ratio",
                f"must give at most {INT64_MAX} when multiplied by",
                "nak_unicast_delay_ns",
            )
        LossGenerators(self)
        self._check_resolver()
        if self.name_resolver_supplier == CSV_TABLE_NAME_RESOLVER:
            parse_table(self.name_resolver_init_args or "")
        idle_strategy_of(self.idle_strategy, self.idle_strategy_init_args)
        if self.stats_socket is not None and self.stats_socket != DOOR_OFF:
            self._check_door(self.stats_socket)

    def _check_door(self, path: str) -> None:
        """Refuse a path that no door can have.

        Raises:
            ConfigurationError: It is abstract, too long, or not that of a file.
        """
        try:
            check_path(path)
        except ConfigurationError as error:
            message = f"stats_socket: {error}; {DOOR_OFF!r} is for no door"
            raise ConfigurationError(message) from None

    def _check_resolver(self) -> None:
        """Refuse a driver name resolver that cannot work.

        Raises:
            ConfigurationError: It has no name or no interface, or too many bootstrap neighbors.
        """
        name, interface = self.resolver_name, self.resolver_interface
        if interface is None:
            if self.name_resolver_supplier == DRIVER_NAME_RESOLVER:
                message = "name_resolver_supplier=driver needs resolver_name and resolver_interface"
                raise ConfigurationError(message)
            return
        InterfaceSpec.parse(interface)
        if name is None:
            message = f"`resolverName` is required when `resolverInterface` is set: {interface}"
            raise ConfigurationError(message)
        if not (name.isascii() and name.isprintable() and len(name) <= NAME_LENGTH_MAX):
            message = f"resolver_name={name!r} must be at most {NAME_LENGTH_MAX} letters of ASCII"
            raise ConfigurationError(message)
        count = len(parse_neighbors(self.resolver_bootstrap_neighbor))
        if count > BOOTSTRAP_NEIGHBORS_MAX:
            message = (
                f"Resolver Bootstrap Neighbor list too large: resolver_bootstrap_neighbor has "
                f"{count}, at most {BOOTSTRAP_NEIGHBORS_MAX} are allowed"
            )
            raise ConfigurationError(message)

    @property
    def nak_unicast_retry_delay_ns(self) -> int:
        """Pause before a unicast NAK is repeated, in nanoseconds."""
        return max(self.nak_unicast_delay_ns, US) * self.nak_unicast_retry_delay_ratio
