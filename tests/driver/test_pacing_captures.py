"""The official drivers' packets against our strategies: who is waited for, and which windows."""

from __future__ import annotations

import json
from itertools import groupby, pairwise
from typing import Any

import pytest

from aeron_async.driver.core.congestion_control import CubicCongestionControl, TrackRebuild
from aeron_async.driver.core.flow_control import TaggedMulticastFlowControl
from aeron_async.logbuffer.position import compute_position
from aeron_async.protocol.datagram import DataFrame, frames
from aeron_async.protocol.nak import Nak
from aeron_async.protocol.rtt import RttMeasurement
from aeron_async.protocol.setup import Setup
from aeron_async.protocol.status_message import StatusMessage
from tests.captures import captures_dir, read_capture
from tests.driver.fakes import MS, SECOND, US

TAG = 1_001
BITS = 16
TAGGED = ("05-flow-control-gtag", "05b-flow-control-gtag-multicast")
CUBIC = ("09-cubic-rttm", "09b-cubic-loss")
INITIAL_RTT_NS = 20 * MS
# A capture stamps a datagram some microseconds after the driver has looked at its clock.
STAMP_ERROR_NS = 50 * US
QUIET = TrackRebuild(
    consumption_position=0,
    last_sm_position=0,
    hwm_position=0,
    rebuild_position_before=0,
    rebuild_position=0,
    loss_found=False,
)


def stream_of(name: str) -> dict[str, Any]:
    facts = json.loads((captures_dir() / "facts.json").read_text())
    (stream,) = facts[name]["streams"]
    assert isinstance(stream, dict)
    return stream


class TaggedReplay:
    """Our strategy in the place of the official sender's; its limit when each frame left."""

    def __init__(self, name: str) -> None:
        self.stream = stream_of(name)
        self.flow_control = TaggedMulticastFlowControl(group_tag=TAG, group_min_size=1)
        self.limit = 0
        self.untagged_edge = 0
        self.has_been_tagged = False
        self.limits_before_tagged: set[int] = set()
        self.sent: list[tuple[int, int, int]] = []
        """Where each frame of data ended, the limit then, and the edge of who has no tag."""
        for packet in read_capture(name):
            self.now_ns = packet.timestamp_ns
            self.limit = self.flow_control.on_idle(
                sender_limit=self.limit, sender_position=0, now_ns=self.now_ns
            )
            for frame in frames(packet.payload):
                self.take(frame)

    def position(self, term_id: int, term_offset: int) -> int:
        initial_term_id = self.stream["initial_term_id"]
        return compute_position(term_id, term_offset, initial_term_id=initial_term_id, bits=BITS)

    def take(self, frame: object) -> None:
        match frame:
            case StatusMessage() if frame.session_id == self.stream["session_id"]:
                self.hear(frame)
            case Setup():
                self.flow_control.on_setup(sender_limit=self.limit, now_ns=self.now_ns)
            case DataFrame() if not frame.header.is_heartbeat:
                header = frame.header
                end = self.position(header.term_id, header.term_offset) + header.frame_length
                self.sent.append((end, self.limit, self.untagged_edge))
            case _:
                pass

    def hear(self, sm: StatusMessage) -> None:
        if sm.is_setup_elicit:
            self.flow_control.on_trigger_send_setup(sm, now_ns=self.now_ns)
            return
        position = self.position(sm.consumption_term_id, sm.consumption_term_offset)
        if sm.group_tag is None:
            self.untagged_edge = position + sm.receiver_window
        self.limit = self.flow_control.on_status_message(
            sm, position=position, sender_limit=self.limit, now_ns=self.now_ns
        )
        self.has_been_tagged = self.has_been_tagged or sm.group_tag is not None
        if not self.has_been_tagged:
            self.limits_before_tagged.add(self.limit)


@pytest.mark.parametrize("name", TAGGED)
def test_the_official_sender_sends_up_to_our_limit_and_never_beyond(name: str) -> None:
    replay = TaggedReplay(name)
    assert replay.sent
    assert all(end <= limit for end, limit, _ in replay.sent)


def test_untagged_receivers_alone_get_nothing_and_are_run_over_later() -> None:
    replay = TaggedReplay("05-flow-control-gtag")
    assert replay.limits_before_tagged == {0}
    assert any(end > untagged_edge > 0 for end, _, untagged_edge in replay.sent)


@pytest.mark.parametrize("name", TAGGED)
def test_the_tagged_receiver_ends_as_the_pace_and_leaves_with_its_goodbye(name: str) -> None:
    replay = TaggedReplay(name)
    (tagged,) = [each for each in replay.stream["receivers"] if each["group_tag"]]
    # Its last status message, plus the window: what the official receiver allowed.
    position, window_length, *_ = tagged["sequence"][-1]
    assert replay.limit == position + window_length
    assert replay.flow_control.receiver_count() == 0
    assert not replay.flow_control.has_required_receivers()


class CubicReplay:
    """Our strategy in the place of the official receiver's, asked every millisecond."""

    def __init__(self, name: str) -> None:
        packets = [
            (each.timestamp_ns, frame)
            for each in read_capture(name)
            for frame in frames(each.payload)
        ]
        messages = [(at_ns, each) for at_ns, each in packets if isinstance(each, StatusMessage)]
        losses = [at_ns for at_ns, each in packets if isinstance(each, Nak)]
        self.official = [each.receiver_window for _, each in messages]
        self.requests_ns = [
            at_ns
            for at_ns, each in packets
            if isinstance(each, RttMeasurement) and each.is_reply_requested
        ]
        stream = stream_of(name)
        self.control = CubicCongestionControl(
            max_window_length=stream["term_length"] // 2,
            mtu_length=stream["mtu"],
            initial_rtt_ns=INITIAL_RTT_NS,
            is_measuring_rtt=True,
            now_ns=messages[0][0],
        )
        self.windows = [self.control.initial_window_length()]
        now_ns = messages[0][0]
        while now_ns <= messages[-1][0]:
            if losses and losses[0] <= now_ns:
                self.look(losses.pop(0), is_loss=True)
            self.look(now_ns, is_loss=False)
            now_ns += 1 * MS

    def look(self, now_ns: int, *, is_loss: bool) -> None:
        track = QUIET._replace(loss_found=is_loss)
        self.windows.append(self.control.on_track_rebuild(track, now_ns=now_ns)[0])


@pytest.mark.parametrize("name", CUBIC)
def test_the_official_receiver_advertises_the_windows_of_our_curve(name: str) -> None:
    replay = CubicReplay(name)
    ours = [window_length for window_length, _ in groupby(replay.windows)]
    official = [window_length for window_length, _ in groupby(replay.official)]
    assert ours == official


@pytest.mark.parametrize("name", CUBIC)
def test_the_official_receiver_measures_round_trips_when_ours_would(name: str) -> None:
    requests_ns = CubicReplay(name).requests_ns
    control = CubicCongestionControl(
        max_window_length=32_768,
        mtu_length=1_408,
        initial_rtt_ns=INITIAL_RTT_NS,
        is_measuring_rtt=True,
        now_ns=requests_ns[0],
    )
    assert control.should_measure_rtt(requests_ns[0])
    for before_ns, after_ns in pairwise(requests_ns):
        control.on_rttm_sent(before_ns)
        control.on_rttm(rtt_ns=100_000, now_ns=before_ns)
        assert not control.should_measure_rtt(before_ns + 80 * MS)
        assert control.should_measure_rtt(after_ns + STAMP_ERROR_NS)
    assert len(requests_ns) / ((requests_ns[-1] - requests_ns[0]) / SECOND) == pytest.approx(
        12.5, rel=0.1
    )
