"""What peers can cause in the log, in virtual time."""

from __future__ import annotations

import logging
import random
from collections import Counter
from typing import TYPE_CHECKING

import structlog
from structlog.testing import capture_logs

from aeron_async.driver.endpoints import InvalidDatagramLog
from aeron_async.logs import (
    LINES_OF_AN_EVENT,
    LINES_PER_SECOND,
    NEVER_NS,
    LogBudget,
    get_logger,
    within,
)
from tests.driver.fakes import MS, SECOND

if TYPE_CHECKING:
    from collections.abc import Iterable, MutableMapping

LEFT_OUT = "log_lines_left_out"
FLOOD_COUNT = 18_000
"""Datagrams a second."""

log = get_logger(__name__)


class Budget:
    """A budget, the time that it reads, and when each line was written."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.wakes = 0
        self.budget = LogBudget(lambda: self.now_ns)
        self.budget.on_left_out = self.on_left_out
        self.times_ns: list[int] = []
        self.lines: list[MutableMapping[str, object]] = []

    def on_left_out(self) -> None:
        self.wakes += 1

    def note(self, lines: Iterable[MutableMapping[str, object]]) -> None:
        """Take over the lines written since the last call."""
        new = list(lines)[len(self.lines) :]
        self.lines += new
        self.times_ns += [self.now_ns] * len(new)

    def most_in_a_second(self) -> int:
        return max(
            sum(1 for at_ns in self.times_ns if first_ns <= at_ns < first_ns + SECOND)
            for first_ns in self.times_ns
        )


def test_a_flood_from_random_addresses_costs_ten_lines_a_second() -> None:
    """And one of them says how many were left out; what is kept stays small."""
    rng = random.Random(8)
    rig = Budget()
    invalid = InvalidDatagramLog(rig.budget)
    with capture_logs() as lines:
        for number in range(4 * FLOOD_COUNT):
            rig.now_ns = number * SECOND // FLOOD_COUNT
            source = (f"127.{rng.randrange(256)}.{rng.randrange(256)}.1", rng.randrange(65_536))
            if number % 3:
                invalid.on_invalid_datagram(memoryview(b"?" * 24), source, rig.now_ns)
            elif rig.budget.allows("image_refused", source):
                log.warning("image_refused")
            rig.budget.poll(rig.now_ns)
            rig.note(lines)
            assert len(rig.budget._lines) <= LINES_PER_SECOND
        rig.budget.close()
        rig.note(lines)
    assert rig.most_in_a_second() <= LINES_PER_SECOND
    said = [line for line in rig.lines if line["event"] == LEFT_OUT]
    assert len(said) == 4
    left_out = sum(int(str(line["count"])) for line in said)
    assert left_out == rig.budget.left_out_count
    assert left_out + len(rig.lines) - len(said) == 4 * FLOOD_COUNT
    assert said[0]["events"] == "datagram_invalid 11996, image_refused 5997"
    seen = Counter(line["event"] for line in rig.lines)
    assert seen["datagram_invalid"] >= 4 * 3
    assert seen["image_refused"] >= 4 * 3


def test_a_cause_is_logged_once_a_second_and_others_are_not_held_back() -> None:
    rig = Budget()
    allowed = []
    for ms in range(0, 3_500, 100):
        rig.now_ns = ms * MS
        if rig.budget.allows("datagram_invalid", "cause"):
            allowed.append(ms)
        if ms == 500:
            assert rig.budget.allows("datagram_invalid", "other")
            assert rig.budget.allows("image_refused", "cause")
    assert allowed == [0, 1_000, 2_000, 3_000]


def test_one_event_leaves_room_for_others() -> None:
    rig = Budget()
    allowed = [rig.budget.allows("loud", cause) for cause in range(100)]
    assert allowed.count(True) == LINES_OF_AN_EVENT
    assert rig.budget.allows("other")
    assert rig.budget.left_out_count == 100 - LINES_OF_AN_EVENT


def test_what_was_left_out_is_said_a_second_later_and_when_it_closes() -> None:
    rig = Budget()
    assert rig.budget.poll(0) == NEVER_NS
    with capture_logs() as lines:
        for _ in range(LINES_OF_AN_EVENT + 3):
            rig.budget.allows("loud")
        assert rig.wakes == 1, "for the first alone"
        assert rig.budget.poll(0) == SECOND
        assert lines == []
        assert rig.budget.poll(SECOND) == NEVER_NS
        rig.now_ns = SECOND + 1
        for _ in range(LINES_OF_AN_EVENT + 1):
            rig.budget.allows("loud")
        assert rig.budget.poll(SECOND + 1) == 2 * SECOND + 1
        rig.budget.close()
        rig.budget.close()
    assert lines == [
        {"event": LEFT_OUT, "log_level": "warning", "count": 3, "events": "loud 3"},
        {"event": LEFT_OUT, "log_level": "warning", "count": 1, "events": "loud 1"},
    ]


def test_lines_that_are_not_shown_cost_nothing_of_the_budget() -> None:
    rig = Budget()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    try:
        peer_log = rig.budget.on(log)
        with capture_logs() as lines:
            for _ in range(100):
                peer_log.info("image_state_changed")
            peer_log.warning("image_run_over")
            peer_log.error("image_failed")
    finally:
        structlog.reset_defaults()
    assert [line["event"] for line in lines] == ["image_run_over", "image_failed"]
    assert rig.budget.left_out_count == 0


def test_lifecycle_lines_are_bounded_where_there_is_a_budget() -> None:
    rig = Budget()
    with capture_logs() as lines:
        for _ in range(100):
            within(rig.budget, log).info("image_state_changed")
    assert len(lines) == LINES_OF_AN_EVENT
    with capture_logs() as lines:
        for _ in range(100):
            within(None, log).info("image_state_changed")
    assert len(lines) == 100
