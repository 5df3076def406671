"""What is sent, and shown to readers, without a poll: only where nothing else is to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aeron_async.driver.core.context import DriverContext
from aeron_async.driver.core.image_state import ImageState
from aeron_async.driver.core.send_timestamps import SendTimestamps
from aeron_async.driver.core.system_counters import SystemCounterId
from aeron_async.protocol.status_message import StatusMessage
from tests.driver.fakes import EOS, MS, SECOND, data, heartbeat, nak, position_of
from tests.driver.rigs import ImageRig, PublicationRig
from tests.logbuffer.logs import TERM_LENGTH

if TYPE_CHECKING:
    from collections.abc import Callable

FRAME = 160
MESSAGE = bytes(FRAME - 32)
EIGHTH = TERM_LENGTH // 16
"""Of the window of a publication, which is half a term."""


def connected(**options: Any) -> PublicationRig:
    """Return a publication that has sent something and rests, in the tenth millisecond."""
    rig = PublicationRig(**options)
    rig.connect(0)
    rig.hear(0, 9 * MS, receiver_window=TERM_LENGTH // 2)
    rig.poll(10 * MS)
    return rig


def send(rig: PublicationRig, now_ns: int) -> tuple[bool, list[int]]:
    """Offer at once, and return whether that was all, and the lengths of what left."""
    is_all = rig.publication._quiet.try_send_alone(now_ns)
    return is_all, [len(datagram) for datagram in rig.outbox.take()]


def test_a_lone_offer_leaves_and_is_counted_without_a_poll() -> None:
    rig = connected()
    rig.publication.doorbell.is_rung = True
    changes, sent = rig.window_changes, rig.counts[SystemCounterId.BYTES_SENT]
    rig.offer(MESSAGE)
    assert send(rig, 11 * MS) == (True, [FRAME])
    assert not rig.publication.doorbell.is_rung
    assert rig.publication.sender_position == FRAME
    assert rig.counters.sender_position.get() == rig.counters.publisher_position.get() == FRAME
    assert rig.counts[SystemCounterId.BYTES_SENT] == sent + FRAME
    assert rig.window_changes == changes + 1, "whoever waits until it was sent hears of it"
    assert rig.poll(100 * MS) == [], "a heartbeat is due a hundred milliseconds after the data"
    assert len(rig.poll(111 * MS)) == 1


def test_what_was_sent_alone_can_be_sent_again() -> None:
    rig = connected()
    alone_count = 0
    for ms in range(60):
        rig.offer(MESSAGE)
        is_all, _ = send(rig, (11 + ms) * MS)
        alone_count += is_all
        if not is_all:
            rig.poll((11 + ms) * MS)
    assert alone_count == 58
    for number in (1, 27, 52):
        rig.publication.on_nak(nak(number * FRAME + 32, FRAME), 71 * MS)
        rig.publication.on_nak(nak(number * FRAME, FRAME), 71 * MS)
        assert [len(each) for each in rig.poll(71 * MS)] == [FRAME], "where a frame begins"


def test_what_is_due_is_left_to_a_poll_and_once_a_second_all_is() -> None:
    rig = connected()
    rig.publication.poll(20 * MS)
    for now_ns, is_all in ((1_020 * MS - 1, True), (1_020 * MS, False)):
        rig.offer(MESSAGE)
        assert send(rig, now_ns)[0] is is_all
    context = DriverContext(publication_connection_timeout_ns=300 * MS)
    rig = connected(context=context)
    for now_ns, is_all in ((309 * MS, True), (309 * MS + 1, False)):
        rig.offer(MESSAGE)
        assert send(rig, now_ns)[0] is is_all
    rig.poll(309 * MS + 1)
    assert not rig.is_connected()


def beat(rig: PublicationRig, now_ns: int) -> tuple[int, int]:
    """Let a heartbeat leave, and return the next deadline, and how many did."""
    deadline_ns = rig.publication._quiet.try_beat(now_ns)
    return deadline_ns, len(rig.outbox.take())


def test_heartbeats_leave_without_a_poll_every_hundred_milliseconds() -> None:
    rig = connected()
    start_ns = rig.publication.poll(10 * MS)
    rig.outbox.take()
    for number in range(9):
        now_ns = start_ns + number * 100 * MS
        assert beat(rig, now_ns - 1) == (now_ns, 0)
        following_ns = min(now_ns + 100 * MS, 1_010 * MS)
        assert beat(rig, now_ns) == (following_ns, 1)
    assert rig.counts[SystemCounterId.HEARTBEATS_SENT] == 10
    assert beat(rig, 1_010 * MS) == (0, 0), "once a second all is looked at"


def test_after_a_lone_offer_the_heartbeat_waits_for_it() -> None:
    rig = connected()
    rig.offer(MESSAGE)
    assert send(rig, 60 * MS) == (True, [FRAME])
    assert beat(rig, 110 * MS) == (160 * MS, 0)
    (frame,) = [rig.publication._quiet.try_beat(160 * MS), *rig.outbox.take()][1:]
    assert frame == heartbeat(FRAME)


def test_who_was_offered_to_or_is_at_its_end_is_polled_and_not_only_heard_of() -> None:
    rig = connected()
    rig.publication.doorbell.is_rung = True
    assert beat(rig, 110 * MS) == (0, 0)
    rig = connected()
    rig.publication.release(11 * MS)
    rig.poll(11 * MS)
    assert beat(rig, 110 * MS) == (0, 0)
    assert beat(PublicationRig(), 110 * MS) == (0, 0)


def test_an_eighth_of_the_window_after_the_last_poll_the_limit_moves_again() -> None:
    rig = connected()
    limit = rig.publication.publisher_limit
    while rig.publication.sender_position <= EIGHTH:
        rig.offer(MESSAGE)
        assert send(rig, 11 * MS) == (True, [FRAME])
    rig.offer(MESSAGE)
    assert send(rig, 11 * MS) == (False, [])
    assert rig.publication.publisher_limit == limit
    rig.poll(11 * MS)
    assert rig.publication.publisher_limit == limit + rig.publication.sender_position


def offered_twice(rig: PublicationRig) -> None:
    rig.offer(bytes(1_408 - 32))
    rig.offer(MESSAGE)


def in_fragments(rig: PublicationRig) -> None:
    rig.offer(bytes(3_000))


@pytest.mark.parametrize("offer", [offered_twice, in_fragments])
def test_where_more_is_to_leave_the_rest_is_left_to_a_poll(
    offer: Callable[[PublicationRig], None],
) -> None:
    rig = connected()
    offer(rig)
    is_all, lengths = send(rig, 11 * MS)
    assert not is_all
    assert sum(lengths) == rig.publication.sender_position == 1_408
    rig.poll(11 * MS)
    assert rig.publication.sender_position == rig.publication.producer_position


def test_nothing_is_sent_where_nothing_was_offered() -> None:
    assert send(connected(), 11 * MS) == (False, [])


def test_the_end_of_a_term_is_left_to_a_poll() -> None:
    rig = connected()
    now_ns = 11 * MS
    while rig.publication.sender_position + 1_408 < TERM_LENGTH:
        rig.offer(bytes(1_408 - 32))
        rig.hear(rig.publication.sender_position, now_ns, receiver_window=TERM_LENGTH // 2)
        rig.poll(now_ns)
    rig.offer(bytes(1_000))
    rig.hear(rig.publication.sender_position, now_ns, receiver_window=TERM_LENGTH // 2)
    assert send(rig, now_ns) == (False, []), "padding comes first"
    rig.poll(now_ns)
    assert rig.publication.sender_position > TERM_LENGTH


def test_the_last_frame_of_a_term_may_be_followed_by_another_term() -> None:
    rig = connected()
    now_ns = 11 * MS
    for length in [1_024] * 63 + [512] * 2:
        if rig.publication.sender_position + 512 < TERM_LENGTH:
            rig.offer(bytes(length - 32))
            rig.hear(rig.publication.sender_position, now_ns, receiver_window=TERM_LENGTH // 2)
            rig.poll(now_ns)
    assert rig.publication.sender_position == TERM_LENGTH - 512
    rig.offer(bytes(512 - 32))
    assert send(rig, now_ns) == (False, [512])


def test_a_window_that_may_hold_it_back_is_left_to_a_poll() -> None:
    rig = connected()
    rig.hear(0, 11 * MS, receiver_window=4_096)
    rig.publication.flow_control.on_idle(sender_limit=0, sender_position=0, now_ns=0)
    rig.publication._sender.set_limit(1_408)
    rig.offer(MESSAGE)
    assert send(rig, 12 * MS) == (False, [])


def test_what_could_not_leave_is_left_to_a_poll_and_counted_once() -> None:
    rig = connected()
    rig.offer(MESSAGE)
    rig.outbox.is_full = True
    assert send(rig, 11 * MS) == (False, [])
    assert rig.poll(11 * MS) == []
    assert rig.counts[SystemCounterId.SHORT_SENDS] == 1
    assert rig.publication.sender_position == 0
    rig.outbox.is_full = False
    assert [len(each) for each in rig.poll(12 * MS)] == [FRAME]


def test_messages_that_carry_their_time_are_left_to_a_poll() -> None:
    rig = connected(timestamps=SendTimestamps(0, lambda: 1))
    rig.offer(MESSAGE)
    assert send(rig, 11 * MS) == (False, [])


def test_spies_are_told_by_a_poll() -> None:
    rig = connected()
    rig.spy()
    rig.poll(11 * MS)
    rig.offer(MESSAGE)
    assert send(rig, 12 * MS) == (False, [])


def test_nobody_there_and_the_end_are_seen_to_by_a_poll() -> None:
    rig = PublicationRig()
    rig.poll(0)
    assert send(rig, 1) == (False, [])
    rig = connected()
    rig.publication.release(11 * MS)
    rig.poll(11 * MS)
    assert send(rig, 12 * MS) == (False, [])


# Images.


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
        assert rig.image.try_show(2 * MS)
        assert rig.image.rebuild_position == (number + 1) * FRAME
        assert rig.counters.receiver_position.get() == (number + 1) * FRAME
        assert rig.progress == number + 1
    assert len(rig.read()) == 3
    assert rig.outbox.take() == []


def test_a_heartbeat_of_what_is_there_changes_nothing() -> None:
    rig = resting()
    rig.feed(heartbeat(0), 2 * MS)
    assert rig.image.try_show(2 * MS)
    assert rig.progress == 0
    rig.image.poll(10 * SECOND)
    assert rig.state() is ImageState.ACTIVE, "it was heard ten seconds ago, and no more"
    rig.image.poll(10 * SECOND + 3 * MS)
    assert rig.state() is ImageState.DRAINING


def test_what_comes_behind_a_gap_is_left_to_a_poll_and_so_is_all_until_the_gap_is_closed() -> None:
    rig = resting()
    rig.feed(data(FRAME, FRAME), 2 * MS)
    assert not rig.image.try_show(2 * MS)
    rig.image.poll(2 * MS)
    assert rig.progress == 0
    rig.feed(data(0, FRAME), 3 * MS)
    assert not rig.image.try_show(3 * MS)
    rig.image.poll(3 * MS)
    assert rig.progress == 1
    rig.feed(data(2 * FRAME, FRAME), 4 * MS)
    assert rig.image.try_show(4 * MS)


def test_what_reaches_into_another_term_is_left_to_a_poll() -> None:
    rig = resting(join_position=TERM_LENGTH - FRAME)
    rig.feed(data(TERM_LENGTH - FRAME, FRAME), 2 * MS)
    rig.feed(data(TERM_LENGTH, FRAME), 2 * MS)
    assert not rig.image.try_show(2 * MS)
    rig.image.poll(2 * MS)
    assert rig.image.rebuild_position == TERM_LENGTH + FRAME


def test_from_the_deadline_on_an_image_is_polled() -> None:
    rig = resting()
    deadline_ns = rig.image.poll(2 * MS)
    rig.feed(data(0, FRAME), 3 * MS)
    assert not rig.image.try_show(deadline_ns)
    assert rig.image.try_show(deadline_ns - 1)


def test_a_reader_that_has_rung_the_end_of_the_stream_and_a_failure_want_a_poll() -> None:
    rig = resting()
    rig.image.doorbell.is_rung = True
    assert not rig.image.try_show(2 * MS)
    rig = resting()
    rig.feed(heartbeat(0, EOS), 2 * MS)
    assert not rig.image.try_show(2 * MS)
    rig = resting()
    rig.image.failure = ValueError("boom")
    assert not rig.image.try_show(2 * MS)
    with pytest.raises(ValueError, match="boom"):
        rig.image.poll(2 * MS)
    assert not rig.image.try_show(2 * MS)


def test_a_strategy_that_follows_the_rebuild_and_a_reader_that_may_be_left_want_every_poll() -> (
    None
):
    rig = resting(chosen_control="cubic", context=DriverContext())
    assert not rig.image.try_show(2 * MS)
    rig = ImageRig(subscribers=0)
    rig.subscribe(is_tether=False)
    rig.image.poll(MS)
    assert not rig.image.try_show(2 * MS)
    rig = ImageRig(subscribers=0)
    rig.image.poll(MS)
    assert not rig.image.try_show(2 * MS), "and nobody at all"


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
    rig.image.doorbell.is_rung = True
    rig.consume_to(STEP)
    assert rig.image.try_report(2 * MS)
    assert sms(rig) == [], "not more than a quarter"
    rig.consume_to(STEP + 32)
    assert rig.image.try_report(2 * MS)
    assert sms(rig) == [STEP + 32]
    assert not rig.image.doorbell.is_rung
    assert rig.image.consumption_trigger == 2 * STEP + 32
    assert rig.image._intake._feedback.overrun_threshold == STEP + 32 + TERM_LENGTH // 2
    rig.image.poll(201 * MS)
    assert sms(rig) == [], "two hundred milliseconds after the last one"
    rig.image.poll(202 * MS)
    assert sms(rig) == [STEP + 32]


def test_what_was_read_is_cleaned_a_term_behind_without_a_poll() -> None:
    rig = resting(join_position=TERM_LENGTH)
    rig.image._consumption._clean_position = 0
    rig.log.terms[0][:] = b"\xff" * TERM_LENGTH
    rig.consume_to(TERM_LENGTH + STEP + 32)
    assert rig.image.try_report(2 * MS)
    assert not any(rig.log.terms[0][: STEP + 32])
    assert rig.log.terms[0][STEP + 32] == 0xFF


def test_the_slowest_of_several_readers_is_what_is_reported() -> None:
    rig = resting(subscribers=2)
    rig.consume_to(2 * STEP)
    assert rig.image.try_report(2 * MS)
    assert sms(rig) == []
    rig.consume_to(STEP + 32, 1)
    assert rig.image.try_report(2 * MS)
    assert sms(rig) == [STEP + 32]


def test_what_was_read_wants_a_poll_where_there_is_more_to_it() -> None:
    rig = resting()
    rig.consume_to(2 * STEP)
    assert not rig.image.try_report(rig.image.poll(2 * MS))
    rig = resting()
    rig.image.failure = ValueError("boom")
    assert not rig.image.try_report(2 * MS)
    rig = resting(chosen_control="cubic", context=DriverContext())
    assert not rig.image.try_report(2 * MS)
    rig = resting()
    rig.subscribe(is_tether=False)
    assert not rig.image.try_report(2 * MS), "it may be left behind by who was read from"
    rig = resting(subscribers=0)
    assert not rig.image.try_report(2 * MS)
    rig = resting()
    rig.image.remove_subscriber(0)
    assert not rig.image.try_report(2 * MS), "nobody reads"
    rig = resting()
    rig.feed(heartbeat(0, EOS), 2 * MS)
    rig.image.poll(2 * MS)
    assert not rig.image.try_report(3 * MS)
    assert rig.outbox.take()


def test_what_fails_without_a_poll_is_raised_by_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise LookupError

    rig = resting()
    rig.consume_to(STEP + 32)
    monkeypatch.setattr(rig.outbox, "send_to", fail)
    assert not rig.image.try_report(2 * MS), "whoever reads has nothing to do with it"
    with pytest.raises(LookupError):
        rig.image.poll(2 * MS)
    rig = resting()
    rig.feed(data(0, FRAME), 2 * MS)
    monkeypatch.setattr(rig, "on_image_progress", fail)
    assert not rig.image.try_show(2 * MS)
    with pytest.raises(LookupError):
        rig.image.poll(2 * MS)
