"""Statistics for tests: one stream of each kind, or many."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import attrs

from aeron_async.stats import (
    ArchiveStats,
    BudgetStats,
    CycleStats,
    DriverStats,
    ImageStats,
    LossStats,
    PublicationStats,
    ReaderStats,
    ReceiverStats,
    RecordingStats,
    SocketStats,
    Stats,
    SubscriptionStats,
    Table,
)
from aeron_async.stats_columns import names_of

if TYPE_CHECKING:
    from collections.abc import Sequence

Row = TypeVar("Row")
SECOND_NS = 1_000_000_000
FAST = ReceiverStats("receiver", "0a", "10.0.0.1:4000", 9_000, 1_000, 5, 1_000)
SLOW = ReceiverStats("receiver", "0b", "10.0.0.2:4000", 7_000, 2_000, 5, 3_000)

PUBLICATION = PublicationStats(
    registration_id=1,
    channel="aeron:udp?endpoint=127.0.0.1:20121",
    stream_id=1001,
    session_id=-7,
    state="active",
    is_connected=True,
    is_exclusive=False,
    position=10_000,
    position_limit=12_000,
    sender_position=10_000,
    sender_limit=10_000,
    window_bytes=2_000,
    backlog_bytes=0,
    message_count=50,
    blocked_sender_limit_ns=SECOND_NS,
    blocked_publisher_limit_ns=0,
    blocked_not_connected_ns=0,
    blocked_by="sender_limit",
    back_pressure_count=3,
    nak_count=2,
    retransmit_count=2,
    retransmitted_bytes=500,
    receiver_count=2,
    receivers=(SLOW, FAST),
)
IMAGE = ImageStats(
    registration_id=2,
    channel="aeron:udp?endpoint=127.0.0.1:20121",
    stream_id=1001,
    session_id=-7,
    source="127.0.0.1:4000",
    state="active",
    is_end_of_stream=False,
    position=9_000,
    hwm_position=10_000,
    missing_bytes=1_000,
    window_bytes=131_072,
    lag_bytes=500,
    lag_ns=1_000,
    received_bytes=9_000,
    silent_ns=10,
    nak_count=2,
    status_message_count=9,
    losses=(LossStats("gap", 2, 3_000), LossStats("forged", 1, 100)),
    readers=(ReaderStats(3, 8_500, 500),),
)
SUBSCRIPTION = SubscriptionStats(3, "aeron:udp?endpoint=127.0.0.1:20121", 1001, 1, 40, 500, 1_000)
DRIVER = DriverStats(
    pid=42,
    started_ns=1_700_000_000_000_000_000,
    version="1.2.3",
    is_pure=False,
    loop_lag_count=1,
    loop_lag_max_ns=2_000,
    loop_lags=(0, 1),
    loop_lag_ns=2_000,
    cycles=(CycleStats("sender", 5, 0),),
    budgets=(BudgetStats("image_logs_bytes", 1, 2),),
    sockets=(SocketStats("127.0.0.1:20121", 3, 0, 212_992),),
    counters={"bytes_sent": 100},
    limits={"images_refused": 1},
)
RECORDING = RecordingStats(
    recording_id=5,
    channel="aeron:udp?endpoint=127.0.0.1:20121",
    stream_id=1001,
    session_id=-7,
    start_position=1_024,
    position=9_024,
    image_position=9_984,
    lag_bytes=960,
    recorded_bytes=8_000,
    state="recording",
)


def archive(*recordings: RecordingStats, recorded_bytes: int | None = None) -> ArchiveStats:
    """Return the statistics of an archive that records these, and one that has stopped."""
    recorded = sum(each.recorded_bytes for each in recordings)
    return ArchiveStats(
        archive_id=77,
        free_bytes=1 << 40,
        free_age_ns=3,
        low_space_limit_bytes=1 << 27,
        recording_count=len(recordings) + 1,
        active_count=len(recordings),
        replay_count=2,
        refused_image_count=4,
        failed_count=1,
        recorded_bytes=recorded if recorded_bytes is None else recorded_bytes,
        recordings=Table.of(RecordingStats, recordings),
    )


ARCHIVE = archive(RECORDING)


def snapshot(
    publications: Sequence[PublicationStats] = (),
    images: Sequence[ImageStats] = (),
    subscriptions: Sequence[SubscriptionStats] = (),
    *,
    driver: DriverStats = DRIVER,
    at_ns: int = SECOND_NS,
) -> Stats:
    """Return a snapshot of these rows."""
    return Stats(
        source="driver",
        epoch_ns=at_ns,
        monotonic_ns=at_ns,
        publications=Table.of(PublicationStats, publications),
        images=Table.of(ImageStats, images),
        subscriptions=Table.of(SubscriptionStats, subscriptions),
        driver=driver,
    )


def stats(
    publication: PublicationStats = PUBLICATION,
    image: ImageStats = IMAGE,
    *,
    at_ns: int = SECOND_NS,
    driver: DriverStats = DRIVER,
) -> Stats:
    """Return a snapshot of one stream of each kind."""
    return snapshot([publication], [image], [SUBSCRIPTION], driver=driver, at_ns=at_ns)


def stats_of_many(count: int, *, at_ns: int = SECOND_NS) -> Stats:
    """Return a snapshot with so many publications, images and subscriptions.

    Its columns are made when they are looked at, as those of a driver are.
    """
    return attrs.evolve(
        stats(at_ns=at_ns),
        publications=table_of(PUBLICATION, count),
        images=table_of(IMAGE, count),
        subscriptions=table_of(SUBSCRIPTION, count),
    )


def table_of(row: Row, count: int) -> Table[Row]:
    """Return a table of rows that differ by their registration ids."""
    columns: list[list[object]] = [[getattr(row, name)] * count for name in names_of(type(row))]
    columns[0] = [10 * number for number in range(count)]
    return Table(type(row), count, columns.copy)
