"""IPC: the limit and its steps, who joins where, rejection, and how such a stream ends."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from aeron_async.driver.core.context import DriverContext
from aeron_async.driver.core.ipc_window import IpcWindow
from aeron_async.driver.core.loss_detector import NEVER_NS
from aeron_async.driver.core.publication_state import PublicationState
from aeron_async.driver.core.system_counters import SystemCounterId
from aeron_async.logbuffer.claim import Claim
from tests.driver.fakes import HALF_TERM, SECOND, Counts
from tests.driver.ipc_rig import IpcRig
from tests.logbuffer.logs import INITIAL_TERM_ID, TERM_LENGTH, make_log

STEP = HALF_TERM // 8
LIVENESS = 10 * SECOND


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


def test_time_in_which_the_driver_slept_unblocks_nobody() -> None:
    rig = IpcRig(is_exclusive=False)
    rig.subscribe()
    rig.appender.try_claim(5, limit=rig.limit)
    rig.publication.poll(0)
    rig.publication.forgive_silence(20 * SECOND, 20 * SECOND)
    assert rig.publication.poll(20 * SECOND) == 35 * SECOND
    assert rig.counts[SystemCounterId.UNBLOCKED_PUBLICATIONS] == 0


# How it ends.


def test_a_stream_without_subscribers_is_done_when_it_is_released(rig: IpcRig) -> None:
    with capture_logs() as logs:
        rig.publication.release(1)
    assert [line["after"] for line in logs] == ["DRAINING", "LINGER", "DONE"]
    assert rig.state() is PublicationState.DONE
    assert rig.publication.poll(2) == NEVER_NS
    rig.publication.release(3)
    assert not rig.is_accepting()


def test_a_stream_drains_until_all_have_consumed_it_and_does_not_linger(rig: IpcRig) -> None:
    first, second = rig.subscribe(1), rig.subscribe(2)
    for _ in range(4):
        rig.offer(bytes(992))
    first.read()
    rig.publication.poll(0)
    progress = rig.progress
    rig.publication.release(0)
    assert rig.progress > progress
    assert rig.state() is PublicationState.DRAINING
    assert rig.log.metadata.end_of_stream_position == 4_096
    assert rig.limit == 4_096
    assert rig.offer(b"too late") in {-1, -2}
    assert rig.publication.poll(LIVENESS * 10) == NEVER_NS
    rig.was_woken()
    second.read()
    assert rig.was_woken()
    assert rig.told == []
    rig.publication.poll(LIVENESS * 10)
    assert rig.told == [("unavailable", 1), ("unavailable", 2)]
    assert rig.state() is PublicationState.DONE
    assert first.subscriber.position.is_closed
    assert second.subscriber.position.is_closed


def test_a_late_subscriber_joins_a_stream_that_drains(rig: IpcRig) -> None:
    slow = rig.subscribe(1)
    rig.offer(b"last words")
    rig.publication.release(0)
    assert rig.is_accepting()
    late = rig.subscribe(2)
    assert late.read() == slow.read() == [b"last words"]
    assert not rig.is_accepting()
    rig.publication.poll(0)
    assert rig.state() is PublicationState.DONE


def test_whoever_closes_without_reading_lets_the_stream_end(rig: IpcRig) -> None:
    rig.subscribe()
    rig.offer(b"unread")
    rig.publication.release(0)
    rig.unsubscribe()
    rig.publication.poll(0)
    assert rig.state() is PublicationState.DONE


def test_a_claim_left_behind_does_not_hold_up_the_end(rig: IpcRig) -> None:
    reader = rig.subscribe()
    rig.appender.try_claim(5, limit=rig.limit)
    rig.offer(b"behind it")
    rig.publication.release(7)
    assert rig.counts[SystemCounterId.UNBLOCKED_PUBLICATIONS] == 1
    assert rig.publication.poll(7) == NEVER_NS
    assert reader.read() == [b"behind it"]
    rig.publication.poll(7)
    assert rig.state() is PublicationState.DONE


def test_hastening_changes_nothing(rig: IpcRig) -> None:
    rig.subscribe()
    rig.offer(b"unread")
    rig.publication.release(0)
    rig.publication.hasten()
    rig.publication.poll(0)
    assert rig.state() is PublicationState.DRAINING


def test_a_revoked_stream_is_over_at_once(rig: IpcRig) -> None:
    reader = rig.subscribe()
    for _ in range(4):
        rig.offer(bytes(992))
    reader.read(limit=1)
    rig.publication.revoke(0)
    assert rig.state() is PublicationState.DONE
    assert rig.log.metadata.is_publication_revoked
    assert rig.log.metadata.is_connected == 0
    assert rig.log.metadata.end_of_stream_position == rig.limit == 4_096
    assert rig.told == [("unavailable", 0)]
    assert rig.counts[SystemCounterId.PUBLICATIONS_REVOKED] == 1
    rig.publication.revoke(1)
    rig.publication.release(1)
    assert rig.counts[SystemCounterId.PUBLICATIONS_REVOKED] == 1


# Rejection.


def test_a_rejected_stream_loses_its_subscribers_and_tells_its_publishers_why(rig: IpcRig) -> None:
    reader = rig.subscribe()
    rig.offer(b"bad")
    rig.publication.reject("bad data", 1 * SECOND)
    assert rig.rejections == ["bad data"]
    assert rig.told == [("unavailable", 0)]
    assert reader.subscriber.position.is_closed
    assert not rig.is_connected()
    assert not rig.is_accepting()
    assert rig.state() is PublicationState.ACTIVE
    assert rig.limit == 0


def test_subscribers_may_come_back_after_the_image_liveness_timeout(rig: IpcRig) -> None:
    rig.subscribe()
    rig.publication.reject("bad data", 1 * SECOND)
    assert rig.publication.poll(2 * SECOND) == 1 * SECOND + LIVENESS
    rig.publication.poll(1 * SECOND + LIVENESS - 1)
    assert rig.acceptances == 0
    rig.publication.poll(1 * SECOND + LIVENESS)
    assert rig.acceptances == 1
    assert rig.is_accepting()
    assert rig.publication.poll(100 * SECOND) == NEVER_NS
    assert rig.acceptances == 1


def test_the_cool_down_lasts_as_long_as_images_live() -> None:
    rig = IpcRig(context=DriverContext(image_liveness_timeout_ns=3 * SECOND))
    rig.publication.reject("bad data", 0)
    assert rig.publication.poll(0) == 3 * SECOND


def test_another_rejection_makes_the_cool_down_longer(rig: IpcRig) -> None:
    rig.publication.reject("bad", 0)
    rig.publication.reject("still bad", 4 * SECOND)
    assert rig.rejections == ["bad", "still bad"]
    assert rig.publication.poll(LIVENESS) == 4 * SECOND + LIVENESS


def test_time_in_which_the_driver_slept_does_not_cool_down(rig: IpcRig) -> None:
    rig.publication.reject("bad", 0)
    rig.publication.forgive_silence(30 * SECOND, 30 * SECOND)
    assert rig.publication.poll(30 * SECOND) == 30 * SECOND + LIVENESS
    assert rig.acceptances == 0


def test_a_stream_that_drains_ends_when_it_is_rejected(rig: IpcRig) -> None:
    rig.subscribe()
    rig.offer(b"unread")
    rig.publication.release(0)
    rig.publication.reject("bad", 0)
    assert not rig.publication.is_cooling_down
    rig.publication.poll(0)
    assert rig.state() is PublicationState.DONE


# Untethered subscribers.


def test_an_untethered_subscriber_is_measured_from_the_fastest(rig: IpcRig) -> None:
    slow, fast = rig.subscribe(1, is_tether=False), rig.subscribe(2)
    rig.fill()
    fast.read()
    assert rig.publication.poll(1 * SECOND) == 6 * SECOND
    rig.publication.poll(6 * SECOND)
    assert rig.told == [("unavailable", 1)]
    assert rig.limit == HALF_TERM
    rig.publication.poll(8 * SECOND)
    rig.publication.poll(8 * SECOND)
    assert rig.limit > HALF_TERM
    rig.fill()
    rig.publication.poll(18 * SECOND)
    assert rig.told[-1] == ("available", 1)
    assert slow.position == fast.position


def test_an_untethered_subscriber_alone_is_the_fastest(rig: IpcRig) -> None:
    rig.subscribe(1, is_tether=False)
    rig.fill()
    assert rig.publication.poll(0) == NEVER_NS
    assert rig.told == []


def test_nobody_is_connected_while_all_rest(rig: IpcRig) -> None:
    slow, fast = rig.subscribe(1, is_tether=False), rig.subscribe(2)
    rig.fill()
    fast.read()
    rig.publication.poll(0)
    rig.publication.poll(5 * SECOND)
    rig.publication.poll(7 * SECOND)
    rig.unsubscribe(2)
    assert not rig.is_connected()
    assert rig.limit == rig.publication.consumer_position
    rig.publication.poll(17 * SECOND)
    rig.publication.poll(17 * SECOND)
    assert rig.is_connected()
    assert slow.position == rig.publication.consumer_position
