"""Gaps: found, asked for at once, the first asked for again, and never given up."""

from __future__ import annotations

from itertools import chain, pairwise

import pytest

from aeron_async.clock import NEVER_NS
from aeron_async.driver.core.budgets import HASTY_NAKS
from aeron_async.driver.core.system_counters import SystemCounterId
from aeron_async.protocol.data import DataHeader
from aeron_async.protocol.datagram import DataFrame
from aeron_async.protocol.header import FrameType
from tests.driver.fakes import HALF_TERM, MS, SECOND, US, data, heartbeat, pad, payload
from tests.driver.rigs import ImageRig
from tests.logbuffer.logs import TERM_LENGTH

NAKS_SENT = SystemCounterId.NAK_MESSAGES_SENT


@pytest.fixture
def rig() -> ImageRig:
    rig = ImageRig()
    rig.image.poll(0)
    rig.outbox.take()
    return rig


@pytest.mark.untraced
def test_a_gap_is_asked_for_at_once_and_every_hundred_microseconds_and_then_ever_more_slowly(
    rig: ImageRig,
) -> None:
    rig.feed(data(128, 64), 2_000)
    assert rig.image.poll(2_000) == 102_000
    assert rig.naks() == [(0, 128)]
    asked = []
    # However often it is polled, and most often while it is in haste.
    often, less_often = range(3_000, 30_002_000, 1_000), range(30_002_000, 600 * MS, 10_000)
    for now_ns in chain(often, less_often):
        rig.image.poll(now_ns)
        asked += [now_ns] * len(rig.naks())
    assert asked[:HASTY_NAKS] == list(range(102_000, HASTY_NAKS * 100 * US + 102_000, 100 * US))
    pauses_ns = [later - earlier for earlier, later in pairwise(asked[HASTY_NAKS - 1 :])]
    assert pauses_ns[:7] == [2 * MS] * 7
    assert set(pauses_ns[7:]) == {200 * MS}, "there is no giving up, only patience"
    assert rig.counters.naks_sent.get() == rig[NAKS_SENT] == len(asked) + 1
    rig.feed(data(0, 128), 600 * MS)
    rig.image.poll(600 * MS)
    assert rig.image.rebuild_position == 192
    assert rig.image.poll(1_001 * MS) > 1_001 * MS
    assert rig.naks() == []


def test_of_two_gaps_only_the_first_is_asked_for_again(rig: ImageRig) -> None:
    rig.feed(data(64, 64), 0)
    rig.feed(data(256, 64), 0)
    asked = []
    for now_us in range(501):
        rig.image.poll(now_us * US)
        asked += rig.naks()
    assert asked == [(0, 64), (128, 128), *[(0, 64)] * 5]
    rig.feed(data(0, 64), 510 * US)
    assert rig.image.poll(510 * US) == 600 * US
    assert rig.naks() == [], "what was asked for last may be on its way"
    rig.image.poll(600 * US)
    assert rig.naks() == [(128, 128)]


def test_a_gap_that_shrinks_from_its_front_has_its_answer_on_the_way(rig: ImageRig) -> None:
    rig.feed(data(256, 64), 1 * US)
    rig.image.poll(1 * US)
    rig.feed(data(0, 64), 50 * US)
    assert rig.image.poll(50 * US) == 101 * US
    rig.image.poll(101 * US)
    assert rig.naks() == [(0, 256), (64, 192)]


def test_a_gap_that_shrinks_from_its_end_has_its_answer_on_the_way(rig: ImageRig) -> None:
    rig.feed(data(256, 64), 1 * US)
    rig.image.poll(1 * US)
    rig.feed(data(192, 64), 50 * US)
    assert rig.image.poll(50 * US) == 101 * US
    rig.image.poll(101 * US)
    assert rig.naks() == [(0, 256), (0, 192)]


def test_a_gap_that_grows_by_a_heartbeat_is_asked_for_as_long_as_it_is_by_then(
    rig: ImageRig,
) -> None:
    rig.feed(heartbeat(64), 0)
    rig.image.poll(0)
    rig.feed(heartbeat(128), 500)
    assert rig.image.poll(500) == 100 * US
    rig.image.poll(100 * US)
    assert rig.naks() == [(0, 64), (0, 128)]


def test_a_lost_tail_is_revealed_by_a_heartbeat(rig: ImageRig) -> None:
    rig.feed(data(0, 64), 0)
    rig.image.poll(0)
    rig.feed(heartbeat(1_024), 100 * MS)
    rig.image.poll(100 * MS)
    rig.image.poll(100 * MS + US)
    assert rig.naks() == [(64, 960)]


def at_the_end_of_a_term(distance: int) -> ImageRig:
    rig = ImageRig(join_position=TERM_LENGTH - distance)
    rig.image.poll(0)
    rig.outbox.take()
    return rig


def test_lost_padding_at_the_end_of_a_term_is_revealed_by_a_heartbeat_in_the_next() -> None:
    rig = at_the_end_of_a_term(1_024)
    rig.feed(data(TERM_LENGTH - 1_024, 128), 0)
    rig.feed(heartbeat(TERM_LENGTH), 100 * MS)
    rig.image.poll(100 * MS)
    rig.image.poll(100 * MS + US)
    assert rig.naks() == [(TERM_LENGTH - 896, 896)]
    rig.feed(pad(TERM_LENGTH - 896, 896), 101 * MS)
    rig.image.poll(101 * MS)
    assert rig.image.rebuild_position == TERM_LENGTH
    rig.image.poll(150 * MS)
    assert rig.naks() == []


def test_loss_across_the_end_of_a_term_is_asked_for_in_two_steps() -> None:
    rig = at_the_end_of_a_term(256)
    rig.feed(data(TERM_LENGTH - 256, 128), 0)
    rig.feed(data(TERM_LENGTH + 128, 64), 0)
    rig.image.poll(0)
    assert rig.naks() == [(TERM_LENGTH - 128, 128), (TERM_LENGTH, 128)]
    rig.feed(data(TERM_LENGTH - 128, 128), 10 * US)
    rig.image.poll(10 * US)
    assert rig.naks() == []
    rig.feed(data(TERM_LENGTH, 128), 20 * US)
    rig.image.poll(20 * US)
    assert rig.image.rebuild_position == TERM_LENGTH + 192


def test_a_gap_behind_a_wrapped_term_id_is_asked_for_by_that_id() -> None:
    rig = ImageRig(join_position=TERM_LENGTH, spec={"initial_term_id": 2**31 - 1})
    rig.image.poll(0)
    rig.outbox.take()
    rig.feed(data(TERM_LENGTH + 64, 64, initial_term_id=2**31 - 1), 0)
    rig.image.poll(0)
    assert rig.outbox.sent[0][16:20] == (-(2**31)).to_bytes(4, "little", signed=True)


def test_a_nak_is_the_official_twenty_eight_bytes(rig: ImageRig) -> None:
    rig.feed(data(128, 64), 0)
    rig.image.poll(0)
    rig.image.poll(1 * US)
    (sent,) = rig.outbox.take()
    log = rig.log
    assert sent == b"".join(
        (
            bytes.fromhex("1c000000 00 00 0200"),
            *(
                number.to_bytes(4, "little", signed=True)
                for number in (log.session_id, log.stream_id, log.initial_term_id, 0, 128)
            ),
        )
    )


def test_a_reader_that_is_ahead_of_the_rebuilding_moves_it() -> None:
    rig = ImageRig()
    rig.feed(data(0, 64) + data(64, 64), 0)
    rig.read()
    rig.image.poll(0)
    assert rig.image.rebuild_position == 128


def test_a_nak_that_cannot_leave_is_counted_as_a_short_send(rig: ImageRig) -> None:
    rig.feed(data(128, 64), 0)
    rig.outbox.is_full = True
    rig.image.poll(0)
    assert rig[SystemCounterId.SHORT_SENDS] == 1
    assert rig[NAKS_SENT] == rig.counters.naks_sent.get() == 0
    rig.outbox.is_full = False
    rig.image.poll(101 * US)
    assert rig.naks() == [(0, 128)]


def test_a_source_that_is_silent_is_not_asked_and_nobody_is_kept_awake_for_it(
    rig: ImageRig,
) -> None:
    rig.feed(data(128, 64), 0)
    rig.image.poll(0)
    assert rig.naks() == [(0, 128)]
    assert rig.image.poll(5 * SECOND - 1) == 5 * SECOND - 1 + 100 * US
    assert rig.naks() == [(0, 128)]
    assert rig.image.poll(5 * SECOND) > 5 * SECOND + 10 * MS
    assert rig.naks() == []
    rig.feed(heartbeat(192), 6 * SECOND)
    rig.image.poll(6 * SECOND)
    assert rig.naks() == [(0, 128)], "it is back, and asked at once"


def test_without_readers_nothing_is_asked_for(rig: ImageRig) -> None:
    rig.feed(data(128, 64), 0)
    rig.image.remove_subscriber(0)
    for now_us in range(0, 1_000_000, 50):
        rig.image.poll(now_us * US)
    assert rig.naks() == []


def unreliable() -> ImageRig:
    rig = ImageRig(is_reliable=False)
    rig.image.poll(0)
    rig.outbox.take()
    return rig


def test_an_unreliable_stream_lays_padding_over_its_gaps_and_asks_for_nothing() -> None:
    rig = unreliable()
    rig.feed(data(128, 64), 0)
    rig.feed(data(256, 64), 0)
    while rig.image.poll(0) <= 0:
        pass
    assert rig.image.rebuild_position == 320
    assert rig[SystemCounterId.LOSS_GAP_FILLS] == 2
    assert rig.outbox.take_frames(DataFrame) == []
    assert rig.outbox.sent == []
    header = DataHeader.decode(rig.log.terms[0][:32])
    assert (header.frame_length, header.frame_type, header.flags) == (128, FrameType.PAD, 0xC0)
    assert rig.read() == [payload(128, 64), payload(256, 64)]
    assert rig[NAKS_SENT] == 0


def test_what_comes_after_its_gap_was_filled_is_too_late() -> None:
    rig = unreliable()
    rig.feed(data(128, 64), 0)
    rig.image.poll(0)
    rig.feed(data(0, 128), 1)
    rig.image.poll(1)
    assert rig.read() == [payload(128, 64)]


def test_a_gap_that_is_no_hole_is_left_alone() -> None:
    rig = unreliable()
    # No datagram can bring a negative length; a log that another process wrote to might.
    rig.log.term_words[0][0] = -64
    rig.feed(data(128, 64), 0)
    rig.image.poll(0)
    assert rig[SystemCounterId.LOSS_GAP_FILLS] == 0
    assert rig.image.rebuild_position == 0


def test_rebuilding_goes_over_several_terms_in_one_poll() -> None:
    rig = ImageRig(join_position=TERM_LENGTH - 64)
    rig.image.poll(0)
    rig.feed(data(TERM_LENGTH - 64, 64), 1)
    rig.feed(data(TERM_LENGTH, 64), 1)
    rig.feed(pad(TERM_LENGTH + 64, HALF_TERM - 256), 1)
    rig.image.poll(1)
    assert rig.image.rebuild_position == rig.image.hwm_position == TERM_LENGTH + HALF_TERM - 192
    assert rig.image._gaps.detector.deadline_ns == NEVER_NS


def test_the_loss_of_everything_is_asked_for_up_to_where_the_sender_is(rig: ImageRig) -> None:
    rig.feed(heartbeat(HALF_TERM), 0)
    rig.image.poll(0)
    rig.image.poll(1 * US)
    assert rig.naks() == [(0, HALF_TERM)]
