"""Statistics of any driver on this machine, from its table of counters and its loss report.

An official driver and one of this package, in this process or another, look the same here. Counters
are read one after the other while the driver moves them. What no counter tells is None or empty: a
counter that is missing never becomes 0.

Invariant: the positions and counts are those that `AeronStat` shows; see `stream_positions`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from struct import Struct
from typing import TYPE_CHECKING, Final, Self, final

from aeron_async.aeron_directory import DRIVER_TIMEOUT_MS, AeronDirectory
from aeron_async.clock import NS_PER_MS, SystemClock
from aeron_async.driver.core.stream_counters import STREAM_KEY_CHANNEL_LENGTH
from aeron_async.driver.core.system_counters import (
    DRIVER_COUNTER_TYPE_ID,
    SYSTEM_COUNTER_TYPE_ID,
    DriverCounterId,
    SystemCounterId,
)
from aeron_async.driver.stream_positions import StreamPositions, distance
from aeron_async.errors import DriverError
from aeron_async.protocol.units import INT64_MAX
from aeron_async.stats import (
    CycleStats,
    DriverStats,
    ImageStats,
    LossStats,
    PublicationStats,
    ReaderStats,
    ReceiverStats,
    Stats,
    SubscriptionStats,
    Table,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Sequence
    from types import TracebackType

    from aeron_async.clock import Clock
    from aeron_async.concurrent.cnc_file import CncLayout
    from aeron_async.concurrent.loss_report import StreamLoss
    from aeron_async.counters import CounterRecord
    from aeron_async.driver.stream_positions import (
        ImageFigures,
        PublicationFigures,
        SubscriberFigures,
    )

__all__ = ["CncSource", "stats_of_counters"]

AGENTS: Final = ("conductor", "sender", "receiver")
RESOLVER_CYCLES: Final = ("name_resolver_max_time", "name_resolver_time_threshold_exceeded")
SYSTEM_NAMES: Final = {each.value: each.name.lower() for each in SystemCounterId}
DRIVER_NAMES: Final = {each.value: each.name.lower() for each in DriverCounterId}
LIMIT_REACHED: Final = "limit reached"
"""How the label of a counter ends that counts how often a limit was reached."""
NO_OWNER_ID: Final = -1
VERSION: Final = re.compile(r"version=(\S+)")

_COUNTER_KEY: Final = Struct("<i")

LossKey = tuple[int, int, str]


def stats_of_counters(
    records: Iterable[CounterRecord],
    *,
    pid: int,
    epoch_ns: int,
    monotonic_ns: int,
    losses: Iterable[StreamLoss] = (),
    version: str | None = None,
    started_ns: int | None = None,
) -> Stats:
    """Return what a table of counters tells about a driver and its streams.

    A stream without a position, as for a moment while it is added, is left out. So is a
    subscription while it has no image: it has no counter then.

    Args:
        records: The allocated counters.
        pid: Process id of the driver.
        epoch_ns: Wall-clock time at which they were read.
        monotonic_ns: The same by the monotonic clock of the machine.
        losses: The loss report, by which an image is given what was lost of its session, stream
            and channel; that is more than its own if the session was there before.
        version: Version of the driver; None if the label of its counter says it.
        started_ns: When the driver started, by the wall clock; None if unknown.
    """
    found = list(records)
    positions = StreamPositions.of_counters(found)
    lost: dict[LossKey, LossStats] = defaultdict(lambda: LossStats("gap", 0, 0))
    for each in losses:
        key = each.session_id, each.stream_id, cut(each.channel)
        before = lost[key]
        lost[key] = LossStats(
            before.cause,
            before.count + each.observation_count,
            before.bytes + each.total_bytes_lost,
        )
    publications = (publication_stats(each) for each in positions.publications)
    images = (image_stats(each, lost) for each in positions.images)
    return Stats(
        source="counters",
        epoch_ns=epoch_ns,
        monotonic_ns=monotonic_ns,
        publications=Table.of(PublicationStats, [each for each in publications if each]),
        images=Table.of(ImageStats, [each for each in images if each]),
        subscriptions=Table.of(SubscriptionStats, subscription_stats(positions)),
        driver=driver_stats(found, pid=pid, version=version, started_ns=started_ns),
    )


def cut(channel: str) -> str:
    """Return as much of a channel as the keys of counters hold."""
    return channel.encode("utf-8", "replace")[:STREAM_KEY_CHANNEL_LENGTH].decode("utf-8", "replace")


def publication_stats(figures: PublicationFigures) -> PublicationStats | None:
    """Return the statistics of a publication; None while one of its positions is missing."""
    position, limit = figures.counted_position, figures.limit
    if position is None or limit is None:
        return None
    is_ipc = figures.sender_position is None
    readers = tuple(
        ReceiverStats(
            kind="ipc" if is_ipc else "spy",
            id=str(each.key.registration_id),
            address="",
            position=each.position,
            window_bytes=None,
            silent_ns=None,
            lag_bytes=max(position - each.position, 0),
        )
        for each in sorted(figures.subscribers, key=lambda each: each.position)
    )
    backlog = distance(position, figures.sender_position)
    if is_ipc and readers:
        backlog = readers[0].lag_bytes
    return PublicationStats(
        registration_id=figures.key.registration_id,
        channel=figures.channel,
        stream_id=figures.key.stream_id,
        session_id=figures.key.session_id,
        state="",
        is_connected=None,
        is_exclusive=bool(figures.is_exclusive),
        position=position,
        position_limit=limit,
        sender_position=figures.sender_position,
        sender_limit=figures.sender_limit,
        window_bytes=max(limit - position, 0),
        backlog_bytes=backlog,
        message_count=None,
        blocked_sender_limit_ns=None,
        blocked_publisher_limit_ns=None,
        blocked_not_connected_ns=None,
        blocked_by="",
        back_pressure_count=figures.back_pressure_events,
        nak_count=figures.naks_received,
        retransmit_count=None,
        retransmitted_bytes=None,
        receiver_count=figures.receivers,
        receivers=readers,
    )


def image_stats(figures: ImageFigures, lost: dict[LossKey, LossStats]) -> ImageStats | None:
    """Return the statistics of an image; None while one of its positions is missing."""
    position, hwm_position = figures.position, figures.highest_position
    if position is None or hwm_position is None:
        return None
    key = figures.key
    lost_key = key.session_id, key.stream_id, key.channel
    readers = tuple(
        ReaderStats(
            each.key.registration_id, each.position, lag_bytes=max(position - each.position, 0)
        )
        for each in figures.subscribers
    )
    return ImageStats(
        registration_id=key.registration_id,
        channel=figures.channel,
        stream_id=key.stream_id,
        session_id=key.session_id,
        source="",
        state="",
        is_end_of_stream=None,
        position=position,
        hwm_position=hwm_position,
        missing_bytes=max(hwm_position - position, 0),
        window_bytes=figures.chosen_window,
        lag_bytes=max((each.lag_bytes for each in readers), default=0),
        lag_ns=None,
        received_bytes=None,
        silent_ns=None,
        nak_count=figures.naks_sent,
        status_message_count=None,
        losses=(lost[lost_key],) if lost_key in lost else (),
        readers=readers,
    )


def subscription_stats(positions: StreamPositions) -> list[SubscriptionStats]:
    """Return the subscriptions that read something."""
    read: dict[int, list[tuple[SubscriberFigures, int]]] = defaultdict(list)
    sources: Sequence[PublicationFigures | ImageFigures] = (
        *positions.publications,
        *positions.images,
    )
    for source in sources:
        for each in source.subscribers:
            if (lag := distance(source.position, each.position)) is not None:
                read[each.key.registration_id].append((each, lag))
    return [
        SubscriptionStats(
            registration_id=registration_id,
            channel=parts[0][0].channel,
            stream_id=parts[0][0].key.stream_id,
            image_count=len(parts),
            message_count=None,
            lag_bytes=max(lag for _, lag in parts),
            lag_ns=None,
        )
        for registration_id, parts in read.items()
    ]


def driver_stats(
    records: Sequence[CounterRecord], *, pid: int, version: str | None, started_ns: int | None
) -> DriverStats:
    """Return what the counters of a driver, and of its limits, tell about itself."""
    named = {name: each for each in records if (name := name_of(each)) is not None}
    values = {name: each.value for name, each in named.items()}
    if version is None:
        software = named.get("aeron_version") or named.get("errors")
        match = None if software is None else VERSION.search(software.label)
        version = "" if match is None else match[1]
    cycles = [
        (each, f"{each}_max_cycle_time", f"{each}_cycle_time_threshold_exceeded") for each in AGENTS
    ]
    return DriverStats(
        pid=pid,
        started_ns=started_ns,
        version=version,
        is_pure=None,
        loop_lag_count=values.get("loop_lag_count"),
        loop_lag_max_ns=values.get("loop_lag_max_ns"),
        loop_lags=(),
        loop_lag_ns=None,
        cycles=tuple(
            CycleStats(agent, values[longest], values[exceeded])
            for agent, longest, exceeded in (*cycles, ("name_resolver", *RESOLVER_CYCLES))
            if longest in values and exceeded in values
        ),
        budgets=(),
        sockets=(),
        counters=values,
        limits={
            name: each.value
            for name, each in named.items()
            if each.value > 0 and each.label.endswith(LIMIT_REACHED)
        },
    )


def name_of(record: CounterRecord) -> str | None:
    """Return the name of a counter of a driver itself; None if it belongs to another thing."""
    number = int(_COUNTER_KEY.unpack_from(record.key)[0])
    # An application may give its own counters any type, but neither such an id nor no owner.
    if record.type_id == SYSTEM_COUNTER_TYPE_ID and record.counter_id == number:
        return SYSTEM_NAMES.get(number, f"system_{number}")
    if record.type_id == DRIVER_COUNTER_TYPE_ID and record.owner_id == NO_OWNER_ID:
        return DRIVER_NAMES.get(number, f"driver_{number}")
    return None


def started_ns_of(layout: CncLayout) -> int | None:
    """Return when the driver of a directory started; None for what can be no such time."""
    started_ns = layout.start_timestamp_ms * NS_PER_MS
    return started_ns if 0 < started_ns <= INT64_MAX else None


@final
class CncSource:
    """Takes statistics of the driver of an Aeron directory, which may be another process.

    The directory is opened by the first `take`, for reading only, and again when a driver has
    started anew. Close the source, or use it in a `with` statement.

    Args:
        directory: The Aeron directory.
        clock: Times of snapshots, and the age of the driver's heartbeat.
    """

    def __init__(self, directory: str | os.PathLike[str], *, clock: Clock | None = None) -> None:
        self._place = directory
        self._clock = SystemClock() if clock is None else clock
        self._open: AeronDirectory | None = None

    def take(self) -> Stats:
        """Return the statistics as they are now.

        Raises:
            DriverError: There is no driver, or it has not finished its start, or it shows no life,
                or this user may not read its files.
            ProtocolError: A file is of another version, damaged, or no plain file.
            ConfigurationError: The compiled code is missing.
        """
        if self._open is not None and self._open.is_replaced():
            self.close()
        if self._open is None:
            self._open = AeronDirectory.open(self._place)
        directory, epoch_ns = self._open, self._clock.epoch_ns()
        why_not = directory.why_not_active(epoch_ns // NS_PER_MS, DRIVER_TIMEOUT_MS)
        if why_not is not None:
            self.close()
            raise DriverError(why_not)
        return stats_of_counters(
            directory.counter_records(),
            pid=directory.layout.pid,
            epoch_ns=epoch_ns,
            monotonic_ns=self._clock.now_ns(),
            losses=directory.losses(),
            started_ns=started_ns_of(directory.layout),
        )

    def close(self) -> None:
        """Close the directory; a later `take` opens it again."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
