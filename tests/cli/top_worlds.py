"""Synthetic statistics for `aeron-async top`: worlds in which one thing goes wrong, and sources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs

from aeron_async.cli.top_model import TopModel
from aeron_async.cli.top_scene import TopKey, TopRow, TopScene, json_of_driver
from aeron_async.stats import (
    BudgetStats,
    CycleStats,
    DriverStats,
    ImageStats,
    LossStats,
    PublicationStats,
    ReaderStats,
    ReceiverStats,
    SocketStats,
    Stats,
    SubscriptionStats,
)
from tests import snapshots

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SECOND_NS: Final = snapshots.SECOND_NS
EPOCH_NS: Final = 1_700_000_000 * SECOND_NS
LAGGING: Final = ReceiverStats("receiver", "0b", "10.0.0.2:4000", 0, 131_072, 5, 131_072)
RECEIVER: Final = ReceiverStats("receiver", "0a", "10.0.0.1:4000", 0, 131_072, 5, 0)

# The rows of other tests, before anything has happened.
PUBLICATION: Final = attrs.evolve(
    snapshots.PUBLICATION,
    position=0,
    position_limit=131_072,
    sender_position=0,
    sender_limit=131_072,
    window_bytes=131_072,
    message_count=0,
    blocked_sender_limit_ns=0,
    blocked_by="",
    back_pressure_count=0,
    nak_count=0,
    retransmit_count=0,
    retransmitted_bytes=0,
    receiver_count=1,
    receivers=(RECEIVER,),
)
IMAGE: Final = attrs.evolve(
    snapshots.IMAGE,
    position=0,
    hwm_position=0,
    missing_bytes=0,
    lag_bytes=0,
    lag_ns=0,
    received_bytes=0,
    nak_count=0,
    losses=(),
    readers=(ReaderStats(3, 0, 0),),
)
SUBSCRIPTION: Final = attrs.evolve(snapshots.SUBSCRIPTION, message_count=0, lag_bytes=0, lag_ns=0)
DRIVER: Final = attrs.evolve(
    snapshots.DRIVER,
    loop_lag_count=0,
    cycles=(CycleStats("sender", 5_000, 0),),
    budgets=(BudgetStats("image_logs_bytes", 1_000, 1_000_000),),
    sockets=(SocketStats("127.0.0.1:20121", 0, 0, 212_992),),
    counters={"bytes_sent": 0, "bytes_received": 0},
    limits={},
)


def stats(
    at: float,
    publications: Sequence[PublicationStats] = (),
    images: Sequence[ImageStats] = (),
    subscriptions: Sequence[SubscriptionStats] = (),
    driver: DriverStats = DRIVER,
) -> Stats:
    """Return a snapshot at a second."""
    at_ns = int(at * SECOND_NS)
    return attrs.evolve(
        snapshots.snapshot(publications, images, subscriptions, driver=driver, at_ns=at_ns),
        epoch_ns=EPOCH_NS + at_ns,
    )


def publication(at: float = 0, **changes: Any) -> PublicationStats:
    """Return a publication that sends a megabyte a second, but for what is changed."""
    sent = int(at * 1_000_000)
    usual = {"position": sent, "sender_position": sent, "message_count": int(at * 1_000)}
    return attrs.evolve(PUBLICATION, **usual | changes)


def image(at: float = 0, **changes: Any) -> ImageStats:
    """Return an image that receives a megabyte a second, but for what is changed."""
    received = int(at * 1_000_000)
    usual = {"position": received, "hwm_position": received, "received_bytes": received}
    return attrs.evolve(IMAGE, **usual | changes)


def driver(**changes: Any) -> DriverStats:
    """Return a driver, but for what is changed."""
    return attrs.evolve(DRIVER, **changes)


def healthy(at: float) -> Stats:
    """Return a snapshot in which a publication, an image and their driver do well."""
    subscription = attrs.evolve(SUBSCRIPTION, message_count=int(at * 1_000))
    return stats(at, [publication(at)], [image(at)], [subscription])


def seen(*snapshots: Stats) -> TopScene:
    """Return the picture after these snapshots."""
    model = TopModel()
    for each in snapshots:
        model.on_stats(each)
    return model.scene()


def row(scene: TopScene, kind: str, registration_id: int) -> TopRow:
    """Return the row of a stream, which must be there."""
    found = scene.row(TopKey("42", kind, registration_id))
    assert found is not None
    return found


def json_rows(scene: TopScene, name: str) -> list[dict[str, object]]:
    """Return the rows of a driver as JSON has them."""
    rows = json_of_driver(scene, name, scene.rows)["rows"]
    assert isinstance(rows, list)
    return rows


@attrs.frozen
class TopWorld:
    """A world with a trouble.

    Attributes:
        take: Returns its statistics at a second.
        kind: What the troubled row is of.
        registration_id: Of the troubled row.
        word: The cause.
        sentence: A part of what is said of it.
        remedy: A part of what is to be changed.
    """

    take: Callable[[float], Stats]
    kind: str
    registration_id: int
    word: str
    sentence: str
    remedy: str


def beside(at: float) -> tuple[PublicationStats, ImageStats]:
    """Return streams that do well, with ids that come first."""
    return (
        publication(at, registration_id=11, stream_id=11),
        image(at, registration_id=12, stream_id=12),
    )


def slow_reader(at: float) -> Stats:
    slow = ReceiverStats("receiver", "0b", "10.0.0.2:4000", 7_000, 0, 5, 3_000)
    held = publication(
        at / 10,
        receivers=(slow, RECEIVER),
        blocked_by="sender_limit",
        blocked_sender_limit_ns=int(at * 0.9 * SECOND_NS),
    )
    good_publication, good_image = beside(at)
    return stats(at, [good_publication, held], [good_image])


def slow_reader_here(at: float) -> Stats:
    good_publication, good_image = beside(at)
    behind = image(
        at / 10,
        lag_bytes=120_000,
        lag_ns=int(at * SECOND_NS),
        readers=(ReaderStats(3, 0, 120_000), ReaderStats(4, 119_000, 1_000)),
    )
    return stats(at, [good_publication], [good_image, behind])


def two_percent(at: float) -> Stats:
    good_publication, good_image = beside(at)
    lost = LossStats("gap", int(at * 14), int(at * 20_000))
    return stats(
        at, [good_publication], [good_image, image(at, losses=(lost,), nak_count=int(at * 14))]
    )


def small_buffer(at: float) -> Stats:
    good_publication, good_image = beside(at)
    losses = (
        LossStats("gap", int(at), int(at * 100)),
        LossStats("socket_drop", int(at * 30), int(at * 1_200_000)),
    )
    full = SocketStats("127.0.0.1:20121", int(at * 40), 212_000, 212_992)
    return stats(
        at,
        [good_publication],
        [good_image, image(at, losses=losses)],
        driver=driver(sockets=(full,)),
    )


def blocked_loop(at: float) -> Stats:
    good_publication, good_image = beside(at)
    late = driver(
        loop_lag_count=int(at * 3),
        loop_lag_max_ns=312_000_000,
        loop_lags=(*(0,) * 29, int(at * 3)),
        loop_lag_ns=int(at * 900_000_000),
    )
    behind = image(at / 10, lag_bytes=100_000, lag_ns=300_000_000)
    return stats(at, [good_publication], [good_image, behind], driver=late)


def forger(at: float) -> Stats:
    good_publication, good_image = beside(at)
    refused = LossStats("forged", int(at * 500), int(at * 700_000))
    return stats(at, [good_publication], [good_image, image(at, losses=(refused,))])


def full_budget(at: float) -> Stats:
    good_publication, good_image = beside(at)
    waiting = attrs.evolve(SUBSCRIPTION, registration_id=5, stream_id=1005, image_count=0)
    full = driver(
        budgets=(BudgetStats("image_logs_bytes", 1_000_000, 1_000_000),),
        limits={"images_refused": int(at * 2)},
    )
    return stats(at, [good_publication], [good_image], [waiting], driver=full)


WORLDS: Final = {
    "slow reader at a receiver": TopWorld(
        slow_reader,
        *("pub", 1, "sender_limit"),
        "receiver 0b at 10.0.0.2:4000 holds it back: 3,000 bytes behind",
        "rcv-wnd (AERON_RCV_INITIAL_WINDOW_LENGTH)",
    ),
    "slow reader here": TopWorld(
        slow_reader_here,
        *("img", 2, "slow_reader"),
        "subscription 3 reads too slowly: 120,000 bytes behind",
        "tether=false",
    ),
    "two percent": TopWorld(
        two_percent, *("img", 2, "gap"), "20.0 kB/s lost by gap", "mtu (AERON_MTU_LENGTH)"
    ),
    "small buffer": TopWorld(
        small_buffer,
        *("img", 2, "socket_drop"),
        "1.2 MB/s lost by socket_drop",
        "raise so-rcvbuf (AERON_SOCKET_SO_RCVBUF) and net.core.rmem_max: 212,992 bytes hold 92",
    ),
    "blocked loop": TopWorld(
        blocked_loop,
        *("img", 2, "loop_lag"),
        "the event loop of driver 42 was late by up to 312 ms",
        "move blocking work out of the event loop",
    ),
    "forger": TopWorld(forger, *("img", 2, "forged"), "700.0 kB/s refused as forged", "firewall"),
    "full budget": TopWorld(
        full_budget,
        *("sub", 5, "limit"),
        "limit images_refused was reached 2 times in 1 s; budget image_logs_bytes is 100 % used",
        "raise AERON_ASYNC_IMAGE_LOG_BUDGET_LENGTH",
    ),
}


class FakeSource:
    """A source whose snapshots are a second apart, and that can fail or hang."""

    def __init__(
        self, take: Callable[[float], Stats] = healthy, name: str = "/run/app.sock"
    ) -> None:
        self.name = name
        self.take_at = take
        self.taken = 0
        self.error: Exception | None = None
        self.is_closed = False
        self.remark = ""

    async def take(self) -> Stats:
        self.taken += 1
        if self.error is not None:
            raise self.error
        return self.take_at(float(self.taken))

    async def aclose(self) -> None:
        self.is_closed = True
