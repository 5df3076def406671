"""The strategies of unicast: the sender limit, the receiver window, and what a NAK may bring."""

from __future__ import annotations

from typing import Any

import pytest

from aeron_async.clock import NEVER_NS
from aeron_async.driver.core.congestion_control import (
    CongestionControlParams,
    TrackRebuild,
    congestion_control,
)
from aeron_async.driver.core.context import DriverContext
from aeron_async.driver.core.flow_control import UnicastFlowControl, unicast_flow_control
from aeron_async.driver.core.flow_control.base import max_retransmission_length
from aeron_async.driver.core.suppliers import receiver_window_length
from aeron_async.errors import ErrorCode, RegistrationError
from tests.driver.fakes import status_message
from tests.logbuffer.logs import make_log

KIB = 1024
MIB = 1024 * KIB


@pytest.fixture
def flow_control() -> UnicastFlowControl:
    return UnicastFlowControl(retransmit_receiver_window_multiple=16)


def limit_after(
    flow_control: UnicastFlowControl, position: int, window: int, limit: int, **changes: Any
) -> int:
    sm = status_message(make_log(), position, receiver_window=window, **changes)
    return flow_control.on_status_message(sm, position=position, sender_limit=limit, now_ns=0)


def test_the_limit_is_consumption_plus_window(flow_control: UnicastFlowControl) -> None:
    assert limit_after(flow_control, 1_024, 32_768, 0) == 33_792


@pytest.mark.parametrize(("position", "window"), [(0, 100), (1_024, 0), (0, 32_768)])
def test_the_limit_never_goes_back(
    flow_control: UnicastFlowControl, position: int, window: int
) -> None:
    assert limit_after(flow_control, position, window, 40_000) == 40_000


def test_nothing_but_status_messages_moves_the_limit(flow_control: UnicastFlowControl) -> None:
    sm = status_message(make_log(), 0)
    flow_control.on_trigger_send_setup(sm, now_ns=0)
    flow_control.on_setup(sender_limit=5, now_ns=0)
    flow_control.on_error(receiver_id=1, group_tag=None, now_ns=0)
    assert flow_control.on_idle(sender_limit=5, sender_position=7, now_ns=2**60) == 5
    assert flow_control.has_required_receivers()


def test_the_slowest_receiver_is_the_one_heard_last(flow_control: UnicastFlowControl) -> None:
    assert flow_control.slowest_receiver() is None
    limit_after(flow_control, 0, 0, 0, receiver_id=0xBEEF)
    assert flow_control.slowest_receiver() == "0x000000000000beef"


@pytest.mark.parametrize(
    ("offset", "length", "term_length", "multiple", "granted"),
    [
        (0, 1_408, 64 * KIB, 16, 1_408),
        (0, 64 * KIB, 64 * KIB, 4, 64 * KIB),
        (64 * KIB - 32, 64, 64 * KIB, 16, 32),
        (0, 16 * MIB, 16 * MIB, 4, 512 * KIB),
        (0, 16 * MIB, 16 * MIB, 16, 2 * MIB),
        (16 * MIB - 1 * MIB, 2 * MIB, 16 * MIB, 16, 1 * MIB),
        (0, 64 * KIB, 64 * KIB, 1, 32 * KIB),
    ],
)
def test_a_nak_brings_no_more_than_term_and_window_allow(
    offset: int, length: int, term_length: int, multiple: int, granted: int
) -> None:
    assert granted == max_retransmission_length(
        term_offset=offset, length=length, term_length=term_length, multiple=multiple
    )
    strategy = UnicastFlowControl(retransmit_receiver_window_multiple=multiple)
    assert granted == strategy.max_retransmission_length(
        term_offset=offset, length=length, term_length=term_length
    )


def test_the_context_says_how_many_windows_a_nak_may_bring() -> None:
    for context, granted in (
        (DriverContext(), 2 * MIB),
        (DriverContext(unicast_flow_control_rrwm=2), 256 * KIB),
    ):
        strategy = unicast_flow_control(context)
        assert granted == strategy.max_retransmission_length(
            term_offset=0, length=16 * MIB, term_length=16 * MIB
        )


@pytest.mark.parametrize(
    ("configured", "term_length", "window"),
    [(128 * KIB, 64 * KIB, 32 * KIB), (128 * KIB, 16 * MIB, 128 * KIB), (4_096, 64 * KIB, 4_096)],
)
def test_a_window_is_what_was_configured_and_half_a_term_at_most(
    configured: int, term_length: int, window: int
) -> None:
    assert receiver_window_length(configured_length=configured, term_length=term_length) == window


PARAMS = CongestionControlParams(
    context=DriverContext(),
    configured_window_length=128 * KIB,
    term_length=64 * KIB,
    mtu_length=1_408,
    now_ns=0,
)


@pytest.mark.parametrize("name", [None, "default", "static"])
def test_the_static_window_never_changes_and_forces_nothing(name: str | None) -> None:
    control = congestion_control(name, PARAMS)
    assert control.initial_window_length() == control.max_window_length() == 32 * KIB
    track = TrackRebuild(
        consumption_position=64,
        last_sm_position=0,
        hwm_position=640,
        rebuild_position_before=0,
        rebuild_position=320,
        loss_found=True,
    )
    assert control.on_track_rebuild(track, now_ns=0) == (32 * KIB, False)
    assert control.counter_types == ()
    control.bind(())
    control.on_rttm_sent(0)
    control.on_rttm(rtt_ns=1, now_ns=1)
    assert not control.should_measure_rtt(2**62)
    assert control.rtt_deadline_ns() == NEVER_NS
    assert control.on_track_rebuild(track, now_ns=2) == (32 * KIB, False)


def test_a_congestion_control_that_nobody_has_is_refused_with_the_way_out() -> None:
    with pytest.raises(RegistrationError, match=r"'reno': cc must be .*static, cubic") as raised:
        congestion_control("reno", PARAMS)
    assert raised.value.code is ErrorCode.NOT_SUPPORTED
