"""How a publication ends: draining, lingering, done; and claims left behind."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from aeron_async.clock import NEVER_NS
from aeron_async.driver.core.publication import PublicationState
from aeron_async.driver.core.system_counters import SystemCounterId
from aeron_async.logbuffer.appender import Claim
from aeron_async.protocol.header import StatusMessageFlags
from tests.driver.fakes import HALF_TERM, MS, RECEIVER_ID, SECOND, eliciting_message, nak
from tests.driver.rigs import PublicationRig

GOODBYE = StatusMessageFlags.END_OF_STREAM
HEARTBEAT = bytes.fromhex("00000000 00 c0 0100")
LAST_HEARTBEAT = bytes.fromhex("00000000 00 e0 0100")


@pytest.fixture
def rig() -> PublicationRig:
    """Return a connected publication that has sent 128 bytes."""
    rig = PublicationRig()
    rig.connect(0)
    rig.offer(bytes(96))
    rig.poll(0)
    return rig


def test_a_publication_without_anything_to_send_lingers_as_soon_as_it_is_released(
    rig: PublicationRig,
) -> None:
    with capture_logs() as logs:
        rig.publication.release(1 * SECOND)
    assert [(line["before"], line["after"]) for line in logs] == [
        ("ACTIVE", "DRAINING"),
        ("DRAINING", "LINGER"),
    ]
    assert rig.publication.is_end_of_stream
    assert rig.log.metadata.end_of_stream_position == 128
    assert rig.publication.publisher_limit == 128


def test_while_it_lingers_it_says_every_hundred_milliseconds_that_the_stream_has_ended(
    rig: PublicationRig,
) -> None:
    rig.publication.release(0)
    sent = [datagram[:8] for ms in range(0, 5_000, 10) for datagram in rig.poll(ms * MS)]
    assert sent == [LAST_HEARTBEAT] * 49
    assert rig.state() is PublicationState.LINGER
    rig.poll(5 * SECOND)
    assert rig.state() is PublicationState.DONE
    assert rig.publication.poll(6 * SECOND) == NEVER_NS
    assert rig.outbox.take() == []


def test_while_it_lingers_it_answers_naks(rig: PublicationRig) -> None:
    rig.publication.release(0)
    rig.hear_nak(nak(0, 128), 1)
    assert [len(datagram) for datagram in rig.outbox.take()] == [128]


def test_the_goodbye_of_the_receiver_ends_the_linger(rig: PublicationRig) -> None:
    rig.publication.release(0)
    rig.hear(0, 200 * MS, flags=GOODBYE)
    assert rig.state() is PublicationState.LINGER
    rig.publication.poll(200 * MS)
    assert rig.state() is PublicationState.DONE


def test_the_goodbye_of_one_of_many_does_not_end_the_linger() -> None:
    rig = PublicationRig(is_unicast=False, has_group_semantics=True)
    rig.connect(0)
    rig.publication.release(0)
    rig.hear(0, 200 * MS, flags=GOODBYE)
    rig.publication.poll(200 * MS)
    assert rig.state() is PublicationState.LINGER
    assert rig.publication.poll(4 * SECOND) <= 5 * SECOND
    rig.publication.poll(5 * SECOND)
    assert rig.state() is PublicationState.DONE


def test_a_goodbye_from_before_is_remembered(rig: PublicationRig) -> None:
    rig.hear(0, 1, flags=GOODBYE)
    rig.publication.release(2)
    assert rig.state() is PublicationState.DONE


def test_a_goodbye_from_before_does_not_count_for_the_receiver_that_came_after(
    rig: PublicationRig,
) -> None:
    rig.hear(0, 1, flags=GOODBYE)
    rig.hear(128, 2, receiver_id=99)
    rig.publication.release(3)
    assert rig.state() is PublicationState.LINGER
    assert rig.poll(100 * MS)[0][:8] == LAST_HEARTBEAT
    rig.hear(128, 300 * MS, receiver_id=99, flags=GOODBYE)
    rig.poll(300 * MS)
    assert rig.state() is PublicationState.DONE


def test_a_publication_drains_what_the_window_held_back(rig: PublicationRig) -> None:
    while rig.offer(bytes(992)) > 0:
        rig.poll(1)
    assert rig.publication.sender_position < rig.publication.producer_position
    end = rig.publication.producer_position
    rig.publication.release(2)
    assert rig.state() is PublicationState.DRAINING
    assert not rig.publication.is_end_of_stream
    assert rig.publication.publisher_limit == end
    assert [datagram[:8] for datagram in rig.poll(1 * SECOND)] == [HEARTBEAT]
    rig.hear(8_192, 1 * SECOND)
    while rig.publication.sender_position < end:
        assert rig.state() is PublicationState.DRAINING
        assert rig.poll(1 * SECOND)
        rig.hear(rig.publication.sender_position, 1 * SECOND)
    assert rig.state() is PublicationState.LINGER
    assert rig.publication.is_end_of_stream


def test_a_publication_whose_receivers_are_gone_lingers_without_an_end_of_stream(
    rig: PublicationRig,
) -> None:
    while rig.offer(bytes(992)) > 0:
        rig.poll(1)
    rig.publication.release(2)
    rig.poll(5 * SECOND)
    assert rig.state() is PublicationState.DRAINING
    rig.poll(5 * SECOND + 1)
    assert rig.state() is PublicationState.LINGER
    assert not rig.publication.is_end_of_stream
    assert [datagram[:8] for datagram in rig.poll(6 * SECOND)] == [HEARTBEAT]


def test_after_the_end_nobody_is_invited_any_more(rig: PublicationRig) -> None:
    rig.publication.release(0)
    rig.publication.on_status_message(eliciting_message(rig.log), 1)
    assert all(datagram[6] != 5 for datagram in rig.poll(1) + rig.poll(200 * MS))


def test_before_the_end_somebody_may_still_be_invited(rig: PublicationRig) -> None:
    while rig.offer(bytes(992)) > 0:
        rig.poll(1)
    rig.publication.release(2)
    rig.publication.on_status_message(eliciting_message(rig.log), 200 * MS)
    assert any(datagram[6] == 5 for datagram in rig.poll(200 * MS))


def test_a_publication_that_never_met_anybody_still_lingers() -> None:
    rig = PublicationRig()
    rig.publication.release(0)
    assert rig.state() is PublicationState.LINGER
    assert rig.publication.poll(0) <= 100 * MS
    rig.poll(5 * SECOND)
    assert rig.state() is PublicationState.DONE


def test_a_channel_may_ask_for_another_linger() -> None:
    rig = PublicationRig(linger_timeout_ns=0)
    rig.publication.release(0)
    assert rig.state() is PublicationState.DONE


def test_whatever_the_linger_receivers_are_told_of_the_end() -> None:
    rig = PublicationRig(linger_timeout_ns=0)
    rig.connect(0)
    rig.publication.release(0)
    assert rig.state() is PublicationState.LINGER
    heartbeats = 0
    for step in range(1, 11):
        heartbeats += len(rig.poll(step * 100 * MS))
    assert heartbeats >= 9
    assert rig.state() is PublicationState.DONE


def test_a_goodbye_ends_also_a_short_linger() -> None:
    rig = PublicationRig(linger_timeout_ns=0)
    rig.connect(0)
    rig.publication.release(0)
    rig.hear(0, MS, flags=GOODBYE)
    rig.poll(2 * MS)
    assert rig.state() is PublicationState.DONE


def test_in_a_hurry_it_does_not_linger_for_nobody() -> None:
    rig = PublicationRig()
    rig.publication.release(0)
    rig.publication.skip_linger()
    rig.poll(1)
    assert rig.state() is PublicationState.DONE


def test_in_a_hurry_it_still_lingers_for_those_who_are_there(rig: PublicationRig) -> None:
    rig.publication.skip_linger()
    rig.publication.release(0)
    rig.poll(1 * SECOND)
    assert rig.state() is PublicationState.LINGER
    rig.hear(128, 2 * SECOND, flags=GOODBYE)
    rig.poll(2 * SECOND)
    assert rig.state() is PublicationState.DONE


def shared_rig() -> PublicationRig:
    rig = PublicationRig(is_exclusive=False)
    rig.connect(0)
    return rig


def claim(rig: PublicationRig, length: int = 96) -> None:
    claimed = rig.appender.try_claim(length, limit=rig.publication.publisher_limit)
    assert isinstance(claimed, Claim)


def test_a_claim_left_behind_becomes_padding_after_fifteen_seconds() -> None:
    rig = shared_rig()
    claim(rig)
    rig.offer(bytes(32))
    for second in range(15):
        rig.hear(0, second * SECOND)
        rig.poll(second * SECOND)
    assert rig.counts[SystemCounterId.UNBLOCKED_PUBLICATIONS] == 0
    assert rig.publication.poll(15 * SECOND) == 15 * SECOND, "there is padding to be sent"
    assert rig.counts[SystemCounterId.UNBLOCKED_PUBLICATIONS] == 1
    rig.outbox.take()
    sent = rig.poll(15 * SECOND)
    assert [len(datagram) for datagram in sent] == [32, 64]
    assert rig.publication.sender_position == 192


def test_an_exclusive_publication_blocks_only_itself() -> None:
    rig = PublicationRig(is_exclusive=True)
    rig.connect(0)
    claim(rig)
    for second in range(60):
        rig.hear(0, second * SECOND)
        rig.poll(second * SECOND)
    assert rig.counts[SystemCounterId.UNBLOCKED_PUBLICATIONS] == 0


def test_draining_takes_over_every_claim_that_is_left() -> None:
    rig = shared_rig()
    for _ in range(3):
        claim(rig)
        rig.offer(bytes(32))
    rig.publication.release(1)
    assert [rig.publication.poll(1) == 1 for _ in range(3)] == [True, True, False]
    assert rig.state() is PublicationState.LINGER
    assert rig.publication.sender_position == 3 * 192
    assert rig.publication.is_end_of_stream
    assert rig.counts[SystemCounterId.UNBLOCKED_PUBLICATIONS] == 3


def test_draining_leaves_committed_frames_to_the_window(rig: PublicationRig) -> None:
    while rig.offer(bytes(992)) > 0:
        rig.poll(1)
    rig.publication.release(2)
    for ms in range(0, 4_000, 100):
        rig.poll(ms * MS)
    assert rig.publication.sender_position <= HALF_TERM
    assert rig.counts[SystemCounterId.UNBLOCKED_PUBLICATIONS] == 0


def test_a_receiver_is_known_by_its_id_wherever_it_speaks_from(rig: PublicationRig) -> None:
    rig.hear(0, 1, receiver_id=RECEIVER_ID, flags=GOODBYE)
    assert not rig.publication.has_receivers
