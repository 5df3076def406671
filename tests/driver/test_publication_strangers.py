"""What strangers and liars may cost a publication: little, and it is counted."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from aeron_async.driver.core.publication import PublicationState
from aeron_async.driver.core.receiver_liveness import MAX_DEPARTED
from aeron_async.driver.core.system_counters import DriverCounterId, SystemCounterId
from aeron_async.errors import ErrorCode
from aeron_async.protocol.error import ErrorFrame
from aeron_async.protocol.header import ErrorFlags, RttFlags, StatusMessageFlags
from aeron_async.protocol.rtt import RttMeasurement
from aeron_async.protocol.setup import Setup
from tests.driver.fakes import HALF_TERM, MS, RECEIVER_ID, SECOND, eliciting_message, nak
from tests.driver.rigs import PublicationRig
from tests.logbuffer.logs import INITIAL_TERM_ID, SESSION_ID, STREAM_ID, TERM_LENGTH

MIB = 1024 * 1024
GOODBYES_IGNORED = DriverCounterId.GOODBYES_IGNORED
ERROR_FRAMES_IGNORED = DriverCounterId.ERROR_FRAMES_IGNORED


@pytest.fixture
def rig() -> PublicationRig:
    return PublicationRig()


def test_a_position_before_the_first_term_is_impossible(rig: PublicationRig) -> None:
    for distance in (1, 2, 2**30, 2**31):
        term_id = (INITIAL_TERM_ID - distance + 2**31) % 2**32 - 2**31
        rig.hear(0, 0, consumption_term_id=term_id, consumption_term_offset=TERM_LENGTH - 32)
    assert not rig.is_connected()
    assert rig.counts[SystemCounterId.STATUS_MESSAGES_REJECTED] == 4
    assert rig.publication.sender_limit == 0


def test_a_receiver_that_never_answers_is_sent_no_more_than_its_budget() -> None:
    """A stranger named the address, and the request was 102 bytes long."""
    rig = PublicationRig(handshake_length=3 * 102)
    setups: list[int] = []
    for now_ns in range(0, 14 * SECOND, 50 * MS):
        rig.publication.poll(now_ns)
        setups += [now_ns // MS for _ in rig.outbox.take_frames(Setup)]
    # The seven that the budget allows, for a receiver that is there a little later.
    assert setups == [0, 100, 300, 700, 1_500, 2_500, 3_500]
    assert rig.counts[DriverCounterId.HANDSHAKE_SENDS_WITHHELD] == 10
    rig.publication.release(14 * SECOND)
    rig.publication.poll(14 * SECOND)
    rig.publication.poll(14 * SECOND)
    assert rig.publication.state is PublicationState.DONE, "it lingers for nobody"
    assert rig.outbox.take() == []


def test_the_budget_ends_with_the_first_answer() -> None:
    rig = PublicationRig(handshake_length=2 * 40)
    rig.publication.poll(0)
    rig.connect(1)
    rig.outbox.take()
    for now_ns in range(SECOND, 3 * SECOND, 200 * MS):
        rig.hear(0, now_ns)
        rig.publication.on_status_message(eliciting_message(rig.log), now_ns)
        rig.publication.poll(now_ns)
    assert len(rig.outbox.take_frames(Setup)) == 10
    assert rig.counts[DriverCounterId.HANDSHAKE_SENDS_WITHHELD] == 0
    rig.publication.release(3 * SECOND)
    rig.publication.poll(3 * SECOND)
    rig.publication.poll(3 * SECOND)
    assert rig.publication.state is PublicationState.LINGER


def test_the_goodbye_of_a_stranger_is_counted_and_changes_nothing(rig: PublicationRig) -> None:
    rig.hear(0, 0, flags=StatusMessageFlags.END_OF_STREAM)
    rig.publication.poll(0)
    assert len(rig.outbox.take_frames(Setup)) == 1, "nobody has been heard yet"
    assert rig.publication.sender_limit == 0
    assert rig.counts[GOODBYES_IGNORED] == 1
    rig.connect(1)
    rig.hear(0, 2, receiver_id=1, flags=StatusMessageFlags.END_OF_STREAM)
    assert rig.is_connected()
    assert rig.counts[GOODBYES_IGNORED] == 2


def test_a_goodbye_that_is_said_again_is_no_lie(rig: PublicationRig) -> None:
    rig.connect(0)
    for now_ns in range(5):
        rig.hear(0, now_ns, flags=StatusMessageFlags.END_OF_STREAM)
    assert rig.counts[GOODBYES_IGNORED] == 0
    for receiver_id in range(MAX_DEPARTED):
        rig.hear(0, 5, receiver_id=receiver_id)
        rig.hear(0, 5, receiver_id=receiver_id, flags=StatusMessageFlags.END_OF_STREAM)
    rig.hear(0, 6, flags=StatusMessageFlags.END_OF_STREAM)
    assert rig.counts[GOODBYES_IGNORED] == 1, "that was too long ago"


def test_however_many_ask_for_a_setup_one_leaves_in_a_hundred_milliseconds() -> None:
    rig = PublicationRig()
    setups: list[int] = []
    for step in range(10_000):
        now_ns = step * 100_000
        asking = attrs.evolve(eliciting_message(rig.log), receiver_id=step)
        rig.publication.on_status_message(asking, now_ns)
        rig.publication.poll(now_ns)
        setups += [now_ns // MS for _ in rig.outbox.take_frames(Setup)]
    assert setups == list(range(0, 1_000, 100))


def test_a_storm_of_naks_brings_what_the_budget_allows_and_no_more() -> None:
    rig = PublicationRig()
    rig.connect(0)
    starts = range(0, HALF_TERM, 1_408)
    for _ in starts:
        rig.offer(bytes(1_376))
        rig.poll(0)
    for step in range(20_000):
        position = starts[step % len(starts)]
        rig.hear_nak(nak(position, 1_408), step * 100_000)
    resent = sum(len(datagram) for datagram in rig.outbox.take())
    seconds, sent = 2, rig.publication.sender_position
    assert resent <= 2 * MIB + seconds * 128 * 1_408 + sent // 2
    assert resent > 2 * MIB, "what is due is answered"
    assert rig.counts[DriverCounterId.NAKS_SUPPRESSED] > 0


def test_naks_for_places_within_frames_hold_nothing_back_from_an_honest_one() -> None:
    rig = PublicationRig()
    rig.connect(0)
    rig.offer(bytes(1_376))
    rig.poll(0)
    for position in range(32, 1_408, 32):
        rig.hear_nak(nak(position, 1_408 - position), 0)
    assert rig.outbox.take() == []
    assert rig.counts[DriverCounterId.NAKS_REJECTED] == 43
    rig.hear_nak(nak(0, 1_408), 0)
    assert len(rig.outbox.take()) == 1


def rejection(**changes: Any) -> ErrorFrame:
    error = ErrorFrame(
        session_id=SESSION_ID,
        stream_id=STREAM_ID,
        receiver_id=RECEIVER_ID,
        error_code=13,
        message=b"no",
    )
    return attrs.evolve(error, **changes)


def test_an_error_of_a_live_receiver_disconnects_it_and_is_reported_once(
    rig: PublicationRig,
) -> None:
    rig.connect(0)
    rig.publication.on_error(rejection(flags=ErrorFlags.HAS_GROUP_TAG), 1)
    assert not rig.is_connected()
    rig.publication.on_error(rejection(), 2)
    assert [error.message for error in rig.errors] == [b"no"]


def test_an_error_that_is_said_again_is_no_lie(rig: PublicationRig) -> None:
    rig.connect(0)
    for now_ns in range(5):
        rig.publication.on_error(rejection(), now_ns)
    assert len(rig.errors) == 1
    assert rig.counts[ERROR_FRAMES_IGNORED] == 0


def test_an_error_of_somebody_unknown_is_counted_and_changes_nothing(rig: PublicationRig) -> None:
    rig.connect(0)
    rig.publication.on_error(rejection(receiver_id=1), 1)
    assert rig.is_connected()
    assert rig.errors == []
    assert rig.counts[ERROR_FRAMES_IGNORED] == 1


def test_ten_errors_a_second_are_heard_and_strangers_take_nobodys_turn(rig: PublicationRig) -> None:
    rig.connect(0)
    for receiver_id in range(12):
        rig.hear(0, 0, receiver_id=receiver_id)
    for receiver_id in range(100, 200):
        rig.publication.on_error(rejection(receiver_id=receiver_id), 1)
    for receiver_id in range(12):
        rig.publication.on_error(rejection(receiver_id=receiver_id), 2)
    assert [error.receiver_id for error in rig.errors] == list(range(10))
    assert rig.counts[ERROR_FRAMES_IGNORED] == 102
    rig.publication.on_error(rejection(receiver_id=10), SECOND + 2)
    assert len(rig.errors) == 11


def rttm(**changes: Any) -> RttMeasurement:
    request = RttMeasurement(
        session_id=SESSION_ID,
        stream_id=STREAM_ID,
        echo_timestamp_ns=123_456_789,
        reception_delta_ns=77,
        receiver_id=RECEIVER_ID,
        flags=RttFlags.REPLY,
    )
    return attrs.evolve(request, **changes)


def test_a_round_trip_measurement_is_echoed(rig: PublicationRig) -> None:
    rig.publication.on_rttm(rttm(), 0)
    assert rig.outbox.take_frames(RttMeasurement) == [rttm(flags=RttFlags(0), reception_delta_ns=0)]


def test_an_echo_is_not_echoed(rig: PublicationRig) -> None:
    rig.publication.on_rttm(rttm(flags=RttFlags(0)), 0)
    assert rig.outbox.take() == []


def test_what_lies_behind_a_measurement_is_not_carried_back(rig: PublicationRig) -> None:
    rig.publication.on_rttm(rttm(trailing=bytes(60_000)), 0)
    assert [len(each) for each in rig.outbox.take()] == [40]


def test_one_receiver_is_answered_fifty_times_a_second_and_all_a_hundred(
    rig: PublicationRig,
) -> None:
    for _ in range(1_000):
        rig.publication.on_rttm(rttm(), 0)
    assert len(rig.outbox.take()) == 50
    for receiver_id in range(1_000):
        rig.publication.on_rttm(rttm(receiver_id=receiver_id), 1)
    assert len(rig.outbox.take()) == 50
    assert rig.counts[DriverCounterId.RTT_REPLIES_SUPPRESSED] == 950 + 950
    rig.publication.on_rttm(rttm(), SECOND)
    assert len(rig.outbox.take()) == 1


def test_a_refusal_is_told_where_no_receiver_is_there(rig: PublicationRig) -> None:
    """The publisher waited, and only the receiver knew why."""
    rig.publication.on_error(rejection(error_code=ErrorCode.RESOURCE_TEMPORARILY_UNAVAILABLE), 1)
    assert [error.message for error in rig.errors] == [b"no"]
    assert not rig.is_connected()
    assert rig.counts[ERROR_FRAMES_IGNORED] == 0


def test_a_refusal_by_a_stranger_is_not_told_where_a_receiver_is_there(rig: PublicationRig) -> None:
    rig.connect(0)
    refusal = rejection(receiver_id=1, error_code=ErrorCode.RESOURCE_TEMPORARILY_UNAVAILABLE)
    rig.publication.on_error(refusal, 1)
    assert rig.errors == []
    assert rig.is_connected()
    assert rig.counts[ERROR_FRAMES_IGNORED] == 1


def test_ten_refusals_a_second_are_told(rig: PublicationRig) -> None:
    for receiver_id in range(12):
        refusal = rejection(receiver_id=receiver_id, error_code=ErrorCode.GENERIC)
        rig.publication.on_error(refusal, 1)
    assert len(rig.errors) == 10
    assert rig.counts[ERROR_FRAMES_IGNORED] == 2
