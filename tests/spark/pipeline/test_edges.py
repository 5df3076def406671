"""What batches leave to those that follow: as much as all runs say, and no more to read."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from aeron_async.spark.pipeline.gold import RUNS, table_of
from aeron_async.spark.pipeline.job import Edges, last_runs
from aeron_async.spark.pipeline.lake import Lake
from aeron_async.spark.pipeline.runs import Run
from aeron_async.spark.pipeline.tables import write_rows

if TYPE_CHECKING:
    from pathlib import Path


def run_of(recording_id: int, end: int, name: str = "") -> Run:
    return Run(
        recording_id=recording_id,
        session_id=1,
        stream_id=2,
        name=name,
        first_position=end - 64,
        end_position=end,
        messages=1,
        first_number=5 if name else None,
        last_number=end if name else None,
    )


def write(lake: Lake, batch_id: int, runs: list[Run]) -> None:
    write_rows(lake.gold("runs"), batch_id, table_of(runs, RUNS))


def kept(lake: Lake) -> list[str]:
    return sorted(each.name for each in (lake.root / "_state" / "edges").iterdir())


def test_the_last_run_is_that_which_ends_last_whenever_it_came() -> None:
    runs = [run_of(1, 128), run_of(1, 64), run_of(2, 64), run_of(1, 96, "a.b")]
    assert last_runs(runs) == [run_of(1, 128), run_of(2, 64), run_of(1, 96, "a.b")]


@pytest.mark.parametrize("seed", range(5))
def test_what_was_kept_is_what_all_runs_say_also_for_a_batch_that_is_done_again(
    tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    lake, everything = Lake(tmp_path), list[Run]()
    edges = Edges(lake)
    for batch_id in range(20):
        before = edges.before(batch_id)
        assert sorted(before, key=repr) == sorted(last_runs(everything), key=repr)
        if chance.random() < 0.2:
            continue
        runs = [run_of(chance.randrange(3), 64 * (batch_id + 2), chance.choice(["", "a.b"]))]
        for _ in range(chance.choice([1, 1, 2])):
            before = Edges(lake).before(batch_id)
            write(lake, batch_id, runs)
            edges.keep(batch_id, [*before, *runs], range(3))
        everything += runs
    assert len(kept(lake)) == 2


def test_only_batches_since_then_are_read(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    write(lake, 6, [run_of(1, 64)])
    Edges(lake).keep(6, [run_of(1, 64)], {1})
    (lake.gold("runs") / "batch=6" / "part.parquet").write_bytes(b"not looked at")
    # A version that kept nothing was at work in between.
    write(lake, 7, [run_of(1, 128)])
    assert Edges(lake).before(8) == [run_of(1, 128)]


@pytest.mark.parametrize("data", [b"", b"[{", b'[{"of": "others"}]', b"3"])
def test_what_cannot_be_read_is_found_again(tmp_path: Path, data: bytes) -> None:
    lake = Lake(tmp_path)
    for batch_id, end in ((0, 64), (1, 128)):
        write(lake, batch_id, [run_of(1, end)])
        Edges(lake).keep(batch_id, [run_of(1, end)], {1})
    (lake.root / "_state" / "edges" / "1.json").write_bytes(data)
    assert Edges(lake).before(2) == [run_of(1, 128)]
    assert Edges(Lake(tmp_path / "none")).before(2) == []


def test_recordings_that_are_gone_are_forgotten(tmp_path: Path) -> None:
    edges = Edges(Lake(tmp_path))
    edges.keep(0, [run_of(1, 64), run_of(2, 64)], {2})
    assert edges.before(1) == [run_of(2, 64)]
