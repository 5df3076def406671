"""The system counters of a driver: Aeron's 46, and a few of our own.

Invariant: a system counter's id in the table equals its `SystemCounterId`, so that official tools
find it by number. Our own are ordinary counters of one separate type, with any id.

Source: Aeron `SystemCounterDescriptor`, `aeron_system_counters.c`.
"""

from __future__ import annotations

import re
import struct
from enum import IntEnum
from importlib.metadata import version as installed_version
from typing import TYPE_CHECKING, Final, final

from aeron_async.protocol.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.counters import Counter, CountersManager
    from aeron_async.driver.core.context import DriverContext
    from aeron_async.errors import ErrorCode
    from aeron_async.logs import LogBudget

__all__ = [
    "DRIVER_COUNTER_TYPE_ID",
    "DriverCounterId",
    "SystemCounterId",
    "SystemCounters",
    "packed_version",
]

SYSTEM_COUNTER_TYPE_ID: Final = 0
# Far above 1000, where the counters of applications conventionally begin.
DRIVER_COUNTER_TYPE_ID: Final = 20_000
# Differs: an installed package has no commit id; this name says whose driver it is.
COMMIT: Final = "aeron-async"
CONTROL_PROTOCOL_VERSION: Final = "1.0.0"

_INT32: Final = struct.Struct("<i")


@final
class SystemCounterId(IntEnum):
    """Aeron's system counters, in the order of every official driver."""

    BYTES_SENT = 0
    BYTES_RECEIVED = 1
    RECEIVER_PROXY_FAILS = 2
    SENDER_PROXY_FAILS = 3
    CONDUCTOR_PROXY_FAILS = 4
    NAK_MESSAGES_SENT = 5
    NAK_MESSAGES_RECEIVED = 6
    STATUS_MESSAGES_SENT = 7
    STATUS_MESSAGES_RECEIVED = 8
    HEARTBEATS_SENT = 9
    HEARTBEATS_RECEIVED = 10
    RETRANSMITS_SENT = 11
    FLOW_CONTROL_UNDER_RUNS = 12
    FLOW_CONTROL_OVER_RUNS = 13
    INVALID_PACKETS = 14
    ERRORS = 15
    SHORT_SENDS = 16
    FREE_FAILS = 17
    SENDER_FLOW_CONTROL_LIMITS = 18
    UNBLOCKED_PUBLICATIONS = 19
    UNBLOCKED_COMMANDS = 20
    POSSIBLE_TTL_ASYMMETRY = 21
    CONTROLLABLE_IDLE_STRATEGY = 22
    LOSS_GAP_FILLS = 23
    CLIENT_TIMEOUTS = 24
    RESOLUTION_CHANGES = 25
    CONDUCTOR_MAX_CYCLE_TIME = 26
    CONDUCTOR_CYCLE_TIME_THRESHOLD_EXCEEDED = 27
    SENDER_MAX_CYCLE_TIME = 28
    SENDER_CYCLE_TIME_THRESHOLD_EXCEEDED = 29
    RECEIVER_MAX_CYCLE_TIME = 30
    RECEIVER_CYCLE_TIME_THRESHOLD_EXCEEDED = 31
    NAME_RESOLVER_MAX_TIME = 32
    NAME_RESOLVER_TIME_THRESHOLD_EXCEEDED = 33
    AERON_VERSION = 34
    BYTES_CURRENTLY_MAPPED = 35
    RETRANSMITTED_BYTES = 36
    RETRANSMIT_OVERFLOW = 37
    ERROR_FRAMES_RECEIVED = 38
    ERROR_FRAMES_SENT = 39
    PUBLICATIONS_REVOKED = 40
    PUBLICATION_IMAGES_REVOKED = 41
    IMAGES_REJECTED = 42
    CONTROL_PROTOCOL_VERSION = 43
    STATUS_MESSAGES_REJECTED = 44
    NATIVE_RESOURCE_AGENT_PROXY_FAILS = 45


@final
class DriverCounterId(IntEnum):
    """Our own counters: event loop lag, losses in the system, and limits that peers have reached.

    `Differs:` Aeron has none of these. The numbers are part of the counters' keys and never change.
    """

    LOOP_LAG_COUNT = 1_000
    LOOP_LAG_MAX_NS = 1_001
    NAKS_SUPPRESSED = 1_005
    ELICITED_SETUPS_SUPPRESSED = 1_006
    PENDING_SETUPS_REFUSED = 1_007
    IMAGES_REFUSED = 1_008
    NAKS_WITHHELD = 1_009
    RTT_REPLIES_SUPPRESSED = 1_010
    RTT_MEASUREMENTS_REJECTED = 1_011
    SESSION_STATES_EVICTED = 1_012
    SETUPS_REJECTED = 1_013
    OLD_TERM_PACKETS = 1_014
    FOREIGN_PACKETS = 1_015
    NAKS_REJECTED = 1_020
    GOODBYES_IGNORED = 1_021
    ERROR_FRAMES_IGNORED = 1_022
    DESTINATIONS_REFUSED = 1_023
    FLOW_CONTROL_RECEIVERS_REFUSED = 1_030
    SOCKET_DROPS = 1_031
    REFUSALS_WITHHELD = 1_032
    LOG_LINES_LEFT_OUT = 1_040
    FRAME_CONFLICTS = 1_050
    STREAM_ENDS_IGNORED = 1_051
    STREAM_ENDS_WITHDRAWN = 1_052
    IMAGES_BROKEN = 1_053
    LATE_PACKETS_DROPPED = 1_054
    HANDSHAKE_SENDS_WITHHELD = 1_060
    RESOLUTIONS_REFUSED = 1_070
    COMMANDS_REFUSED = 1_080


SYSTEM_COUNTER_LABELS: Final[tuple[str, ...]] = (
    "Bytes sent",
    "Bytes received",
    "Failed offers to ReceiverProxy",
    "Failed offers to SenderProxy",
    "Failed offers to DriverConductorProxy",
    "NAKs sent",
    "NAKs received",
    "Status Messages sent",
    "Status Messages received",
    "Heartbeats sent",
    "Heartbeats received",
    "Retransmits sent",
    "Flow control under runs",
    "Flow control over runs",
    "Invalid packets",
    "Errors: version={version} commit={commit}",
    "Short sends",
    "Failed attempts to free log buffers",
    "Sender flow control limits, i.e. back-pressure events",
    "Unblocked Publications",
    "Unblocked Control Commands",
    "Possible TTL Asymmetry",
    "ControllableIdleStrategy status",
    "Loss gap fills",
    "Client liveness timeouts",
    "Resolution changes: driverName={driver_name}",
    "Conductor max cycle time doing its work in ns: {mode}",
    "Conductor work cycle exceeded threshold count: threshold={conductor_threshold} {mode}",
    "Sender max cycle time doing its work in ns: {mode}",
    "Sender work cycle exceeded threshold count: threshold={sender_threshold} {mode}",
    "Receiver max cycle time doing its work in ns: {mode}",
    "Receiver work cycle exceeded threshold count: threshold={receiver_threshold} {mode}",
    "NameResolver max time in ns",
    "NameResolver exceeded threshold count: threshold={name_resolver_threshold}",
    "Aeron software: version={version} commit={commit}",
    "Bytes currently mapped",
    "Retransmitted bytes",
    "Retransmit Pool Overflow count",
    "Error Frames received",
    "Error Frames sent",
    "Publications Revoked",
    "Publication Images Revoked",
    "Images rejected",
    "Control protocol version",
    "Status Messages rejected",
    "Failed offers to NativeResourceAgentProxy",
)

DRIVER_COUNTER_LABELS: Final[dict[DriverCounterId, str]] = {
    DriverCounterId.LOOP_LAG_COUNT: "Event loop lag events: threshold={loop_lag_threshold}",
    DriverCounterId.LOOP_LAG_MAX_NS: "Event loop max lag in ns",
    DriverCounterId.NAKS_SUPPRESSED: "NAKs not answered: limit reached",
    DriverCounterId.ELICITED_SETUPS_SUPPRESSED: "Setups not elicited: limit reached",
    DriverCounterId.PENDING_SETUPS_REFUSED: "Pending setups refused: limit reached",
    DriverCounterId.IMAGES_REFUSED: "Images refused: limit reached",
    DriverCounterId.NAKS_WITHHELD: "NAKs not sent: limit reached",
    DriverCounterId.RTT_REPLIES_SUPPRESSED: "RTT measurements not answered: limit reached",
    DriverCounterId.RTT_MEASUREMENTS_REJECTED: "RTT measurements rejected: out of bounds",
    DriverCounterId.SESSION_STATES_EVICTED: "Session states forgotten: limit reached",
    DriverCounterId.SETUPS_REJECTED: "Setups rejected: other terms or source than their image",
    DriverCounterId.OLD_TERM_PACKETS: "Packets of a term before the first",
    DriverCounterId.FOREIGN_PACKETS: "Packets for an image from another source than its own",
    DriverCounterId.NAKS_REJECTED: "NAKs not answered: no frame begins there",
    DriverCounterId.GOODBYES_IGNORED: "Goodbyes ignored: receiver unknown",
    DriverCounterId.ERROR_FRAMES_IGNORED: "Error Frames ignored: receiver unknown or limit reached",
    DriverCounterId.DESTINATIONS_REFUSED: "Destinations refused: limit reached",
    DriverCounterId.FLOW_CONTROL_RECEIVERS_REFUSED: (
        "Flow control receivers refused: limit reached"
    ),
    DriverCounterId.SOCKET_DROPS: "Datagrams dropped by the system before they were received",
    DriverCounterId.REFUSALS_WITHHELD: "Refused publishers not informed: limit reached",
    DriverCounterId.LOG_LINES_LEFT_OUT: "Log lines left out: limit reached",
    DriverCounterId.FRAME_CONFLICTS: "Frames that contradict the one in their place",
    DriverCounterId.STREAM_ENDS_IGNORED: "Ends of streams ignored: readers are beyond them",
    DriverCounterId.STREAM_ENDS_WITHDRAWN: "Ends of streams withdrawn: their publisher continued",
    DriverCounterId.IMAGES_BROKEN: "Images ended: gap unfilled, or shown data contradicted",
    DriverCounterId.LATE_PACKETS_DROPPED: "Late datagrams dropped: too far from known frames",
    DriverCounterId.HANDSHAKE_SENDS_WITHHELD: "Datagrams not sent: receiver has not answered",
    DriverCounterId.RESOLUTIONS_REFUSED: "Names of drivers not learned: limit reached",
    DriverCounterId.COMMANDS_REFUSED: "Commands of clients refused: limit reached",
}


class SystemCounters:
    """The counters of one driver, by `SystemCounterId` and `DriverCounterId`.

    Bind what a hot path needs once: `invalid_packets = counters[SystemCounterId.INVALID_PACKETS]`.

    Args:
        manager: A new one, with no counter allocated yet.
        context: Its thresholds appear in the labels.
        version: Version of this software; that of the installed package unless given.
        log_budget: Limits the driver's log lines.

    Attributes:
        log_budget: Limits the log lines that peers can cause; None means no limit.
        record_error: Records an error for tools; None while there is no log of errors yet.
    """

    def __init__(
        self,
        manager: CountersManager,
        context: DriverContext,
        *,
        version: str | None = None,
        log_budget: LogBudget | None = None,
    ) -> None:
        self.log_budget = log_budget
        self.record_error: Callable[[ErrorCode, str], None] | None = None
        if version is None:
            version = installed_version("aeron-async")
        texts = {
            "version": version,
            "commit": COMMIT,
            "mode": context.threading_mode,
            "driver_name": context.resolver_name or "",
            "conductor_threshold": format_duration(context.conductor_cycle_threshold_ns),
            "sender_threshold": format_duration(context.sender_cycle_threshold_ns),
            "receiver_threshold": format_duration(context.receiver_cycle_threshold_ns),
            "name_resolver_threshold": format_duration(context.name_resolver_threshold_ns),
            "loop_lag_threshold": format_duration(context.loop_lag_threshold_ns),
        }
        self._counters: dict[int, Counter] = {}
        for system_id, label in zip(SystemCounterId, SYSTEM_COUNTER_LABELS, strict=True):
            counter = manager.allocate(
                SYSTEM_COUNTER_TYPE_ID,
                _INT32.pack(system_id),
                label.format_map(texts),
                registration_id=system_id,
            )
            assert counter.id == system_id, "the table is not fresh"
            self._counters[system_id] = counter
        for driver_id, label in DRIVER_COUNTER_LABELS.items():
            self._counters[driver_id] = manager.allocate(
                DRIVER_COUNTER_TYPE_ID,
                _INT32.pack(driver_id),
                label.format_map(texts),
                registration_id=driver_id,
            )
        self[SystemCounterId.AERON_VERSION].set(packed_version(version))
        self[SystemCounterId.CONTROL_PROTOCOL_VERSION].set(packed_version(CONTROL_PROTOCOL_VERSION))

    def __getitem__(self, counter_id: SystemCounterId | DriverCounterId) -> Counter:
        return self._counters[counter_id]

    def note_error(self, code: ErrorCode, message: str) -> None:
        """Count an error, and record it if there is a log of errors."""
        self._counters[SystemCounterId.ERRORS].increment()
        if self.record_error is not None:
            self.record_error(code, message)

    def close(self) -> None:
        """Free every counter; a second call does nothing."""
        for counter in self._counters.values():
            counter.close()


def packed_version(version: str) -> int:
    """Return `1.53.0` as Aeron packs it: major << 16 | minor << 8 | patch, without any suffix.

    Source: Aeron `SemanticVersion.compose`.
    """
    major, minor, patch = (*(int(part) for part in re.findall(r"[0-9]+", version)[:3]), 0, 0, 0)[:3]
    return major << 16 | minor << 8 | patch
