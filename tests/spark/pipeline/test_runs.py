"""Stretches: what parts found, stitched together, is what one look at the whole finds."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.archive.disk.descriptor import RecordingDescriptor
from aeron_async.spark.pipeline.gold import GAPS, table_of
from aeron_async.spark.pipeline.runs import (
    LISTED_GAPS,
    GapKind,
    MessageRows,
    RecordedGap,
    Run,
    Summariser,
    position_gap,
    stitch,
)

if TYPE_CHECKING:
    import random

TERM = 65_536
TERMS = {1: TERM, 2: TERM}
RECORDING = RecordingDescriptor(
    recording_id=1,
    start_position=0,
    start_timestamp_ms=0,
    initial_term_id=0,
    term_length=TERM,
    segment_length=2 * TERM,
    mtu_length=1_408,
    session_id=7,
    stream_id=1001,
    stripped_channel="aeron:ipc",
    original_channel="aeron:ipc",
    source_identity="aeron:ipc",
)


def rows(positions: list[int], **more: Any) -> MessageRows:
    """Return messages of 64 bytes at those positions."""
    count = len(positions)
    times = more.get("times", [each * 10 for each in positions])
    numbers = more.get("numbers")
    return MessageRows(
        sessions=np.array(more.get("sessions", [7] * count), np.int32),
        positions=np.array(positions, np.int64),
        ends=np.array(positions, np.int64) + 64,
        lengths=np.full(count, 32, np.int32),
        times=np.array([each or 0 for each in times], np.int64),
        is_timed=np.array([each is not None for each in times], np.bool_),
        numbers=None if numbers is None else np.array(numbers, np.int64),
    )


def summarised(*given: MessageRows, name: str = "") -> tuple[list[Run], list[RecordedGap]]:
    summariser = Summariser(RECORDING, name)
    for each in given:
        summariser.add(each)
    summariser.close()
    return summariser.runs, summariser.gaps


def test_one_stretch_is_one_run_however_it_is_cut_into_batches() -> None:
    whole, gaps = summarised(rows([0, 64, 128, 192]))
    parts, _ = summarised(rows([0, 64]), rows([]), rows([128, 192]))
    assert whole == parts
    assert not gaps
    (run,) = whole
    assert (run.first_position, run.end_position, run.messages, run.bytes) == (0, 256, 4, 128)
    assert (run.first_ns, run.last_ns) == (0, 1_920)


def test_padding_to_the_end_of_a_term_is_no_gap() -> None:
    runs, gaps = summarised(rows([TERM - 192, TERM]))
    assert len(runs) == 1
    assert not gaps


def test_padding_in_mid_term_is_one() -> None:
    for batches in ([rows([0, 256])], [rows([0]), rows([256])]):
        runs, gaps = summarised(*batches)
        assert [run.gaps for run in runs] == [1]
        assert gaps == [
            RecordedGap(
                kind=GapKind.PADDING,
                recording_id=1,
                stream_id=1001,
                position=64,
                end_position=256,
                missing=192,
                before_ns=0,
                after_ns=2_560,
            )
        ]


def test_messages_of_another_session_begin_a_run() -> None:
    runs, gaps = summarised(rows([0, 256], sessions=[1, 2]))
    assert len(runs) == 2
    assert not gaps


def test_positions_that_go_back_begin_a_run() -> None:
    runs, gaps = summarised(rows([64, 0]))
    assert [run.first_position for run in runs] == [64, 0]
    assert not gaps


def test_times_that_nobody_knows_are_left_out() -> None:
    (run,), _ = summarised(rows([0, 64, 128], times=[None, 5, None]))
    assert (run.first_ns, run.last_ns) == (5, 5)
    (run,), _ = summarised(rows([0], times=[None]))
    assert (run.first_ns, run.last_ns) == (None, None)


def test_numbers_that_are_left_out_or_go_back_are_gaps() -> None:
    (run,), gaps = summarised(rows([0, 64, 128, 192], numbers=[1, 2, 5, 4]), name="quotes.sequence")
    assert (run.first_number, run.last_number, run.gaps) == (1, 4, 2)
    assert [(gap.kind, gap.missing, gap.position) for gap in gaps] == [
        (GapKind.SEQUENCE, 2, 128),
        (GapKind.BACKWARDS, -2, 192),
    ]


def test_numbers_that_are_nonsense_are_gaps_that_a_column_holds() -> None:
    least, most = -(2**63), 2**63 - 1
    numbers = [0, least, most, least, least + 1]
    found = rows([0, 64, 128, 192, 256], numbers=numbers)
    wanted = [
        (GapKind.BACKWARDS, -most),
        (GapKind.SEQUENCE, most),
        (GapKind.BACKWARDS, -most),
    ]
    _, gaps = summarised(found, name="n")
    assert [(gap.kind, gap.missing) for gap in gaps] == wanted
    runs = [summarised(rows([64 * n], numbers=[numbers[n]]), name="n")[0] for n in range(5)]
    _, gaps = stitch([run for each in runs for run in each], TERMS)
    assert [(gap.kind, gap.missing) for gap in gaps] == wanted
    assert table_of(gaps, GAPS).num_rows == len(wanted)


def test_a_gap_between_two_batches_of_rows_is_seen() -> None:
    first, second = rows([0], numbers=[1]), rows([64], numbers=[3])
    _, gaps = summarised(first, second, name="n")
    assert [(gap.missing, gap.before_ns, gap.after_ns) for gap in gaps] == [(1, 0, 640)]


def test_more_gaps_than_may_be_listed_are_counted() -> None:
    count = LISTED_GAPS + 10
    given = rows([64 * each for each in range(count)], numbers=[2 * each for each in range(count)])
    (run,), gaps = summarised(given, name="n")
    assert (run.gaps, len(gaps)) == (count - 1, LISTED_GAPS)


@pytest.mark.parametrize(
    ("end", "kind"),
    [
        (TERM, None),
        (100, None),
        (TERM - 64, GapKind.PADDING),
        (2 * TERM, None),
        (2 * TERM + 128, GapKind.MISSING),
        (3 * TERM, GapKind.MISSING),
    ],
)
def test_what_lies_between_two_messages_has_a_name(end: int, kind: str | None) -> None:
    position = TERM + 64 if end == 2 * TERM else 100
    assert position_gap(position, end, TERM) == kind


@given(st.randoms(use_true_random=False), st.integers(1, 6))
def test_parts_in_any_order_are_stitched_to_what_the_whole_is(
    source: random.Random, pieces: int
) -> None:
    positions, numbers, position, number = [], [], 0, 0
    for _ in range(40):
        position += source.choice([0, 0, 0, 128])
        number += source.choice([1, 1, 1, 3])
        positions.append(position)
        numbers.append(number)
        position += 64
    segments = sorted({0, 40, *(source.randrange(1, 40) for _ in range(pieces))})
    for name in ("", "n"):

        def part(start: int, end: int, name: str = name) -> MessageRows:
            own = numbers[start:end] if name else None
            return rows(positions[start:end], numbers=own)

        whole, gaps = summarised(part(0, 40), name=name)
        found, inner = [], []
        for start, end in itertools.pairwise(segments):
            runs, missing = summarised(part(start, end), name=name)
            found += runs
            inner += missing
        source.shuffle(found)
        stitched, between = stitch(found, TERMS)
        assert list(stitched.values()) == whole
        assert sorted([*inner, *between], key=lambda gap: gap.position) == gaps


def test_a_run_that_lies_inside_another_moves_no_end() -> None:
    outer = Run(
        recording_id=1,
        session_id=7,
        stream_id=1001,
        first_position=0,
        end_position=640,
        messages=10,
        last_ns=9,
    )
    inner = attrs.evolve(outer, first_position=64, end_position=128, messages=1, last_ns=None)
    stitched, gaps = stitch([inner, outer], TERMS)
    assert not gaps
    assert stitched[1, ""] == attrs.evolve(outer, messages=11)
