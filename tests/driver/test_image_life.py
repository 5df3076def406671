"""How an image ends: the stream over, the source silent, or nobody left to read."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from aeron_async.clock import NEVER_NS
from aeron_async.driver.core.image_state import ImageState
from aeron_async.driver.core.rare_changes import RARE_CHANGES
from aeron_async.driver.core.system_counters import SystemCounterId
from aeron_async.protocol.header import StatusMessageFlags
from aeron_async.protocol.nak import Nak
from aeron_async.protocol.status_message import StatusMessage
from tests.driver.fakes import EOS, MS, SECOND, US, data, heartbeat, pad
from tests.driver.rigs import ImageRig
from tests.logbuffer.logs import TERM_LENGTH

GOODBYE = StatusMessageFlags.END_OF_STREAM


def run(rig: ImageRig, start_ms: int, end_ms: int, step_ms: int = 10) -> list[tuple[int, int]]:
    """Poll on and on; return time and flags of every status message."""
    sent = []
    for ms in range(start_ms, end_ms, step_ms):
        rig.image.poll(ms * MS)
        sent += [(ms, int(sm.flags)) for sm in rig.status_messages()]
    return sent


@pytest.fixture
def rig() -> ImageRig:
    """Return an image with 128 bytes rebuilt and not yet read."""
    rig = ImageRig()
    rig.feed(data(0, 128), 0)
    rig.image.poll(0)
    rig.outbox.take()
    return rig


def test_a_stream_that_has_ended_and_is_whole_drains(rig: ImageRig) -> None:
    rig.feed(heartbeat(128, EOS), 50 * MS)
    assert rig.state() is ImageState.ACTIVE
    with capture_logs() as logs:
        rig.image.poll(50 * MS)
    assert rig.state() is ImageState.DRAINING
    assert [(line["before"], line["after"], line["event_name"]) for line in logs] == [
        ("ACTIVE", "DRAINING", "STREAM_ENDED")
    ]


def test_a_stream_ends_where_its_end_was_announced_whatever_was_claimed_before(
    rig: ImageRig,
) -> None:
    rig.feed(heartbeat(TERM_LENGTH // 4), 50 * MS)
    rig.image.poll(50 * MS)
    rig.feed(heartbeat(192, EOS), 60 * MS)
    rig.image.poll(60 * MS)
    assert rig.state() is ImageState.ACTIVE, "64 bytes are missing"
    rig.feed(data(128, 64), 70 * MS)
    rig.image.poll(70 * MS)
    assert rig.state() is ImageState.DRAINING


def test_five_goodbyes_leave_two_hundred_milliseconds_apart_and_then_no_more(
    rig: ImageRig,
) -> None:
    rig.feed(heartbeat(128, EOS), 50 * MS)
    rig.read()
    sent = run(rig, 50, 3_000)
    assert sent == [(ms, GOODBYE) for ms in (50, 250, 450, 650, 850)]
    assert rig.state() is ImageState.LINGER


def test_a_drained_image_lingers_while_somebody_holds_it_and_ten_seconds_at_most(
    rig: ImageRig,
) -> None:
    rig.feed(heartbeat(128, EOS), 0)
    rig.read()
    rig.image.poll(0)
    assert rig.image.poll(1_000 * MS) == 11 * SECOND
    assert rig.state() is ImageState.LINGER
    assert rig.image.poll(10 * SECOND) == 11 * SECOND
    assert rig.image.poll(11 * SECOND) == NEVER_NS
    assert rig.state() is ImageState.DONE
    assert rig.image.poll(12 * SECOND) == NEVER_NS


def test_heartbeats_that_the_network_has_delayed_withdraw_no_end(rig: ImageRig) -> None:
    rig.feed(heartbeat(128, EOS), 0)
    rig.image.poll(0)
    for number in range(1, 5):
        rig.feed(heartbeat(96), number)
        rig.image.poll(number)
    assert rig.state() is ImageState.DRAINING
    assert rig.image.is_end_of_stream
    # A publisher that goes on is at the end, or behind it.
    number_before = RARE_CHANGES.number
    for number in range(5, 7):
        rig.feed(heartbeat(128), number)
        rig.image.poll(number)
    assert RARE_CHANGES.number != number_before
    assert not rig.image.is_end_of_stream


def test_a_lingering_image_that_nobody_holds_is_done(rig: ImageRig) -> None:
    rig.feed(heartbeat(128, EOS), 0)
    rig.read()
    rig.image.poll(0)
    rig.image.poll(1_000 * MS)
    rig.image.remove_subscriber(0)
    assert rig.image.poll(1_001 * MS) == NEVER_NS
    assert rig.state() is ImageState.DONE


def test_draining_waits_for_the_slowest_reader_and_keeps_saying_goodbye() -> None:
    rig = ImageRig(subscribers=2)
    rig.feed(data(0, 128), 0)
    rig.feed(heartbeat(128, EOS), 0)
    rig.image.poll(0)
    rig.outbox.take()
    rig.read(0)
    sent = run(rig, 10, 3_000)
    assert rig.state() is ImageState.DRAINING
    assert sent == [(ms, GOODBYE) for ms in range(200, 3_000, 200)]
    assert rig.image.consumption_trigger == 0, "every step of a reader is of interest now"
    rig.read(1)
    rig.image.poll(3_000 * MS)
    assert rig.state() is ImageState.LINGER


def test_an_end_of_stream_with_data_outstanding_leaves_the_image_active(rig: ImageRig) -> None:
    rig.feed(heartbeat(256, EOS), 0)
    sent = run(rig, 10, 1_000)
    assert rig.state() is ImageState.ACTIVE
    assert {flags for _, flags in sent} == {0}
    rig.feed(data(128, 128), 1_000 * MS)
    rig.image.poll(1_000 * MS)
    assert rig.state() is ImageState.DRAINING
    assert [sm.flags for sm in rig.outbox.take_frames(StatusMessage)] == [GOODBYE]


def test_an_end_of_stream_that_is_never_repaired_ends_with_the_silence_of_the_source(
    rig: ImageRig,
) -> None:
    rig.feed(heartbeat(256, EOS), 0)
    run(rig, 0, 10_010)
    assert rig.state() is ImageState.ACTIVE
    rig.image.poll(10 * SECOND + 1)
    assert rig.state() is ImageState.DRAINING


def test_a_source_silent_for_more_than_ten_seconds_is_gone(rig: ImageRig) -> None:
    rig.read()
    assert rig.image.poll(9 * SECOND) <= 10 * SECOND + 1
    rig.image.poll(10 * SECOND)
    assert rig.state() is ImageState.ACTIVE
    rig.outbox.take()
    with capture_logs() as logs:
        rig.image.poll(10 * SECOND + 1)
    assert [line["event_name"] for line in logs] == ["SOURCE_SILENT"]
    sent = run(rig, 10_001, 12_000)
    assert sent == [], "there is nobody to say goodbye to"
    assert rig.state() is ImageState.LINGER


@pytest.mark.parametrize("what", ["data", "heartbeat"])
def test_what_is_accepted_keeps_an_image_alive(rig: ImageRig, what: str) -> None:
    rig.feed(data(128, 64) if what == "data" else heartbeat(128), 9 * SECOND)
    rig.image.poll(19 * SECOND)
    assert rig.state() is ImageState.ACTIVE
    rig.image.poll(19 * SECOND + 1)
    assert rig.state() is ImageState.DRAINING


def test_what_overruns_keeps_nothing_alive(rig: ImageRig) -> None:
    for second in range(1, 11):
        rig.feed(heartbeat(TERM_LENGTH), second * SECOND)
    rig.image.poll(10 * SECOND + 1)
    assert rig.state() is ImageState.DRAINING
    assert rig.status_messages() == []


def test_a_sender_half_a_term_ahead_is_no_longer_heard_and_its_image_ends_without_a_goodbye(
    rig: ImageRig,
) -> None:
    rig.read()
    # Its last status message said 0; every heartbeat is an over-run, and refreshes nothing.
    sent: list[tuple[int, int]] = []
    drained_ms = 0
    for ms in range(10, 15_000, 10):
        if ms % 100 == 0:
            rig.feed(heartbeat(TERM_LENGTH // 2 + 32), ms * MS)
        rig.image.poll(ms * MS)
        sent += [(ms, int(sm.flags)) for sm in rig.status_messages()]
        if rig.state() is ImageState.ACTIVE:
            drained_ms = ms + 10
    asked = [ms for ms, flags in sent if flags == StatusMessageFlags.SEND_SETUP]
    assert asked == list(range(600, 3_101, 500)), "is its source of other terms?"
    assert all(flags in {0, StatusMessageFlags.SEND_SETUP} for _, flags in sent)
    assert [ms for ms, flags in sent if not flags] == list(range(200, 5_000, 200))
    assert drained_ms == 10_010
    assert rig.state() is ImageState.LINGER
    assert rig[SystemCounterId.FLOW_CONTROL_OVER_RUNS] >= 100
    assert rig[SystemCounterId.HEARTBEATS_RECEIVED] == 0


def test_an_image_that_is_run_over_is_warned_of_once(rig: ImageRig) -> None:
    with capture_logs() as lines:
        rig.feed(data(TERM_LENGTH // 2 - 32, 64), MS)
        assert lines == [], "it began within what there is room for"
        rig.feed(data(TERM_LENGTH // 2, 64), MS)
        rig.feed(data(TERM_LENGTH // 2 + 64, 64), MS)
    assert rig[SystemCounterId.FLOW_CONTROL_OVER_RUNS] == 3
    (line,) = lines
    assert (line["event"], line["log_level"]) == ("image_run_over", "warning")
    assert (line["session_id"], line["position"]) == (rig.image.session_id, 128)
    assert line["counter"] == "Flow control over runs"
    assert line["image_liveness_timeout_ns"] == 10 * SECOND
    assert "image_liveness_timeout_ns" in line["remedy"]


def test_an_image_that_nobody_reads_is_run_over_without_a_warning(rig: ImageRig) -> None:
    rig.image.remove_subscriber(0)
    rig.image.poll(MS)
    with capture_logs() as lines:
        rig.feed(data(TERM_LENGTH // 2, 64), MS)
    assert rig[SystemCounterId.FLOW_CONTROL_OVER_RUNS] == 1
    assert lines == []


def test_an_image_that_nobody_reads_says_goodbye_at_once(rig: ImageRig) -> None:
    rig.image.remove_subscriber(0)
    sent = run(rig, 20, 3_000)
    assert sent == [(ms, GOODBYE) for ms in (20, 220, 420, 620, 820)]
    assert rig.state() is ImageState.DONE


def test_an_abandoned_image_stops_rebuilding(rig: ImageRig) -> None:
    rig.image.remove_subscriber(0)
    rig.image.poll(1)
    rig.feed(data(128, 64), 2)
    rig.image.poll(2)
    assert rig.image.rebuild_position == 128


def test_a_gap_at_the_end_of_an_image_does_not_outlive_it() -> None:
    rig = ImageRig()
    rig.feed(data(128, 64), 0)
    rig.image.poll(0)
    rig.image.poll(10 * SECOND + 1)
    assert rig.state() is ImageState.DRAINING
    rig.outbox.take()
    now_ns, polls = 10 * SECOND + 1, 0
    while rig.state() is ImageState.DRAINING:
        now_ns = max(rig.image.poll(now_ns), now_ns + US)
        polls += 1
    assert polls < 10
    assert rig.outbox.take_frames(Nak) == []


def test_an_image_that_drains_takes_new_readers_only_if_there_is_something_left(
    rig: ImageRig,
) -> None:
    assert rig.image.is_accepting_subscriptions
    rig.feed(heartbeat(128, EOS), 0)
    rig.image.poll(0)
    assert rig.image.is_accepting_subscriptions
    assert rig.subscribe() == 0
    rig.read(0)
    assert rig.image.is_accepting_subscriptions
    rig.read(1)
    assert not rig.image.is_accepting_subscriptions


def test_an_image_without_readers_takes_no_new_ones(rig: ImageRig) -> None:
    rig.image.remove_subscriber(0)
    assert not rig.image.is_accepting_subscriptions


def test_an_image_out_of_sight_takes_no_new_readers(rig: ImageRig) -> None:
    rig.feed(heartbeat(128, EOS), 0)
    rig.read()
    rig.image.poll(0)
    rig.image.poll(1 * SECOND)
    assert not rig.image.is_accepting_subscriptions


def test_a_newer_image_silences_an_older_one_that_is_leaving(rig: ImageRig) -> None:
    rig.image.disable_status_messages()
    rig.image.poll(200 * MS)
    assert len(rig.status_messages()) == 1, "one that is active goes on"
    rig.image.remove_subscriber(0)
    rig.image.poll(300 * MS)
    rig.outbox.take()
    rig.image.disable_status_messages()
    assert run(rig, 300, 1_290) == []
    assert rig.state() is ImageState.DRAINING
    rig.image.poll(1_300 * MS)
    assert rig.state() is ImageState.LINGER


def test_a_silenced_image_is_drained_by_the_step_of_its_reader(rig: ImageRig) -> None:
    rig.feed(heartbeat(128, EOS), 0)
    rig.image.poll(0)
    rig.image.disable_status_messages()
    assert rig.image.poll(500 * MS) == 1 * SECOND
    assert rig.image.poll(1 * SECOND) == 11 * SECOND
    assert rig.image.consumption_trigger == 0
    rig.read()
    rig.image.poll(2 * SECOND)
    assert rig.state() is ImageState.LINGER


def test_a_source_that_comes_back_while_the_image_drains_is_still_read(rig: ImageRig) -> None:
    rig.image.poll(10 * SECOND + 1)
    rig.feed(data(128, 64), 10 * SECOND + 2)
    rig.image.poll(10 * SECOND + 2)
    assert rig.state() is ImageState.DRAINING
    assert rig.image.rebuild_position == 192
    assert len(rig.read()) == 2


def test_the_trigger_of_consumption_is_a_quarter_of_the_window_until_the_end() -> None:
    rig = ImageRig(join_position=64)
    assert rig.image.consumption_trigger == 64 + TERM_LENGTH // 8
    rig.image.poll(0)
    assert rig.image.consumption_trigger == 64 + TERM_LENGTH // 8
    rig.feed(pad(64, 1_024), 1)
    rig.feed(heartbeat(64 + 1_024, EOS), 1)
    rig.image.poll(1)
    assert rig.image.consumption_trigger == 0


def test_an_image_that_fails_drains_and_one_that_goes_on_failing_is_done() -> None:
    rig = ImageRig()
    rig.image.fail(0)
    assert rig.state() is ImageState.DRAINING
    rig.image.poll(0)
    (sm,) = rig.status_messages()
    assert sm.is_end_of_stream
    rig.image.fail(0)
    assert rig.state() is ImageState.LINGER
    rig.image.fail(0)
    assert rig.state() is ImageState.DONE


def test_a_failure_between_two_polls_is_raised_once_and_the_first_is_the_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*, rtt_ns: int, now_ns: int) -> None:
        raise ValueError(rtt_ns, now_ns)

    rig = ImageRig()
    monkeypatch.setattr(rig.image._congestion_control, "on_rttm", fail)
    for rtt_ns in (1, 2):
        rig.image.on_rttm(rtt_ns=rtt_ns, now_ns=0)
    with pytest.raises(ValueError, match=r"\(1, 0\)"):
        rig.image.poll(0)
    rig.image.poll(0)
    assert rig.state() is ImageState.ACTIVE


def test_an_image_keeps_its_attributes_where_cpython_reads_them_fastest() -> None:
    """Without slots CPython 3.11 reads the attributes of an object with more than 30 slowly.

    A round trip took 3 % more of the processor with 31 of them.
    """
    assert not hasattr(ImageRig().image, "__dict__")
