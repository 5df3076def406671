"""What is remembered of sessions without an image, and what makes way."""

from __future__ import annotations

import pytest

from aeron_async.driver.core.session_states import SessionState, SessionStates
from tests.driver.fakes import Counts

COOL_DOWN, NO_INTEREST = SessionState.COOL_DOWN, SessionState.NO_INTEREST
PENDING = SessionState.PENDING_SETUP


@pytest.fixture
def states() -> SessionStates:
    return SessionStates(3, Counts().new())


def known(states: SessionStates, *session_ids: int) -> list[SessionState | None]:
    return [states.state_of(1, session_id, 0) for session_id in session_ids]


def test_what_was_heard_of_least_recently_makes_way(states: SessionStates) -> None:
    for session_id in (1, 2, 3):
        states.set_state(1, session_id, NO_INTEREST)
    assert states.state_of(1, 1, 0) is NO_INTEREST
    states.set_state(1, 2, PENDING)
    states.set_state(2, 4, NO_INTEREST)
    assert known(states, 1, 2, 3) == [NO_INTEREST, PENDING, None]
    assert len(states) == 3
    assert states._evicted.get() == 1


def test_cool_downs_make_way_last_and_for_one_another_only(states: SessionStates) -> None:
    for session_id in (1, 2):
        states.set_state(1, session_id, COOL_DOWN)
    for session_id in (3, 4, 5):
        states.set_state(1, session_id, NO_INTEREST)
    assert known(states, 2, 1, 3, 4, 5) == [COOL_DOWN, COOL_DOWN, None, None, NO_INTEREST]
    states.set_state(1, 6, COOL_DOWN)
    states.set_state(1, 7, COOL_DOWN)
    assert known(states, 1, 2, 5, 6, 7) == [COOL_DOWN, None, None, COOL_DOWN, COOL_DOWN]
    assert len(states) == 3


def test_an_entry_that_is_renewed_takes_no_more_room(states: SessionStates) -> None:
    for _ in range(5):
        for state in (NO_INTEREST, COOL_DOWN, PENDING):
            states.set_state(1, 1, state)
            assert known(states, 1) == [state]
    assert len(states) == 1
    assert states._evicted.get() == 0


def test_what_expires_is_forgotten_when_it_is_asked_for(states: SessionStates) -> None:
    states.set_state(1, 1, PENDING, expiry_ns=10)
    assert states.state_of(1, 1, 9) is PENDING
    assert states.state_of(1, 1, 10) is None
    assert len(states) == 0


def test_only_the_state_that_is_named_is_forgotten(states: SessionStates) -> None:
    states.set_state(1, 1, NO_INTEREST)
    states.set_state(1, 2, COOL_DOWN)
    for session_id in (1, 2, 3):
        states.forget(1, session_id, PENDING)
    assert known(states, 1, 2) == [NO_INTEREST, COOL_DOWN]
    states.forget(1, 1, NO_INTEREST)
    states.forget(1, 2, COOL_DOWN)
    states.forget(1, 2, COOL_DOWN)
    assert known(states, 1, 2) == [None, None]


def test_who_wants_a_stream_ends_the_lack_of_interest_in_that_stream_alone(
    states: SessionStates,
) -> None:
    states.set_state(1, 1, NO_INTEREST)
    states.set_state(1, 2, PENDING)
    states.set_state(2, 1, NO_INTEREST)
    states.forget_uninterest(1, 2)
    states.forget_uninterest(2, 9)
    assert len(states) == 3
    states.forget_uninterest(1, None)
    assert known(states, 1, 2) == [None, PENDING]
    assert states.state_of(2, 1, 0) is NO_INTEREST


def test_what_nobody_wants_any_more_is_forgotten_with_its_stream(states: SessionStates) -> None:
    states.set_state(1, 1, PENDING)
    states.set_state(1, 2, COOL_DOWN)
    states.set_state(2, 1, COOL_DOWN)
    states.keep(1, lambda session_id: session_id == 2)
    assert known(states, 1, 2) == [None, COOL_DOWN]
    states.keep(1, lambda _: False)
    assert len(states) == 1
    assert states.state_of(2, 1, 0) is COOL_DOWN
