"""Stretches: what parts found, stitched together, is what one look at the whole finds."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import attrs
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.spark.pipeline.gold import GAPS, table_of
from aeron_async.spark.pipeline.runs import (
    LISTED_GAPS,
    GapKind,
    RecordedGap,
    Run,
    Summariser,
    gaps_of,
    position_gap,
    runs_of,
    stitch,
)

if TYPE_CHECKING:
    import random

TERM = 65_536
TERMS = {1: TERM, 2: TERM}


def rows(positions: list[int], **more: Any) -> dict[str, list[Any]]:
    """Return rows of messages of 64 bytes at those positions."""
    count = len(positions)
    found = {
        "recording_id": [1] * count,
        "session_id": [7] * count,
        "stream_id": [1001] * count,
        "origin": [0] * count,
        "position": positions,
        "end_position": [each + 64 for each in positions],
        "length": [32] * count,
        "timestamp_ns": [each * 10 for each in positions],
    }
    return found | more


def batch(given: dict[str, list[Any]]) -> pa.RecordBatch:
    types = dict.fromkeys(given, pa.int64()) | {"session_id": pa.int32(), "stream_id": pa.int32()}
    return pa.RecordBatch.from_pydict(
        given, schema=pa.schema([(name, types[name]) for name in given])
    )


def summarised(*batches: pa.RecordBatch, name: str = "") -> tuple[list[Run], list[RecordedGap]]:
    found = pa.Table.from_batches(list(Summariser(TERMS, name).summarise(batches)))
    return runs_of(found), gaps_of(found)


def test_one_stretch_is_one_run_however_it_is_cut_into_batches() -> None:
    whole, gaps = summarised(batch(rows([0, 64, 128, 192])))
    parts, _ = summarised(batch(rows([0, 64])), batch(rows([])), batch(rows([128, 192])))
    assert whole == parts
    assert not gaps
    (run,) = whole
    assert (run.first_position, run.end_position, run.messages, run.bytes) == (0, 256, 4, 128)
    assert (run.first_ns, run.last_ns) == (0, 1_920)


def test_padding_to_the_end_of_a_term_is_no_gap() -> None:
    runs, gaps = summarised(batch(rows([TERM - 192, TERM])))
    assert len(runs) == 1
    assert not gaps


def test_padding_in_mid_term_is_one() -> None:
    for batches in ([rows([0, 256])], [rows([0]), rows([256])]):
        runs, gaps = summarised(*map(batch, batches))
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


def test_rows_of_another_origin_recording_or_session_begin_a_run() -> None:
    for name in ("origin", "recording_id", "session_id"):
        runs, gaps = summarised(batch(rows([0, 256], **{name: [1, 2]})))
        assert len(runs) == 2
        assert not gaps


def test_positions_that_go_back_begin_a_run() -> None:
    runs, gaps = summarised(batch(rows([64, 0])))
    assert [run.first_position for run in runs] == [64, 0]
    assert not gaps


def test_times_that_nobody_knows_are_left_out() -> None:
    (run,), _ = summarised(batch(rows([0, 64, 128], timestamp_ns=[None, 5, None])))
    assert (run.first_ns, run.last_ns) == (5, 5)
    (run,), _ = summarised(batch(rows([0], timestamp_ns=[None])))
    assert (run.first_ns, run.last_ns) == (None, None)


def test_numbers_that_are_left_out_or_go_back_are_gaps() -> None:
    (run,), gaps = summarised(
        batch(rows([0, 64, 128, 192], number=[1, 2, 5, 4])), name="quotes.sequence"
    )
    assert (run.first_number, run.last_number, run.gaps) == (1, 4, 2)
    assert [(gap.kind, gap.missing, gap.position) for gap in gaps] == [
        (GapKind.SEQUENCE, 2, 128),
        (GapKind.BACKWARDS, -2, 192),
    ]


def test_numbers_that_are_nonsense_are_gaps_that_a_column_holds() -> None:
    least, most = -(2**63), 2**63 - 1
    numbers = [0, least, most, least, least + 1]
    found = rows([0, 64, 128, 192, 256], number=numbers)
    wanted = [
        (GapKind.BACKWARDS, -most),
        (GapKind.SEQUENCE, most),
        (GapKind.BACKWARDS, -most),
    ]
    _, gaps = summarised(batch(found), name="n")
    assert [(gap.kind, gap.missing) for gap in gaps] == wanted
    runs = [summarised(batch(rows([64 * n], number=[numbers[n]])), name="n")[0] for n in range(5)]
    _, gaps = stitch([run for each in runs for run in each], TERMS)
    assert [(gap.kind, gap.missing) for gap in gaps] == wanted
    assert table_of(gaps, GAPS).num_rows == len(wanted)


def test_a_gap_between_two_batches_of_rows_is_seen() -> None:
    first, second = batch(rows([0], number=[1])), batch(rows([64], number=[3]))
    _, gaps = summarised(first, second, name="n")
    assert [(gap.missing, gap.before_ns, gap.after_ns) for gap in gaps] == [(1, 0, 640)]


def test_more_gaps_than_may_be_listed_are_counted() -> None:
    count = LISTED_GAPS + 10
    given = rows([64 * each for each in range(count)], number=[2 * each for each in range(count)])
    (run,), gaps = summarised(batch(given), name="n")
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
    for name, more in (("", {}), ("n", {"number": numbers})):
        whole, gaps = summarised(batch(rows(positions, **more)), name=name)
        found, inner = [], []
        for start, end in itertools.pairwise(segments):
            part = {key: value[start:end] for key, value in rows(positions, **more).items()}
            runs, missing = summarised(batch(part), name=name)
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
