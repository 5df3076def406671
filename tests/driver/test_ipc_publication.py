"""IPC: the limit and its steps, who joins where, and publishers that are stuck."""

from __future__ import annotations

import pytest

from aeron_async.clock import NEVER_NS
from aeron_async.driver.core.ipc_publication import IpcWindow
from aeron_async.driver.core.system_counters import SystemCounterId
from aeron_async.logbuffer.appender import Claim
from tests.driver.fakes import HALF_TERM, SECOND, Counts
from tests.driver.ipc_rig import IpcRig
from tests.logbuffer.logs import INITIAL_TERM_ID, TERM_LENGTH, make_log

STEP = HALF_TERM // 8


@pytest.fixture
def rig() -> IpcRig:
    """Return a publication without subscribers."""
    return IpcRig()


# The limit.


def test_without_subscribers_nothing_can_be_offered(rig: IpcRig) -> None:
    rig.publication.poll(0)
    assert not rig.is_connected()
    assert rig.limit == 0
    assert rig.offer(b"nobody") == -1


def test_the_first_subscriber_connects_at_once(rig: IpcRig) -> None:
    rig.subscribe()
    assert rig.is_connected()
    assert rig.log.metadata.is_connected == 1
    assert rig.limit == HALF_TERM
    assert rig.window_changes == 1
    assert rig.offer(b"somebody") == 64


def test_the_limit_is_raised_only_by_more_than_an_eighth_of_the_window(rig: IpcRig) -> None:
    reader = rig.subscribe()
    rig.fill()
    reader.subscriber.position.set(STEP)
    rig.publication.poll(0)
    assert rig.limit == HALF_TERM
    reader.subscriber.position.set(STEP + 32)
    rig.publication.poll(0)
    assert rig.limit == HALF_TERM + STEP + 32


def test_a_reader_that_lets_the_limit_rise_knows_that_it_does(rig: IpcRig) -> None:
    reader = rig.subscribe()
    rig.fill()
    rig.publication.poll(0)
    assert rig.publication.consumption_trigger == STEP
    reader.read(limit=STEP // 1_024)
    assert not rig.was_woken()
    reader.read(limit=1)
    assert rig.was_woken()


def test_a_reader_that_has_read_everything_says_so(rig: IpcRig) -> None:
    reader = rig.subscribe()
    rig.offer(b"the only one")
    rig.publication.poll(0)
    reader.read()
    assert rig.was_woken()
    rig.publication.poll(0)
    assert rig.publication.consumer_position == 64


def test_the_slowest_subscriber_sets_the_pace(rig: IpcRig) -> None:
    slow, fast = rig.subscribe(1), rig.subscribe(2)
    rig.fill()
    fast.read()
    rig.publication.poll(0)
    assert rig.limit == HALF_TERM
    slow.read()
    rig.publication.poll(0)
    assert rig.limit == slow.position + HALF_TERM


def test_the_window_can_be_smaller() -> None:
    rig = IpcRig(publication_window_length=4_096)
    rig.subscribe()
    assert rig.limit == 4_096


def test_when_the_last_subscriber_leaves_the_limit_falls_to_what_was_consumed(rig: IpcRig) -> None:
    reader = rig.subscribe()
    rig.fill()
    reader.read(limit=3)
    rig.unsubscribe()
    assert not rig.is_connected()
    assert rig.log.metadata.is_connected == 0
    assert rig.limit == 3 * 1_024
    assert rig.offer(b"nobody") == -1


def test_publishers_hear_of_what_was_offered_once(rig: IpcRig) -> None:
    rig.subscribe()
    rig.offer(b"one")
    changes = rig.window_changes
    rig.publication.poll(0)
    rig.publication.poll(0)
    assert rig.window_changes == changes + 1
    assert rig.counters.publisher_position.get() == 64


def test_what_was_consumed_is_cleaned_for_the_publishers(rig: IpcRig) -> None:
    reader = rig.subscribe()
    for _ in range(20):
        rig.fill()
        assert all(len(data) == 992 for data in reader.read())
        rig.publication.poll(0)
        start, end = rig.publication.producer_position, rig.limit
        for position in range(start, end, 32):
            words = rig.log.term_words[(position // TERM_LENGTH) % 3]
            assert words[(position % TERM_LENGTH) >> 2] == 0


def test_a_window_starts_where_the_stream_does() -> None:
    counter = Counts().new()
    window = IpcWindow(make_log(), counter, window_length=4_096, position=96)
    assert window.limit == counter.get() == 96
    window.retract(96)
    assert window.limit == 96
    assert window.advance(96)
    assert window.limit == counter.get() == 4_192


# Who reads.


def test_readers_are_told_of_what_was_appended(rig: IpcRig) -> None:
    reader = rig.subscribe()
    rig.publication.poll(0)
    assert rig.progress == 0
    rig.offer(b"news")
    rig.publication.poll(0)
    assert rig.progress == 1
    assert reader.read() == [b"news"]
    rig.publication.poll(0)
    assert rig.progress == 1


def test_readers_are_told_again_when_a_claim_is_committed(rig: IpcRig) -> None:
    reader = rig.subscribe()
    claim = rig.appender.try_claim(5, limit=rig.limit)
    assert isinstance(claim, Claim)
    rig.publication.poll(0)
    assert reader.read() == []
    claim.data[:] = b"later"
    claim.commit()
    told = rig.progress
    rig.publication.poll(0)
    assert rig.progress == told + 1
    assert reader.read() == [b"later"]


def test_every_subscriber_reads_everything(rig: IpcRig) -> None:
    first, second = rig.subscribe(1), rig.subscribe(2)
    rig.offer(b"one")
    rig.offer(bytes(5_000))
    assert first.read() == second.read() == [b"one", bytes(5_000)]


def test_the_first_subscriber_joins_at_the_start() -> None:
    rig = IpcRig(spec={"start_term_id": INITIAL_TERM_ID + 2, "start_term_offset": 4_096})
    start = 2 * TERM_LENGTH + 4_096
    assert rig.publication.start.term_id == INITIAL_TERM_ID + 2
    assert rig.publication.start.term_offset == 4_096
    assert rig.publication.join_position == start
    assert rig.subscribe().position == start


def test_a_late_subscriber_joins_at_the_slowest(rig: IpcRig) -> None:
    slow, fast = rig.subscribe(1), rig.subscribe(2)
    for _ in range(4):
        rig.offer(bytes(992))
    fast.read()
    slow.read(limit=1)
    assert rig.publication.consumer_position == 4_096
    assert rig.subscribe(3).position == 1_024


def test_whoever_comes_when_nobody_is_there_joins_where_the_fastest_had_come(rig: IpcRig) -> None:
    slow, fast = rig.subscribe(1), rig.subscribe(2)
    for _ in range(4):
        rig.offer(bytes(992))
    slow.read(limit=1)
    fast.read(limit=3)
    rig.unsubscribe(2)
    rig.unsubscribe(1)
    late = rig.subscribe(3)
    assert late.position == 3_072
    assert len(late.read()) == 1


def test_a_subscription_that_is_not_there_cannot_be_removed(rig: IpcRig) -> None:
    assert rig.publication.remove_subscriber(99) is None


# Blocked publishers.


def test_a_claim_that_nobody_commits_is_padding_after_the_unblock_timeout() -> None:
    rig = IpcRig(is_exclusive=False)
    reader = rig.subscribe()
    rig.appender.try_claim(5, limit=rig.limit)
    rig.offer(b"behind it")
    assert rig.publication.poll(0) == 15 * SECOND
    assert reader.read() == []
    assert rig.publication.poll(15 * SECOND) == 15 * SECOND
    assert rig.counts[SystemCounterId.UNBLOCKED_PUBLICATIONS] == 1
    assert reader.read() == [b"behind it"]


def test_a_claim_after_a_silence_is_left_alone() -> None:
    rig = IpcRig(is_exclusive=False)
    reader = rig.subscribe()
    rig.publication.poll(0)
    claim = rig.appender.try_claim(5, limit=rig.limit)
    assert isinstance(claim, Claim)
    rig.offer(b"behind it")
    assert rig.publication.poll(60 * SECOND) == 75 * SECOND
    claim.data[:] = b"claim"
    claim.commit()
    rig.publication.poll(61 * SECOND)
    assert reader.read() == [b"claim", b"behind it"]
    assert rig.counts[SystemCounterId.UNBLOCKED_PUBLICATIONS] == 0


def test_an_exclusive_publication_is_never_unblocked(rig: IpcRig) -> None:
    rig.subscribe()
    rig.appender.try_claim(5, limit=rig.limit)
    assert rig.publication.poll(0) == NEVER_NS
    rig.publication.poll(60 * SECOND)
    assert rig.counts[SystemCounterId.UNBLOCKED_PUBLICATIONS] == 0


def test_a_slow_reader_is_no_blocked_publisher() -> None:
    rig = IpcRig(is_exclusive=False)
    reader = rig.subscribe()
    rig.offer(b"committed")
    rig.publication.poll(0)
    assert rig.publication.poll(15 * SECOND) == 16 * SECOND
    assert rig.counts[SystemCounterId.UNBLOCKED_PUBLICATIONS] == 0
    assert reader.read() == [b"committed"]
