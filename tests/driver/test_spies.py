"""Spies on a network publication: where they join, how they hold it back, and stand in for others.

`ssc` stands for spies that simulate a connection.
"""

from __future__ import annotations

import pytest

from aeron_async.driver.core.publication import PublicationState
from aeron_async.driver.core.system_counters import SystemCounterId
from aeron_async.logbuffer.appender import Claim
from aeron_async.protocol.header import FrameType, StatusMessageFlags
from tests.driver.fakes import HALF_TERM, MS, SECOND, nak
from tests.driver.rigs import PublicationRig
from tests.logbuffer.logs import NO_LIMIT, read_all

UNTETHERED = {
    "untethered_window_limit_timeout_ns": 5 * SECOND,
    "untethered_linger_timeout_ns": 2 * SECOND,
    "untethered_resting_timeout_ns": 10 * SECOND,
}


@pytest.fixture
def rig() -> PublicationRig:
    """Return a publication with a receiver that has heard 1024 bytes."""
    rig = PublicationRig(spec=UNTETHERED)
    rig.connect(0)
    rig.offer(bytes(992))
    rig.poll(0)
    return rig


@pytest.fixture
def simulated() -> PublicationRig:
    """Return a publication that spies can connect."""
    return PublicationRig(spies_simulate_connection=True)


def fill(rig: PublicationRig, now_ns: int = 0) -> None:
    """Offer and send as far as the publisher limit lets it."""
    while rig.offer(bytes(992)) > 0:
        rig.hear(rig.publication.sender_position, now_ns)
        rig.poll(now_ns)


# Joining and reading.


def test_a_spy_joins_at_the_sender_position(rig: PublicationRig) -> None:
    rig.appender.offer(b"not sent yet", limit=NO_LIMIT)
    assert rig.publication.join_position == 1_024
    assert rig.spy().get() == 1_024


def test_a_second_spy_joins_at_the_sender_position_too(rig: PublicationRig) -> None:
    slow = rig.spy(1)
    rig.offer(bytes(992))
    rig.poll(0)
    assert rig.spy(2).get() == 2_048
    assert slow.get() == 1_024


def test_a_spy_may_read_whatever_is_committed_sent_or_not(rig: PublicationRig) -> None:
    position = rig.spy().get()
    rig.appender.offer(b"not sent yet", limit=NO_LIMIT)
    assert rig.publication.rebuild_position == 1_024 + 64
    assert read_all(rig.log, position) == [b"not sent yet"]


def test_spies_are_told_of_what_was_offered_until_they_have_read_it(rig: PublicationRig) -> None:
    spy = rig.spy()
    rig.poll(0)
    assert rig.progress == 0
    rig.offer(bytes(32))
    rig.poll(0)
    assert rig.progress == 1
    spy.set(rig.publication.producer_position)
    rig.poll(0)
    assert rig.progress == 1


def test_spies_are_told_again_when_a_claim_is_committed(rig: PublicationRig) -> None:
    rig.spy()
    claim = rig.appender.try_claim(32, limit=NO_LIMIT)
    assert isinstance(claim, Claim)
    rig.poll(0)
    claim.commit()
    told = rig.progress
    rig.poll(0)
    assert rig.progress == told + 1


def test_a_spy_that_has_read_all_there_was_asks_for_a_poll(rig: PublicationRig) -> None:
    rig.spy()
    rig.offer(bytes(992))
    rig.poll(0)
    assert rig.publication.consumption_trigger == rig.publication.producer_position - 1
    rig.appender.offer(bytes(8_192), limit=NO_LIMIT)
    rig.poll(0)
    assert rig.publication.consumption_trigger == 1_024 + HALF_TERM // 8


# The publisher limit.


def test_the_slowest_of_sender_and_spies_sets_the_publisher_limit(rig: PublicationRig) -> None:
    spy = rig.spy()
    limit = rig.publication.publisher_limit
    assert limit == 1_024 + HALF_TERM
    rig.hear(1_024, 0)
    fill(rig)
    assert rig.publication.sender_position > limit - 1_024
    assert rig.publication.publisher_limit == limit
    spy.set(rig.publication.sender_position)
    rig.poll(0)
    assert rig.publication.publisher_limit == rig.publication.sender_position + HALF_TERM


def test_when_a_slow_spy_leaves_the_limit_goes_on(rig: PublicationRig) -> None:
    rig.spy()
    fill(rig)
    assert rig.publication.remove_subscriber(0) is not None
    assert rig.publication.remove_subscriber(0) is None
    rig.poll(0)
    assert rig.publication.publisher_limit == rig.publication.sender_position + HALF_TERM


def test_spies_alone_connect_nobody() -> None:
    rig = PublicationRig()
    rig.spy()
    rig.poll(0)
    assert not rig.is_connected()
    assert rig.offer(b"nobody") == -1


# Spies that simulate a connection.


def test_with_ssc_a_spy_connects_the_stream(simulated: PublicationRig) -> None:
    simulated.spy()
    simulated.poll(0)
    assert simulated.is_connected()
    assert simulated.log.metadata.is_connected == 1
    assert simulated.publication.publisher_limit == HALF_TERM
    assert simulated.offer(b"to the spy") == 64


def test_with_ssc_what_spies_have_read_counts_as_sent(simulated: PublicationRig) -> None:
    slow, fast = simulated.spy(1), simulated.spy(2)
    simulated.poll(0)
    simulated.offer(bytes(992))
    simulated.offer(bytes(992))
    simulated.poll(0)
    assert simulated.publication.sender_position == 0
    slow.set(1_024)
    fast.set(2_048)
    datagrams = simulated.poll(1)
    assert simulated.publication.sender_position == simulated.publication.sender_limit == 2_048
    assert simulated.publication.publisher_limit == 1_024 + HALF_TERM
    assert datagrams == []
    assert simulated.counts[SystemCounterId.BYTES_SENT] == 0


def test_with_ssc_setups_go_on_while_nobody_answers(simulated: PublicationRig) -> None:
    simulated.spy()
    sent = [datagram[6] for ms in range(0, 1_000, 100) for datagram in simulated.poll(ms * MS)]
    assert sent == [FrameType.SETUP] * 10


def test_with_ssc_and_a_receiver_nothing_is_skipped(simulated: PublicationRig) -> None:
    spy = simulated.spy()
    simulated.poll(0)
    simulated.hear(0, 0, receiver_window=1_024)
    simulated.poll(0)
    for _ in range(3):
        simulated.offer(bytes(992))
    simulated.poll(0)
    spy.set(3_072)
    simulated.poll(0)
    assert simulated.publication.sender_position == simulated.publication.sender_limit == 1_024


def test_when_the_last_receiver_leaves_the_spies_stand_in(simulated: PublicationRig) -> None:
    spy = simulated.spy()
    simulated.connect(0)
    simulated.hear(0, 1, flags=StatusMessageFlags.END_OF_STREAM)
    simulated.poll(2)
    assert simulated.is_connected()
    simulated.publication.remove_subscriber(0)
    spy.close()
    simulated.poll(3)
    assert not simulated.is_connected()


def test_a_spy_that_rests_connects_nobody() -> None:
    rig = PublicationRig(spies_simulate_connection=True, spec=UNTETHERED)
    slow, fast = rig.spy(1, is_tether=False), rig.spy(2)
    rig.poll(0)
    while rig.offer(bytes(992)) > 0:
        pass
    fast.set(rig.publication.producer_position)
    for now_ns in (0, 5 * SECOND, 7 * SECOND):
        rig.poll(now_ns)
    assert rig.told == [("unavailable", 1)]
    rig.publication.remove_subscriber(2)
    rig.poll(7 * SECOND)
    assert not rig.is_connected()
    rig.poll(17 * SECOND)
    rig.poll(17 * SECOND)
    assert rig.is_connected()
    assert slow.get() == rig.publication.sender_position


def test_a_receiver_that_comes_later_may_still_ask_for_what_was_skipped(
    simulated: PublicationRig,
) -> None:
    # Its SETUP may have been sent before the spies went on.
    spy = simulated.spy()
    simulated.poll(0)
    for _ in range(10):
        simulated.offer(bytes(992))
    spy.set(10_240)
    simulated.poll(0)
    assert simulated.publication.sender_position == 10_240
    simulated.hear(0, 1)
    simulated.poll(1)
    simulated.hear_nak(nak(8_192, 1_024), 2)
    assert [len(datagram) for datagram in simulated.outbox.take()] == [1_024]


def test_what_is_skipped_may_cross_a_term(simulated: PublicationRig) -> None:
    spy = simulated.spy()
    simulated.poll(0)
    for _ in range(100):
        simulated.offer(bytes(1_300))
        spy.set(simulated.publication.producer_position)
        simulated.poll(0)
    assert simulated.publication.sender_position == simulated.publication.producer_position
    assert simulated.publication.sender_position > 2 * HALF_TERM


# Untethered spies.


def test_an_untethered_spy_is_measured_from_the_sender(rig: PublicationRig) -> None:
    spy = rig.spy(is_tether=False)
    fill(rig)
    limit = rig.publication.publisher_limit
    rig.publication.poll(1 * SECOND)
    rig.hear(rig.publication.sender_position, 4 * SECOND)
    rig.publication.poll(5 * SECOND)
    assert rig.told == [("unavailable", 0)]
    rig.publication.poll(7 * SECOND)
    rig.publication.poll(7 * SECOND)
    assert rig.publication.publisher_limit > limit
    rig.publication.poll(17 * SECOND)
    assert rig.told[-1] == ("available", 0)
    assert spy.get() == rig.publication.sender_position


# How it ends.


def test_a_stream_drains_until_its_spies_have_read_it(rig: PublicationRig) -> None:
    spy = rig.spy()
    rig.offer(bytes(992))
    rig.poll(0)
    progress = rig.progress
    rig.publication.release(0)
    assert rig.progress > progress
    rig.poll(1)
    assert rig.publication.is_end_of_stream
    assert rig.state() is PublicationState.DRAINING
    spy.set(2_048)
    assert spy.get() > rig.publication.consumption_trigger
    rig.poll(2)
    assert rig.state() is PublicationState.LINGER
    assert rig.told == [("unavailable", 0)]
    assert spy.is_closed


def test_a_spy_that_leaves_lets_the_stream_end(rig: PublicationRig) -> None:
    rig.spy()
    rig.offer(bytes(992))
    rig.poll(0)
    rig.publication.release(0)
    rig.publication.remove_subscriber(0)
    rig.poll(1)
    assert rig.state() is PublicationState.LINGER
    assert rig.told == []


def test_spies_join_while_there_is_something_left_for_them(rig: PublicationRig) -> None:
    assert rig.is_accepting()
    rig.spy()
    rig.hear(0, 0, receiver_window=0)
    while rig.offer(bytes(992)) > 0:
        pass
    rig.publication.release(0)
    assert rig.is_accepting()
    rig.publication.remove_subscriber(0)
    assert not rig.is_accepting()
    rig.publication.revoke(0)
    assert rig.state() is PublicationState.DRAINING


def test_a_stream_that_lingers_accepts_no_spies(rig: PublicationRig) -> None:
    rig.publication.release(0)
    assert rig.state() is PublicationState.LINGER
    assert not rig.is_accepting()
