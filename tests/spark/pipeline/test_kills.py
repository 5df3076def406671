"""A job that is killed between files and commits leaves no row that counts, and none that lacks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable

from aeron_async.spark.lake.tables import Lake
from tests.spark.pipeline.killed import KILLED_IN, ingest
from tests.spark.pipeline.test_task import DAY_NS, quotes
from tests.tracing import untraced_environment

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT: Final = Path(__file__).parents[3]
PATIENCE_S: Final = 300
DIFFERS: Final = {"committed", "query", "versions"}
"""Columns that tell how a batch was written, and not what is in it."""
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks")


def rows_of(lake: Lake, table: str) -> list[tuple[Any, ...]]:
    read = ds.dataset(lake.files(table), format="parquet").to_table()
    kept = [name for name in sorted(read.column_names) if name not in DIFFERS]
    return sorted(zip(*(map(repr, read.column(name).to_pylist()) for name in kept), strict=True))


def orphans(lake: Lake, tables: Iterable[str]) -> int:
    """Return how many files lie in tables and belong to none."""
    return sum(
        len(
            [
                each
                for each in Path(str(lake.path(table))).rglob("*.parquet")
                if "_delta_log" not in each.parts
            ]
        )
        - len(lake.files(table))
        for table in tables
    )


ALL: Final = int(os.environ.get("AERON_ASYNC_SPARK_KILLS", "0")) > 2
"""Whether jobs are killed at every moment, and not at some, as takes a fifth of the time."""


@pytest.mark.parametrize(
    ("kind", "step"), [("delta", 1 if ALL else 9), ("parquet", 1 if ALL else 13)]
)
def test_a_job_that_is_killed_at_any_moment_goes_on_as_if_nothing_was(
    tmp_path: Path, kind: str, step: int
) -> None:
    archive, folder = tmp_path / "archive", tmp_path / "lakes"
    rows = [(n + n // 700, DAY_NS, -1 if n % 900 == 5 else 1) for n in range(5_000)]
    quotes(archive, rows)
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.pipeline.killed", archive, folder, kind, str(step)],
        cwd=ROOT,
        env=untraced_environment() | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        timeout=PATIENCE_S,
        check=True,
    )
    kills = int(done.stdout)
    whole = ingest(archive, tmp_path / "whole", kind, 0, 2).lake
    tables = whole.tables()
    wanted = {table: rows_of(whole, table) for table in tables}
    assert len(wanted["bronze"]) == len(rows)
    # Before and behind the commit of each table that the batch has rows for.
    assert kills >= 2 * (len(tables) - 1) > step
    left = []
    for moment in range(0, kills, step):
        lake = Lake(folder / str(moment))
        before = {table: rows_of(lake, table) for table in lake.tables() if lake.files(table)}
        for table, found in before.items():
            assert set(found) <= set(wanted[table])
        reports = ingest(archive, folder / str(moment), kind, KILLED_IN, 2).reports
        assert {table: rows_of(lake, table) for table in tables} == wanted
        left.append(orphans(lake, tables))
        # Behind the last commit the batch is whole, and is not done again.
        is_whole = len(before.get("batches", ())) == 2
        assert [each.batch_id for each in reports] == [1, 2][is_whole:]
        if kind == "delta":
            assert DeltaTable(str(lake.path("bronze"))).transaction_version("q") == 2
    # What was written before the first commit lies there, and nobody reads it.
    assert left[0] > 0 or kind == "parquet"
    assert kind == "delta" or not any(left)
