"""Heartbeats and status messages of silent streams, many in one call.

Each of thousands of silent streams sends or gets a heartbeat ten times a second, and a status
message five times. Nearly all of them say what the one before has said. These classes take or send
one such frame after another, and stop at the first that is not of this kind. The caller lets that
one go its usual way, and continues here with the next.

Invariant: the effect is that of the usual way, `NetworkPublication.heartbeat_fast` and `poll`,
`PublicationImage.report_fast` and `on_heartbeat_fast`, and
`NetworkPublication.on_status_message_fast`. There is one difference: the regular poll of a
publication to which nothing has happened does not count as a poll for the next offer, which may
leave at once where it would have left with the next turn of the loop.

In Python no way is shorter than the usual one, so these classes leave everything to it. The
compiled twins do not call Python for a frame. An object of a derived class goes the usual way,
since that may do more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from aeron_async._speedups import WHY_PURE

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from aeron_async.counters import Counter
    from aeron_async.driver.core.outbox import (
        Address,
        HeartbeatBatch,
        ReceiveDestination,
        ReportBatch,
    )
    from aeron_async.driver.core.publication import PublicationState

__all__ = [
    "HeartbeatsIn",
    "HeartbeatsOut",
    "ReportsIn",
    "ReportsOut",
]


@final
class HeartbeatsOut:
    """Lets heartbeats of publications leave with a batch.

    Args:
        kind: The class of the publications.
        schedule: The `Schedule` that gets their next deadlines.
        batch: What they leave with.
        heartbeats_sent: That counter.
        bytes_sent: That counter.
        active: The state of a publication that is offered to.
        interval_ns: The interval of heartbeats.
        rest_ns: The longest time between two polls of a publication.
    """

    def __init__(
        self,
        kind: type[Any],
        schedule: Any,
        batch: HeartbeatBatch,
        heartbeats_sent: Counter,
        bytes_sent: Counter,
        active: PublicationState,
        interval_ns: int,
        rest_ns: int,
    ) -> None:
        del kind, schedule, batch, heartbeats_sent, bytes_sent, active, interval_ns, rest_ns

    def send(self, publications: list[Any], index: int, now_ns: int, due_ns: int) -> int:
        """Let the heartbeats leave that are due by `due_ns`, from an index on.

        Return the index of the first publication that must be asked; all before it are scheduled.
        """
        del publications, now_ns, due_ns
        return index


@final
class ReportsOut:
    """Lets periodic status messages of images leave with a batch.

    Args:
        kind: The class of the images.
        schedule: The `Schedule` that gets their next deadlines.
        batch: What they leave with.
        alive_ns: How long after its last datagram a source is sent to.
    """

    def __init__(self, kind: type[Any], schedule: Any, batch: ReportBatch, alive_ns: int) -> None:
        del kind, schedule, batch, alive_ns

    def send(self, images: list[Any], index: int, now_ns: int, due_ns: int) -> int:
        """Let the status messages leave that are due by `due_ns`, from an index on.

        Return the index of the first image that must be asked; all before it are scheduled.
        """
        del images, now_ns, due_ns
        return index


@final
class HeartbeatsIn:
    """Takes heartbeats that arrive together and say nothing new.

    Args:
        kind: The class of the images.
        streams: The dispatcher's streams, by their ids.
        heartbeats_received: That counter.
    """

    def __init__(
        self, kind: type[Any], streams: Mapping[int, Any], heartbeats_received: Counter
    ) -> None:
        del kind, streams, heartbeats_received

    def take(
        self,
        data: memoryview,
        start: int,
        end: int,
        source: Address,
        destination: ReceiveDestination,
        now_ns: int,
    ) -> int:
        """Take the heartbeats in a range of datagrams of 32 bytes; return how many bytes it took.

        They are from one source, and were received by `destination`.
        """
        del data, start, end, source, destination, now_ns
        return 0


@final
class ReportsIn:
    """Takes status messages that arrive together and raise no limit.

    Args:
        kind: The class of the publications.
        publications: The publications, by their session and stream ids.
        reports_received: The counter of status messages.
    """

    def __init__(
        self,
        kind: type[Any],
        publications: Mapping[tuple[int, int], Any],
        reports_received: Counter,
    ) -> None:
        del kind, publications, reports_received

    def take(self, data: memoryview, start: int, now_ns: int) -> int:
        """Take datagrams of 36 bytes from `start` on; return how many bytes it took."""
        del data, start, now_ns
        return 0


if not TYPE_CHECKING and WHY_PURE is None:
    from aeron_async._speedups.silence import HeartbeatsIn, HeartbeatsOut, ReportsIn, ReportsOut
