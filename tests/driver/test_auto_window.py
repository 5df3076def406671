"""A receiver window that grows while its readers take it fast."""

from __future__ import annotations

from typing import Any, Final

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.driver.core.congestion_control import (
    AutoWindowCongestionControl,
    CongestionControlParams,
    TrackRebuild,
)
from aeron_async.driver.core.congestion_control.auto_window import PATIENCE_NS, TURN_NS
from aeron_async.driver.core.context import DriverContext
from aeron_async.driver.core.suppliers import nothing_dropped

KIB: Final = 1024
MIB: Final = 1024 * KIB
FIRST: Final = 128 * KIB
START_NS: Final = 10**12


class Stream:
    """An image whose readers take what arrives, and the windows that its sender is given."""

    def __init__(self, **arguments: Any) -> None:
        self.drops = 0
        self.now_ns = START_NS
        self.position = self.told_position = 5 * KIB
        given = {
            "initial_window_length": FIRST,
            "max_window_length": 2 * MIB,
            "drop_count": lambda: self.drops,
            "now_ns": START_NS,
        }
        self.control = AutoWindowCongestionControl(**{**given, **arguments})
        self.window = self.control.initial_window_length()

    def take(self, length: int, after_ns: int = 0) -> int:
        self.now_ns += after_ns
        self.position += length
        track = TrackRebuild(
            consumption_position=self.position,
            last_sm_position=self.told_position,
            hwm_position=self.position,
            rebuild_position_before=self.position,
            rebuild_position=self.position,
            loss_found=False,
        )
        before = self.window
        self.window, is_forced = self.control.on_track_rebuild(track, now_ns=self.now_ns)
        assert not is_forced
        if self.window != before or self.position > self.told_position + self.window // 4:
            self.told_position = self.position
        return self.window

    def take_quarter(self, after_ns: int = 0) -> int:
        """Take so much that a status message is due."""
        return self.take(self.window // 4 + 32, after_ns)

    def take_windows(self, count: int, each_ns: int = 1_000_000) -> list[int]:
        """Take so many windows, a quarter at a time, and return the window after each."""
        windows = []
        for _ in range(count):
            for _ in range(4):
                self.take_quarter(each_ns // 4)
            windows.append(self.window)
        return windows


@pytest.fixture
def stream() -> Stream:
    made = Stream()
    made.take_quarter()
    return made


def test_a_fast_reader_doubles_the_window_up_to_the_limit(stream: Stream) -> None:
    assert stream.take_windows(6) == [256 * KIB, 512 * KIB, MIB, 2 * MIB, 2 * MIB, 2 * MIB]


def test_a_slow_reader_leaves_the_window_as_it_is(stream: Stream) -> None:
    assert stream.take_windows(8, 2 * TURN_NS) == [FIRST] * 8


def test_a_window_holds_what_is_taken_in_a_turn(stream: Stream) -> None:
    # 600 KiB in a turn: that is more than a window of 512 KiB, and less than one of 1 MiB.
    for _ in range(4_000):
        stream.take(6 * KIB, TURN_NS // 100)
    assert stream.window == MIB


def test_the_window_changes_only_with_a_status_message_that_is_due(stream: Stream) -> None:
    for _ in range(3):
        stream.take_quarter()
    assert stream.take(stream.window // 4) == FIRST
    assert stream.take(32) == 2 * FIRST
    stream.drops = 1
    assert stream.take(stream.window // 4) == 2 * FIRST
    assert stream.take(32) == FIRST


def test_silence_counts_for_nothing(stream: Stream) -> None:
    for _ in range(3):
        stream.take_quarter()
    assert stream.take_quarter(TURN_NS + 1) == FIRST
    assert stream.take_windows(1, TURN_NS) == [2 * FIRST]


def test_a_full_receive_buffer_halves_the_window_and_keeps_it_so(stream: Stream) -> None:
    stream.take_windows(4)
    stream.drops = 7
    assert stream.take_quarter() == MIB
    assert set(stream.take_windows(50)) == {MIB}
    stream.now_ns += PATIENCE_NS
    assert stream.take_windows(3)[-1] == 2 * MIB


def test_it_stays_at_the_first_window_however_much_is_dropped(stream: Stream) -> None:
    stream.take_windows(1)
    for _ in range(10):
        stream.drops += 1
        stream.take_quarter()
    assert stream.window == FIRST
    assert set(stream.take_windows(20)) == {FIRST}
    for wanted in (2 * FIRST, 4 * FIRST, 8 * FIRST):
        stream.now_ns += PATIENCE_NS
        assert stream.take_windows(3)[-1] == wanted


def test_what_was_dropped_before_an_image_began_does_not_count() -> None:
    stream = Stream(drop_count=lambda: 3)
    stream.take_quarter()
    assert stream.take_windows(1) == [2 * FIRST]


@pytest.mark.parametrize(
    ("changes", "first", "longest"),
    [
        ({}, FIRST, 2 * MIB),
        ({"term_length": 64 * KIB}, 32 * KIB, 32 * KIB),
        ({"term_length": MIB}, FIRST, 512 * KIB),
        ({"granted_rcvbuf_length": MIB}, FIRST, 512 * KIB),
        # Of a buffer that is shorter, the first window may take all.
        ({"granted_rcvbuf_length": 212_992}, FIRST, FIRST),
        ({"granted_rcvbuf_length": 64 * KIB}, 64 * KIB, 64 * KIB),
        ({"configured_window_length": 4 * MIB}, 4 * MIB, 4 * MIB),
    ],
)
def test_its_limits_are_half_a_term_and_half_of_the_receive_buffer(
    changes: dict[str, Any], first: int, longest: int
) -> None:
    params = CongestionControlParams(
        context=DriverContext(),
        configured_window_length=FIRST,
        term_length=16 * MIB,
        mtu_length=1_408,
        now_ns=START_NS,
    )
    assert params.drop_count is nothing_dropped
    assert params.drop_count() == 0
    control = AutoWindowCongestionControl.of(attrs.evolve(params, **changes))
    assert (control.initial_window_length(), control.max_window_length()) == (first, longest)


@given(st.lists(st.tuples(st.integers(0, MIB), st.integers(0, 2 * TURN_NS), st.integers(0, 1))))
def test_it_never_leaves_its_limits(steps: list[tuple[int, int, int]]) -> None:
    stream = Stream()
    for length, after_ns, dropped in steps:
        stream.drops += dropped
        assert FIRST <= stream.take(length, after_ns) <= 2 * MIB
