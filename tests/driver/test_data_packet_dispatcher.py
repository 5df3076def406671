"""From a datagram to its image: every state of a session, and everything that can arrive."""

from __future__ import annotations

import pytest

from aeron_async.driver.core.context import DriverContext
from aeron_async.driver.core.session_states import SessionState
from aeron_async.driver.core.system_counters import DriverCounterId, SystemCounterId
from aeron_async.protocol.header import StatusMessageFlags
from aeron_async.protocol.status_message import StatusMessage
from tests.driver.fakes import (
    EOS,
    MS,
    OTHER_SOURCE,
    RECEIVER_ID,
    SECOND,
    SOURCE,
    data,
    heartbeat,
    setup,
)
from tests.driver.rigs import DispatcherRig
from tests.logbuffer.logs import INITIAL_TERM_ID, SESSION_ID, STREAM_ID

OTHER_SESSION = SESSION_ID + 1


@pytest.fixture
def rig() -> DispatcherRig:
    rig = DispatcherRig()
    rig.dispatcher.add_subscription(STREAM_ID, None)
    return rig


DATA = data(0, 64)
LAST_HEARTBEAT = heartbeat(64, EOS)
SETUP = setup().encode()


def test_what_no_stream_wants_is_dropped_without_a_trace() -> None:
    rig = DispatcherRig()
    for datagram in (DATA, LAST_HEARTBEAT, SETUP):
        rig.feed(datagram)
    assert rig.outbox.sent == []
    assert rig.setups == []
    assert rig.dispatcher._streams == {}


# No state: nothing is known of the session.


@pytest.mark.parametrize("datagram", [DATA, heartbeat(0)], ids=["data", "heartbeat"])
def test_data_of_an_unknown_session_is_answered_by_asking_for_a_setup(
    rig: DispatcherRig, datagram: bytes
) -> None:
    rig.feed(datagram)
    assert rig.outbox.addresses == [SOURCE]
    assert rig.elicited() == [
        StatusMessage(
            session_id=SESSION_ID,
            stream_id=STREAM_ID,
            receiver_id=RECEIVER_ID,
            flags=StatusMessageFlags.SEND_SETUP,
        )
    ]
    assert rig.state() is SessionState.PENDING_SETUP


def test_a_group_tag_is_carried_by_the_question_too() -> None:
    rig = DispatcherRig(group_tag=77)
    rig.dispatcher.add_subscription(STREAM_ID, None)
    rig.feed(DATA)
    assert [sm.group_tag for sm in rig.elicited()] == [77]


def test_the_end_of_an_unknown_session_asks_for_nothing(rig: DispatcherRig) -> None:
    rig.feed(LAST_HEARTBEAT)
    assert rig.elicited() == []
    assert rig.state() is None


def test_a_setup_of_an_unknown_session_makes_an_image(rig: DispatcherRig) -> None:
    rig.feed(SETUP, source=OTHER_SOURCE)
    assert rig.setups == [(setup(), OTHER_SOURCE)]
    assert rig.dispatcher.image_count(STREAM_ID) == 1
    assert rig.dispatcher.image_count(STREAM_ID + 1) == 0


@pytest.mark.parametrize("datagram", [DATA, SETUP], ids=["data", "setup"])
def test_a_session_that_nobody_wants_is_remembered_as_such(datagram: bytes) -> None:
    rig = DispatcherRig()
    rig.dispatcher.add_subscription(STREAM_ID, OTHER_SESSION)
    rig.feed(datagram)
    assert rig.state() is SessionState.NO_INTEREST
    assert rig.elicited() == []
    assert rig.setups == []


# Pending setup.


def test_a_session_is_asked_once_a_second(rig: DispatcherRig) -> None:
    asked = []
    for ms in range(0, 3_500, 10):
        rig.feed(DATA, ms * MS)
        asked += [ms] * len(rig.elicited())
    assert asked == [0, 1_000, 2_000, 3_000]


def test_a_pending_session_is_made_an_image_by_its_setup(rig: DispatcherRig) -> None:
    rig.feed(DATA)
    rig.feed(SETUP, 1)
    assert len(rig.setups) == 1
    assert rig.state() is None
    rig.feed(DATA, 2)
    assert rig.activity == [rig.images[0].image]
    assert rig.images[0].image.hwm_position == 64


def test_the_end_of_a_pending_session_is_ignored(rig: DispatcherRig) -> None:
    rig.feed(DATA)
    rig.elicited()
    rig.feed(LAST_HEARTBEAT)
    assert rig.elicited() == []
    assert rig.state() is SessionState.PENDING_SETUP


def test_an_image_that_cannot_be_made_is_tried_again_with_every_setup(rig: DispatcherRig) -> None:
    rig.is_refusing = True
    for now_ns in range(3):
        rig.feed(SETUP, now_ns)
    assert len(rig.setups) == 3
    rig.is_refusing = False
    rig.feed(SETUP, 4)
    rig.feed(SETUP, 5)
    assert len(rig.setups) == 4


# An image.


def test_an_image_gets_its_data_and_the_end_of_its_stream(rig: DispatcherRig) -> None:
    rig.feed(SETUP)
    rig.feed(DATA, 1)
    rig.feed(LAST_HEARTBEAT, 2)
    image = rig.images[0].image
    assert rig.activity == [image, image]
    assert image.is_end_of_stream
    assert rig.elicited() == []


def test_a_setup_for_an_image_only_keeps_its_connection(rig: DispatcherRig) -> None:
    rig.feed(SETUP)
    rig.feed(SETUP, 3 * SECOND)
    assert len(rig.setups) == 1
    assert rig.images[0].connection().last_activity_ns == 3 * SECOND


def test_sessions_of_one_stream_do_not_meet(rig: DispatcherRig) -> None:
    rig.feed(SETUP)
    rig.feed(setup(session_id=OTHER_SESSION).encode())
    rig.feed(data(0, 64, session_id=OTHER_SESSION))
    assert rig.images[0].image.hwm_position == 0
    assert rig.images[1].image.hwm_position == 64
    assert rig.dispatcher.image_count(STREAM_ID) == 2


# Cool-down.


def cooled(rig: DispatcherRig) -> None:
    rig.feed(SETUP)
    rig.dispatcher.remove_image(rig.images[0].image)


def test_a_session_whose_image_went_away_cools_down(rig: DispatcherRig) -> None:
    cooled(rig)
    assert rig.state() is SessionState.COOL_DOWN
    for datagram in (DATA, LAST_HEARTBEAT, SETUP):
        rig.feed(datagram, 3_600 * SECOND)
    assert rig.elicited() == []
    assert len(rig.setups) == 1
    assert rig.activity == []


def test_a_session_that_has_cooled_down_may_come_back(rig: DispatcherRig) -> None:
    cooled(rig)
    rig.dispatcher.remove_cool_down(rig.images[0].image)
    rig.feed(DATA)
    assert len(rig.elicited()) == 1
    rig.feed(SETUP)
    assert len(rig.setups) == 2


def test_without_rejoining_a_session_stays_away_until_its_subscription_goes(
    rig: DispatcherRig,
) -> None:
    cooled(rig)
    rig.dispatcher.remove_subscription(STREAM_ID, None)
    rig.dispatcher.add_subscription(STREAM_ID, None)
    rig.feed(SETUP)
    assert len(rig.setups) == 2


def test_an_image_whose_stream_has_ended_leaves_nothing_behind(rig: DispatcherRig) -> None:
    rig.feed(SETUP)
    rig.feed(heartbeat(0, EOS))
    rig.dispatcher.remove_image(rig.images[0].image)
    assert rig.state() is None
    rig.feed(setup(initial_term_id=INITIAL_TERM_ID + 9).encode())
    assert len(rig.setups) == 2


def test_removing_an_image_twice_or_one_that_was_replaced_changes_nothing(
    rig: DispatcherRig,
) -> None:
    rig.feed(SETUP)
    old = rig.images[0].image
    rig.dispatcher.remove_image(old)
    rig.dispatcher.remove_cool_down(old)
    rig.feed(SETUP)
    rig.dispatcher.remove_image(old)
    assert rig.dispatcher.image_count(STREAM_ID) == 1
    assert rig.state() is None


def test_an_image_of_a_stream_that_is_gone_is_removed_without_a_word(rig: DispatcherRig) -> None:
    rig.feed(SETUP)
    rig.dispatcher.remove_subscription(STREAM_ID, None)
    rig.dispatcher.remove_image(rig.images[0].image)
    rig.dispatcher.remove_cool_down(rig.images[0].image)
    assert rig.dispatcher._streams == {}


# No interest.


@pytest.mark.parametrize("session_id", [None, SESSION_ID])
def test_a_new_subscription_ends_the_lack_of_interest(session_id: int | None) -> None:
    rig = DispatcherRig()
    rig.dispatcher.add_subscription(STREAM_ID, OTHER_SESSION)
    rig.feed(SETUP)
    rig.feed(LAST_HEARTBEAT)
    rig.feed(DATA, 3_600 * SECOND)
    assert rig.elicited() == []
    rig.dispatcher.add_subscription(STREAM_ID, session_id)
    rig.feed(SETUP)
    assert len(rig.setups) == 1


def test_a_subscription_of_another_session_does_not(rig: DispatcherRig) -> None:
    rig = DispatcherRig()
    rig.dispatcher.add_subscription(STREAM_ID, OTHER_SESSION)
    rig.feed(SETUP)
    rig.dispatcher.add_subscription(STREAM_ID, OTHER_SESSION + 1)
    assert rig.state() is SessionState.NO_INTEREST


def test_a_new_subscription_does_not_end_a_cool_down(rig: DispatcherRig) -> None:
    cooled(rig)
    rig.dispatcher.add_subscription(STREAM_ID, None)
    rig.dispatcher.add_subscription(STREAM_ID, SESSION_ID)
    assert rig.state() is SessionState.COOL_DOWN


# Subscriptions come and go.


def test_an_image_that_nobody_wants_any_more_gets_no_data(rig: DispatcherRig) -> None:
    rig.feed(SETUP)
    rig.dispatcher.remove_subscription(STREAM_ID, None)
    rig.feed(DATA)
    assert rig.activity == []


def test_who_subscribes_again_gets_a_new_image_and_not_the_old_one(rig: DispatcherRig) -> None:
    rig.feed(SETUP)
    rig.dispatcher.remove_subscription(STREAM_ID, None)
    rig.dispatcher.add_subscription(STREAM_ID, None)
    rig.feed(DATA)
    assert len(rig.elicited()) == 1
    rig.feed(SETUP)
    assert len(rig.setups) == 2


def test_of_two_kinds_of_subscription_each_keeps_its_own_images(rig: DispatcherRig) -> None:
    rig.dispatcher.add_subscription(STREAM_ID, SESSION_ID)
    rig.feed(SETUP)
    rig.feed(setup(session_id=OTHER_SESSION).encode())
    rig.dispatcher.remove_subscription(STREAM_ID, None)
    assert rig.dispatcher.image_count(STREAM_ID) == 1
    rig.feed(DATA)
    rig.feed(data(0, 64, session_id=OTHER_SESSION))
    assert rig.activity == [rig.images[0].image]
    rig.dispatcher.remove_subscription(STREAM_ID, SESSION_ID)
    assert rig.dispatcher._streams == {}


def test_all_sessions_keep_what_one_session_lets_go(rig: DispatcherRig) -> None:
    rig.dispatcher.add_subscription(STREAM_ID, SESSION_ID)
    rig.feed(SETUP)
    rig.dispatcher.remove_subscription(STREAM_ID, SESSION_ID)
    assert rig.dispatcher.image_count(STREAM_ID) == 1


# Bounds.


def test_no_more_setups_are_elicited_in_a_second_than_the_context_allows() -> None:
    rig = DispatcherRig(context=DriverContext(max_elicited_setups_per_second=3))
    rig.dispatcher.add_subscription(STREAM_ID, None)
    for session_id in range(5):
        rig.feed(data(0, 64, session_id=session_id), 10)
    assert len(rig.elicited()) == 3
    assert rig.counts[DriverCounterId.ELICITED_SETUPS_SUPPRESSED] == 2
    rig.feed(data(0, 64, session_id=4), SECOND + 9)
    assert rig.elicited() == []
    rig.feed(data(0, 64, session_id=4), SECOND + 10)
    assert [sm.session_id for sm in rig.elicited()] == [4]


def test_no_more_sessions_are_remembered_than_there_may_be_over_all_streams() -> None:
    rig = DispatcherRig(context=DriverContext(max_session_states=8))
    for stream_id in (STREAM_ID, STREAM_ID + 1):
        rig.dispatcher.add_subscription(stream_id, OTHER_SESSION)
    for session_id in range(8):
        rig.feed(data(0, 64, session_id=session_id, stream_id=STREAM_ID + session_id % 2))
    assert rig.counts[DriverCounterId.SESSION_STATES_EVICTED] == 0
    rig.feed(data(0, 64, session_id=0))
    rig.feed(data(0, 64, session_id=8))
    assert rig.state(session_id=0) is SessionState.NO_INTEREST, "heard of again"
    assert rig.state(session_id=2) is SessionState.NO_INTEREST
    assert rig.state(session_id=8) is SessionState.NO_INTEREST
    states = rig.dispatcher._states
    assert states.state_of(STREAM_ID + 1, 1, 0) is None, "of that one nobody has heard since"
    assert len(states) == 8
    assert rig.counts[DriverCounterId.SESSION_STATES_EVICTED] == 1


def test_no_flood_of_unknown_sessions_ends_a_cool_down_or_an_image() -> None:
    rig = DispatcherRig(context=DriverContext(max_session_states=8))
    rig.dispatcher.add_subscription(STREAM_ID, None)
    cooled(rig)
    rig.feed(setup(session_id=OTHER_SESSION).encode())
    rig.dispatcher.add_subscription(STREAM_ID + 1, OTHER_SESSION)
    for index in range(100):
        rig.feed(data(0, 64, session_id=1_000 + index))
        rig.feed(data(0, 64, session_id=1_000 + index, stream_id=STREAM_ID + 1))
    assert len(rig.dispatcher._states) == 8
    assert rig.state() is SessionState.COOL_DOWN
    rig.feed(SETUP)
    assert len(rig.setups) == 2
    rig.feed(data(0, 64, session_id=OTHER_SESSION))
    assert rig.activity == [rig.images[1].image]


def test_a_cool_down_goes_with_the_last_who_wants_its_session(rig: DispatcherRig) -> None:
    cooled(rig)
    rig.dispatcher.add_subscription(STREAM_ID, OTHER_SESSION)
    rig.dispatcher.remove_subscription(STREAM_ID, None)
    assert rig.state() is None


def test_no_more_sessions_are_waited_for_at_once_than_the_context_allows() -> None:
    rig = DispatcherRig(context=DriverContext(max_pending_setups=3))
    for stream_id in (STREAM_ID, STREAM_ID + 1):
        rig.dispatcher.add_subscription(stream_id, None)
    for session_id in range(4):
        rig.feed(data(0, 64, session_id=session_id), session_id)
    rig.feed(data(0, 64, stream_id=STREAM_ID + 1), 4)
    assert [sm.session_id for sm in rig.elicited()] == [0, 1, 2]
    assert rig.counts[DriverCounterId.PENDING_SETUPS_REFUSED] == 2
    rig.feed(setup(session_id=1).encode(), 5)
    rig.feed(data(0, 64, session_id=3), 6)
    rig.feed(data(0, 64, session_id=4), 7)
    assert [sm.session_id for sm in rig.elicited()] == [3], "an image is not waited for any more"
    assert rig.counts[DriverCounterId.PENDING_SETUPS_REFUSED] == 3
    rig.feed(data(0, 64, session_id=4), SECOND)
    assert [sm.session_id for sm in rig.elicited()] == [4], "the first was waited for long enough"
    assert len(rig.dispatcher._pending_setups) == 3


def test_a_question_that_cannot_leave_is_counted(rig: DispatcherRig) -> None:
    rig.outbox.is_full = True
    rig.feed(DATA)
    assert rig.counts[SystemCounterId.SHORT_SENDS] == 1
    assert rig.state() is SessionState.PENDING_SETUP
