"""The examples on a lake print what is in it."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.examples.programs import EXAMPLES, ROOT, TIMEOUT_S
from tests.spark.lake.lakes import commit, make_table, quotes, write_file
from tests.tracing import untraced_environment

if TYPE_CHECKING:
    from pathlib import Path

PRINTED = {
    "lake_duckdb": [
        "stream 1001 at 11:06:41: 100 messages",
        "stream 1001 at 11:06:42: 100 messages",
        "stream 1001 at 11:06:40: 97 messages",
    ],
    "lake_polars": ["ALPHA: 198 messages, 1 to 299", "BRAVO: 99 messages, 0 to 297"],
    "lake_pandas": ["stream 1001: p50 40, p99 40, most 5040 us"],
    "lake_outliers": [
        "version 3, 2 files of 2026-11-18",
        "stream 1001: 3 missing before 53",
        "stream 1001: 150 took 5040 us, half of them 40",
        "stream 1001: 250 took 2040 us, half of them 40",
    ],
}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a lake with three lost messages and two late ones, and another day."""
    root = tmp_path_factory.mktemp("lake")
    table = make_table(root / "silver" / "quotes")
    numbers = [each for each in range(300) if each not in {50, 51, 52}]
    late = {150: 5_000_000, 250: 2_000_000}
    for batch, part in enumerate((numbers[:200], numbers[200:])):
        rows = quotes(part, batch=batch, late=late)
        commit(table, [write_file(table, rows, f"b{batch:08}-p00000-abcdef01-000")], batch)
    other = quotes(range(300, 310), batch=2)
    action = write_file(table, other, "b00000002-p00000-abcdef01-000", day="2026-11-19")
    commit(table, [action], 2)
    return root


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_prints_what_is_in_the_lake(name: str, lake: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py"), str(lake), "2026-11-18"],
        cwd=ROOT,
        env=untraced_environment() | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == PRINTED[name]
