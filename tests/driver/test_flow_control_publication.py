"""A publication and the flow control of its group: connection, counters, deadlines, stalls."""

from __future__ import annotations

from typing import Any

from aeron_async.clock import NEVER_NS
from aeron_async.driver.core.flow_control import (
    FlowControl,
    MinMulticastFlowControl,
    TaggedMulticastFlowControl,
)
from aeron_async.driver.core.system_counters import DriverCounterId
from aeron_async.protocol.datagram import DataFrame
from aeron_async.protocol.error import ErrorFrame
from aeron_async.protocol.header import StatusMessageFlags
from tests.driver.fakes import MS, SECOND, WINDOW, eliciting_message
from tests.driver.rigs import PublicationRig
from tests.logbuffer.logs import SESSION_ID, STREAM_ID

TAG = 1_001
FAST, SLOW = 1, 2


def rig_with(flow_control: FlowControl, **params: Any) -> PublicationRig:
    return PublicationRig(
        flow_control=flow_control, is_unicast=False, has_group_semantics=True, **params
    )


def receivers(rig: PublicationRig) -> int:
    assert rig.counters.flow_control_receivers is not None
    return rig.counters.flow_control_receivers.get()


def blocked_rig() -> PublicationRig:
    """Return a publication that two receivers hear, and that one of them stops."""
    rig = rig_with(MinMulticastFlowControl())
    rig.hear(0, 0, receiver_id=SLOW, receiver_window=1_024)
    rig.hear(0, 0, receiver_id=FAST)
    rig.poll(0)
    for _ in range(4):
        rig.offer(bytes(992))
    rig.poll(0)
    assert rig.publication.sender_position == rig.publication.sender_limit == 1_024
    return rig


def test_a_receiver_that_falls_silent_is_let_go_in_the_first_cycle_after_its_timeout() -> None:
    rig = blocked_rig()
    for ms in range(0, 5_001, 100):
        rig.hear(1_024, ms * MS, receiver_id=FAST)
        rig.poll(ms * MS)
    assert rig.publication.sender_position == 1_024
    assert receivers(rig) == 2
    now_ns = 5 * SECOND + 1
    assert rig.publication.poll(now_ns) == now_ns, "there is room now, and something to send"
    rig.outbox.take()
    rig.publication.poll(now_ns)
    assert len(rig.outbox.take_frames(DataFrame)) == 3
    assert receivers(rig) == 1


def test_room_that_was_too_short_for_a_frame_is_no_room() -> None:
    rig = rig_with(MinMulticastFlowControl())
    rig.hear(0, 0, receiver_id=SLOW, receiver_window=1_024 + 160)
    rig.hear(0, 0, receiver_id=FAST)
    rig.poll(0)
    for _ in range(2):
        rig.offer(bytes(992))
    rig.poll(0)
    assert rig.publication.sender_position == rig.publication.sender_limit - 160 == 1_024
    flags = StatusMessageFlags.END_OF_STREAM
    rig.hear(0, 1, receiver_id=SLOW, receiver_window=1_024 + 160, flags=flags)
    assert rig.publication.poll(1) == 1, "there is room now, and something to send"
    assert rig.publication.poll(1) > 1
    assert rig.publication.sender_position == rig.publication.producer_position


def test_a_receiver_that_falls_silent_is_let_go_while_data_leaves_in_every_cycle() -> None:
    rig = rig_with(MinMulticastFlowControl())
    for now_ns in range(0, 5 * SECOND + 1, 50 * MS):
        rig.hear(rig.publication.sender_position, now_ns, receiver_id=FAST)
        if now_ns == 0:
            rig.hear(0, 0, receiver_id=SLOW)
            rig.poll(0)
        assert rig.offer(bytes(32)) > 0
        rig.poll(now_ns)
        assert receivers(rig) == 2
    rig.offer(bytes(32))
    rig.poll(5 * SECOND + 1)
    assert rig.publication.sender_position == rig.publication.producer_position
    assert receivers(rig) == 1


def test_a_publication_sleeps_no_longer_than_until_a_receiver_times_out() -> None:
    timeout_ns = 30 * MS
    rig = rig_with(MinMulticastFlowControl(receiver_timeout_ns=timeout_ns))
    rig.hear(0, 0)
    rig.poll(0)
    assert rig.publication.poll(1) == timeout_ns + 1
    assert rig.publication.poll(timeout_ns + 1) > timeout_ns + 1


def test_a_receiver_that_says_goodbye_lets_the_limit_go_in_the_next_cycle() -> None:
    rig = blocked_rig()
    flags = StatusMessageFlags.END_OF_STREAM
    rig.hear(0, 1, receiver_id=SLOW, receiver_window=1_024, flags=flags)
    assert receivers(rig) == 2
    rig.poll(1)
    assert receivers(rig) == 1
    assert rig.publication.sender_limit == WINDOW


def test_the_count_of_receivers_is_0_after_the_cycle_that_follows_the_last_goodbye() -> None:
    rig = rig_with(MinMulticastFlowControl())
    rig.hear(0, 0)
    rig.poll(0)
    rig.offer(bytes(992))
    rig.hear(0, 1, flags=StatusMessageFlags.END_OF_STREAM)
    assert receivers(rig) == 1
    assert len(rig.poll(2)) == 1, "what the limit allowed before has left"
    assert receivers(rig) == 0


def test_one_tagged_receiver_that_rejects_leaves_the_group_and_the_living_at_once() -> None:
    rig = rig_with(TaggedMulticastFlowControl(group_tag=TAG))
    rig.hear(0, 0, receiver_id=SLOW, group_tag=TAG)
    rig.poll(0)
    error = ErrorFrame(
        session_id=SESSION_ID,
        stream_id=STREAM_ID,
        receiver_id=SLOW,
        group_tag=TAG,
        error_code=13,
        message=b"enough",
    )
    rig.publication.on_error(error, 1)
    assert not rig.publication.has_receivers
    rig.poll(1)
    assert receivers(rig) == 0
    assert not rig.is_connected()


def test_two_tagged_receivers_connect_what_untagged_ones_do_not() -> None:
    rig = rig_with(TaggedMulticastFlowControl(group_tag=TAG, group_min_size=2))
    rig.hear(0, 0, receiver_id=7)
    assert rig.publication.has_receivers
    assert not rig.is_connected()
    rig.hear(0, 0, receiver_id=1, group_tag=TAG)
    assert not rig.is_connected()
    rig.hear(0, 0, receiver_id=2, group_tag=TAG)
    assert rig.is_connected()


def test_a_group_that_becomes_too_small_disconnects_and_sends_no_more() -> None:
    rig = rig_with(MinMulticastFlowControl(group_min_size=2))
    rig.hear(0, 0, receiver_id=FAST)
    rig.hear(0, 0, receiver_id=SLOW)
    assert rig.is_connected()
    rig.hear(0, 1, receiver_id=SLOW, flags=StatusMessageFlags.END_OF_STREAM)
    rig.poll(1)
    assert not rig.is_connected()
    assert rig.publication.has_receivers
    assert rig.publication.sender_limit == WINDOW


def test_a_limit_that_goes_behind_the_position_stops_data_and_not_heartbeats() -> None:
    rig = rig_with(MinMulticastFlowControl())
    rig.hear(0, 0)
    rig.poll(0)
    for _ in range(4):
        rig.offer(bytes(992))
    rig.poll(0)
    rig.hear(0, 1, receiver_window=512)
    rig.poll(1)
    assert (rig.publication.sender_position, rig.publication.sender_limit) == (4_096, 512)
    rig.offer(bytes(992))
    assert rig.poll(2) == []
    (heartbeat,) = [frame for frame in rig.poll(101 * MS) if len(frame) == 32]
    assert heartbeat[:4] == bytes(4)
    rig.hear(4_096, 102 * MS)
    rig.poll(102 * MS)
    assert rig.publication.sender_position == 5_120


def test_an_invitation_pins_the_limit_until_the_guest_speaks() -> None:
    rig = rig_with(MinMulticastFlowControl())
    rig.hear(0, 0, receiver_id=FAST)
    rig.poll(0)
    rig.publication.on_status_message(eliciting_message(rig.log), 200 * MS)
    rig.poll(200 * MS)
    assert len(rig.outbox.sent) == 0
    rig.offer(bytes(992))
    rig.poll(201 * MS)
    rig.hear(1_024, 202 * MS, receiver_id=FAST)
    assert rig.publication.sender_limit == WINDOW
    rig.hear(0, 203 * MS, receiver_id=SLOW)
    rig.hear(1_024, 204 * MS, receiver_id=SLOW)
    assert rig.publication.sender_limit == WINDOW + 1_024


def test_made_up_receivers_beyond_the_bound_are_counted() -> None:
    rig = rig_with(MinMulticastFlowControl(max_receivers=10))
    for receiver_id in range(1_000):
        rig.hear(0, 0, receiver_id=receiver_id)
    assert receivers(rig) == 10
    assert rig.counts[DriverCounterId.FLOW_CONTROL_RECEIVERS_REFUSED] == 990


def test_the_counter_of_receivers_is_freed_with_the_others() -> None:
    rig = rig_with(MinMulticastFlowControl())
    counter = rig.counters.flow_control_receivers
    assert counter is not None
    (record,) = [each for each in rig.counts.manager if each.label.startswith("fc-receivers: 1 ")]
    assert (record.type_id, record.owner_id, record.registration_id) == (17, -1, 1)
    rig.counters.close()
    assert not any(each.label.startswith("fc-receivers") for each in rig.counts.manager)


def test_unicast_has_no_counter_of_receivers_and_no_deadline_of_its_own() -> None:
    rig = PublicationRig()
    assert rig.counters.flow_control_receivers is None
    assert rig.publication.flow_control.deadline_ns() == NEVER_NS
