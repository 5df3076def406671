from __future__ import annotations

from aeron_async.logbuffer.appender import AppendResult, Claim, SharedAppender
from aeron_async.logbuffer.metadata import rotate_log
from aeron_async.logbuffer.position import pack_tail
from tests.logbuffer.logs import INITIAL_TERM_ID, NO_LIMIT, TERM_LENGTH, header, make_log, read_all


def test_several_writers_share_one_log() -> None:
    log = make_log()
    writers = [SharedAppender(log) for _ in range(3)]
    sent = []
    for number in range(200):
        message = number.to_bytes(2, "little") * 300
        writer = writers[number % 3]
        if writer.offer(message, limit=NO_LIMIT) == AppendResult.ADMIN_ACTION:
            assert writer.offer(message, limit=NO_LIMIT) > 0
        sent.append(message)
    assert read_all(log) == sent
    assert len({writer.position for writer in writers}) == 1


def test_losers_at_the_end_of_a_term_leave_their_lengths_in_the_tail() -> None:
    log = make_log(start_term_offset=TERM_LENGTH - 32)
    # As if three publishers had each added their length before the first could rotate.
    log.metadata.set_tail(0, pack_tail(INITIAL_TERM_ID, TERM_LENGTH + 2432))
    appender = SharedAppender(log)
    assert appender.position == TERM_LENGTH
    assert appender.offer(b"x", limit=TERM_LENGTH) == AppendResult.NOT_CONNECTED
    assert log.metadata.tail(0) & 0xFFFF_FFFF == TERM_LENGTH + 2432
    assert appender.offer(b"x", limit=NO_LIMIT) == AppendResult.ADMIN_ACTION
    assert log.metadata.tail(0) & 0xFFFF_FFFF == TERM_LENGTH + 2432 + 64
    # The padding belongs to whoever crossed the end, not to one who came after.
    assert header(log, TERM_LENGTH - 32)[0] == 0
    assert log.metadata.active_term_count == 1
    assert appender.offer(b"x", limit=NO_LIMIT) == TERM_LENGTH + 64


def test_a_rotation_half_done_is_waited_for() -> None:
    log = make_log()
    appender = SharedAppender(log)
    log.metadata.active_term_count = 1
    before = bytes(log.metadata.block)
    assert appender.offer(b"x", limit=NO_LIMIT) == AppendResult.ADMIN_ACTION
    assert bytes(log.metadata.block) == before


def test_a_rotation_that_is_late_changes_nothing() -> None:
    log = make_log()
    first, second = SharedAppender(log), SharedAppender(log)
    while first.position <= TERM_LENGTH:
        first.offer(b"x" * 8000, limit=NO_LIMIT)
    # The other has found the term full as well; the first has appended in the new one since.
    assert second.offer(b"new", limit=NO_LIMIT) == TERM_LENGTH + 8192 + 64
    before = bytes(log.metadata.block)
    rotate_log(log.metadata, term_count=0, term_id=INITIAL_TERM_ID)
    assert bytes(log.metadata.block) == before


def test_a_writer_finds_its_term_after_another_has_moved_on() -> None:
    log = make_log()
    first, second = SharedAppender(log), SharedAppender(log)
    while first.position <= 2 * TERM_LENGTH:
        first.offer(b"x" * 8000, limit=NO_LIMIT)
    claim = second.try_claim(3, limit=NO_LIMIT)
    assert isinstance(claim, Claim)
    assert claim.position == 2 * TERM_LENGTH + 8192 + 64
    claim.commit()
    assert header(log, 0, partition=2)[7] == INITIAL_TERM_ID + 2


def test_an_offer_the_long_way_goes_on_in_the_term_to_which_another_has_rotated() -> None:
    log = make_log()
    first, second = SharedAppender(log), SharedAppender(log)
    first.detach()
    second.detach()
    while first.offer(bytes(1_000), limit=NO_LIMIT) > 0:
        pass
    assert first.offer(b"rotated", limit=NO_LIMIT) > TERM_LENGTH
    assert second.offer(b"followed", limit=NO_LIMIT) == TERM_LENGTH + 128
    assert read_all(log)[-2:] == [b"rotated", b"followed"]
