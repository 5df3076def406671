"""The settings of a media driver, checked once and never changed.

Invariant: a `DriverContext` that exists is consistent. No later code checks a setting again,
except for what only the operating system knows, such as the socket buffer lengths it grants.

Source: Aeron `MediaDriver.Context`, `Configuration`, `PreferredMulticastFlowControl`,
`aeron_driver_context.c`; names beginning `aeron_async.` are ours.
"""

from __future__ import annotations

import os
import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Self, final

import attrs

from aeron_async.driver.core.environment import (
    INT32_MAX,
    INT32_MIN,
    choice,
    duration,
    flag,
    inferable,
    integer,
    port_range,
    setting_of,
    size,
    supplier,
)
from aeron_async.driver.core.strategies import (
    CONGESTION_CONTROL_GROUP,
    FLOW_CONTROL_GROUP,
    NAME_RESOLVER_GROUP,
)
from aeron_async.driver.core.suppliers import SYSTEM_NAME_RESOLVER
from aeron_async.errors import ConfigurationError
from aeron_async.protocol.units import INT64_MAX, parse_duration_ns
from aeron_async.unused_variables import PREFIX, warn_of_unused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aeron_async.driver.core.environment import Setting
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
    "LEGACY_SETTINGS",
    "MIB",
    "MS",
    "PENDING_SETUP_TIMEOUT_NS",
    "SECOND",
    "SETUP_INTERVAL_NS",
    "US",
    "DriverContext",
    "DriverSettings",
    "StreamSettings",
    "legacy_value",
]

KIB: Final = 1 << 10
MIB: Final = 1 << 20
GIB: Final = 1 << 30
US: Final = 1_000
MS: Final = 1_000_000
SECOND: Final = 1_000_000_000

TERM_MIN_LENGTH: Final = 64 * KIB
TERM_MAX_LENGTH: Final = GIB
# The data header takes 32 bytes, and frames begin at multiples of 32.
MTU_MIN_LENGTH: Final = 64
MTU_MAX_LENGTH: Final = 65_504
FRAME_ALIGNMENT: Final = 32


@attrs.frozen(kw_only=True)
class StreamSettings:
    """The settings of streams: buffer lengths, windows, sessions and timers."""

    # Log buffers, windows and datagrams.
    term_buffer_length: int = size(
        "aeron.term.buffer.length",
        16 * MIB,
        "Length of each of the three terms of a network publication.",
        minimum=TERM_MIN_LENGTH,
        maximum=TERM_MAX_LENGTH,
        power_of_two=True,
        uri_key="term-length",
    )
    ipc_term_buffer_length: int = size(
        "aeron.ipc.term.buffer.length",
        64 * MIB,
        "Length of each of the three terms of an IPC publication.",
        minimum=TERM_MIN_LENGTH,
        maximum=TERM_MAX_LENGTH,
        power_of_two=True,
        uri_key="term-length",
    )
    term_buffer_sparse_file: bool = flag(
        "aeron.term.buffer.sparse.file",
        True,
        "Whether term memory is taken only as it is written, rather than all at once.",
        uri_key="sparse",
    )
    file_page_size: int = size(
        "aeron.file.page.size",
        4 * KIB,
        "What the length of a log buffer is rounded up to.",
        minimum=4 * KIB,
        maximum=GIB,
        power_of_two=True,
    )
    mtu_length: int = size(
        "aeron.mtu.length",
        1_408,
        "Longest datagram of a network publication, headers of frames included.",
        minimum=MTU_MIN_LENGTH,
        maximum=MTU_MAX_LENGTH,
        multiple=FRAME_ALIGNMENT,
        uri_key="mtu",
    )
    ipc_mtu_length: int = size(
        "aeron.ipc.mtu.length",
        1_408,
        "Longest frame of an IPC publication, its header included.",
        minimum=MTU_MIN_LENGTH,
        maximum=MTU_MAX_LENGTH,
        multiple=FRAME_ALIGNMENT,
        uri_key="mtu",
    )
    publication_term_window_length: int = size(
        "aeron.publication.term.window.length",
        0,
        "How far a network publication may run ahead of its receivers; 0 is half a term, the most.",
        maximum=TERM_MAX_LENGTH,
        uri_key="pub-wnd",
    )
    ipc_publication_term_window_length: int = size(
        "aeron.ipc.publication.term.window.length",
        0,
        "How far an IPC publication may run ahead of its subscribers; 0 is half a term, the most.",
        maximum=TERM_MAX_LENGTH,
        uri_key="pub-wnd",
    )
    initial_window_length: int = size(
        "aeron.rcv.initial.window.length",
        128 * KIB,
        "Window that an image grants its sender, at most half a term.",
        minimum=256,
        uri_key="rcv-wnd",
    )
    socket_rcvbuf_length: int = size(
        "aeron.socket.so_rcvbuf",
        128 * KIB,
        "Receive buffer asked of the system for each socket; 0 leaves the system's own.",
        uri_key="so-rcvbuf",
    )
    socket_sndbuf_length: int = size(
        "aeron.socket.so_sndbuf",
        0,
        "Send buffer asked of the system for each socket; 0 leaves the system's own.",
        uri_key="so-sndbuf",
    )
    socket_multicast_ttl: int = integer(
        "aeron.socket.multicast.ttl",
        0,
        "Hops a multicast datagram may take; 0 leaves the system's own number.",
        minimum=0,
        maximum=255,
        uri_key="ttl",
    )

    # Sessions and subscriptions.
    publication_reserved_session_id_low: int = integer(
        "aeron.publication.reserved.session.id.low",
        -1,
        "First of the session ids that are never chosen automatically.",
        minimum=INT32_MIN,
        maximum=INT32_MAX,
    )
    publication_reserved_session_id_high: int = integer(
        "aeron.publication.reserved.session.id.high",
        1_000,
        "Last of the session ids that are never chosen automatically.",
        minimum=INT32_MIN,
        maximum=INT32_MAX,
    )
    stream_session_limit: int = integer(
        "aeron.driver.stream.session.limit",
        INT32_MAX,
        "Most images of one stream on one receiving endpoint.",
        minimum=1,
        maximum=INT32_MAX,
    )
    spies_simulate_connection: bool = flag(
        "aeron.spies.simulate.connection",
        False,
        "Whether a spy alone makes a publication connected.",
        uri_key="ssc",
    )
    reliable_stream: bool = flag(
        "aeron.reliable.stream",
        True,
        "Whether gaps are repaired by NAK, rather than filled with padding.",
        uri_key="reliable",
    )
    tether_subscriptions: bool = flag(
        "aeron.tether.subscriptions",
        True,
        "Whether a slow subscriber holds the stream back, rather than falling out of it.",
        uri_key="tether",
    )
    rejoin_stream: bool = flag(
        "aeron.rejoin.stream",
        True,
        "Whether a stream that was lost may come back as a new image.",
        uri_key="rejoin",
    )
    receiver_group_consideration: bool | None = inferable(
        "aeron.receiver.group.consideration",
        "Whether receivers back off before a NAK as one of many; by default as the channel says.",
        uri_key="group",
    )

    # Timers.
    timer_interval_ns: int = duration(
        "aeron.timer.interval",
        SECOND,
        "How often the conductor looks after lifecycles.",
        minimum=US,
    )
    status_message_timeout_ns: int = duration(
        "aeron.rcv.status.message.timeout",
        200 * MS,
        "Longest pause between two status messages of an image.",
        minimum=US,
    )
    image_liveness_timeout_ns: int = duration(
        "aeron.image.liveness.timeout",
        10 * SECOND,
        "How long an image lives without a datagram; also how long it lingers.",
        minimum=US,
    )
    image_gap_timeout_ns: int = duration(
        "aeron_async.image.gap.timeout",
        5 * SECOND,
        "How long the first gap of an image may stay while its source is heard; then it ends.",
        minimum=MS,
    )
    publication_connection_timeout_ns: int = duration(
        "aeron.publication.connection.timeout",
        5 * SECOND,
        "How long a publication counts as connected without a status message.",
        minimum=US,
    )
    publication_linger_timeout_ns: int = duration(
        "aeron.publication.linger.timeout",
        5 * SECOND,
        "How long a closed publication still answers NAKs.",
        minimum=US,
        uri_key="linger",
    )
    publication_unblock_timeout_ns: int = duration(
        "aeron.publication.unblock.timeout",
        15 * SECOND,
        "How long a claimed frame may stay uncommitted before it becomes padding.",
        minimum=US,
    )
    client_liveness_timeout_ns: int = duration(
        "aeron.client.liveness.timeout",
        10 * SECOND,
        "How long a client lives without a sign of life.",
        minimum=US,
    )
    untethered_window_limit_timeout_ns: int = duration(
        "aeron.untethered.window.limit.timeout",
        5 * SECOND,
        "How long an untethered subscriber may stand at the window's end before it lingers.",
        uri_key="untethered-window-limit-timeout",
    )
    untethered_linger_timeout_ns: int | None = duration(
        "aeron.untethered.linger.timeout",
        None,
        "How long an untethered subscriber lingers; unless set, the window limit timeout.",
        uri_key="untethered-linger-timeout",
    )
    untethered_resting_timeout_ns: int = duration(
        "aeron.untethered.resting.timeout",
        10 * SECOND,
        "How long an untethered subscriber rests before it may join again.",
        uri_key="untethered-resting-timeout",
    )
    counters_free_to_reuse_timeout_ns: int = duration(
        "aeron.counters.free.to.reuse.timeout",
        SECOND,
        "How long the id of a freed counter rests.",
    )
    name_resolver_supplier: str | NameResolver | NameResolverSupplier = supplier(
        "aeron.name.resolver.supplier",
        SYSTEM_NAME_RESOLVER,
        "Looks up names: the system's resolver, a registered one, a resolver, or what makes one.",
        choices=(SYSTEM_NAME_RESOLVER,),
        group=NAME_RESOLVER_GROUP,
        instance_method="resolve",
    )
    reresolution_check_interval_ns: int = duration(
        "aeron.driver.reresolution.check.interval",
        SECOND,
        "How often names of silent endpoints are looked up again; 0 is never.",
    )
    driver_timeout_ms: int = integer(
        "aeron.driver.timeout",
        10_000,
        "How long a driver may be silent before it counts as dead, in milliseconds.",
        minimum=0,
        unit_ns=MS,
    )
    # Ours: Aeron has none like it.
    waiting_hint_ns: int = duration(
        "aeron_async.waiting.hint",
        2 * SECOND,
        "How long a client waits before one log line says for what, and what to change; 0 is off.",
    )


FLOW_CONTROLS: Final = ("unicast_max", "multicast_max", "multicast_min", "multicast_tagged")
CONGESTION_CONTROLS: Final = ("default", "static", "cubic")
TRANSPORTS: Final = ("auto", "socket", "loop")


@attrs.frozen(kw_only=True)
class DriverSettings(StreamSettings):
    """The settings of a whole driver: loss repair, flow control, sockets and resource limits."""

    # Loss and retransmission.
    nak_unicast_delay_ns: int = duration(
        "aeron.nak.unicast.delay",
        US,
        "Pause before the first NAK for a gap on unicast.",
        minimum=US,
        uri_key="nak-delay",
    )
    nak_unicast_retry_delay_ratio: int = integer(
        "aeron.nak.unicast.retry.delay.ratio",
        100,
        "Pause before the NAK is repeated, in multiples of the first pause.",
        minimum=1,
    )
    nak_multicast_group_size: int = integer(
        "aeron.nak.multicast.group.size",
        10,
        "How many receivers the random pause before a multicast NAK is tuned for.",
        minimum=1,
        maximum=INT32_MAX,
    )
    nak_multicast_max_backoff_ns: int = duration(
        "aeron.nak.multicast.max.backoff",
        10 * MS,
        "Longest random pause before a multicast NAK.",
        minimum=US,
    )
    retransmit_unicast_delay_ns: int = duration(
        "aeron.retransmit.unicast.delay",
        0,
        "Pause before a NAK is answered, on any channel.",
    )
    retransmit_unicast_linger_ns: int = duration(
        "aeron.retransmit.unicast.linger",
        10 * MS,
        "How long further NAKs for what was just resent are ignored, on any channel.",
        minimum=US,
    )
    max_resend: int = integer(
        "aeron.max.resend",
        16,
        "Most retransmissions under way at once on a group channel; no effect on unicast.",
        minimum=1,
        maximum=256,
        uri_key="max-resend",
    )
    unicast_flow_control_rrwm: int = integer(
        "aeron.unicast.flow.control.rrwm",
        16,
        "Most that one NAK may bring on unicast, in multiples of the receiver window.",
        minimum=1,
        maximum=INT32_MAX,
    )
    multicast_flow_control_rrwm: int = integer(
        "aeron.multicast.flow.control.rrwm",
        4,
        "Most that one NAK may bring on multicast, in multiples of the receiver window.",
        minimum=1,
        maximum=INT32_MAX,
        uri_key="fc",
    )

    # Flow and congestion control.
    unicast_flow_control_supplier: str | FlowControlSupplier = supplier(
        "aeron.unicast.FlowControl.supplier",
        "unicast_max",
        "Flow control of unicast publications.",
        choices=FLOW_CONTROLS,
        group=FLOW_CONTROL_GROUP,
    )
    multicast_flow_control_supplier: str | FlowControlSupplier = supplier(
        "aeron.multicast.FlowControl.supplier",
        "multicast_max",
        "Flow control of multicast and multi-destination publications.",
        choices=FLOW_CONTROLS,
        group=FLOW_CONTROL_GROUP,
        uri_key="fc",
    )
    flow_control_receiver_timeout_ns: int = duration(
        "aeron.flow.control.receiver.timeout",
        5 * SECOND,
        "How long a silent receiver still holds a min or tagged publication back.",
        uri_key="fc",
    )
    flow_control_group_tag: int = integer(
        "aeron.flow.control.group.tag",
        -1,
        "Group whose receivers pace a tagged publication.",
        uri_key="fc",
    )
    flow_control_group_min_size: int = integer(
        "aeron.flow.control.group.min.size",
        0,
        "Receivers without which a min or tagged publication is not connected.",
        minimum=0,
        maximum=INT32_MAX,
        uri_key="fc",
    )
    receiver_group_tag: int | None = integer(
        "aeron.receiver.group.tag",
        None,
        "Group that our receivers name in their status messages; none unless set.",
        uri_key="gtag",
    )
    congestion_control_supplier: str | CongestionControlSupplier = supplier(
        "aeron.CongestionControl.supplier",
        "default",
        "Congestion control of images; default is static unless the channel says otherwise.",
        choices=CONGESTION_CONTROLS,
        group=CONGESTION_CONTROL_GROUP,
        uri_key="cc",
    )
    cubic_congestion_control_measure_rtt: bool = flag(
        "aeron.CubicCongestionControl.measureRtt",
        False,
        "Whether cubic congestion control measures round trips.",
    )
    cubic_congestion_control_initial_rtt_ns: int = duration(
        "aeron.CubicCongestionControl.initialRtt",
        100 * US,
        "Round trip that cubic congestion control begins with.",
        minimum=US,
    )
    cubic_congestion_control_tcp_mode: bool = flag(
        "aeron.CubicCongestionControl.tcpMode",
        False,
        "Whether cubic congestion control never falls behind what TCP would do.",
    )

    # Sockets and cycles.
    driver_connect: bool = flag(
        "aeron.driver.connect",
        True,
        "Whether sockets that send to one address are connected to it.",
    )
    sender_wildcard_port_range: tuple[int, int] = port_range(
        "aeron.sender.wildcard.port.range",
        "Ports from which a publication without one is given its own; 0 0 leaves it to the system.",
    )
    receiver_wildcard_port_range: tuple[int, int] = port_range(
        "aeron.receiver.wildcard.port.range",
        "Ports from which a subscription to port 0 is given its own; 0 0 leaves it to the system.",
    )
    receiver_io_vector_capacity: int = integer(
        "aeron.receiver.io.vector.capacity",
        4,
        "Most datagrams per receive call, where the system offers such a call.",
        minimum=1,
        maximum=16,
    )
    network_publication_max_messages_per_send: int = integer(
        "aeron.network.publication.max.messages.per.send",
        4,
        "Most runs of up to 64 datagrams of one publication before the next has its turn.",
        minimum=1,
        maximum=16,
    )
    conductor_cycle_threshold_ns: int = duration(
        "aeron.driver.conductor.cycle.threshold",
        100 * MS,
        "How long a turn of the conductor may last before it is counted as slow.",
    )
    sender_cycle_threshold_ns: int = duration(
        "aeron.driver.sender.cycle.threshold",
        100 * MS,
        "How long a turn of the sender may last before it is counted as slow.",
    )
    receiver_cycle_threshold_ns: int = duration(
        "aeron.driver.receiver.cycle.threshold",
        100 * MS,
        "How long a turn of the receiver may last before it is counted as slow.",
    )
    name_resolver_threshold_ns: int = duration(
        "aeron.name.resolver.threshold",
        5 * SECOND,
        "How long looking up a name may last before it is counted as slow.",
        env_name="AERON_DRIVER_NAME_RESOLVER_THRESHOLD",
    )

    # Memory that tools read.
    counters_buffer_length: int = size(
        "aeron.counters.buffer.length",
        8 * MIB,
        "Length of the counters' values, 128 bytes each; their metadata takes four times as much.",
        minimum=MIB,
        maximum=500 * MIB,
    )
    error_buffer_length: int = size(
        "aeron.error.buffer.length",
        4 * MIB,
        "Length of the log of distinct errors.",
        minimum=4 * MIB,
    )
    loss_report_buffer_length: int = size(
        "aeron.loss.report.buffer.length",
        MIB,
        "Length of the report of lost data.",
        minimum=KIB,
    )

    # Differs: from here on the settings are ours; Aeron has none like them.
    transport: str = choice(
        "aeron_async.transport",
        "auto",
        "Sockets of our own in batches, those of the event loop, or whichever this system favours.",
        choices=TRANSPORTS,
    )
    datagram_burst_limit: int = integer(
        "aeron_async.datagram.burst.limit",
        64,
        "Most datagrams read from one socket in a turn of the event loop; 4 of a run count as one.",
        minimum=1,
        maximum=INT32_MAX,
    )
    socket_batching: bool = flag(
        "aeron_async.socket.batching",
        True,
        "Whether many datagrams leave or arrive in one call of the system; on Linux only.",
    )
    loop_lag_threshold_ns: int = duration(
        "aeron_async.loop.lag.threshold",
        100 * MS,
        "How late the event loop may wake the driver before it is counted as lagging.",
    )
    close_linger_timeout_ns: int = duration(
        "aeron_async.close.linger.timeout",
        5 * SECOND,
        "How long closing the driver waits for its publications to drain.",
    )

    # Limits on what a hostile peer can cause.
    max_destinations: int = integer(
        "aeron_async.max.destinations",
        256,
        "Most destinations of one channel, whether they were added or came by themselves.",
        minimum=1,
        maximum=INT32_MAX,
    )
    max_pending_setups: int = integer(
        "aeron_async.max.pending.setups",
        256,
        "Most sessions that may be waiting for their setup at once.",
        minimum=1,
        maximum=INT32_MAX,
    )
    max_elicited_setups_per_second: int = integer(
        "aeron_async.max.elicited.setups.per.second",
        256,
        "Most setups that one endpoint asks for in a second; also most refused publishers told.",
        minimum=1,
        maximum=INT32_MAX,
    )
    max_session_states: int = integer(
        "aeron_async.max.session.states",
        4_096,
        "Most sessions without an image that one receiving endpoint remembers.",
        minimum=1,
        maximum=INT32_MAX,
    )
    max_images_per_stream: int = integer(
        "aeron_async.max.images.per.stream",
        64,
        "Most images of one stream on one receiving endpoint, like `stream_session_limit`.",
        minimum=1,
        maximum=INT32_MAX,
    )
    max_image_term_length: int = size(
        "aeron_async.max.image.term.length",
        64 * MIB,
        "Longest term that a sender may ask us to hold.",
        minimum=TERM_MIN_LENGTH,
        maximum=TERM_MAX_LENGTH,
        power_of_two=True,
    )
    image_log_budget_length: int = size(
        "aeron_async.image.log.budget.length",
        GIB,
        "Most address space for the log buffers of all images; their memory is taken as it fills.",
        minimum=4 * TERM_MIN_LENGTH,
        maximum=INT64_MAX,
    )
    max_naks_per_second: int = integer(
        "aeron_async.max.naks.per.second",
        1_000,
        "Most NAKs of one image in a second for what no data proves lost, or was asked for before.",
        minimum=10,
        maximum=INT32_MAX,
    )
    max_rtt_replies_per_second: int = integer(
        "aeron_async.max.rtt.replies.per.second",
        100,
        "Most round-trip measurements of one end of a stream that are answered in a second.",
        minimum=0,
        maximum=INT32_MAX,
    )
    max_rtt_replies_per_source: int = integer(
        "aeron_async.max.rtt.replies.per.source",
        50,
        "Most of these for one source, or one receiver id.",
        minimum=0,
        maximum=INT32_MAX,
    )
    max_retransmit_burst_length: int = size(
        "aeron_async.max.retransmit.burst.length",
        2 * MIB,
        "Most that NAKs may bring at once from one publication, when it has not resent for long.",
        minimum=64 * KIB,
    )
    max_retransmit_base_count: int = integer(
        "aeron_async.max.retransmit.base.count",
        128,
        "Full datagrams that NAKs may bring in a second; the receiver's window where that is more.",
        minimum=0,
        maximum=INT32_MAX,
    )
    max_retransmit_percent: int = integer(
        "aeron_async.max.retransmit.percent",
        50,
        "Most that NAKs may bring beside that, in percent of what is sent for the first time.",
        minimum=0,
        maximum=10_000,
    )
    max_retransmit_linger_length: int = size(
        "aeron_async.max.retransmit.linger.length",
        16 * MIB,
        "Most that NAKs may bring within one retransmit linger, in any case.",
        minimum=64 * KIB,
    )
    max_lingering_ranges: int = integer(
        "aeron_async.max.lingering.ranges",
        16,
        "Most ranges resent on unicast that are remembered, to ignore further NAKs for them.",
        minimum=1,
        maximum=256,
    )
    max_flow_control_receivers: int = integer(
        "aeron_async.max.flow.control.receivers",
        1_024,
        "Most receivers that one min or tagged publication tracks; one more is not waited for.",
        minimum=1,
        maximum=INT32_MAX,
    )
    max_error_frames_per_second: int = integer(
        "aeron_async.max.error.frames.per.second",
        10,
        "Most rejections by its receivers that one publication takes in a second.",
        minimum=0,
        maximum=INT32_MAX,
    )


_TAG_LENGTH: Final = 8
_STRATEGIES: Final = {"max": "multicast_max", "min": "multicast_min", "tagged": "multicast_tagged"}


def _parse_tag(text: str) -> int:
    """Parse eight bytes of feedback, in hexadecimal and in wire order."""
    if re.fullmatch(r"[0-9A-Fa-f]{16}", text) is None:
        message = f"{text!r} is not {_TAG_LENGTH} bytes in hexadecimal"
        raise ConfigurationError(message)
    return int.from_bytes(bytes.fromhex(text), "little", signed=True)


def _parse_strategy(text: str) -> str:
    return _STRATEGIES.get(text, text)


LEGACY_SETTINGS: Final[Mapping[str, tuple[tuple[str, Callable[[str], Any]], ...]]] = {
    "multicast_flow_control_supplier": (
        ("AERON_MULTICAST_FLOW_CONTROL_STRATEGY", _parse_strategy),
    ),
    "flow_control_receiver_timeout_ns": (
        ("AERON_MIN_MULTICAST_FLOW_CONTROL_RECEIVER_TIMEOUT", parse_duration_ns),
    ),
    "flow_control_group_tag": (("AERON_PREFERREDMULTICASTFLOWCONTROL_ASF", _parse_tag),),
    "receiver_group_tag": (("AERON_FLOW_CONTROL_SM_APPLICATIONSPECIFICFEEDBACK", _parse_tag),),
}
"""The old variables of each field, each with the parser of its text."""


def legacy_value(field_name: str, variables: Mapping[str, str]) -> Any:
    """Return the value that an old variable gives a field, or None if no such variable is set.

    Raises:
        ConfigurationError: The text cannot be parsed.
    """
    for env_name, parse in LEGACY_SETTINGS.get(field_name, ()):
        text = variables.get(env_name, "").strip()
        if text:
            try:
                return parse(text)
            except ConfigurationError as error:
                message = f"{env_name} cannot be read: {error}"
                raise ConfigurationError(message) from error
    return None


ARCHIVE_PREFIX: Final = f"{PREFIX}ARCHIVE_"

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

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None, **overrides: Any) -> Self:
        """Return a context from the overrides, then the environment, then the defaults.

        An empty variable counts as absent, and a variable that is overridden is not read. The old
        names of a setting count if its own name is absent. A variable without effect, because it is
        misspelt or its setting does not exist here, is logged once.

        Args:
            environ: Variables by name; those of this process unless given.
            overrides: Settings by field name, as for the class itself.

        Raises:
            ConfigurationError: a value cannot be parsed, or as for the class itself.
        """
        variables = os.environ if environ is None else environ
        found: dict[str, Any] = {}
        for field_name, setting in cls.settings().items():
            text = variables.get(setting.env_name)
            if field_name in overrides:
                continue
            value = setting.parse(text) if text else legacy_value(field_name, variables)
            if value is not None or text:
                found[field_name] = value
        # `ArchiveContext` checks the variables of archives.
        names = [name for name in variables if not name.startswith(ARCHIVE_PREFIX)]
        warn_of_unused(names, _ENV_NAMES, prefix=PREFIX)
        return cls(**found, **overrides)

    @classmethod
    def settings(cls) -> Mapping[str, Setting]:
        """Return the description of every setting, by field name."""
        return _SETTINGS

    @property
    def nak_unicast_retry_delay_ns(self) -> int:
        """Pause before a unicast NAK is repeated, in nanoseconds."""
        return self.nak_unicast_delay_ns * self.nak_unicast_retry_delay_ratio

    def _refuse(self, field_name: str, relation: str, other_name: str) -> None:
        message = (
            f"{_SETTINGS[field_name]} {relation} {_SETTINGS[other_name]}, "
            f"got {getattr(self, field_name)} and {getattr(self, other_name)}"
        )
        raise ConfigurationError(message)


_SETTINGS: Final[Mapping[str, Setting]] = MappingProxyType(
    {attribute.name: setting_of(attribute) for attribute in attrs.fields(DriverContext)}
)
_ENV_NAMES: Final = frozenset(
    {setting.env_name for setting in _SETTINGS.values()}
    | {env_name for names in LEGACY_SETTINGS.values() for env_name, _ in names}
)
