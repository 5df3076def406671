"""Min and tagged flow control: who is a member, what holds the limit, and who is let go when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aeron_async.clock import NEVER_NS
from aeron_async.driver.core.flow_control import (
    GroupFlowControl,
    MinMulticastFlowControl,
    PreferredMulticastFlowControl,
    TaggedMulticastFlowControl,
)
from aeron_async.protocol.header import StatusMessageFlags
from aeron_async.protocol.status_message import StatusMessage

if TYPE_CHECKING:
    from collections.abc import Sequence

SECOND = 1_000_000_000
TIMEOUT_NS = 5 * SECOND
WINDOW = 1_000
TAG = 1_001


class Group:
    """A strategy with the limit that its publication would have."""

    def __init__(self, flow_control: GroupFlowControl, limit: int = 0) -> None:
        self.flow_control = flow_control
        self.limit = limit

    def hear(
        self,
        receiver_id: int,
        position: int,
        now_ns: int = 0,
        *,
        window: int = WINDOW,
        **changes: Any,
    ) -> int:
        sm = message(receiver_id, receiver_window=window, **changes)
        self.limit = self.flow_control.on_status_message(
            sm, position=position, sender_limit=self.limit, now_ns=now_ns
        )
        return self.limit

    def leave(self, receiver_id: int, position: int, now_ns: int = 0, **changes: Any) -> int:
        flags = StatusMessageFlags.END_OF_STREAM
        return self.hear(receiver_id, position, now_ns, flags=flags, **changes)

    def idle(self, now_ns: int = 0) -> int:
        self.limit = self.flow_control.on_idle(
            sender_limit=self.limit, sender_position=0, now_ns=now_ns
        )
        return self.limit

    def invite(self, receiver_id: int, now_ns: int = 0, **changes: Any) -> None:
        sm = message(receiver_id, flags=StatusMessageFlags.SEND_SETUP, **changes)
        self.flow_control.on_trigger_send_setup(sm, now_ns=now_ns)
        self.flow_control.on_setup(sender_limit=self.limit, now_ns=now_ns)

    def reject(self, receiver_id: int, group_tag: int | None = None) -> None:
        self.flow_control.on_error(receiver_id=receiver_id, group_tag=group_tag, now_ns=0)


def message(receiver_id: int, **changes: Any) -> StatusMessage:
    return StatusMessage(session_id=7, stream_id=1001, receiver_id=receiver_id, **changes)


@pytest.fixture
def group() -> Group:
    return Group(MinMulticastFlowControl())


@pytest.fixture
def tagged() -> Group:
    return Group(TaggedMulticastFlowControl(group_tag=TAG))


def test_the_slowest_receiver_sets_the_pace(group: Group) -> None:
    assert group.hear(1, 0) == 1_000
    assert group.hear(2, 500) == 1_000
    assert group.hear(1, 800) == 1_500
    assert group.flow_control.slowest_receiver() == "0x0000000000000002"
    assert group.flow_control.receiver_count() == 2


def test_a_slow_receiver_that_disappears_holds_the_limit_until_its_timeout(group: Group) -> None:
    group.hear(1, 0)
    group.hear(2, 0)
    for second in range(1, 6):
        group.hear(2, 900, second * SECOND)
        assert group.limit == 1_000
    assert group.flow_control.deadline_ns() == TIMEOUT_NS + 1
    assert group.idle(TIMEOUT_NS) == 1_000
    assert group.idle(TIMEOUT_NS + 1) == 1_900
    assert group.flow_control.receiver_count() == 1
    assert group.flow_control.deadline_ns() == 2 * TIMEOUT_NS + 1


def test_a_receiver_that_says_goodbye_holds_the_limit_until_the_next_idle_cycle(
    group: Group,
) -> None:
    group.hear(1, 0)
    group.hear(2, 900)
    assert group.leave(1, 0) == 1_000
    assert group.hear(2, 950) == 1_000
    assert group.flow_control.deadline_ns() == 0
    assert group.idle() == 1_950


def test_a_receiver_that_speaks_again_after_its_goodbye_stays(group: Group) -> None:
    group.hear(1, 0)
    group.leave(1, 0)
    group.hear(1, 10)
    assert group.idle() == 1_010
    assert group.flow_control.receiver_count() == 1


@pytest.mark.parametrize(("position", "is_accepted"), [(3_000, True), (2_999, False)])
def test_a_newcomer_is_accepted_up_to_one_window_behind_the_group(
    group: Group,
    position: int,
    is_accepted: bool,  # noqa: FBT001 - a table of cases
) -> None:
    group.hear(1, 4_000)
    assert group.hear(2, position) == 5_000
    assert group.flow_control.receiver_count() == 1 + is_accepted
    assert group.idle() == (position + WINDOW if is_accepted else 5_000)


def test_a_newcomer_is_measured_by_its_own_window(group: Group) -> None:
    group.hear(1, 4_000)
    group.hear(2, 100, window=2_450)
    assert group.flow_control.receiver_count() == 2
    group.hear(3, 0, window=1_274)
    assert group.flow_control.receiver_count() == 2


def test_who_was_refused_is_accepted_when_it_has_caught_up(group: Group) -> None:
    group.hear(1, 4_000)
    group.hear(2, 0)
    group.hear(2, 3_500)
    assert group.flow_control.receiver_count() == 2


def test_a_goodbye_makes_nobody_a_member(group: Group) -> None:
    assert group.leave(1, 500) == 1_500
    assert group.flow_control.receiver_count() == 0


def test_without_idle_cycles_silent_receivers_are_not_let_go(group: Group) -> None:
    group.hear(1, 0)
    for second in range(1, 30):
        assert group.hear(2, 900, second * SECOND) == 1_000
    assert group.flow_control.receiver_count() == 2
    assert group.idle(30 * SECOND) == 1_900


def test_an_idle_cycle_may_move_the_limit_back(group: Group) -> None:
    group.hear(1, 0)
    assert group.hear(1, 0, window=300) == 1_000
    assert group.idle() == 300


def test_an_idle_cycle_without_members_leaves_the_limit(group: Group) -> None:
    group.limit = 77
    assert group.idle() == 77
    group.hear(1, 0)
    assert group.idle(TIMEOUT_NS + 1) == 1_000
    assert group.flow_control.slowest_receiver() is None
    assert group.flow_control.deadline_ns() == NEVER_NS


def test_an_elicited_setup_pins_the_limit_until_the_newcomer_speaks(group: Group) -> None:
    group.hear(1, 0)
    group.invite(2)
    assert group.hear(1, 500) == 1_000
    assert group.idle() == 1_000
    assert group.hear(2, 0) == 1_000
    assert group.hear(2, 500) == 1_500


def test_the_status_message_of_the_newcomer_is_still_held_by_the_guard(group: Group) -> None:
    group.hear(1, 0)
    group.invite(2)
    group.hear(1, 500)
    assert group.hear(2, 800) == 1_000
    assert group.idle() == 1_500


def test_an_elicited_setup_pins_the_limit_no_longer_than_the_timeout(group: Group) -> None:
    group.hear(1, 0)
    group.invite(2, SECOND)
    group.hear(1, 500, 4 * SECOND)
    assert group.flow_control.deadline_ns() == SECOND + TIMEOUT_NS + 1
    assert group.idle(SECOND + TIMEOUT_NS) == 1_000
    assert group.idle(SECOND + TIMEOUT_NS + 1) == 1_500
    assert group.flow_control.deadline_ns() == 4 * SECOND + TIMEOUT_NS + 1


def test_a_member_that_asks_for_the_setup_again_does_not_hold_the_group_up(group: Group) -> None:
    """A SETUP forged to it makes it ask, and that must cost nobody anything."""
    group.hear(1, 0)
    group.invite(1, SECOND)
    assert group.hear(1, 500, 2 * SECOND) == 1_500


def test_a_setup_that_nobody_of_the_group_asked_for_pins_nothing(tagged: Group) -> None:
    tagged.hear(1, 0, group_tag=TAG)
    tagged.invite(2)
    assert tagged.hear(1, 500, group_tag=TAG) == 1_500
    tagged.flow_control.on_setup(sender_limit=tagged.limit, now_ns=0)
    assert tagged.hear(1, 600, group_tag=TAG) == 1_600


def test_a_stranger_does_not_undo_the_wish_of_a_member(tagged: Group) -> None:
    tagged.hear(1, 0, group_tag=TAG)
    wish = message(2, flags=StatusMessageFlags.SEND_SETUP, group_tag=TAG)
    tagged.flow_control.on_trigger_send_setup(wish, now_ns=0)
    tagged.invite(3)
    assert tagged.hear(1, 500, group_tag=TAG) == 1_000


def test_a_setup_before_anybody_is_there_pins_nothing(group: Group) -> None:
    group.invite(1)
    assert group.hear(1, 0) == 1_000
    assert group.hear(1, 500) == 1_500


def test_untagged_receivers_alone_drive_a_tagged_publication(tagged: Group) -> None:
    assert tagged.hear(1, 0) == 1_000
    assert tagged.hear(2, 5_000, group_tag=TAG + 1) == 6_000
    assert tagged.idle() == 6_000
    assert tagged.flow_control.receiver_count() == 0


def test_a_tagged_receiver_joins_however_far_the_untagged_ones_are(tagged: Group) -> None:
    tagged.hear(1, 50_000)
    assert tagged.hear(2, 0, group_tag=TAG) == 51_000
    assert tagged.flow_control.receiver_count() == 1
    assert tagged.idle() == 1_000


def test_untagged_receivers_no_longer_count_once_a_tagged_one_is_there(tagged: Group) -> None:
    tagged.hear(1, 0, group_tag=TAG)
    assert tagged.hear(2, 90_000) == 1_000
    assert tagged.leave(1, 0) == 1_000
    assert tagged.idle() == 1_000
    assert tagged.hear(1, 100, group_tag=TAG) == 1_100


def test_a_member_that_loses_its_tag_is_not_heard(tagged: Group) -> None:
    tagged.hear(1, 0, group_tag=TAG)
    assert tagged.hear(1, 500) == 1_000
    assert tagged.flow_control.deadline_ns() == TIMEOUT_NS + 1


@pytest.mark.parametrize("feedback", [b"\xe9\x03\x00\x00", b"\xff\xff\xff\xff", b"\xff" * 9])
def test_feedback_that_is_not_eight_bytes_is_no_tag(feedback: bytes) -> None:
    for tag in (TAG, -1):
        tagged = Group(TaggedMulticastFlowControl(group_tag=tag))
        tagged.hear(1, 0, feedback=feedback)
        assert tagged.flow_control.receiver_count() == 0


def test_a_group_that_is_too_small_holds_the_limit() -> None:
    group = Group(MinMulticastFlowControl(group_min_size=2))
    assert not group.flow_control.has_required_receivers()
    assert group.hear(1, 0) == 0
    assert group.hear(2, 0) == 1_000
    assert group.flow_control.has_required_receivers()


def test_a_group_that_becomes_too_small_freezes_the_limit() -> None:
    group = Group(MinMulticastFlowControl(group_min_size=2))
    group.hear(1, 0)
    group.hear(2, 100)
    group.leave(1, 0)
    assert group.idle() == 1_000
    assert not group.flow_control.has_required_receivers()
    assert group.hear(2, 900) == 1_000
    assert group.idle() == 1_000
    assert group.hear(3, 500) == 1_500


def test_a_group_without_a_minimum_is_never_too_small(group: Group) -> None:
    assert group.flow_control.has_required_receivers()


@pytest.mark.parametrize("tag", [None, TAG, TAG + 1])
def test_a_member_that_rejects_the_stream_leaves_whatever_its_tag(
    tagged: Group, tag: int | None
) -> None:
    tagged.hear(1, 0, group_tag=TAG)
    tagged.hear(2, 900, group_tag=TAG)
    tagged.reject(1, tag)
    tagged.reject(1, tag)
    tagged.reject(3, tag)
    assert tagged.idle() == 1_900
    assert tagged.flow_control.receiver_count() == 1
    assert tagged.flow_control.deadline_ns() == TIMEOUT_NS + 1


def test_one_member_more_than_there_may_be_is_refused_and_counted() -> None:
    group = Group(MinMulticastFlowControl(max_receivers=2))
    group.hear(1, 500)
    group.hear(2, 500)
    for receiver_id in range(3, 103):
        assert group.hear(receiver_id, 400) == 1_500
    assert group.flow_control.receiver_count() == 2
    assert group.flow_control.refused_count() == 100
    assert group.idle() == 1_500


def test_whoever_is_gone_makes_way_for_a_newcomer() -> None:
    group = Group(MinMulticastFlowControl(max_receivers=2))
    group.hear(1, 500)
    group.hear(2, 500, SECOND)
    group.hear(3, 500, TIMEOUT_NS)
    assert group.flow_control.refused_count() == 1
    group.hear(3, 500, TIMEOUT_NS + 1)
    group.leave(2, 500, TIMEOUT_NS + 1)
    group.hear(4, 500, TIMEOUT_NS + 1)
    assert group.flow_control.refused_count() == 1
    assert group.flow_control.receiver_count() == 2


def test_the_pace_is_asked_for_when_an_edge_has_changed_and_not_otherwise() -> None:
    class Counting(GroupFlowControl):
        asked: list[list[int]]

        def pace(self, edges: Sequence[int]) -> int:
            self.asked.append(list(edges))
            return super().pace(edges)

    flow_control = Counting()
    flow_control.asked = []
    group = Group(flow_control)
    group.hear(1, 100)
    group.hear(2, 300)
    assert flow_control.asked == [[1_100], [1_100, 1_300]], "once for a newcomer"
    for now_ns in range(1, 10):
        group.hear(1, 100, now_ns)
        group.hear(2, 300, now_ns)
        group.idle(now_ns)
    assert len(flow_control.asked) == 2
    assert flow_control.slowest_receiver() == f"{1:#018x}"
    assert group.hear(1, 500, 10) == 1_300
    group.leave(2, 300, 11)
    assert group.idle(12) == 1_500
    assert flow_control.asked[2:] == [[1_500, 1_300], [1_500]]


def test_the_old_name_does_the_same_and_says_what_to_use() -> None:
    with pytest.warns(DeprecationWarning, match="use TaggedMulticastFlowControl"):
        group = Group(PreferredMulticastFlowControl(group_tag=TAG))
    group.hear(1, 0, group_tag=TAG)
    assert group.hear(2, 5_000) == 1_000
