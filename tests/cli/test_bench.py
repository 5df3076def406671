"""The whole command, in short; the parts are in `test_bench_blocks`."""

from __future__ import annotations

import json
from unittest.mock import AsyncMock

import pytest

from aeron_async.cli import bench as bench_module
from aeron_async.cli.bench import rows
from aeron_async.cli.bench_processes import Patience
from aeron_async.cli.main import main

FOUND = {
    "flood": {"datagrams_per_s": 1_000_000.0, "mb_per_s": 1_408.0},
    "udp": {"messages_per_s": 2_000_000.0, "mb_per_s": 200.0},
    "udp_long": {"messages_per_s": 50_000.0, "mb_per_s": 500.0},
    "ipc": {"messages_per_s": 3_000_000.0, "mb_per_s": 300.0},
    "echo": {"p50_us": 50.0, "p99_us": 100.0, "p99_9_us": 0.0},
    "round_trip": {"p50_us": 65.0, "p99_us": 200.0, "p99_9_us": 1_000.0},
}


@pytest.fixture(autouse=True)
def busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait longer for processes that a busy machine starts late."""
    monkeypatch.setattr("aeron_async.cli.bench.PATIENT", Patience(limit_s=300))


def test_each_figure_has_its_floor_beside_it() -> None:
    shown = rows(FOUND, size=100, rate=10_000, mtu_length=1_408)
    assert shown == [
        (
            "two processes, UDP, 100 bytes",
            "2,000,000 msg/s, 200.0 MB/s",
            "8,000,000 msg/s",
            "0.25",
        ),
        ("two processes, UDP, 10,000 bytes", "50,000 msg/s, 500.0 MB/s", "125,000 msg/s", "0.40"),
        ("one event loop, IPC, 100 bytes", "3,000,000 msg/s, 300.0 MB/s", "", ""),
        ("round trip, 10,000/s, 100 bytes, p50", "65.0 μs", "50.0 μs", "1.30"),
        ("round trip, 10,000/s, 100 bytes, p99", "200 μs", "100 μs", "2.00"),
        ("round trip, 10,000/s, 100 bytes, p99.9", "1.00 ms", "0 ns", ""),
    ]


@pytest.mark.parametrize("more", [[], ["-q"]])
def test_what_was_measured_is_a_table_for_people(
    more: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, figures in FOUND.items():
        part = {"udp": "_stream", "udp_long": "_stream"}.get(name, f"_{name}")
        monkeypatch.setattr(bench_module, part, AsyncMock(return_value=figures))
    assert main(["bench", *more]) == 0
    shown = capsys.readouterr()
    assert "times the floor" in shown.out
    assert ("6 of 6: round trip" in shown.err) == (not more)


@pytest.mark.processes
@pytest.mark.usefixtures("_warm_children")
def test_this_machine_is_measured_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--seconds", "0.02", "--rate", "500", "--json", "--loop", "asyncio"]
    assert main(["bench", *words]) == 0
    shown = capsys.readouterr()
    assert "6 of 6: round trip" in shown.err
    report = json.loads(shown.out)
    assert report.keys() >= FOUND.keys()
    assert report["size"] == 100
    assert report["udp"]["messages"] == report["udp"]["offered"]


def test_messages_without_room_for_a_number_fail_in_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["bench", "--size", "7", "-q"]) == 2
    assert "--size 7 must be at least 8" in capsys.readouterr().err
