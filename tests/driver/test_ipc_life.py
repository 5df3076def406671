"""How an IPC stream ends, is rejected, and leaves slow subscribers behind."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from aeron_async.clock import NEVER_NS
from aeron_async.driver.core.context import DriverContext
from aeron_async.driver.core.publication import PublicationState
from aeron_async.driver.core.publisher_window import RETRY_INTERVAL_NS
from aeron_async.driver.core.system_counters import SystemCounterId
from tests.driver.fakes import HALF_TERM, SECOND
from tests.driver.ipc_rig import IpcRig

LIVENESS = 10 * SECOND


@pytest.fixture
def rig() -> IpcRig:
    """Return a publication without subscribers."""
    return IpcRig()


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
    assert rig.publication.poll(LIVENESS * 10) == LIVENESS * 10 + RETRY_INTERVAL_NS
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
    assert rig.publication.poll(7) == 7 + RETRY_INTERVAL_NS
    assert reader.read() == [b"behind it"]
    rig.publication.poll(7)
    assert rig.state() is PublicationState.DONE


def test_a_claim_that_a_reader_comes_to_later_does_not_hold_up_the_end(rig: IpcRig) -> None:
    reader = rig.subscribe()
    rig.offer(b"before it")
    rig.appender.try_claim(5, limit=rig.limit)
    rig.publication.release(7)
    deadline_ns = rig.publication.poll(7)
    # The reader stops at the claim, where it passes no trigger and wakes nobody.
    assert reader.read() == [b"before it"]
    assert not rig.was_woken()
    while rig.state() is PublicationState.DRAINING:
        assert deadline_ns < 3 * RETRY_INTERVAL_NS
        deadline_ns = rig.publication.poll(deadline_ns)
        reader.read()
    assert rig.counts[SystemCounterId.UNBLOCKED_PUBLICATIONS] == 1


def test_hastening_changes_nothing(rig: IpcRig) -> None:
    rig.subscribe()
    rig.offer(b"unread")
    rig.publication.release(0)
    rig.publication.skip_linger()
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


def test_a_subscriber_that_rests_is_let_go_without_a_word(rig: IpcRig) -> None:
    slow, fast = rig.subscribe(1, is_tether=False), rig.subscribe(2)
    rig.fill()
    fast.read()
    for now_ns in (0, 5 * SECOND, 7 * SECOND):
        rig.publication.poll(now_ns)
    rig.publication.revoke(8 * SECOND)
    assert rig.told == [("unavailable", 1), ("unavailable", 2)]
    assert slow.subscriber.position.is_closed


def test_the_counters_go_together(rig: IpcRig) -> None:
    rig.counters.close()
    assert rig.counters.publisher_limit.is_closed
    assert rig.counters.publisher_position.is_closed


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
