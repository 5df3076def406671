from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from benchmarks import path_cost

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_paths_are_measured_in_both_checkouts_by_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    turns: list[Path] = []
    costs = {tmp_path: iter([2.0, 1.0, 4.0]), path_cost.HERE: iter([1.5, 2.0, 3.0])}

    def run(command: list[str], *, cwd: Path, env: dict[str, str], **_: Any) -> SimpleNamespace:
        assert command == [sys.executable, str(path_cost.PROGRAM), "--measure", "udp"]
        assert env["PYTHONPATH"] == str(cwd)
        turns.append(cwd)
        return SimpleNamespace(stdout=f"{next(costs[cwd])}\n")

    monkeypatch.setattr(subprocess, "run", run)
    assert path_cost.main(["--beside", str(tmp_path), "--rounds", "3", "--only", "udp"]) == 0
    here = path_cost.HERE
    assert turns == [tmp_path, here, here, tmp_path, tmp_path, here]
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "| udp | μs of processor | 1.000 | 1.500 | 1.500 | 2.000 | 2.000 | 1.000 |"


def test_each_path_costs_something(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(path_cost, "SLICES", 2)
    monkeypatch.setattr(path_cost, "ROUND_TRIPS", 20)
    monkeypatch.setattr(path_cost, "MESSAGES", 200)
    monkeypatch.setattr(path_cost, "STEPS", 50)
    monkeypatch.setattr(path_cost, "WAITS", 20)
    monkeypatch.setattr(path_cost, "SETTLE_S", 0)
    monkeypatch.setattr(path_cost, "IDLE_S", 0.05)
    for path in path_cost.PATHS:
        assert path_cost.main(["--measure", path]) == 0
        assert 0 < float(capsys.readouterr().out) < 1e6
