"""A loop that stood still, or a clock that leapt: nobody who still talks is given up for it."""

from __future__ import annotations

import pytest

from aeron_async.driver.core.context import DriverContext
from aeron_async.driver.core.image_state import ImageState
from aeron_async.driver.core.publication import PublicationState
from aeron_async.driver.core.receiver_liveness import ReceiverLiveness
from aeron_async.driver.core.session_states import SessionState
from aeron_async.driver.core.system_counters import SystemCounterId
from aeron_async.protocol.data import DataHeader
from aeron_async.protocol.nak import Nak
from aeron_async.protocol.setup import Setup
from aeron_async.protocol.status_message import StatusMessage
from tests.driver.fakes import CONTEXT, EOS, MS, SECOND, US, Counts, data, heartbeat
from tests.driver.rigs import DispatcherRig, ImageRig, PublicationRig
from tests.logbuffer.logs import STREAM_ID

HOUR = 3_600 * SECOND
STALLS = [SECOND, 4 * SECOND, 12 * SECOND, HOUR]


def talking_image(context: DriverContext = CONTEXT) -> ImageRig:
    """Return an image with a gap, polled and heard every 50 ms up to two seconds."""
    rig = ImageRig(context=context)
    rig.feed(data(128, 64), 0)
    for ms in range(0, 2_001, 50):
        rig.feed(heartbeat(192), ms * MS)
        rig.image.poll(ms * MS)
    rig.outbox.take()
    return rig


@pytest.mark.parametrize("stall_ns", STALLS)
def test_an_image_whose_source_is_still_there_outlives_any_stall(stall_ns: int) -> None:
    rig = talking_image()
    now_ns = 2 * SECOND + stall_ns
    rig.image.forgive_silence(stall_ns, now_ns)
    rig.image.poll(now_ns)
    assert rig.state() is ImageState.ACTIVE
    rig.feed(data(0, 128), now_ns + 50 * MS)
    rig.image.poll(now_ns + 50 * MS)
    assert rig.image.rebuild_position == 192


@pytest.mark.parametrize("stall_ns", STALLS)
def test_after_a_stall_one_status_message_and_one_nak_leave_and_no_storm(stall_ns: int) -> None:
    rig = talking_image()
    start_ns = 2 * SECOND + stall_ns
    rig.image.forgive_silence(stall_ns, start_ns)
    rig.image.poll(start_ns)
    sent = rig.outbox.take()
    assert [datagram[6] for datagram in sent].count(3) == 1
    assert [datagram[6] for datagram in sent].count(2) == 1
    for us in range(0, 200_000, 50):
        rig.image.poll(start_ns + us * US)
        sent += rig.outbox.take()
    status_messages = [each for each in sent if each[6] == 3]
    naks = [each for each in sent if each[6] == 2]
    assert len(status_messages) == 1
    assert len(naks) <= 300
    assert StatusMessage.decode(status_messages[0]).receiver_window
    assert Nak.decode(naks[0]).length == 128


def test_silence_beyond_the_stall_still_ends_an_image() -> None:
    rig = talking_image()
    now_ns = 2 * SECOND + HOUR
    rig.image.forgive_silence(HOUR, now_ns)
    rig.image.poll(now_ns + 10 * SECOND)
    assert rig.state() is ImageState.ACTIVE
    rig.image.poll(now_ns + 10 * SECOND + 1)
    assert rig.state() is ImageState.DRAINING


def test_nothing_is_remembered_as_later_than_now() -> None:
    rig = talking_image()
    rig.image.forgive_silence(HOUR, 3 * SECOND)
    assert rig.image._intake.last_packet_ns == 3 * SECOND
    assert rig.connection().last_activity_ns == 3 * SECOND
    rig.image.poll(13 * SECOND + 1)
    assert rig.state() is ImageState.DRAINING


def test_goodbye_and_linger_last_as_much_longer() -> None:
    rig = ImageRig()
    rig.feed(heartbeat(0, EOS), 0)
    rig.image.poll(0)
    rig.image.forgive_silence(HOUR, HOUR + 100 * MS)
    rig.image.poll(HOUR + 100 * MS)
    assert rig.state() is ImageState.DRAINING
    rig.image.poll(HOUR + SECOND)
    assert rig.state() is ImageState.LINGER
    rig.image.forgive_silence(HOUR, 2 * HOUR + 2 * SECOND)
    rig.image.poll(2 * HOUR + 2 * SECOND)
    assert rig.state() is ImageState.LINGER
    rig.image.poll(2 * HOUR + 11 * SECOND)
    assert rig.state() is ImageState.DONE


def test_a_clock_that_goes_back_a_second_ends_nothing_and_silences_nobody_for_longer() -> None:
    rig = talking_image(DriverContext(image_gap_timeout_ns=HOUR))
    sent = []
    for ms in range(1_000, 12_000, 50):
        rig.feed(heartbeat(192), ms * MS)
        rig.image.poll(ms * MS)
        sent += [ms] * len(rig.status_messages())
    assert rig.state() is ImageState.ACTIVE
    assert sent[0] <= 2_200
    assert len(sent) >= 45


@pytest.mark.parametrize("stall_ns", STALLS)
def test_every_pending_session_is_asked_once_more_and_no_more(stall_ns: int) -> None:
    rig = DispatcherRig()
    rig.dispatcher.add_subscription(STREAM_ID, None)
    for now_ns in (0, 100 * MS):
        for session_id in range(20):
            rig.feed(data(0, 64, session_id=session_id), now_ns)
    assert len(rig.elicited()) == 20
    for ms in range(0, 1_000, 50):
        for session_id in range(20):
            rig.feed(data(0, 64, session_id=session_id), stall_ns + 100 * MS + ms * MS)
    assert len(rig.elicited()) == 20
    assert rig.state(stall_ns + 200 * MS, session_id=3) is SessionState.PENDING_SETUP


# The other end.


def connected() -> PublicationRig:
    rig = PublicationRig()
    rig.connect(0)
    for ms in range(0, 2_001, 50):
        rig.hear(0, ms * MS)
        rig.poll(ms * MS)
    return rig


@pytest.mark.parametrize("stall_ns", STALLS)
def test_a_publication_whose_receiver_is_still_there_outlives_any_stall(stall_ns: int) -> None:
    rig = connected()
    now_ns = 2 * SECOND + stall_ns
    rig.publication.forgive_silence(stall_ns, now_ns)
    sent = rig.poll(now_ns)
    assert rig.is_connected()
    assert [DataHeader.decode(each).is_heartbeat for each in sent] == [True]
    assert rig.poll(now_ns) == []
    rig.poll(now_ns + 5 * SECOND + 1)
    assert not rig.is_connected(), "silence beyond the stall still counts"


@pytest.mark.parametrize("stall_ns", STALLS)
def test_an_unconnected_publication_sends_one_setup_after_a_stall(stall_ns: int) -> None:
    rig = PublicationRig()
    rig.poll(0)
    rig.publication.forgive_silence(stall_ns, stall_ns)
    (sent,) = rig.poll(stall_ns)
    assert Setup.decode(sent).term_length == rig.log.term_length
    assert rig.poll(stall_ns + 50 * MS) == []


def test_the_linger_of_a_publication_lasts_as_much_longer() -> None:
    rig = connected()
    rig.publication.release(2 * SECOND)
    rig.poll(2 * SECOND)
    assert rig.state() is PublicationState.LINGER
    now_ns = HOUR + 3 * SECOND
    rig.publication.forgive_silence(HOUR, now_ns)
    rig.poll(now_ns)
    assert rig.state() is PublicationState.LINGER
    rig.publication.forgive_silence(HOUR, now_ns)
    rig.poll(now_ns + 5 * SECOND - 1)
    assert rig.state() is PublicationState.LINGER, "but no longer than from the beginning"
    rig.poll(now_ns + 5 * SECOND)
    assert rig.state() is PublicationState.DONE


def test_a_claim_that_its_publisher_could_not_commit_meanwhile_is_left_to_it() -> None:
    rig = PublicationRig(is_exclusive=False)
    rig.connect(0)
    rig.appender.try_claim(64, limit=rig.publication.publisher_limit)
    rig.poll(1 * SECOND)
    for now_ns in (20 * SECOND, 21 * SECOND):
        rig.publication.forgive_silence(19 * SECOND, now_ns)
        rig.poll(now_ns)
    assert rig.counts[SystemCounterId.UNBLOCKED_PUBLICATIONS] == 0
    rig.poll(40 * SECOND)
    assert rig.counts[SystemCounterId.UNBLOCKED_PUBLICATIONS] == 1


def test_receivers_keep_their_order_and_the_silent_ones_their_silence() -> None:
    liveness = ReceiverLiveness(DriverContext(), Counts().system)
    liveness.on_status_message(1, 0)
    liveness.on_status_message(2, 3 * SECOND)
    liveness.forgive(HOUR, HOUR + 4 * SECOND)
    liveness.expire(HOUR + 5 * SECOND)
    assert len(liveness) == 2
    liveness.expire(HOUR + 5 * SECOND + 1)
    assert list(liveness._last_heard_ns) == [2]
    liveness.forgive(HOUR, HOUR + 6 * SECOND)
    assert liveness._last_heard_ns == {2: HOUR + 6 * SECOND}
