"""The losses of an image by cause, and since when bytes wait for its readers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.driver.core.losses import (
    FORGED,
    MARK_NS,
    MAX_MARKS,
    OVER_RUN,
    Arrivals,
    Losses,
)
from aeron_async.stats import LOSS_CAUSES
from tests.driver.fakes import WINDOW, data
from tests.driver.rigs import ImageRig

TERM = 65_536
STEP = TERM // 64


def test_what_never_happened_is_left_out() -> None:
    losses = Losses()
    assert losses.by_cause() == ()
    losses.note(OVER_RUN, 64)
    losses.note(OVER_RUN, 32)
    losses.note(FORGED, 10)
    assert losses.by_cause() == (("over_run", 2, 96), ("forged", 1, 10))


def test_a_gap_is_recorded_with_its_length() -> None:
    recorded: list[int] = []
    losses = Losses(recorded.append)
    losses.on_gap(64, 192, 256)
    losses.record(32)
    assert recorded == [128, 32]
    assert losses.by_cause() == (("gap", 1, 128),)


def test_gaps_of_the_moment_in_which_the_socket_dropped_belong_to_it() -> None:
    drops = [5]
    losses = Losses(drop_count=lambda: drops[0])
    losses.on_gap(0, 64, 128)
    drops[0] = 7
    # Both lie below what had arrived when the first was found; the third was sent later.
    losses.on_gap(128, 192, 512)
    losses.on_gap(256, 320, 512)
    losses.on_gap(512, 544, 640)
    assert losses.by_cause() == (("gap", 2, 96), ("socket_drop", 2, 128))


def test_nothing_is_known_before_the_first_mark() -> None:
    assert Arrivals(TERM).arrived_ns(0) == 0


def test_a_byte_arrived_by_the_first_mark_behind_it() -> None:
    arrivals = Arrivals(TERM)
    assert arrivals.mark(0, 100, 1_000) == (100 + STEP, 1_000 + MARK_NS)
    arrivals.mark(100, 5_000, 2_000)
    assert [arrivals.arrived_ns(at) for at in (0, 99, 100, 4_999)] == [1_000, 1_000, 2_000, 2_000]
    # What came after the last mark came less than a tenth of a second after it.
    assert arrivals.arrived_ns(5_000) == 2_000 + MARK_NS


def test_a_byte_that_came_soon_after_a_mark_keeps_its_time_however_late_the_next() -> None:
    arrivals = Arrivals(TERM)
    arrivals.mark(0, 100, 1_000)
    # Up to 200 came without a mark, and then nothing for an hour.
    arrivals.mark(200, 300, 3_600_000_000_000)
    assert arrivals.arrived_ns(150) == 1_000 + MARK_NS
    assert arrivals.arrived_ns(250) == 3_600_000_000_000


@given(st.lists(st.tuples(st.integers(1, 3 * STEP), st.integers(0, 3 * MARK_NS)), max_size=300))
def test_marks_are_few_and_a_byte_never_seems_to_have_waited_longer(
    steps: list[tuple[int, int]],
) -> None:
    arrivals = Arrivals(TERM)
    position = now_ns = next_position = next_ns = 0
    came: list[tuple[int, int]] = []
    for length, pause_ns in steps:
        position, now_ns = position + length, now_ns + pause_ns
        came.append((position, now_ns))
        if position >= next_position or now_ns >= next_ns:
            next_position, next_ns = arrivals.mark(position - length, position, now_ns)
    assert len(arrivals._positions) <= MAX_MARKS
    before = 0
    for end, at_ns in came:
        known_ns = arrivals.arrived_ns(before)
        assert at_ns <= known_ns
        # Of a stream of so few marks none was dropped: a tenth of a second is the limit.
        if 2 * len(came) < MAX_MARKS:
            assert known_ns <= at_ns + MARK_NS
        before = end


def by_cause(rig: ImageRig) -> dict[str, tuple[int, int]]:
    return {cause: (count, length) for cause, count, length in rig.image.losses.by_cause()}


def test_an_image_counts_what_it_refuses_by_cause() -> None:
    rig = ImageRig()
    rig.image.poll(0)
    rig.feed(data(WINDOW + TERM, 64), 0)
    assert by_cause(rig) == {"over_run": (1, 64)}
    rig.feed(data(0, 64), 0)
    rig.feed(data(0, 96), 0)
    assert by_cause(rig)["forged"] == (1, 96)
    assert set(by_cause(rig)) <= set(LOSS_CAUSES)


@pytest.mark.parametrize("is_reliable", [True, False])
def test_an_image_tells_gaps_from_what_it_fills(is_reliable: bool) -> None:  # noqa: FBT001 - of a table
    rig = ImageRig(is_reliable=is_reliable)
    rig.image.poll(0)
    rig.feed(data(128, 64), 0)
    for now_ms in range(0, 300, 10):
        rig.image.poll(now_ms * 1_000_000)
    assert by_cause(rig) == {"gap" if is_reliable else "unfilled": (1, 128)}
