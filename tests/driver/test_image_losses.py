"""What an image says it has lost: each gap once, when the driver acts on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from aeron_async.concurrent.loss_report import LossReport, StreamLoss, read_loss_report
from aeron_async.driver import storage
from aeron_async.driver.core.feedback_delay import StaticDelay
from aeron_async.driver.core.losses import Losses
from aeron_async.driver.images import StreamLossRecorder
from aeron_async.testing import simulate
from aeron_async.testing.fates import Conditions
from tests.driver.fakes import MS, US, data, heartbeat
from tests.driver.rigs import ImageRig
from tests.logbuffer.logs import TERM_LENGTH

if TYPE_CHECKING:
    import pytest

    from aeron_async.testing.world import World

CHANNEL = "aeron:udp?endpoint=bob:20121"


class LosingImage(ImageRig):
    """An image, and the losses it has recorded."""

    def __init__(self, *, is_reliable: bool = True, delay_ns: int = 0, join: int = 0) -> None:
        self.lost: list[int] = []
        super().__init__(
            is_reliable=is_reliable,
            feedback_delay=StaticDelay(initial_ns=delay_ns, retry_ns=100 * US),
            join_position=join,
            losses=Losses(self.lost.append),
        )
        self.image.poll(0)
        self.outbox.take()

    def arrive(self, *positions: int, now_ns: int = 0) -> None:
        for position in positions:
            self.feed(data(position, 64), now_ns)
        self.image.poll(now_ns)


def test_a_gap_is_recorded_with_its_first_nak_alone() -> None:
    losses = LosingImage()
    losses.arrive(128)
    for now_us in range(1, 501):
        losses.image.poll(now_us * US)
    assert len(losses.naks()) > 2
    assert losses.lost == [128]


def test_what_arrives_before_the_nak_is_not_lost() -> None:
    losses = LosingImage(delay_ns=1 * MS)
    losses.arrive(64)
    losses.arrive(0, now_ns=999 * US)
    losses.image.poll(2 * MS)
    assert losses.naks() == []
    assert losses.lost == []


def test_gaps_behind_the_first_are_recorded_when_they_are_asked_for_and_not_again() -> None:
    losses = LosingImage()
    losses.arrive(64, 256)
    assert losses.lost == [64, 128]
    losses.arrive(0, now_ns=10 * US)
    for now_us in range(100, 501):
        losses.image.poll(now_us * US)
    assert losses.naks()[-1] == (128, 128), "it is the first gap now, and was asked for again"
    assert losses.lost == [64, 128]


def test_a_gap_that_grows_is_recorded_as_far_as_it_is_new() -> None:
    losses = LosingImage()
    losses.feed(heartbeat(64), 0)
    losses.image.poll(0)
    losses.feed(heartbeat(192), 10 * US)
    losses.image.poll(100 * US)
    assert losses.lost == [64, 128]


def test_the_rest_of_a_gap_is_not_recorded_again() -> None:
    losses = LosingImage()
    losses.arrive(256)
    losses.arrive(0, now_ns=10 * US)
    losses.arrive(192, now_ns=20 * US)
    losses.image.poll(1 * MS)
    assert losses.lost == [256]


def test_a_first_gap_that_is_asked_for_after_those_behind_it_is_recorded_as_well() -> None:
    losses = LosingImage(delay_ns=1 * MS)
    losses.arrive(192, 320)
    # It shrinks, and waits anew; what lies behind it does not.
    losses.arrive(128, now_ns=999 * US)
    losses.image.poll(1 * MS)
    assert losses.lost == [64]
    losses.image.poll(1_999 * US)
    assert losses.lost == [64, 128]


def test_a_gap_across_terms_is_two_losses() -> None:
    losses = LosingImage(join=TERM_LENGTH - 64)
    losses.arrive(TERM_LENGTH + 64)
    losses.arrive(TERM_LENGTH - 64, now_ns=10 * US)
    losses.image.poll(200 * US)
    assert losses.lost == [64, 64]


def test_an_unreliable_stream_records_what_it_fills() -> None:
    losses = LosingImage(is_reliable=False)
    losses.arrive(64, 256)
    losses.image.poll(1 * MS)
    assert losses.lost == [64, 128]
    assert losses.naks() == []


# The report.


def recorder(report: LossReport, *times_ms: int) -> StreamLossRecorder:
    return StreamLossRecorder(
        report,
        iter(times_ms).__next__,
        session_id=-7,
        stream_id=1001,
        channel=CHANNEL,
        source="127.0.0.1:40086",
    )


def test_an_image_has_one_entry_which_its_first_loss_makes() -> None:
    buffer = bytearray(4096)
    losses = recorder(LossReport(buffer), 5_000, 5_020)
    assert list(read_loss_report(buffer)) == []
    losses.on_loss(1_408)
    losses.on_loss(64)
    assert list(read_loss_report(buffer)) == [
        StreamLoss(
            observation_count=2,
            total_bytes_lost=1_472,
            first_observation_ms=5_000,
            last_observation_ms=5_020,
            session_id=-7,
            stream_id=1001,
            channel=CHANNEL,
            source="127.0.0.1:40086",
        )
    ]


def test_an_image_whose_entry_does_not_fit_does_not_try_again() -> None:
    report = LossReport(bytearray(64))
    losses = recorder(report, 5_000)
    losses.on_loss(64)
    losses.on_loss(64)
    assert report.refused_count == 1


def test_a_driver_reports_what_each_image_has_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = bytearray(4096)
    shared = LossReport(buffer)
    monkeypatch.setattr(storage, "LossReport", lambda _own: shared)

    async def story(world: World) -> tuple[int, int]:
        alice, bob = world.host("alice"), world.host("bob")
        async with alice.aeron() as sending, bob.aeron() as receiving:
            subscription = await receiving.add_subscription(CHANNEL, 1001)
            publication = await sending.add_exclusive_publication(CHANNEL, 1001)
            for number in range(200):
                await publication.offer(number.to_bytes(2, "little") * 500)
            taken = [(await anext(subscription)).data[:2] for _ in range(200)]
            assert taken == [number.to_bytes(2, "little") for number in range(200)]
            (image,) = subscription.images
            return image.session_id, publication.session_id

    theirs, ours = simulate(story, seed=3, conditions=Conditions(loss=0.1))
    assert theirs == ours
    (entry,) = read_loss_report(buffer)
    assert attrs.asdict(entry) | {
        "session_id": ours,
        "stream_id": 1001,
        "channel": CHANNEL,
    } == attrs.asdict(entry)
    assert entry.source.rpartition(":")[0] == "10.0.0.1"
    assert entry.observation_count > 5
    assert entry.total_bytes_lost >= entry.observation_count * 1_056
