"""A publication by hand: setup, connection, limits, heartbeats, NAKs."""

from __future__ import annotations

import pytest

from aeron_async.driver.core.context import DriverContext
from aeron_async.driver.core.receiver_liveness import MAX_RECEIVERS
from aeron_async.driver.core.system_counters import SystemCounterId
from aeron_async.protocol.data import DataHeader
from aeron_async.protocol.datagram import DataFrame, frames
from aeron_async.protocol.header import StatusMessageFlags
from aeron_async.protocol.setup import Setup
from tests.driver.fakes import (
    HALF_TERM,
    MS,
    SECOND,
    eliciting_message,
    nak,
)
from tests.driver.rigs import PublicationRig
from tests.logbuffer.logs import INITIAL_TERM_ID, TERM_LENGTH

NOT_CONNECTED = -1
BACK_PRESSURED = -2


def kinds(datagrams: list[bytes]) -> list[str]:
    """Return what was sent, in words."""
    words = []
    for datagram in datagrams:
        frame = next(iter(frames(datagram)))
        if isinstance(frame, DataFrame):
            words.append("heartbeat" if frame.header.is_heartbeat else "data")
        else:
            words.append(type(frame).__name__.lower())
    return words


@pytest.fixture
def rig() -> PublicationRig:
    return PublicationRig()


def test_setups_leave_at_once_and_every_hundred_milliseconds_until_somebody_answers(
    rig: PublicationRig,
) -> None:
    sent_ms = [ms for ms in range(0, 1_000, 10) if kinds(rig.poll(ms * MS)) == ["setup"]]
    assert sent_ms == list(range(0, 1_000, 100))
    assert rig.publication.poll(1_000 * MS) == 1_100 * MS


def test_before_the_first_status_message_nothing_but_setups_leaves(rig: PublicationRig) -> None:
    assert rig.offer(bytes(64)) == NOT_CONNECTED
    sent = [kind for ms in range(0, 5_000, 50) for kind in kinds(rig.poll(ms * MS))]
    assert set(sent) == {"setup"}


def test_a_status_message_connects_and_a_heartbeat_follows_at_once(rig: PublicationRig) -> None:
    rig.poll(0)
    rig.hear(0, 30 * MS)
    assert rig.is_connected()
    assert rig.log.metadata.is_connected == 1
    assert rig.window_changes == 1
    assert rig.publication.sender_limit == HALF_TERM
    assert kinds(rig.poll(30 * MS)) == ["heartbeat"]
    assert kinds(rig.poll(130 * MS)) == ["heartbeat"]


def test_setups_stop_with_the_first_status_message(rig: PublicationRig) -> None:
    rig.connect(0)
    sent = [kind for ms in range(0, 2_000, 50) for kind in kinds(rig.poll(ms * MS))]
    assert set(sent) == {"heartbeat"}
    assert len(sent) == 19


def test_heartbeats_wait_for_a_hundred_milliseconds_without_data(rig: PublicationRig) -> None:
    rig.connect(0)
    rig.offer(bytes(32))
    assert kinds(rig.poll(60 * MS)) == ["data"]
    assert rig.poll(159 * MS) == []
    assert rig.publication.poll(159 * MS) == 160 * MS
    (heartbeat,) = rig.poll(160 * MS)
    assert DataHeader.decode(heartbeat).term_offset == 64


def test_the_publisher_limit_runs_half_a_term_ahead_of_what_was_sent(rig: PublicationRig) -> None:
    assert rig.publication.publisher_limit == 0
    rig.connect(0)
    assert rig.publication.publisher_limit == HALF_TERM
    rig.offer(bytes(1_000))
    rig.poll(1)
    assert rig.publication.publisher_limit == HALF_TERM + 1_056
    assert rig.counters.publisher_limit.get() == HALF_TERM + 1_056
    assert rig.counters.publisher_position.get() == 1_056
    assert rig.publication.producer_position == 1_056


def test_publishers_are_told_when_there_is_more_room(rig: PublicationRig) -> None:
    rig.connect(0)
    changes = rig.window_changes
    rig.poll(1)
    assert rig.window_changes == changes, "nothing happened"
    rig.offer(bytes(1_000))
    rig.poll(2)
    assert rig.window_changes == changes + 1


def test_a_full_window_holds_publishers_back_and_the_next_status_message_lets_them_go(
    rig: PublicationRig,
) -> None:
    rig.connect(0)
    while rig.offer(bytes(992)) > 0:
        rig.poll(1)
    assert rig.offer(bytes(992)) == BACK_PRESSURED
    assert rig.publication.sender_position == HALF_TERM
    rig.hear(8_192, 2)
    assert rig.publication.sender_limit == HALF_TERM + 8_192
    rig.poll(3)
    assert rig.offer(bytes(992)) > 0


def test_a_window_that_shrinks_moves_the_limit_of_one_receiver_not_back(
    rig: PublicationRig,
) -> None:
    rig.connect(0)
    rig.hear(0, 1, receiver_window=1_024)
    assert rig.publication.sender_limit == HALF_TERM
    for _ in range(8):
        rig.offer(bytes(992))
    rig.poll(2)
    # More than the receiver has just offered, and within what it accepts: half a term.
    assert 1_024 < rig.publication.sender_position <= HALF_TERM


def test_receivers_that_fall_silent_disconnect_and_pull_the_limit_back(rig: PublicationRig) -> None:
    rig.connect(0)
    rig.offer(bytes(1_000))
    rig.poll(1)
    rig.hear(1_056, 2 * SECOND)
    rig.poll(7 * SECOND)
    assert rig.is_connected()
    assert rig.publication.has_receivers
    rig.poll(7 * SECOND + 1)
    assert not rig.is_connected()
    assert rig.log.metadata.is_connected == 0
    assert rig.publication.publisher_limit == rig.publication.sender_position == 1_056
    assert rig.offer(bytes(32)) == NOT_CONNECTED


def test_receivers_that_fall_silent_disconnect_who_offers_all_the_time(rig: PublicationRig) -> None:
    rig.connect(0)
    for now_ns in range(0, 5 * SECOND + 1, 50 * MS):
        assert rig.offer(bytes(32)) > 0
        assert kinds(rig.poll(now_ns)) == ["data"]
    assert rig.offer(bytes(32)) > 0
    assert kinds(rig.poll(5 * SECOND + 1)) == ["data"], "what was taken leaves all the same"
    assert not rig.is_connected()
    assert rig.offer(bytes(32)) == NOT_CONNECTED


def test_a_publication_that_lost_its_receivers_waits_to_be_asked_for_a_setup(
    rig: PublicationRig,
) -> None:
    rig.connect(0)
    sent = [kind for ms in range(0, 10_000, 50) for kind in kinds(rig.poll(ms * MS))]
    assert set(sent) == {"heartbeat"}
    rig.publication.on_status_message(eliciting_message(rig.log), 10 * SECOND)
    assert not rig.is_connected()
    assert "setup" in kinds(rig.poll(10 * SECOND))
    assert "setup" not in kinds(rig.poll(10 * SECOND + 99 * MS))
    assert "setup" in kinds(rig.poll(10 * SECOND + 100 * MS)), "nobody has answered yet"
    rig.hear(0, 10 * SECOND + 110 * MS)
    assert rig.is_connected()
    assert "setup" in kinds(rig.poll(10 * SECOND + 200 * MS)), "the last one: it finds a receiver"
    assert "setup" not in kinds(rig.poll(10 * SECOND + 300 * MS))


def test_with_a_live_receiver_an_elicited_setup_is_sent_once(rig: PublicationRig) -> None:
    rig.connect(0)
    rig.offer(bytes(1_000))
    rig.poll(1)
    rig.publication.on_status_message(eliciting_message(rig.log), 500 * MS)
    (setup,) = [each for each in rig.poll(500 * MS) if kinds([each]) == ["setup"]]
    decoded = Setup.decode(setup)
    assert (decoded.active_term_id, decoded.term_offset) == (INITIAL_TERM_ID, 1_056)
    assert "setup" not in kinds(rig.poll(600 * MS) + rig.poll(700 * MS))


def test_two_receivers_that_ask_within_an_interval_get_one_setup(rig: PublicationRig) -> None:
    rig.connect(0)
    for now_ns in (500 * MS, 510 * MS, 520 * MS):
        rig.publication.on_status_message(eliciting_message(rig.log), now_ns)
        rig.publication.poll(now_ns)
    assert kinds(rig.outbox.take()).count("setup") == 1
    assert "setup" in kinds(rig.poll(600 * MS))


@pytest.mark.parametrize(
    ("distance", "is_taken"),
    [(HALF_TERM, True), (HALF_TERM + 32, False), (-HALF_TERM, True), (-HALF_TERM - 32, False)],
)
def test_a_status_message_must_be_within_half_a_term_of_what_was_sent(
    distance: int,
    is_taken: bool,  # noqa: FBT001 - a table of cases
) -> None:
    rig = PublicationRig(
        spec={"start_term_id": INITIAL_TERM_ID + 1, "start_term_offset": HALF_TERM}
    )
    start = TERM_LENGTH + HALF_TERM
    rig.hear(start + distance, 0)
    assert rig.is_connected() is is_taken
    assert rig.counts[SystemCounterId.STATUS_MESSAGES_REJECTED] == (not is_taken)
    # Nobody has more than was sent, whatever is claimed.
    expected = start + min(distance, 0) + HALF_TERM if is_taken else start
    assert rig.publication.sender_limit == expected


def test_the_position_of_a_status_message_may_lie_behind_a_wrapped_term_id() -> None:
    rig = PublicationRig(
        spec={
            "initial_term_id": 2**31 - 1,
            "start_term_id": -(2**31),
            "start_term_offset": 64,
        }
    )
    rig.hear(TERM_LENGTH + 64, 0)
    assert rig.is_connected()
    assert rig.publication.sender_limit == TERM_LENGTH + 64 + HALF_TERM


def test_more_receivers_than_can_be_remembered_keep_no_newcomer_out(rig: PublicationRig) -> None:
    for receiver_id in range(MAX_RECEIVERS):
        rig.hear(0, 0, receiver_id=receiver_id)
    rig.hear(0, 0, receiver_id=-1)
    assert rig.counts[SystemCounterId.STATUS_MESSAGES_REJECTED] == 0
    assert rig.publication.sender_limit == HALF_TERM


def test_a_goodbye_forgets_the_receiver_and_disconnects_at_once(rig: PublicationRig) -> None:
    rig.connect(0)
    rig.hear(0, 1, receiver_id=5)
    rig.hear(0, 2, flags=StatusMessageFlags.END_OF_STREAM)
    assert rig.is_connected()
    rig.hear(0, 3, receiver_id=5, flags=StatusMessageFlags.END_OF_STREAM)
    assert not rig.is_connected()
    assert rig.publication.publisher_limit == 0


def sent_rig(frames_count: int = 10, context: DriverContext | None = None) -> PublicationRig:
    """Return a publication that has sent frames of 64 bytes, one a datagram."""
    rig = PublicationRig(context=context or DriverContext())
    rig.connect(0)
    for _ in range(frames_count):
        rig.offer(bytes(32))
        rig.poll(0)
    return rig


def test_a_nak_brings_the_range_at_once_and_again_only_after_ten_milliseconds() -> None:
    rig = sent_rig()
    for now_ns, datagrams in ((0, 1), (4 * MS, 0), (10 * MS, 1), (100 * MS, 1)):
        rig.hear_nak(nak(128, 192), now_ns)
        sent = rig.outbox.take()
        assert [len(datagram) for datagram in sent] == [192] * datagrams, now_ns
    assert rig.counters.naks_received.get() == 4
    assert rig.counts[SystemCounterId.RETRANSMITS_SENT] == 3


def test_a_nak_shorter_than_its_frame_brings_nothing_and_keeps_nobody_from_asking() -> None:
    rig = sent_rig()
    rig.hear_nak(nak(128, 32), 0)
    assert rig.outbox.take() == []
    rig.hear_nak(nak(128, 64), 1)
    assert len(rig.outbox.take()) == 1


def test_a_nak_longer_than_the_retransmit_window_is_cut() -> None:
    context = DriverContext(unicast_flow_control_rrwm=1)
    rig = PublicationRig(context=context)
    rig.connect(0)
    while rig.publication.sender_position < HALF_TERM + 4_096:
        rig.offer(bytes(992))
        rig.poll(0)
        rig.hear(rig.publication.sender_position, 0)
    rig.outbox.take()
    rig.hear_nak(nak(0, HALF_TERM + 4_096), 1)
    assert sum(len(datagram) for datagram in rig.outbox.take()) == HALF_TERM


def test_a_delayed_answer_leaves_with_the_poll_that_it_is_due_in() -> None:
    rig = sent_rig(context=DriverContext(retransmit_unicast_delay_ns=5 * MS))
    rig.hear_nak(nak(128, 192), 1 * MS)
    assert rig.publication.poll(1 * MS) == 6 * MS
    assert rig.outbox.take() == []
    assert [len(each) for each in rig.poll(6 * MS)] == [192]


def test_a_nak_for_what_was_never_sent_brings_nothing() -> None:
    rig = sent_rig()
    rig.hear_nak(nak(640, 64), 0)
    assert rig.outbox.take() == []


def test_a_start_position_is_remembered() -> None:
    rig = PublicationRig(spec={"start_term_id": INITIAL_TERM_ID + 1, "start_term_offset": 96})
    start = rig.publication.start
    assert (start.initial_term_id, start.term_id, start.term_offset) == (
        INITIAL_TERM_ID,
        INITIAL_TERM_ID + 1,
        96,
    )
