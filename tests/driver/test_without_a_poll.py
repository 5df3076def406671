"""What a publication sends without a poll: only where nothing else is to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aeron_async.driver.core.context import DriverContext
from aeron_async.driver.core.outbox import HeartbeatBatch
from aeron_async.driver.core.system_counters import SystemCounterId
from aeron_async.driver.core.timestamps import SendTimestamps
from tests.driver.fakes import MS, heartbeat, nak
from tests.driver.rigs import PublicationRig
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
    is_all = rig.publication.send_data_fast(now_ns)
    return is_all, [len(datagram) for datagram in rig.outbox.take()]


def test_a_lone_offer_leaves_and_is_counted_without_a_poll() -> None:
    rig = connected()
    rig.publication.wake_flag.is_set = True
    changes, sent = rig.window_changes, rig.counts[SystemCounterId.BYTES_SENT]
    rig.offer(MESSAGE)
    assert send(rig, 11 * MS) == (True, [FRAME])
    assert not rig.publication.wake_flag.is_set
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
        rig.hear_nak(nak(number * FRAME + 32, FRAME), 71 * MS)
        rig.hear_nak(nak(number * FRAME, FRAME), 71 * MS)
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
    deadline_ns = rig.publication.heartbeat_fast(now_ns)
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


def test_a_heartbeat_that_is_nearly_due_may_leave_with_the_others() -> None:
    rig = connected()
    due_ns = rig.publication.poll(10 * MS)
    rig.outbox.take()
    batch, early_ns = HeartbeatBatch(), due_ns - 5 * MS
    before = rig.counts[SystemCounterId.HEARTBEATS_SENT]
    assert rig.publication.heartbeat_fast(early_ns, due_ns=due_ns - 1, batch=batch) == due_ns
    assert batch.send(print) == 0
    assert rig.outbox.take() == []
    following_ns = rig.publication.heartbeat_fast(early_ns, due_ns=due_ns, batch=batch)
    assert following_ns == early_ns + 100 * MS
    assert rig.counts[SystemCounterId.HEARTBEATS_SENT] == before + 1
    assert rig.outbox.take() == []
    assert batch.send(print) == 0
    assert rig.outbox.take() == [heartbeat(0)]


def test_after_a_lone_offer_the_heartbeat_waits_for_it() -> None:
    rig = connected()
    rig.offer(MESSAGE)
    assert send(rig, 60 * MS) == (True, [FRAME])
    assert beat(rig, 110 * MS) == (160 * MS, 0)
    (frame,) = [rig.publication.heartbeat_fast(160 * MS), *rig.outbox.take()][1:]
    assert frame == heartbeat(FRAME)


def test_who_was_offered_to_or_is_at_its_end_is_polled_and_not_only_heard_of() -> None:
    rig = connected()
    rig.publication.wake_flag.is_set = True
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
