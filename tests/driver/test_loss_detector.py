"""The first gap, and the timer of its NAK."""

from __future__ import annotations

import pytest

from aeron_async.clock import NEVER_NS
from aeron_async.driver.core.feedback_delay import StaticDelay
from aeron_async.driver.core.loss_detector import LossDetector

GAP = {"term_id": 7, "term_offset": 320, "length": 64}


@pytest.fixture
def detector() -> LossDetector:
    return LossDetector(StaticDelay(initial_ns=10, retry_ns=100))


def test_nothing_missing_asks_for_nothing(detector: LossDetector) -> None:
    assert detector.deadline_ns == NEVER_NS
    assert not detector.try_feedback(2**62)


def test_a_new_gap_is_asked_for_after_the_initial_delay(detector: LossDetector) -> None:
    assert detector.on_gap(**GAP, now_ns=1_000)
    assert detector.deadline_ns == 1_010
    assert not detector.try_feedback(1_009)
    assert detector.try_feedback(1_010)
    assert (detector.term_id, detector.term_offset, detector.length) == (7, 320, 64)


def test_the_same_gap_is_asked_for_again_after_each_retry_delay_without_end(
    detector: LossDetector,
) -> None:
    detector.on_gap(**GAP, now_ns=0)
    now_ns = 10
    for _ in range(1_000):
        assert not detector.on_gap(**GAP, now_ns=now_ns)
        assert detector.try_feedback(now_ns)
        assert not detector.try_feedback(now_ns + 99)
        now_ns += 100


def test_a_gap_that_grows_keeps_the_time_it_has(detector: LossDetector) -> None:
    detector.on_gap(**GAP, now_ns=0)
    assert detector.on_gap(**(GAP | {"length": 96}), now_ns=9)
    assert detector.deadline_ns == 10, "growing in every cycle does not put it off"
    assert detector.try_feedback(10)
    assert detector.on_gap(**(GAP | {"length": 128}), now_ns=20)
    assert detector.deadline_ns == 110, "nor does it hurry"
    assert detector.length == 128


def test_a_gap_that_comes_after_none_is_not_the_old_one_grown(detector: LossDetector) -> None:
    detector.on_gap(**GAP, now_ns=0)
    detector.on_no_gap()
    assert detector.on_gap(**(GAP | {"length": 96}), now_ns=50)
    assert detector.deadline_ns == 60


@pytest.mark.parametrize(
    "change",
    [
        {"term_offset": 352},
        {"term_id": 8},
        {"length": 32},
        {"term_offset": 352, "length": 32},
    ],
    ids=["moved", "next term", "shrunk", "partly filled"],
)
def test_a_gap_that_changes_starts_with_the_initial_delay_again(
    detector: LossDetector, change: dict[str, int]
) -> None:
    detector.on_gap(**GAP, now_ns=0)
    assert detector.try_feedback(10)
    assert detector.deadline_ns == 110
    assert detector.on_gap(**(GAP | change), now_ns=50)
    assert detector.deadline_ns == 60


def test_a_filled_gap_disarms_the_timer(detector: LossDetector) -> None:
    detector.on_gap(**GAP, now_ns=0)
    detector.on_no_gap()
    assert detector.deadline_ns == NEVER_NS
    assert not detector.try_feedback(2**62)


def test_a_gap_that_opens_again_where_one_was_filled_is_new(detector: LossDetector) -> None:
    detector.on_gap(**GAP, now_ns=0)
    detector.on_no_gap()
    assert detector.on_gap(**GAP, now_ns=500)
    assert detector.deadline_ns == 510


def test_without_delay_a_gap_is_asked_for_in_the_scan_that_finds_it() -> None:
    detector = LossDetector(StaticDelay(initial_ns=0, retry_ns=0))
    detector.on_gap(**GAP, now_ns=5)
    assert detector.try_feedback(5)
    assert detector.try_feedback(5)
