"""A stranger who contradicts what an honest publisher sent does not end its stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aeron_async.driver.core import image_doubts
from aeron_async.driver.core.image_state import ImageEndReason
from aeron_async.driver.core.system_counters import DriverCounterId
from aeron_async.logbuffer.late_frames import shown_start
from aeron_async.protocol.header import DataFlags
from aeron_async.protocol.status_message import StatusMessage
from tests.driver.fakes import EOS, MS, SECOND, data, heartbeat, pad
from tests.driver.rigs import ImageRig, connect
from tests.driver.stage import Stage

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.logbuffer.log_buffers import LogBuffers


@pytest.fixture
def stage() -> Stage:
    stage = Stage()
    stage.send(20)
    return stage


def inside_a_frame(stage: Stage) -> bytes:
    return data(stage.starts[17] + 32, 96)


def at_a_frame(stage: Stage) -> bytes:
    return data(stage.starts[18], 32)


@pytest.mark.parametrize("forge", [inside_a_frame, at_a_frame])
def test_a_forger_who_repeats_a_contradiction_does_not_end_an_honest_stream(
    stage: Stage, forge: Callable[[Stage], bytes]
) -> None:
    """No frame of the publisher begins there, or it says itself what was sent."""
    datagram = forge(stage)
    for _ in range(100):
        stage.rig.feed(datagram, stage.now_ns)
        stage.pass_time(50 * MS)
    stage.send(20)
    stage.expect_everything()


def test_a_question_that_is_lost_proves_nothing(stage: Stage) -> None:
    """A NAK or its answer is lost like any datagram; the next question is answered."""
    datagram = at_a_frame(stage)
    for turn in range(30):
        stage.is_deaf = turn % 3 > 0
        stage.rig.feed(datagram, stage.now_ns)
        stage.pass_time(110 * MS)
    stage.expect_everything()


def test_a_place_that_the_publisher_no_longer_sends_again_is_not_in_doubt() -> None:
    """It could not answer, so that a forger would have the only word."""
    stage = Stage()
    stage.send(125, in_one_go=False)
    stage.pass_time(SECOND)
    stage.is_deaf = True
    datagram = data(stage.starts[stage.sent - 1] - stage.rig.log.term_length // 2 + 32, 32)
    assert stage.position > stage.rig.log.term_length // 2
    for _ in range(100):
        stage.rig.feed(datagram, stage.now_ns)
        stage.pass_time(50 * MS)
    stage.expect_everything()


@pytest.mark.parametrize("gap_ns", [0, MS, 40 * MS])
def test_a_burst_of_old_heartbeats_does_not_end_a_stream(stage: Stage, gap_ns: int) -> None:
    """Only heartbeats that come alone for long prove that the publisher is not as far."""
    for _ in range(200):
        stage.rig.feed(heartbeat(stage.starts[5]), stage.now_ns)
        if gap_ns:
            stage.pass_time(gap_ns)
    stage.settle()
    stage.pass_time(SECOND)
    stage.send(20)
    stage.expect_everything()


def test_an_end_further_on_than_a_forged_one_is_the_end(stage: Stage) -> None:
    """What lies between the two is asked for, not left out."""
    stage.rig.feed(heartbeat(stage.position, EOS), stage.now_ns)
    stage.send(2, lost=(20, 21))
    stage.rig.feed(heartbeat(stage.position, EOS), stage.now_ns)
    stage.settle()
    stage.pass_time(100 * MS, heartbeats=False)
    assert stage.read == [stage.message(index) for index in range(22)]


@pytest.mark.parametrize(
    ("flags", "reason"),
    [(EOS, ImageEndReason.END_OF_STREAM), (EOS | DataFlags.REVOKED, ImageEndReason.REVOKED)],
    ids=["closed", "revoked"],
)
def test_an_end_before_a_forged_one_is_the_end(
    stage: Stage, flags: DataFlags, reason: ImageEndReason
) -> None:
    """A publisher that is closed says where its stream ends, as often as it lingers."""
    stage.rig.feed(heartbeat(stage.starts[80], EOS), stage.now_ns)
    for _ in range(3):
        stage.pass_time(100 * MS, heartbeats=False)
        stage.rig.feed(heartbeat(stage.position, flags), stage.now_ns)
    stage.settle()
    ended = stage.image.life.ended
    assert ended is not None
    assert (ended.reason, ended.position) == (reason, stage.position)
    assert stage.rig[DriverCounterId.STREAM_ENDS_WITHDRAWN] == 1


def test_so_many_frames_are_looked_for_in_a_second(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To find where a frame begins takes long where datagrams are long."""
    looked_at: list[int] = []

    def counted(log: LogBuffers, position: int) -> int:
        looked_at.append(position)
        return shown_start(log, position)

    monkeypatch.setattr(image_doubts, "shown_start", counted)
    for count in range(2_000):
        place = stage.starts[17] + 32 * (count % 3)
        stage.rig.feed(data(place, 96 + 32 * (count % 7)), stage.now_ns)
    assert stage.rig[DriverCounterId.FRAME_CONFLICTS] >= 1_000
    assert len(looked_at) <= image_doubts.CONFLICTS_PER_SECOND


def test_forged_setups_do_not_end_an_image_whose_source_sends_heartbeats() -> None:
    rig = ImageRig()
    rig.image.poll(0)
    log = rig.log
    own = log.initial_term_id, log.term_length, log.mtu_length
    forged = log.initial_term_id, 2**20, log.mtu_length
    request_count = 0
    for tenth in range(1_000):
        now_ns = tenth * 100 * MS
        rig.feed(heartbeat(0), now_ns)
        requests = [each for each in rig.outbox.take_frames(StatusMessage) if each.is_setup_elicit]
        request_count += len(requests)
        for terms in [own] * len(requests) + [forged] * 5:
            connection = connect(rig.image, rig.outbox, rig.image.source, now_ns)
            rig.image.on_setup(
                terms,
                (terms[0], 0),
                destination=connection.destination,
                source=connection.source,
                now_ns=now_ns,
            )
        rig.image.poll(now_ns)
    assert rig.image.life.ended is None
    # Each time the source has answered, and half a minute later it is asked again.
    assert request_count == 4


def test_forged_heartbeats_do_not_hide_a_gap(stage: Stage) -> None:
    """While the publisher says that it has sent more, no other one stops the clock."""
    stage.is_deaf = True
    stage.send(4, lost=(21,))
    for _ in range(120):
        stage.pass_time(50 * MS)
        stage.rig.feed(heartbeat(stage.starts[21]), stage.now_ns)
        stage.settle()
    ended = stage.image.life.ended
    assert ended is not None
    assert ended.reason is ImageEndReason.GAP_UNFILLED


@pytest.mark.parametrize("lost", [(), (20,)], ids=str)
def test_padding_over_much_of_a_term_is_found_out(stage: Stage, lost: tuple[int, ...]) -> None:
    """Also where the frame is lost that begins where the padding does."""
    stage.rig.feed(pad(stage.position, 16_384), stage.now_ns)
    stage.settle()
    stage.send(20, lost=lost, in_one_go=False)
    stage.pass_time(2 * SECOND)
    ended = stage.image.life.ended
    assert ended is not None
    assert ended.reason is ImageEndReason.CONTRADICTED
    assert ended.start_position == stage.starts[20]
