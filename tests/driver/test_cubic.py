"""CUBIC: the window after loss and time, round trips, counters, and an image that uses it."""

from __future__ import annotations

from math import cbrt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.clock import NEVER_NS
from aeron_async.driver.core.congestion_control import (
    CongestionControlParams,
    CubicCongestionControl,
    TrackRebuild,
    congestion_control,
)
from aeron_async.driver.core.context import DriverContext
from aeron_async.protocol.rtt import RttMeasurement
from tests.driver.fakes import MS, SECOND, US, data, heartbeat
from tests.driver.rigs import ImageRig

KIB = 1024
MTU = 4 * KIB
NOTHING = TrackRebuild(
    consumption_position=0,
    last_sm_position=0,
    hwm_position=0,
    rebuild_position_before=0,
    rebuild_position=0,
    loss_found=False,
)
LOSS = NOTHING._replace(loss_found=True)
K_S = cbrt(32 * 0.2 / 0.4)


def cubic(**changes: Any) -> CubicCongestionControl:
    options: dict[str, Any] = {
        "max_window_length": 128 * KIB,
        "mtu_length": MTU,
        "initial_rtt_ns": 100 * US,
        "now_ns": 0,
    }
    return CubicCongestionControl(**(options | changes))


def cwnd(control: CubicCongestionControl, now_ns: int, track: TrackRebuild = NOTHING) -> int:
    window_length, _ = control.on_track_rebuild(track, now_ns=now_ns)
    assert window_length % MTU == 0
    return window_length // MTU


def fully_grown(**changes: Any) -> tuple[CubicCongestionControl, int]:
    """Return a control whose window is the largest, and when."""
    control = cubic(**changes)
    now_ns = 10 * SECOND
    assert cwnd(control, now_ns) == 32
    return control, now_ns


def test_the_first_window_is_ten_datagrams() -> None:
    control = cubic()
    assert control.initial_window_length() == 10 * MTU
    assert control.max_window_length() == 128 * KIB


def test_the_first_window_is_the_largest_where_that_is_less() -> None:
    control = cubic(max_window_length=5 * MTU + 1)
    assert control.initial_window_length() == 5 * MTU
    assert control.max_window_length() == 5 * MTU + 1


def test_it_begins_as_if_the_largest_window_had_just_met_a_loss() -> None:
    control = cubic()
    assert cwnd(control, 0) == 10
    assert cwnd(control, 100 * US) == 10, "an update needs more than the interval"
    assert cwnd(control, 100 * US + 1) == 32 - int(0.4 * K_S**3) == 26
    assert cwnd(control, int(K_S * SECOND)) == 32


def test_after_one_loss_at_32_it_is_25_and_back_at_32_after_k_seconds() -> None:
    control, lost_ns = fully_grown()
    assert control.on_track_rebuild(LOSS, now_ns=lost_ns) == (25 * MTU, True)
    assert pytest.approx(2.52, abs=0.01) == K_S
    seen = [cwnd(control, lost_ns + ms * MS) for ms in range(1, 3_000)]
    assert seen == sorted(seen), "it never shrinks without a loss"
    # A fifth of 32 is 6.4, of which the curve gives up 6: it starts one above the cut window.
    assert seen[0] == 26
    assert seen[-1] == 32
    back_ms = seen.index(32) + 1
    # The last step is less than one datagram, which is 0.4 * (t - k)^3 > -1.
    assert back_ms == pytest.approx((K_S - cbrt(1 / 0.4)) * 1_000, abs=2)
    assert seen[int(K_S * 1_000)] == 32


def test_below_the_largest_window_it_searches_beyond_where_the_loss_was() -> None:
    control = cubic()
    assert cwnd(control, 0, LOSS) == 8
    assert cwnd(control, 3 * SECOND) == 10 + int(0.4 * (3 - cbrt(10 * 0.2 / 0.4)) ** 3) == 10
    assert cwnd(control, 5 * SECOND) == 10 + int(0.4 * (5 - cbrt(5)) ** 3) == 24
    assert cwnd(control, 60 * SECOND) == 32


def test_each_loss_takes_a_fifth_down_to_one_datagram() -> None:
    control, now_ns = fully_grown()
    seen = [cwnd(control, now_ns, LOSS) for _ in range(12)]
    assert seen == [25, 20, 16, 12, 9, 7, 5, 4, 3, 2, 1, 1]


def test_a_loss_forces_a_status_message_and_nothing_else_does_above_one_datagram() -> None:
    control, now_ns = fully_grown()
    moved = NOTHING._replace(consumption_position=64)
    assert control.on_track_rebuild(moved, now_ns=now_ns)[1] is False
    assert control.on_track_rebuild(LOSS, now_ns=now_ns)[1] is True
    assert control.on_track_rebuild(moved, now_ns=now_ns)[1] is False


def test_a_window_of_one_datagram_stays_and_forces_a_message_at_each_step() -> None:
    control = cubic(max_window_length=2 * MTU - 1)
    assert control.initial_window_length() == MTU
    moved = NOTHING._replace(consumption_position=64)
    for second in range(100):
        assert control.on_track_rebuild(moved, now_ns=second * SECOND) == (MTU, True)
        assert control.on_track_rebuild(NOTHING, now_ns=second * SECOND) == (MTU, False)
    assert control.on_track_rebuild(LOSS, now_ns=200 * SECOND) == (MTU, True)


def test_tcp_mode_never_falls_behind_what_tcp_would_do() -> None:
    rtt_ns = 50 * MS
    control, lost_ns = fully_grown(is_tcp_mode=True, initial_rtt_ns=rtt_ns)
    plain, _ = fully_grown(initial_rtt_ns=rtt_ns)
    cwnd(control, lost_ns, LOSS)
    cwnd(plain, lost_ns, LOSS)
    for ms in (60, 300, 600, 900):
        tcp = int(32 * 0.8 + 3 * 0.2 / 1.8 * (ms / 50))
        curve = cwnd(plain, lost_ns + ms * MS)
        assert cwnd(control, lost_ns + ms * MS) == min(32, max(curve, tcp))
    assert cwnd(control, lost_ns + 1_000 * MS) == 32
    assert cwnd(plain, lost_ns + 1_000 * MS) < 32


@pytest.mark.parametrize("rtt_ns", [0, 1_000, 100 * US])
def test_tcp_mode_with_short_round_trips_stays_below_the_largest_window(rtt_ns: int) -> None:
    control, lost_ns = fully_grown(is_tcp_mode=True)
    control.on_rttm(rtt_ns=rtt_ns, now_ns=lost_ns)
    cwnd(control, lost_ns, LOSS)
    assert cwnd(control, lost_ns + 1_000 * MS) == 32


def test_tcp_mode_takes_the_round_trip_that_was_measured_last() -> None:
    control, lost_ns = fully_grown(is_tcp_mode=True)
    control.on_rttm(rtt_ns=10 * SECOND, now_ns=lost_ns)
    cwnd(control, lost_ns, LOSS)
    assert cwnd(control, lost_ns + 10 * MS) == 26


def test_round_trips_are_not_measured_unless_wanted() -> None:
    control = cubic()
    assert not control.should_measure_rtt(2**62)
    assert control.rtt_deadline_ns() == NEVER_NS


def test_a_round_trip_is_measured_at_once_and_then_every_four() -> None:
    control = cubic(is_measuring_rtt=True, initial_rtt_ns=20 * MS, now_ns=7)
    assert control.should_measure_rtt(7)
    control.on_rttm_sent(7)
    assert control.rtt_deadline_ns() == 80 * MS + 8
    assert not control.should_measure_rtt(80 * MS + 7)
    assert control.should_measure_rtt(80 * MS + 8)
    control.on_rttm_sent(80 * MS + 8)
    control.on_rttm(rtt_ns=50 * MS, now_ns=130 * MS)
    assert not control.should_measure_rtt(330 * MS)
    assert control.should_measure_rtt(330 * MS + 1)
    control.on_rttm(rtt_ns=1 * MS, now_ns=400 * MS)
    assert control.should_measure_rtt(480 * MS + 1), "no shorter than the initial round trip"
    assert not control.should_measure_rtt(480 * MS)


def test_short_round_trips_wake_no_image_that_rests_more_than_fifty_times_a_second() -> None:
    control = cubic(is_measuring_rtt=True)
    control.on_rttm_sent(0)
    assert control.should_measure_rtt(400 * US + 1)
    assert control.rtt_deadline_ns() == 20 * MS


def test_the_settings_of_the_driver_are_followed() -> None:
    context = DriverContext(
        cubic_congestion_control_measure_rtt=True,
        cubic_congestion_control_initial_rtt_ns=20 * MS,
        cubic_congestion_control_tcp_mode=True,
    )
    params = CongestionControlParams(
        context=context,
        configured_window_length=128 * KIB,
        term_length=64 * KIB,
        mtu_length=1_408,
        now_ns=0,
    )
    control = congestion_control("cubic", params)
    assert control.max_window_length() == 32 * KIB
    assert control.initial_window_length() == 14_080
    control.on_rttm_sent(0)
    assert control.rtt_deadline_ns() == 80 * MS + 1
    assert control.on_track_rebuild(NOTHING, now_ns=20 * MS) == (14_080, False)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, SECOND)), max_size=60), st.booleans())
def test_the_window_stays_between_one_datagram_and_the_largest(
    steps: list[tuple[bool, int]],
    is_tcp_mode: bool,  # noqa: FBT001 - hypothesis gives it
) -> None:
    control = cubic(is_tcp_mode=is_tcp_mode)
    now_ns = 0
    for is_loss, elapsed_ns in steps:
        now_ns += elapsed_ns
        assert 1 <= cwnd(control, now_ns, LOSS if is_loss else NOTHING) <= 32


# In an image.


def cubic_rig(**changes: Any) -> ImageRig:
    return ImageRig(chosen_control="cubic", **changes)


def shown(rig: ImageRig) -> dict[str, int]:
    return {
        record.label.partition(":")[0]: record.value
        for record in rig.counts.manager
        if record.label.startswith("rcv-cc-cubic")
    }


def test_the_window_and_the_round_trip_are_shown_and_freed_with_the_image() -> None:
    rig = cubic_rig()
    mtu_length = rig.log.mtu_length
    assert shown(rig) == {"rcv-cc-cubic-rtt": 0, "rcv-cc-cubic-wnd": 10 * mtu_length}
    rig.image.poll(0)
    rig.image.poll(10 * SECOND)
    assert shown(rig)["rcv-cc-cubic-wnd"] == rig.log.term_length // 2 // mtu_length * mtu_length
    rig.image.on_rttm(rtt_ns=123, now_ns=10 * SECOND)
    assert shown(rig)["rcv-cc-cubic-rtt"] == 123
    assert {
        (record.type_id, record.owner_id)
        for record in rig.counts.manager
        if record.label.startswith("rcv-cc-cubic")
    } == {(10, -1)}
    rig.counters.close()
    assert shown(rig) == {}


def test_a_static_window_shows_neither() -> None:
    assert shown(ImageRig()) == {}


def test_an_image_announces_every_change_of_its_window() -> None:
    rig = cubic_rig()
    for ms in range(0, 4_000, 10):
        rig.feed(heartbeat(0), ms * MS)
        rig.image.poll(ms * MS)
    windows = [sm.receiver_window for sm in rig.status_messages()]
    assert windows == sorted(windows)
    assert windows[0] == 10 * rig.log.mtu_length
    steps = sorted(set(windows[1:]))
    assert steps == list(range(steps[0], steps[-1] + 1, rig.log.mtu_length))


def test_a_window_grows_while_nothing_arrives_with_the_status_messages_there_are() -> None:
    rig = cubic_rig()
    now_ns = 0
    while now_ns < 4 * SECOND:
        now_ns = max(now_ns + 1, rig.image.poll(now_ns))
    assert shown(rig)["rcv-cc-cubic-wnd"] > 20 * rig.log.mtu_length


def test_a_gap_shrinks_the_window_and_the_sender_hears_of_it_at_once() -> None:
    rig = cubic_rig()
    rig.image.poll(0)
    rig.status_messages()
    rig.feed(data(64, 64), 50 * US)
    rig.image.poll(50 * US)
    (sm,) = rig.status_messages()
    assert sm.receiver_window == 8 * rig.log.mtu_length


def test_an_image_measures_round_trips_at_the_pace_of_its_strategy() -> None:
    context = DriverContext(
        cubic_congestion_control_measure_rtt=True,
        cubic_congestion_control_initial_rtt_ns=20 * MS,
    )
    rig = cubic_rig(context=context)
    sent = []
    now_ns = 0
    while now_ns < 400 * MS:
        deadline_ns = rig.image.poll(now_ns)
        sent += [now_ns] * len(rig.outbox.take_frames(RttMeasurement))
        now_ns = max(now_ns + 1, deadline_ns)
    assert sent == [count * (80 * MS + 1) for count in range(5)]
