"""What each run takes a sample of is in one table of a page, and `make long` takes more."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ASKED = re.compile(r'os\.environ\.get\(\s*"(\w+)", "([0-9_]+)"\s*\)')
ROW = re.compile(r"^\| `(AERON_ASYNC_\w+)` \| ([0-9,]+) \| ([0-9,]+) \|", re.MULTILINE)
LONG = re.compile(r"^\t(AERON_ASYNC_\w+)=([0-9]+)(?: \\)?$", re.MULTILINE)
NO_SAMPLES = {"AERON_ASYNC_HOSTILE_SEED", "PYTEST_XDIST_WORKER_COUNT"}


@pytest.fixture(scope="module")
def rows() -> dict[str, tuple[int, int]]:
    """Return what each run takes by the page, and what `make long` does."""
    return {
        name: (number(usual), number(long))
        for name, usual, long in ROW.findall((ROOT / "docs/howto/run-the-tests.md").read_text())
    }


def number(text: str) -> int:
    return int(text.replace(",", ""))


def test_each_variable_has_a_row_with_what_a_run_takes(rows: dict[str, tuple[int, int]]) -> None:
    asked = [
        (name, int(usual))
        for path in (ROOT / "tests").rglob("*.py")
        for name, usual in ASKED.findall(path.read_text())
        if name not in NO_SAMPLES
    ]
    # The same for everybody who asks for it.
    assert set(asked) == {(name, usual) for name, (usual, _) in rows.items()}


def test_make_long_takes_what_its_column_says(rows: dict[str, tuple[int, int]]) -> None:
    taken = dict(LONG.findall((ROOT / "Makefile").read_text()))
    assert taken == {name: str(long) for name, (_, long) in rows.items()}
    assert all(usual < long for usual, long in rows.values())
