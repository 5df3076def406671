"""The examples on a lake print what is in it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.examples.programs import EXAMPLES, ROOT, TIMEOUT_S
from tests.spark.lake.lakes import commit, make_table, quotes, write_file
from tests.tracing import untraced_environment

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
        "stream 1001: message 150 took 5040 us, the median 40",
        "stream 1001: message 250 took 2040 us, the median 40",
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


def printed(name: str, *arguments: str) -> list[str]:
    """Return what an example prints."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py"), *arguments],
        cwd=ROOT,
        env=untraced_environment() | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_prints_what_is_in_the_lake(name: str, lake: Path) -> None:
    assert printed(name, str(lake), "2026-11-18") == PRINTED[name]


@pytest.mark.parametrize("name", ["lake_duckdb", "lake_pandas", "lake_polars"])
def test_an_example_without_a_lake_says_what_to_type(name: str) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py")],
        env=untraced_environment() | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 1
    assert f"`python examples/{name}.py /var/lake 2026-11-18`" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_notebook_as_a_script_takes_the_last_day(lake: Path) -> None:
    assert printed("lake_outliers", str(lake)) == ["version 3, 1 files of 2026-11-19"]


def test_the_notebook_is_one_for_jupytext() -> None:
    jupytext: Any = pytest.importorskip("jupytext", reason="pip install jupytext")
    text = (EXAMPLES / "lake_outliers.py").read_text()
    notebook = jupytext.reads(text)
    assert notebook.metadata["jupytext"]["formats"] == "ipynb,py:percent"
    assert [cell.cell_type for cell in notebook.cells] == ["markdown", *["code"] * 4]
    # As a file of Jupyter and back: both have the same cells, so that either may be edited.
    back = jupytext.reads(jupytext.writes(notebook, "ipynb"), "ipynb")
    assert [cell.source for cell in back.cells] == [cell.source for cell in notebook.cells]
    assert jupytext.writes(back, "py:percent") == text


def test_the_notebook_runs_cell_by_cell(
    lake: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = (EXAMPLES / "lake_outliers.py").read_text()
    first, *others = [each.partition("\n")[2] for each in text.split("\n# %%")[2:]]
    # A kernel has flags of its own, which are no lake: there the first cell names one.
    monkeypatch.setattr(sys, "argv", ["kernel", "-f", "connection.json"])
    monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    monkeypatch.chdir(tmp_path)
    Path("first-lake").mkdir()
    Path("first-lake/lake").symlink_to(lake, target_is_directory=True)
    names: dict[str, Any] = {}
    exec(compile(first, "first cell", "exec"), names)  # noqa: S102 - of our own making
    assert str(names["day"]) == "2026-11-19"
    names["day"] = "2026-11-18"
    for cell in others:
        exec(compile(cell, "cell", "exec"), names)  # noqa: S102 - as above
    assert capsys.readouterr().out.splitlines() == PRINTED["lake_outliers"]
