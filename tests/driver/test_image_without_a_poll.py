"""What an image shows to readers, and reports, without a poll: only where nothing else is to do."""

from __future__ import annotations

from array import array
from typing import Any

import pytest

from aeron_async.driver.core import publication_image
from aeron_async.driver.core.context import DriverContext
from aeron_async.driver.core.image_state import ImageState
from aeron_async.protocol.data import DataHeader
from aeron_async.protocol.status_message import StatusMessage
from tests.driver.fakes import EOS, MS, SECOND, data, heartbeat, position_of
from tests.driver.rigs import ImageRig
from tests.logbuffer.logs import INITIAL_TERM_ID, TERM_LENGTH

FRAME = 160
ALONE = array("i", [192, 192])


def resting(**options: Any) -> ImageRig:
    """Return an image that was polled in the first millisecond, and rests."""
    rig = ImageRig(**options)
    rig.image.poll(MS)
    rig.outbox.take()
    return rig


def test_what_comes_in_order_is_shown_without_a_poll() -> None:
    rig = resting()
    for number in range(3):
        rig.feed(data(number * FRAME, FRAME), 2 * MS)
        assert rig.image.advance_rebuild_position_fast(2 * MS)
        assert rig.image.rebuild_position == (number + 1) * FRAME
        assert rig.counters.receiver_position.get() == (number + 1) * FRAME
        assert rig.progress == number + 1
    assert len(rig.read()) == 3
    assert rig.outbox.take() == []


def place(rig: ImageRig, position: int, count: int = 1) -> int:
    """Place datagrams as the fast way does; return how many bytes it took."""
    packets = b"".join(data(position + each * FRAME, FRAME) for each in range(count))
    header = DataHeader.decode(packets)
    where = rig.connection(), header.term_id, header.term_offset
    segments = array("i", [len(packets), FRAME])
    return rig.image.insert_packets_fast(
        memoryview(packets), memoryview(segments), 0, 0, *where, 2 * MS
    )


def test_what_was_placed_in_order_is_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = resting()
    monkeypatch.setattr(publication_image, "skip_whole", None)
    assert place(rig, 0, 3) == 3 * FRAME
    assert place(rig, 3 * FRAME, 2) == 2 * FRAME
    assert rig.image.advance_rebuild_position_fast(2 * MS)
    assert rig.image.rebuild_position == 5 * FRAME
    assert len(rig.read()) == 5


def test_what_was_placed_behind_a_gap_is_not_shown() -> None:
    rig = resting()
    assert place(rig, 0) == FRAME
    assert place(rig, 2 * FRAME) == FRAME
    assert not rig.image.advance_rebuild_position_fast(2 * MS)
    assert rig.image.rebuild_position == 0
    assert place(rig, FRAME) == FRAME
    assert rig.image.advance_rebuild_position_fast(2 * MS)
    assert rig.image.rebuild_position == 3 * FRAME


def test_what_was_placed_and_cleared_is_not_shown() -> None:
    rig = resting()
    assert place(rig, 0, 3) == 3 * FRAME
    # It contradicts the second frame, and nobody was shown either of them.
    rig.feed(data(FRAME, FRAME - 32), 2 * MS)
    assert rig.log.terms[0][FRAME] == 0
    for time_ns in range(2 * MS, 30 * MS, MS):
        rig.image.advance_rebuild_position_fast(time_ns)
        assert rig.image.rebuild_position <= FRAME
        rig.image.poll(time_ns)
    assert rig.image.rebuild_position == FRAME


def test_a_header_that_was_written_over_is_looked_at_where_gaps_become_padding() -> None:
    rig = resting(is_reliable=False)
    assert place(rig, 0, 3) == 3 * FRAME
    # Its source forged it: it lies in the payload of the first frame, and ends in the second one.
    forged = memoryview(data(64, 192)[:32] + bytes(160))
    where = rig.connection(), INITIAL_TERM_ID, 64
    assert rig.image.insert_packets_fast(forged, memoryview(ALONE), 0, 0, *where, 2 * MS) == 192
    assert not rig.image.advance_rebuild_position_fast(2 * MS)
    assert rig.image.rebuild_position == 0


def test_what_was_placed_up_to_the_next_term_and_beyond_is_shown_by_a_poll() -> None:
    rig = resting(join_position=TERM_LENGTH - FRAME)
    assert place(rig, TERM_LENGTH - FRAME) == FRAME
    assert place(rig, TERM_LENGTH) == FRAME
    assert not rig.image.advance_rebuild_position_fast(2 * MS)
    rig.image.poll(2 * MS)
    assert rig.image.rebuild_position == TERM_LENGTH + FRAME


def test_a_heartbeat_of_what_is_there_changes_nothing() -> None:
    rig = resting()
    rig.feed(heartbeat(0), 2 * MS)
    assert rig.image.advance_rebuild_position_fast(2 * MS)
    assert rig.progress == 0
    rig.image.poll(10 * SECOND)
    assert rig.state() is ImageState.ACTIVE, "it was heard ten seconds ago, and no more"
    rig.image.poll(10 * SECOND + 3 * MS)
    assert rig.state() is ImageState.DRAINING


def test_what_comes_behind_a_gap_is_left_to_a_poll_and_so_is_all_until_the_gap_is_closed() -> None:
    rig = resting()
    rig.feed(data(FRAME, FRAME), 2 * MS)
    assert not rig.image.advance_rebuild_position_fast(2 * MS)
    rig.image.poll(2 * MS)
    assert rig.progress == 0
    rig.feed(data(0, FRAME), 3 * MS)
    assert not rig.image.advance_rebuild_position_fast(3 * MS)
    rig.image.poll(3 * MS)
    assert rig.progress == 1
    rig.feed(data(2 * FRAME, FRAME), 4 * MS)
    assert rig.image.advance_rebuild_position_fast(4 * MS)


def test_what_reaches_into_another_term_is_left_to_a_poll() -> None:
    rig = resting(join_position=TERM_LENGTH - FRAME)
    rig.feed(data(TERM_LENGTH - FRAME, FRAME), 2 * MS)
    rig.feed(data(TERM_LENGTH, FRAME), 2 * MS)
    assert not rig.image.advance_rebuild_position_fast(2 * MS)
    rig.image.poll(2 * MS)
    assert rig.image.rebuild_position == TERM_LENGTH + FRAME


def test_from_the_deadline_on_an_image_is_polled() -> None:
    rig = resting()
    deadline_ns = rig.image.poll(2 * MS)
    rig.feed(data(0, FRAME), 3 * MS)
    assert not rig.image.advance_rebuild_position_fast(deadline_ns)
    assert rig.image.advance_rebuild_position_fast(deadline_ns - 1)


def test_a_reader_that_has_rung_the_end_of_the_stream_and_a_failure_want_a_poll() -> None:
    rig = resting()
    rig.image.wake_flag.is_set = True
    assert not rig.image.advance_rebuild_position_fast(2 * MS)
    rig = resting()
    rig.feed(heartbeat(0, EOS), 2 * MS)
    assert not rig.image.advance_rebuild_position_fast(2 * MS)
    rig = resting()
    rig.image.failure = ValueError("boom")
    assert not rig.image.advance_rebuild_position_fast(2 * MS)
    with pytest.raises(ValueError, match="boom"):
        rig.image.poll(2 * MS)
    assert not rig.image.advance_rebuild_position_fast(2 * MS)


def test_a_strategy_that_follows_the_rebuild_and_a_reader_that_may_be_left_want_every_poll() -> (
    None
):
    rig = resting(chosen_control="cubic", context=DriverContext())
    assert not rig.image.advance_rebuild_position_fast(2 * MS)
    rig = ImageRig(subscribers=0)
    rig.subscribe(is_tether=False)
    rig.image.poll(MS)
    assert not rig.image.advance_rebuild_position_fast(2 * MS)
    rig = ImageRig(subscribers=0)
    rig.image.poll(MS)
    assert not rig.image.advance_rebuild_position_fast(2 * MS), "and nobody at all"


def sms(rig: ImageRig) -> list[int]:
    """Return the positions of the status messages sent since the last look."""
    return [
        position_of(sm.consumption_term_id, sm.consumption_term_offset, rig.log)
        for sm in rig.outbox.take_frames(StatusMessage)
    ]


STEP = TERM_LENGTH // 8
"""Of the window of an image, which is half a term, a quarter."""


def test_what_was_read_is_reported_without_a_poll() -> None:
    rig = resting()
    rig.image.wake_flag.is_set = True
    rig.consume_to(STEP)
    assert rig.image.send_pending_status_message_fast(2 * MS)
    assert sms(rig) == [], "not more than a quarter"
    rig.consume_to(STEP + 32)
    assert rig.image.send_pending_status_message_fast(2 * MS)
    assert sms(rig) == [STEP + 32]
    assert not rig.image.wake_flag.is_set
    assert rig.image.consumption_trigger == 2 * STEP + 32
    assert rig.image._feedback.overrun_threshold == STEP + 32 + TERM_LENGTH // 2
    rig.image.poll(201 * MS)
    assert sms(rig) == [], "two hundred milliseconds after the last one"
    rig.image.poll(202 * MS)
    assert sms(rig) == [STEP + 32]


def test_what_was_read_is_cleaned_a_term_behind_without_a_poll() -> None:
    rig = resting(join_position=TERM_LENGTH)
    rig.image._clean_position = 0
    rig.log.terms[0][:] = b"\xff" * TERM_LENGTH
    rig.consume_to(TERM_LENGTH + STEP + 32)
    assert rig.image.send_pending_status_message_fast(2 * MS)
    assert not any(rig.log.terms[0][: STEP + 32])
    assert rig.log.terms[0][STEP + 32] == 0xFF


def test_the_slowest_of_several_readers_is_what_is_reported() -> None:
    rig = resting(subscribers=2)
    rig.consume_to(2 * STEP)
    assert rig.image.send_pending_status_message_fast(2 * MS)
    assert sms(rig) == []
    rig.consume_to(STEP + 32, 1)
    assert rig.image.send_pending_status_message_fast(2 * MS)
    assert sms(rig) == [STEP + 32]


def test_what_was_read_wants_a_poll_where_there_is_more_to_it() -> None:
    rig = resting()
    rig.consume_to(2 * STEP)
    assert not rig.image.send_pending_status_message_fast(rig.image.poll(2 * MS))
    rig = resting()
    rig.image.failure = ValueError("boom")
    assert not rig.image.send_pending_status_message_fast(2 * MS)
    rig = resting(chosen_control="cubic", context=DriverContext())
    assert not rig.image.send_pending_status_message_fast(2 * MS)
    rig = resting()
    rig.subscribe(is_tether=False)
    assert not rig.image.send_pending_status_message_fast(2 * MS), (
        "it may be left behind by who was read from"
    )
    rig = resting(subscribers=0)
    assert not rig.image.send_pending_status_message_fast(2 * MS)
    rig = resting()
    rig.image.remove_subscriber(0)
    assert not rig.image.send_pending_status_message_fast(2 * MS), "nobody reads"
    rig = resting()
    rig.feed(heartbeat(0, EOS), 2 * MS)
    rig.image.poll(2 * MS)
    assert not rig.image.send_pending_status_message_fast(3 * MS)
    assert rig.outbox.take()


def test_what_fails_without_a_poll_is_raised_by_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise LookupError

    rig = resting()
    rig.consume_to(STEP + 32)
    monkeypatch.setattr(rig.outbox, "send_to", fail)
    assert not rig.image.send_pending_status_message_fast(2 * MS), (
        "whoever reads has nothing to do with it"
    )
    with pytest.raises(LookupError):
        rig.image.poll(2 * MS)
    rig = resting()
    rig.feed(data(0, FRAME), 2 * MS)
    monkeypatch.setattr(rig.image.subscribers.active[0], "on_progress", fail)
    assert not rig.image.advance_rebuild_position_fast(2 * MS)
    with pytest.raises(LookupError):
        rig.image.poll(2 * MS)
