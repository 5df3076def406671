"""Every metric of the package: its names, its type, its help, and what it is made of.

The text page, the collector for prometheus_client and the instruments for OpenTelemetry are made of
this one table, so that a metric has one name, one help and one source. Streams are told apart by
the labels `stream`, `channel` and, where the channel has one, `alias`.

Invariant: names have base units (bytes, seconds), counters end with `_total`, and no label has a
value that is new for each start, such as a session id or a source port.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

import attrs

__all__ = [
    "CALL_LABELS",
    "INFO",
    "INVALID_PACKETS",
    "LOOP_LAG",
    "LOOP_LAG_POWERS",
    "METRICS",
    "REFUSED",
    "SERIES_DROPPED",
    "SNAPSHOT_AGE",
    "STREAM_LABELS",
    "Merge",
    "Metric",
    "MetricKind",
    "MetricSource",
]

STREAM_LABELS: Final = ("stream", "channel", "alias")
"""The labels of a stream, in order; a channel without an alias has only the first two."""
CALL_LABELS: Final = ("service", "method")
"""The labels of a method of a service of calls."""
LOOP_LAG_POWERS: Final = range(14, 35)
"""The upper bounds of the buckets of loop lags, as powers of two in ns: 16 us to 17 s."""
INVALID_PACKETS: Final = {
    "invalid_packets": "malformed",
    "foreign_packets": "foreign",
    "setups_rejected": "setup",
    "naks_rejected": "nak",
    "status_messages_rejected": "status_message",
    "frame_conflicts": "conflict",
}
"""The counters of the driver that count what it refused of peers, and their label `reason`."""


class MetricKind(Enum):
    """The type of a metric, as Prometheus names it."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Merge(Enum):
    """How the values of streams with the same labels become one."""

    SUM = "sum"
    LARGEST = "largest"
    SMALLEST = "smallest"


class MetricSource(Enum):
    """What a metric is made of: a table of a snapshot, a part of one, or the whole."""

    PUBLICATIONS = "publications"
    BLOCKED = "blocked"
    IMAGES = "images"
    LOSSES = "losses"
    SUBSCRIPTIONS = "subscriptions"
    RECORDINGS = "recordings"
    ARCHIVE = "archive"
    CALLS = "calls"
    DRIVER = "driver"
    PAGE = "page"


@attrs.frozen
class Metric:
    """One metric.

    Attributes:
        name: As Prometheus has it.
        otel_name: As OpenTelemetry has it; of `messaging` where its conventions name it.
        kind: Counter, gauge or histogram.
        source: What it is made of.
        column: The column of that table; `rows` counts the rows.
        help: One sentence for people.
        unit: In UCUM, as OpenTelemetry has it.
        label: The label beside those of the stream; empty if there is none. Recordings have theirs
            only on request.
        merge: How streams with the same labels become one value.
        divisor: What the column is divided by, so that it is in the base unit.
    """

    name: str
    otel_name: str
    kind: MetricKind
    source: MetricSource
    column: str
    help: str
    unit: str = "1"
    label: str = ""
    merge: Merge = Merge.SUM
    divisor: int = 1


NS: Final = 1_000_000_000

INFO: Final = Metric(
    "aeron_info",
    "aeron.info",
    MetricKind.GAUGE,
    MetricSource.PAGE,
    "info",
    "Version of the package, kernel and event loop, as labels; always 1.",
)
SNAPSHOT_AGE: Final = Metric(
    "aeron_snapshot_age_seconds",
    "aeron.snapshot.age",
    MetricKind.GAUGE,
    MetricSource.PAGE,
    "age",
    "Age of these statistics; it grows while the event loop is blocked.",
    "s",
)
SERIES_DROPPED: Final = Metric(
    "aeron_series_dropped",
    "aeron.series.dropped",
    MetricKind.GAUGE,
    MetricSource.PAGE,
    "dropped",
    'Label sets above the limit of series, which are summed under stream="other".',
    "{series}",
)
REFUSED: Final = Metric(
    "aeron_metrics_requests_refused_total",
    "aeron.metrics.requests_refused",
    MetricKind.COUNTER,
    MetricSource.PAGE,
    "refused",
    "Requests and connections that the server of this page has refused.",
    "{request}",
    "reason",
)
LOOP_LAG: Final = Metric(
    "aeron_driver_loop_lag_seconds",
    "aeron.driver.loop_lag",
    MetricKind.HISTOGRAM,
    MetricSource.DRIVER,
    "loop_lags",
    "How late the event loop was.",
    "s",
    divisor=NS,
)

METRICS: Final = (
    INFO,
    SNAPSHOT_AGE,
    SERIES_DROPPED,
    Metric(
        "aeron_publication_sent_bytes_total",
        "aeron.publication.sent",
        MetricKind.COUNTER,
        MetricSource.PUBLICATIONS,
        "sent",
        "Bytes of the stream that were sent, headers and padding included; "
        "for IPC those published.",
        "By",
    ),
    Metric(
        "aeron_publication_messages_total",
        "messaging.client.sent.messages",
        MetricKind.COUNTER,
        MetricSource.PUBLICATIONS,
        "message_count",
        "Messages that clients in this process have published.",
        "{message}",
    ),
    Metric(
        "aeron_publication_retransmitted_bytes_total",
        "aeron.publication.retransmitted",
        MetricKind.COUNTER,
        MetricSource.PUBLICATIONS,
        "retransmitted_bytes",
        "Bytes that were sent once more because a receiver asked for them.",
        "By",
    ),
    Metric(
        "aeron_publication_naks_received_total",
        "aeron.publication.naks_received",
        MetricKind.COUNTER,
        MetricSource.PUBLICATIONS,
        "nak_count",
        "NAKs received from receivers.",
        "{nak}",
    ),
    Metric(
        "aeron_publication_backlog_bytes",
        "aeron.publication.backlog",
        MetricKind.GAUGE,
        MetricSource.PUBLICATIONS,
        "backlog_bytes",
        "Bytes that were published and not sent; for IPC not consumed.",
        "By",
    ),
    Metric(
        "aeron_publication_window_bytes",
        "aeron.publication.window",
        MetricKind.GAUGE,
        MetricSource.PUBLICATIONS,
        "window_bytes",
        "Room for offers, in bytes; of streams with the same labels the smallest.",
        "By",
        merge=Merge.SMALLEST,
    ),
    Metric(
        "aeron_publication_receivers",
        "aeron.publication.receivers",
        MetricKind.GAUGE,
        MetricSource.PUBLICATIONS,
        "receiver_count",
        "Receivers of the stream.",
        "{receiver}",
    ),
    Metric(
        "aeron_publication_slowest_receiver_lag_bytes",
        "aeron.publication.slowest_receiver_lag",
        MetricKind.GAUGE,
        MetricSource.PUBLICATIONS,
        "slowest_lag",
        "How far the receiver that allows the least to be sent is behind what was published.",
        "By",
        merge=Merge.LARGEST,
    ),
    Metric(
        "aeron_publications",
        "aeron.publications",
        MetricKind.GAUGE,
        MetricSource.PUBLICATIONS,
        "rows",
        "Publications.",
        "{publication}",
    ),
    Metric(
        "aeron_connected",
        "aeron.connected",
        MetricKind.GAUGE,
        MetricSource.PUBLICATIONS,
        "connected",
        "Whether publications have a subscriber; 0 if one of those with the same labels has none.",
        merge=Merge.SMALLEST,
    ),
    Metric(
        "aeron_publication_blocked_seconds_total",
        "aeron.publication.blocked",
        MetricKind.COUNTER,
        MetricSource.BLOCKED,
        "ns",
        "How long offers waited, by what for.",
        "s",
        "by",
        divisor=NS,
    ),
    Metric(
        "aeron_image_received_bytes_total",
        "aeron.image.received",
        MetricKind.COUNTER,
        MetricSource.IMAGES,
        "received",
        "Bytes of the stream that have arrived in order, headers and padding included.",
        "By",
    ),
    Metric(
        "aeron_image_naks_sent_total",
        "aeron.image.naks_sent",
        MetricKind.COUNTER,
        MetricSource.IMAGES,
        "nak_count",
        "NAKs sent.",
        "{nak}",
    ),
    Metric(
        "aeron_image_status_messages_sent_total",
        "aeron.image.status_messages_sent",
        MetricKind.COUNTER,
        MetricSource.IMAGES,
        "status_message_count",
        "Status messages sent.",
        "{message}",
    ),
    Metric(
        "aeron_image_lost_bytes_total",
        "aeron.image.lost",
        MetricKind.COUNTER,
        MetricSource.LOSSES,
        "bytes",
        "Bytes of the stream that were lost, by cause; most are sent once more.",
        "By",
        "cause",
    ),
    Metric(
        "aeron_image_loss_events_total",
        "aeron.image.loss_events",
        MetricKind.COUNTER,
        MetricSource.LOSSES,
        "count",
        "Losses, by cause.",
        "{loss}",
        "cause",
    ),
    Metric(
        "aeron_images",
        "aeron.images",
        MetricKind.GAUGE,
        MetricSource.SUBSCRIPTIONS,
        "image_count",
        "Images of a subscription; of those with the same labels the most.",
        "{image}",
        merge=Merge.LARGEST,
    ),
    Metric(
        "aeron_subscription_messages_total",
        "messaging.client.consumed.messages",
        MetricKind.COUNTER,
        MetricSource.SUBSCRIPTIONS,
        "message_count",
        "Messages that subscriptions in this process were given.",
        "{message}",
    ),
    Metric(
        "aeron_subscription_lag_bytes",
        "aeron.subscription.lag",
        MetricKind.GAUGE,
        MetricSource.SUBSCRIPTIONS,
        "lag_bytes",
        "Bytes that have arrived and were not consumed, on the image where that is most.",
        "By",
        merge=Merge.LARGEST,
    ),
    Metric(
        "aeron_subscription_lag_seconds",
        "aeron.subscription.lag_time",
        MetricKind.GAUGE,
        MetricSource.SUBSCRIPTIONS,
        "lag_ns",
        "Age of the oldest byte that has arrived and was not consumed.",
        "s",
        merge=Merge.LARGEST,
        divisor=NS,
    ),
    Metric(
        "aeron_archive_recorded_bytes_total",
        "aeron.archive.recorded",
        MetricKind.COUNTER,
        MetricSource.RECORDINGS,
        "recorded",
        "Bytes that an archive has recorded.",
        "By",
        "recording",
    ),
    Metric(
        "aeron_archive_recording_lag_bytes",
        "aeron.archive.recording_lag",
        MetricKind.GAUGE,
        MetricSource.RECORDINGS,
        "lag",
        "Bytes that have arrived and are not recorded yet, of the recording where that is most.",
        "By",
        "recording",
        merge=Merge.LARGEST,
    ),
    Metric(
        "aeron_archive_free_bytes",
        "aeron.archive.free",
        MetricKind.GAUGE,
        MetricSource.ARCHIVE,
        "free",
        "Free bytes of the file system of an archive.",
        "By",
    ),
    Metric(
        "aeron_archive_recordings",
        "aeron.archive.recordings",
        MetricKind.GAUGE,
        MetricSource.ARCHIVE,
        "recordings",
        "Recordings in the catalog of an archive, by state: active or stopped.",
        "{recording}",
        "state",
    ),
    Metric(
        "aeron_calls_total",
        "aeron.calls",
        MetricKind.COUNTER,
        MetricSource.CALLS,
        "outcomes",
        "Calls of a service by what became of them: answered, repeated, cancelled, or a status.",
        "{call}",
        "outcome",
    ),
    Metric(
        "aeron_calls_under_way",
        "aeron.calls_under_way",
        MetricKind.GAUGE,
        MetricSource.CALLS,
        "under_way",
        "Calls of a service that run.",
        "{call}",
    ),
    Metric(
        "aeron_call_handler_seconds_total",
        "aeron.call_handler",
        MetricKind.COUNTER,
        MetricSource.CALLS,
        "handler_ns",
        "How long the handlers of answered calls took together.",
        "s",
        divisor=NS,
    ),
    LOOP_LAG,
    Metric(
        "aeron_driver_cycle_seconds_max",
        "aeron.driver.cycle_max",
        MetricKind.GAUGE,
        MetricSource.DRIVER,
        "cycle_max",
        "The longest duty cycle of an agent.",
        "s",
        "agent",
        divisor=NS,
    ),
    Metric(
        "aeron_driver_cycles_exceeded_total",
        "aeron.driver.cycles_exceeded",
        MetricKind.COUNTER,
        MetricSource.DRIVER,
        "cycles_exceeded",
        "Duty cycles of an agent that took longer than its threshold.",
        "{cycle}",
        "agent",
    ),
    Metric(
        "aeron_driver_socket_drops_total",
        "aeron.driver.socket_drops",
        MetricKind.COUNTER,
        MetricSource.DRIVER,
        "socket_drops",
        "What the system dropped at full sockets: datagrams, or batches of up to 64 of them.",
        "{datagram}",
        "reason",
    ),
    Metric(
        "aeron_driver_invalid_packets_total",
        "aeron.driver.invalid_packets",
        MetricKind.COUNTER,
        MetricSource.DRIVER,
        "invalid_packets",
        "Packets of peers that were refused, by reason.",
        "{packet}",
        "reason",
    ),
    Metric(
        "aeron_driver_limit_reached_total",
        "aeron.driver.limit_reached",
        MetricKind.COUNTER,
        MetricSource.DRIVER,
        "limits",
        "How often a limit was reached.",
        "{event}",
        "limit",
    ),
    Metric(
        "aeron_driver_budget_used_ratio",
        "aeron.driver.budget_used",
        MetricKind.GAUGE,
        MetricSource.DRIVER,
        "budgets",
        "The part of a bounded resource that is in use, from 0 to 1.",
        "1",
        "budget",
    ),
    REFUSED,
)
"""All of them, in the order of the page."""
