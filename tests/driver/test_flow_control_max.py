"""Max flow control, what a NAK of a group may bring, and a strategy that says hardly anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aeron_async.clock import NEVER_NS
from aeron_async.driver.core.flow_control import (
    FlowControl,
    MaxMulticastFlowControl,
    MinMulticastFlowControl,
)
from tests.driver.test_flow_control_group import WINDOW, message

if TYPE_CHECKING:
    from aeron_async.protocol.status_message import StatusMessage

KIB = 1024
MIB = 1024 * KIB


def test_the_fastest_receiver_sets_the_pace_of_max() -> None:
    flow_control = MaxMulticastFlowControl()
    assert flow_control.slowest_receiver() is None
    limit = 0
    for receiver_id, position, expected in ((1, 0, 1_000), (2, 500, 1_500), (1, 100, 1_500)):
        limit = flow_control.on_status_message(
            message(receiver_id, receiver_window=WINDOW),
            position=position,
            sender_limit=limit,
            now_ns=0,
        )
        assert limit == expected
    assert flow_control.slowest_receiver() == "0x0000000000000002"
    assert flow_control.receiver_count() is None


def test_a_nak_of_a_group_brings_four_windows_unless_told_otherwise() -> None:
    gap = {"term_offset": 0, "length": 16 * MIB, "term_length": 16 * MIB}
    assert MaxMulticastFlowControl().max_retransmission_length(**gap) == 512 * KIB
    assert MinMulticastFlowControl().max_retransmission_length(**gap) == 512 * KIB
    two = MinMulticastFlowControl(retransmit_receiver_window_multiple=2)
    assert two.max_retransmission_length(**gap) == 256 * KIB


def test_a_gap_of_a_mebibyte_takes_eight_rounds_with_one_window_each() -> None:
    flow_control = MaxMulticastFlowControl(retransmit_receiver_window_multiple=1)
    offset = rounds = 0
    while offset < MIB:
        offset += flow_control.max_retransmission_length(
            term_offset=offset, length=MIB - offset, term_length=16 * MIB
        )
        rounds += 1
    assert rounds == 8


class Plain(FlowControl):
    """What a strategy is that says no more than it must."""

    def on_status_message(
        self, sm: StatusMessage, *, position: int, sender_limit: int, now_ns: int
    ) -> int:
        return position


def test_a_strategy_need_say_no_more_than_what_a_status_message_does() -> None:
    plain = Plain()
    sm = message(1)
    assert plain.on_status_message(sm, position=5, sender_limit=0, now_ns=0) == 5
    plain.on_trigger_send_setup(sm, now_ns=0)
    plain.on_setup(sender_limit=5, now_ns=0)
    plain.on_error(receiver_id=1, group_tag=None, now_ns=0)
    assert plain.on_idle(sender_limit=5, sender_position=7, now_ns=2**60) == 5
    assert plain.deadline_ns() == NEVER_NS
    assert plain.has_required_receivers()
    assert (plain.receiver_count(), plain.refused_count(), plain.slowest_receiver()) == (
        None,
        0,
        None,
    )
    gap = {"term_offset": 0, "length": 16 * MIB, "term_length": 16 * MIB}
    assert plain.max_retransmission_length(**gap) == 512 * KIB
