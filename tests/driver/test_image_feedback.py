"""Status messages: the first at once, then by consumption, and never later than the timeout."""

from __future__ import annotations

import pytest

from aeron_async.driver.core.congestion_control import CongestionControl
from aeron_async.driver.core.context import DriverContext
from aeron_async.driver.core.system_counters import SystemCounterId
from aeron_async.driver.schedule import Schedule
from aeron_async.protocol.header import FrameType
from aeron_async.protocol.rtt import RttMeasurement
from aeron_async.protocol.setup import ResponseSetup
from tests.driver.fakes import (
    HALF_TERM,
    MS,
    RECEIVER_ID,
    SECOND,
    SOURCE,
    WINDOW,
    data,
    heartbeat,
    pad,
    position_of,
)
from tests.driver.rigs import ImageRig
from tests.logbuffer.logs import INITIAL_TERM_ID, TERM_LENGTH

QUARTER = WINDOW // 4


def positions(rig: ImageRig) -> list[int]:
    """Return the positions of the status messages sent since the last look."""
    return [
        position_of(sm.consumption_term_id, sm.consumption_term_offset, rig.log)
        for sm in rig.status_messages()
    ]


def test_the_first_status_message_leaves_at_once() -> None:
    rig = ImageRig(now_ns=5 * SECOND, join_position=TERM_LENGTH + 96)
    assert rig.image.poll(5 * SECOND) == 5 * SECOND + 200 * MS
    (sm,) = rig.status_messages()
    assert (sm.consumption_term_id, sm.consumption_term_offset) == (INITIAL_TERM_ID + 1, 96)
    assert (sm.receiver_window, sm.receiver_id, sm.flags) == (WINDOW, RECEIVER_ID, 0)
    assert sm.group_tag is None
    assert rig.outbox.addresses == [SOURCE]
    assert rig[SystemCounterId.STATUS_MESSAGES_SENT] == 1
    assert rig.log.metadata.active_transport_count == 1


@pytest.mark.parametrize(("group_tag", "length"), [(None, 36), (-7, 44)])
def test_a_group_tag_makes_every_status_message_longer(group_tag: int | None, length: int) -> None:
    rig = ImageRig(group_tag=group_tag)
    rig.image.poll(0)
    assert [len(sent) for sent in rig.outbox.take()] == [length]


def test_the_window_of_small_terms_is_half_a_term_by_default() -> None:
    rig = ImageRig(window_length=DriverContext().initial_window_length)
    rig.image.poll(0)
    assert rig.status_messages()[0].receiver_window == 32_768


def test_the_periodic_message_repeats_the_position_that_was_scheduled() -> None:
    rig = ImageRig()
    sent = []
    for ms in range(0, 2_000, 10):
        if ms == 50:
            rig.feed(data(0, 160), ms * MS)
        if ms % 100 == 0:
            rig.feed(heartbeat(160 if ms >= 50 else 0), ms * MS)
        rig.image.poll(ms * MS)
        rig.read()
        sent += [(ms, position) for position in positions(rig)]
    assert sent == [(ms, 0) for ms in range(0, 2_000, 200)]


@pytest.mark.parametrize(("consumed", "is_due"), [(QUARTER, False), (QUARTER + 32, True)])
def test_consumption_of_more_than_a_quarter_of_the_window_is_told_at_once(
    consumed: int,
    is_due: bool,  # noqa: FBT001 - a table of cases
) -> None:
    rig = ImageRig()
    rig.image.poll(0)
    rig.feed(pad(0, 4 * QUARTER), 1 * MS)
    rig.image.poll(1 * MS)
    rig.outbox.take()
    assert rig.image.consumption_trigger == QUARTER
    rig.consume_to(consumed)
    rig.image.poll(2 * MS)
    assert positions(rig) == [consumed] * is_due
    assert rig.image.consumption_trigger == QUARTER + consumed * is_due


def test_a_message_by_consumption_starts_the_period_again() -> None:
    rig = ImageRig()
    rig.image.poll(0)
    rig.feed(pad(0, 4 * QUARTER), 100 * MS)
    rig.consume_to(4 * QUARTER)
    assert rig.image.poll(100 * MS) == 300 * MS
    rig.outbox.take()
    assert rig.image.poll(299 * MS) == 300 * MS
    assert positions(rig) == []
    rig.image.poll(300 * MS)
    assert positions(rig) == [4 * QUARTER]


def test_the_slowest_subscriber_sets_the_pace() -> None:
    rig = ImageRig(subscribers=2)
    rig.image.poll(0)
    rig.feed(pad(0, HALF_TERM), 1)
    rig.image.poll(1)
    rig.outbox.take()
    rig.consume_to(HALF_TERM, 0)
    rig.image.poll(2)
    assert positions(rig) == []
    rig.consume_to(QUARTER + 64, 1)
    rig.image.poll(3)
    assert positions(rig) == [QUARTER + 64]


def test_when_the_slowest_leaves_the_next_sets_the_pace() -> None:
    rig = ImageRig(subscribers=2)
    rig.image.poll(0)
    rig.feed(pad(0, HALF_TERM), 1)
    rig.consume_to(HALF_TERM, 0)
    rig.image.poll(1)
    rig.outbox.take()
    removed = rig.image.remove_subscriber(1)
    assert removed is not None
    assert removed.position is rig.readers[1][1]
    assert rig.image.remove_subscriber(1) is None
    rig.image.poll(2)
    assert positions(rig) == [HALF_TERM]


def test_a_late_subscriber_joins_where_the_slowest_stands() -> None:
    rig = ImageRig(subscribers=1)
    rig.image.poll(0)
    rig.feed(data(0, 128), 1)
    rig.feed(data(128, 128), 1)
    rig.image.poll(1)
    rig.consume_to(128)
    assert rig.subscribe() == 128
    rig.consume_to(256, 0)
    rig.consume_to(256, 1)
    assert rig.subscribe() == 256


def test_a_late_subscriber_never_joins_beyond_what_is_whole() -> None:
    rig = ImageRig()
    rig.feed(data(0, 128), 1)
    rig.read()
    assert rig.image.join_position == 0, "not yet rebuilt"
    rig.image.poll(1)
    assert rig.image.join_position == 128


def test_a_source_silent_for_five_seconds_gets_no_status_messages() -> None:
    rig = ImageRig()
    sent = []
    for ms in range(0, 9_000, 100):
        rig.image.poll(ms * MS)
        sent += [ms] * len(positions(rig))
    assert sent == list(range(0, 5_000, 200))
    assert rig.log.metadata.active_transport_count == 1
    rig.feed(heartbeat(0), 9_000 * MS)
    rig.image.poll(9_000 * MS)
    assert positions(rig) == [0]
    assert rig.log.metadata.active_transport_count == 1


def test_the_session_that_answers_is_named_once_for_each_time_the_source_is_heard() -> None:
    """Who forged the source address makes us say less than it said itself."""
    rig = ImageRig()
    rig.image.answer_with(7)
    for ms in range(0, 4_000, 100):
        rig.image.poll(ms * MS)
    named = rig.outbox.take_frames(ResponseSetup)
    assert [each.response_session_id for each in named] == [7]
    for ms in range(4_000, 6_000, 100):
        rig.feed(heartbeat(0), ms * MS)
        rig.image.poll(ms * MS)
    assert len(rig.outbox.take_frames(ResponseSetup)) == 10, "beside each status message"


def test_a_status_message_that_cannot_leave_is_counted_and_waits_for_the_next_period() -> None:
    rig = ImageRig()
    rig.outbox.is_full = True
    assert rig.image.poll(0) == 200 * MS
    assert rig[SystemCounterId.SHORT_SENDS] == 1
    assert rig[SystemCounterId.STATUS_MESSAGES_SENT] == 0
    rig.outbox.is_full = False
    rig.image.poll(200 * MS)
    assert positions(rig) == [0]


def test_the_log_is_cleaned_a_term_behind_what_is_reported() -> None:
    rig = ImageRig(join_position=TERM_LENGTH)
    for term in rig.log.terms[0:1]:
        term[:] = b"\xff" * TERM_LENGTH
    rig.image._clean_position = 0
    rig.image.poll(0)
    rig.feed(pad(TERM_LENGTH, HALF_TERM), 1)
    rig.consume_to(TERM_LENGTH + QUARTER)
    rig.image.poll(1)
    assert rig.log.terms[0][0] == 0xFF
    rig.consume_to(TERM_LENGTH + QUARTER + 64)
    rig.image.poll(2)
    assert not any(rig.log.terms[0][: QUARTER + 64])
    assert rig.log.terms[0][QUARTER + 64] == 0xFF


def test_a_long_stream_finds_its_terms_clean_when_they_come_round_again() -> None:
    rig = ImageRig()
    rig.image.poll(0)
    received = 0
    for position in range(0, 10 * TERM_LENGTH, 1_024):
        rig.feed(data(position, 1_024), 1)
        rig.image.poll(1)
        received += len(rig.read())
        rig.image.poll(1)
    assert received == 10 * TERM_LENGTH // 1_024
    assert rig[SystemCounterId.FLOW_CONTROL_OVER_RUNS] == 0


class MeasuringControl(CongestionControl):
    """A congestion control that changes its window and measures round trips."""

    def __init__(self) -> None:
        self.window_length = WINDOW
        self.is_forced = False
        self.is_measuring = False
        self.round_trips_ns: list[int] = []

    def initial_window_length(self) -> int:
        return WINDOW

    def max_window_length(self) -> int:
        return WINDOW

    def on_track_rebuild(self, track: object, *, now_ns: int) -> tuple[int, bool]:
        return self.window_length, self.is_forced

    def should_measure_rtt(self, now_ns: int) -> bool:
        return self.is_measuring

    def on_rttm_sent(self, now_ns: int) -> None:
        self.is_measuring = False

    def on_rttm(self, *, rtt_ns: int, now_ns: int) -> None:
        self.round_trips_ns.append(rtt_ns)

    def rtt_deadline_ns(self) -> int:
        return 7 * MS


@pytest.fixture
def control() -> MeasuringControl:
    return MeasuringControl()


@pytest.fixture
def controlled(control: MeasuringControl) -> ImageRig:
    rig = ImageRig()
    rig.image._congestion_control = control
    rig.image.poll(0)
    rig.outbox.take()
    return rig


def test_a_window_that_changes_is_told_at_once(
    controlled: ImageRig, control: MeasuringControl
) -> None:
    control.window_length = 4_096
    controlled.image.poll(1 * MS)
    assert [sm.receiver_window for sm in controlled.status_messages()] == [4_096]
    assert controlled.image.consumption_trigger == 1_024
    controlled.image.poll(2 * MS)
    assert controlled.status_messages() == []


def test_a_message_may_be_forced(controlled: ImageRig, control: MeasuringControl) -> None:
    control.is_forced = True
    controlled.feed(data(0, 64), 1 * MS)
    controlled.consume_to(64)
    controlled.image.poll(1 * MS)
    assert positions(controlled) == [64]


def test_a_round_trip_is_measured_when_the_strategy_wants_it(
    controlled: ImageRig, control: MeasuringControl
) -> None:
    control.is_measuring = True
    assert controlled.image.poll(3 * MS) == 7 * MS
    (rttm,) = controlled.outbox.take_frames(RttMeasurement)
    assert (rttm.echo_timestamp_ns, rttm.reception_delta_ns) == (3 * MS, 0)
    assert (rttm.receiver_id, rttm.is_reply_requested) == (RECEIVER_ID, True)
    controlled.image.on_rttm(rtt_ns=55, now_ns=4 * MS)
    assert control.round_trips_ns == [55]


def test_the_first_error_frame_of_a_rejection_leaves_at_once() -> None:
    """In Aeron it waits for the next status message, as the page on differences says."""
    rig = ImageRig()
    rig.image.poll(0)
    rig.outbox.take()
    rig.image.reject("enough")
    deadline_ns = rig.image.poll(1 * MS)
    assert [frame[6] for frame in rig.outbox.take()] == [FrameType.ERR]
    assert deadline_ns == 201 * MS
    assert rig.image.poll(200 * MS) == deadline_ns
    assert rig.outbox.take() == []
    rig.image.poll(deadline_ns)
    assert [frame[6] for frame in rig.outbox.take()] == [FrameType.ERR]


def test_a_deadline_includes_its_own_instant() -> None:
    """In Aeron it has passed one nanosecond later, as the page on differences says."""
    schedule: Schedule[str] = Schedule()
    schedule.at("status message", 200 * MS)
    assert schedule.due(200 * MS - 1) == []
    assert schedule.due(200 * MS) == ["status message"]
    rig = ImageRig()
    deadline_ns = rig.image.poll(0)
    rig.outbox.take()
    rig.image.poll(deadline_ns - 1)
    assert rig.outbox.take() == []
    rig.image.poll(deadline_ns)
    assert len(rig.outbox.take()) == 1
