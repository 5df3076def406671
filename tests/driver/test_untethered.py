"""Untethered subscribers of an image: when they lose it, rest, and have it back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.clock import NEVER_NS
from aeron_async.driver.core.image_state import ImageState
from aeron_async.driver.core.subscriber_position import (
    SHORTEST_TIMEOUT_NS,
    SubscriberPosition,
    SubscriberPositions,
    TetherEvent,
    TetherState,
    UntetheredTimeouts,
)
from tests.driver.fakes import EOS, SECOND, WINDOW, Counts, data, heartbeat
from tests.driver.rigs import ImageRig
from tests.logbuffer.logs import make_log

TIMEOUTS = {
    "untethered_window_limit_timeout_ns": 5 * SECOND,
    "untethered_linger_timeout_ns": 2 * SECOND,
    "untethered_resting_timeout_ns": 10 * SECOND,
}
SLOW = 1
BEHIND = WINDOW - WINDOW // 4


class Rig(ImageRig):
    """An image with a tethered subscriber that reads, and an untethered one that does not."""

    def __init__(self, *, is_rejoin: bool = True) -> None:
        super().__init__(spec=TIMEOUTS)
        self.subscribe(is_tether=False, is_rejoin=is_rejoin)
        self.slow = list(self.image.subscribers)[SLOW]
        self.end = 0
        self.now_ns = 0

    def state_of_slow(self) -> TetherState:
        return self.slow.state

    def stream(self, length: int) -> None:
        """Let `length` bytes arrive, and the fast subscriber take them."""
        for _ in range(length // 1_024):
            self.feed(data(self.end, 1_024), self.now_ns)
            self.end += 1_024
        self.image.poll(self.now_ns)
        self.consume_to(self.end)
        self.image.poll(self.now_ns)

    def at(self, now_ns: int) -> int:
        """Keep the source alive, and return the next deadline there is at a time."""
        self.now_ns = now_ns
        self.feed(heartbeat(self.end), now_ns)
        return self.image.poll(now_ns)


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.fixture
def behind() -> Rig:
    """Return a rig whose slow subscriber has just come to stand at the end of the window."""
    rig = Rig()
    rig.stream(BEHIND)
    return rig


@pytest.fixture
def resting(behind: Rig) -> Rig:
    for now_ns in (5 * SECOND, 7 * SECOND):
        behind.at(now_ns)
    return behind


def test_a_subscriber_within_three_quarters_of_the_window_is_left_alone(rig: Rig) -> None:
    rig.stream(BEHIND - 1_024)
    rig.at(9 * SECOND)
    rig.at(18 * SECOND)
    assert rig.state_of_slow() is TetherState.ACTIVE
    assert rig.told == []


def test_a_subscriber_at_the_limit_loses_its_image_after_the_window_limit_timeout(
    behind: Rig,
) -> None:
    behind.at(5 * SECOND - 1)
    assert behind.told == []
    behind.at(5 * SECOND)
    assert behind.told == [("unavailable", SLOW)]
    assert behind.state_of_slow() is TetherState.LINGER


def test_the_image_wants_to_be_polled_when_the_timeout_has_passed(behind: Rig) -> None:
    deadlines = {behind.at(now_ns) for now_ns in (5 * SECOND - 3, 5 * SECOND - 2)}
    assert deadlines == {5 * SECOND}


def test_a_subscriber_that_reads_in_time_keeps_its_image(behind: Rig) -> None:
    behind.at(4 * SECOND)
    behind.consume_to(32, SLOW)
    behind.at(5 * SECOND)
    assert behind.slow.since_ns == NEVER_NS
    behind.stream(1_024)
    behind.at(9 * SECOND)
    assert behind.told == []
    behind.at(10 * SECOND)
    assert behind.told == [("unavailable", SLOW)]


def test_a_tethered_subscriber_is_never_left_behind(rig: Rig) -> None:
    rig.subscribe()
    rig.stream(BEHIND)
    rig.at(5 * SECOND)
    rig.at(10 * SECOND)
    assert rig.told == [("unavailable", SLOW)]
    assert all(each.is_active for each in rig.image.subscribers if each.is_tether)


def test_a_subscriber_that_lingers_still_holds_the_stream_back(behind: Rig) -> None:
    behind.at(5 * SECOND)
    assert behind.image.join_position == 0
    assert behind.image.subscribers.consumed() == [BEHIND, 0]


def test_a_subscriber_that_rests_holds_nobody_back(resting: Rig) -> None:
    assert resting.state_of_slow() is TetherState.RESTING
    assert resting.image.subscribers.consumed() == [BEHIND]
    assert resting.image.join_position == BEHIND
    resting.status_messages()
    resting.image.poll(resting.now_ns)
    (sm,) = resting.status_messages()
    assert sm.consumption_term_offset == BEHIND


def test_what_becomes_of_a_subscriber_is_due_exactly_then(behind: Rig) -> None:
    assert behind.at(5 * SECOND) == 5 * SECOND
    behind.at(7 * SECOND - 1)
    assert behind.state_of_slow() is TetherState.LINGER
    assert behind.at(7 * SECOND) == 7 * SECOND
    assert behind.state_of_slow() is TetherState.RESTING
    behind.at(17 * SECOND - 1)
    assert behind.state_of_slow() is TetherState.RESTING
    behind.at(17 * SECOND)
    assert behind.state_of_slow() is TetherState.ACTIVE


def test_a_subscriber_that_has_rested_joins_where_a_late_one_would(resting: Rig) -> None:
    resting.now_ns = 8 * SECOND
    resting.stream(8 * 1_024)
    resting.consume_to(resting.end - 1_024)
    resting.at(17 * SECOND)
    assert resting.told == [("unavailable", SLOW), ("available", SLOW)]
    assert resting.slow.position.get() == resting.end - 1_024
    assert resting.slow.since_ns == NEVER_NS


def test_without_rejoin_a_subscriber_is_closed() -> None:
    rig = Rig(is_rejoin=False)
    rig.stream(BEHIND)
    rig.at(5 * SECOND)
    rig.at(7 * SECOND)
    assert rig.state_of_slow() is TetherState.CLOSED
    assert rig.slow.position.is_closed
    assert rig.image.remove_subscriber(SLOW) is None
    rig.at(16 * SECOND)
    assert rig.told == [("unavailable", SLOW)]


def test_a_subscription_can_be_closed_while_it_rests(resting: Rig) -> None:
    assert resting.image.remove_subscriber(SLOW) is resting.slow
    resting.at(16 * SECOND)
    resting.at(17 * SECOND)
    assert resting.told == [("unavailable", SLOW)]


def test_a_subscriber_that_lingers_does_not_keep_an_image_from_draining(behind: Rig) -> None:
    behind.at(5 * SECOND)
    behind.feed(heartbeat(behind.end, EOS), 5 * SECOND)
    behind.image.poll(5 * SECOND)
    assert behind.state() is ImageState.DRAINING
    behind.image.poll(6 * SECOND)
    assert behind.state() is ImageState.LINGER


def test_an_image_that_only_a_resting_subscriber_holds_is_abandoned(resting: Rig) -> None:
    resting.image.remove_subscriber(0)
    assert not resting.image.is_accepting_subscriptions
    resting.image.poll(8 * SECOND)
    assert resting.state() is ImageState.DRAINING


def test_the_timeouts_are_those_of_the_log_and_never_nothing() -> None:
    assert UntetheredTimeouts.of(make_log(**TIMEOUTS).metadata) == UntetheredTimeouts(
        window_limit_ns=5 * SECOND, linger_ns=2 * SECOND, resting_ns=10 * SECOND
    )
    assert UntetheredTimeouts.of(make_log().metadata) == UntetheredTimeouts(
        window_limit_ns=SHORTEST_TIMEOUT_NS,
        linger_ns=SHORTEST_TIMEOUT_NS,
        resting_ns=SHORTEST_TIMEOUT_NS,
    )


def test_a_collection_knows_who_counts() -> None:
    counts, positions = Counts(), SubscriberPositions()
    assert not positions.has_working
    assert positions.join_position(96) == 96
    assert positions.have_consumed(96)
    for subscription_id, position in enumerate((64, 128)):
        positions.add(
            SubscriberPosition(
                subscription_id=subscription_id, position=counts.new(position), on_progress=print
            )
        )
    assert len(positions) == 2
    assert positions.join_position(96) == 64
    assert positions.have_consumed(64)
    assert not positions.have_consumed(96)
    positions.clear()
    assert not positions.has_working
    assert list(positions) == []


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["add", "remove", "move"]))))
def test_a_collection_is_the_same_whether_changed_in_pieces_or_sorted_anew(
    steps: list[tuple[int, str]],
) -> None:
    counts, positions = Counts(), SubscriberPositions()
    for number, step in steps:
        known = {each.subscription_id: each for each in positions}
        if step == "add" and number not in known:
            positions.add(
                SubscriberPosition(
                    subscription_id=number,
                    position=counts.new(number),
                    on_progress=print,
                    is_tether=number % 2 == 0,
                )
            )
        elif step == "remove":
            assert positions.remove(number) is known.get(number)
        elif step == "move" and number in known and known[number].is_active:
            positions.move(known[number], TetherEvent.LEFT_BEHIND, 1)
        found = positions.active, positions.untethered, positions.consumed()
        positions._sort()
        assert found == (positions.active, positions.untethered, positions.consumed())


def test_it_is_counted_how_often_a_stream_went_on_without_a_reader() -> None:
    counts, positions = Counts(), SubscriberPositions()
    reader = SubscriberPosition(
        subscription_id=1, position=counts.new(0), on_progress=print, is_tether=False
    )
    positions.add(reader)
    found = []
    for event in (
        TetherEvent.LEFT_BEHIND,
        TetherEvent.SET_ASIDE,
        TetherEvent.REJOINED,
        TetherEvent.LEFT_BEHIND,
        TetherEvent.GIVEN_UP,
    ):
        positions.move(reader, event, 1)
        found.append(reader.left_count)
    assert found == [0, 1, 1, 1, 2]
