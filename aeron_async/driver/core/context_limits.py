"""Settings of loss repair, flow control, the driver itself, and what peers may cost it.

Source: Aeron `Configuration`, `aeron_driver_context.c`; names beginning `aeron_async.` are ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from aeron_async.driver.core.context_settings import (
    GIB,
    KIB,
    MIB,
    MS,
    SECOND,
    TERM_MAX_LENGTH,
    TERM_MIN_LENGTH,
    US,
    StreamSettings,
)
from aeron_async.driver.core.environment import (
    INT32_MAX,
    choice,
    duration,
    flag,
    integer,
    port_range,
    size,
    supplier,
)
from aeron_async.driver.core.registered import CONGESTION_CONTROL_GROUP, FLOW_CONTROL_GROUP
from aeron_async.protocol.units import INT64_MAX

if TYPE_CHECKING:
    from aeron_async.driver.core.congestion_control.base import CongestionControlSupplier
    from aeron_async.driver.core.flow_control.supplier import FlowControlSupplier

__all__ = ["DriverSettings"]

FLOW_CONTROLS: Final = ("unicast_max", "multicast_max", "multicast_min", "multicast_tagged")
CONGESTION_CONTROLS: Final = ("default", "static", "cubic")
TRANSPORTS: Final = ("auto", "socket", "loop")


@attrs.frozen(kw_only=True)
class DriverSettings(StreamSettings):
    """How a driver repairs, paces and protects itself."""

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

    # What a hostile peer may cost at most.
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
