"""Sums of a batch: what they count is what each message says, in few rows."""

from __future__ import annotations

import pickle
from collections import Counter

import attrs
import numpy as np
import pyarrow as pa
import pytest

from aeron_async.spark.pipeline import gold
from aeron_async.spark.pipeline.histogram import bin_of
from aeron_async.spark.pipeline.runs import GapKind, Run

MINUTE_NS = 60 * 10**9
FARTHEST_NS = (1 << 63) - 1


@pytest.mark.parametrize("last_minute", [0, 3, 9_000, FARTHEST_NS // MINUTE_NS - 1])
@pytest.mark.parametrize("longest", [0, 60, 70_000, (1 << 31) - 1])
def test_lengths_are_counted_by_minute_and_bin(last_minute: int, longest: int) -> None:
    chance = np.random.default_rng(7)
    wanted: Counter[tuple[int, int, int]] = Counter()
    sums = gold.Sums(gold.LENGTHS)
    for _ in range(3):
        lengths = chance.integers(0, longest, 500, endpoint=True, dtype=np.int64)
        minutes = chance.integers(-2, last_minute, 500, endpoint=True, dtype=np.int64)
        gold.add_lengths(sums, 7, lengths, minutes * MINUTE_NS + 5)
        pairs = zip(minutes.tolist(), lengths.tolist(), strict=True)
        wanted.update((7, minute, bin_of(length)) for minute, length in pairs)
    nothing = np.zeros(0, np.int64)
    gold.add_lengths(sums, 7, nothing, nothing)
    found = {tuple(row.values())[:3]: row["count"] for row in sums.table().to_pylist()}
    assert found == wanted


def test_many_sums_are_not_added_up_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gold, "MOST_PARTS", 10)
    sums, rows = gold.Sums(gold.LENGTHS), 0
    table = gold.Sums.table

    def counted(self: gold.Sums) -> pa.Table:
        nonlocal rows
        found = table(self)
        rows += len(found)
        return found

    monkeypatch.setattr(gold.Sums, "table", counted)
    for minute in range(1_000):
        gold.add_lengths(sums, 7, np.array([5, 6]), np.array([minute, minute]) * MINUTE_NS)
    assert rows < 3 * 2_000
    assert sums.table().num_rows == 2_000


@pytest.mark.parametrize("most", [2, 7, 64, 2_000])
def test_more_times_than_a_plan_may_have_become_longer_steps(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gold, "MOST_PARTS", 100)
    chance = np.random.default_rng(most)
    sums, total = gold.Sums(gold.LENGTHS, most), 0
    low, high = -FARTHEST_NS // MINUTE_NS + 1, FARTHEST_NS // MINUTE_NS - 1
    for _ in range(10):
        minutes = chance.integers(low, high, 100)
        gold.add_lengths(sums, 7, np.full(100, 5), minutes * MINUTE_NS)
        total += 100
    found = sums.table()
    assert found.num_rows <= most
    assert sum(found.column("count").to_pylist()) == total
    if most > total:
        assert found.num_rows == total


def test_sums_are_sent_once() -> None:
    sums, count = gold.Sums(gold.LENGTHS), 100_000
    gold.add_lengths(sums, 7, np.full(count, 5), np.arange(count) * MINUTE_NS)
    found = sums.table()
    assert found.num_rows == count
    assert len(pickle.dumps(found)) < 1.1 * found.nbytes


def test_decoded_messages_are_counted_by_minute() -> None:
    sums = gold.Sums(gold.DECODED)
    for times in ([1, 2, MINUTE_NS], [MINUTE_NS + 5], [-1], []):
        gold.add_decoded(sums, "quotes", 7, np.array(times, np.int64))
    found = {tuple(row.values()) for row in sums.table().to_pylist()}
    assert found == {("quotes", "", 7, 0, 2), ("quotes", "", 7, 1, 2), ("quotes", "", 7, -1, 1)}


def test_reasons_are_told_while_they_are_few_and_short() -> None:
    sums, known = gold.Sums(gold.DECODED), set[str]()
    for start in (0, 40, 80):
        reasons = pa.array([f"reason {start + each}" for each in range(40)] * 2)
        gold.add_quarantined(sums, 7, reasons, np.zeros(80, np.int64), known)
    gold.add_quarantined(sums, 7, pa.array(["x" * 5_000]), np.zeros(1, np.int64), known)
    rows = {row["reason"]: row["messages"] for row in sums.table().to_pylist()}
    assert rows.pop(gold.OTHER_REASONS) == 2 * (120 - gold.MOST_REASONS) + 1
    assert rows == {f"reason {each}": 2 for each in range(gold.MOST_REASONS)}
    sums = gold.Sums(gold.DECODED)
    gold.add_quarantined(sums, 7, pa.array(["\u202e" * 5_000]), np.zeros(1, np.int64), set())
    (row,) = sums.table().to_pylist()
    assert (row["kind"], row["reason"]) == ("", "\u202e" * gold.REASON_LENGTH)


def test_gaps_of_runs_add_up_to_all_gaps() -> None:
    run = Run(
        recording_id=1,
        session_id=2,
        stream_id=3,
        first_position=0,
        end_position=64,
        messages=1,
    )
    found = [
        attrs.evolve(run, first_position=start, end_position=start + 64, gaps=5)
        for start in (128, 256)
    ]
    (joined,), gaps = gold.stitched(found, [run], {1: 65_536})
    # Those inside, one between the two parts, and one to the batch before.
    assert (joined.gaps, [gap.kind for gap in gaps]) == (12, [GapKind.PADDING] * 2)
    (alone,), gaps = gold.stitched(found, [], {1: 65_536})
    assert (alone.gaps, len(gaps)) == (11, 1)
