from __future__ import annotations

import json
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from benchmarks import beside
from benchmarks.results import metrics_of
from tests.benchmarks.made_up import report, results, runs

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_two_checkouts_are_compared_round_by_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    turns: list[Path] = []
    rates = {tmp_path: iter([100.0, 400.0, 200.0]), beside.HERE: iter([110.0, 400.0, 190.0])}

    def run(command: list[str], *, cwd: Path, env: dict[str, str], **_: Any) -> SimpleNamespace:
        assert command[0] == sys.executable
        assert env["PYTHONPATH"] == str(cwd)
        turns.append(cwd)
        found = report(flood=results(ours=runs((next(rates[cwd]), 10.0))))
        return SimpleNamespace(stdout=json.dumps(found).encode())

    monkeypatch.setattr(subprocess, "run", run)
    assert beside.main([str(tmp_path), "--rounds", "3", "--only", "flood"]) == 0
    assert turns == [tmp_path, beside.HERE, beside.HERE, tmp_path, tmp_path, beside.HERE]
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == "| flood | ours | messages/s | 200 | 190 | 0.950 | 1.000 |"
    assert lines[3] == "| flood | ours | p50, μs | 10 | 10 | 1.000 | 1.000 |"


def test_what_only_one_of_them_has_is_left_out() -> None:
    before: beside.Runs = {("old", "ours"): runs((1.0, 1.0))}
    metrics = {"old": metrics_of(results(ours=runs((1.0, 1.0))))}
    assert len(list(beside.table(before, {}, metrics))) == 2
