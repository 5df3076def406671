from __future__ import annotations

import json
import runpy
import sys
from typing import TYPE_CHECKING, Any

import pytest

from aeron_async.cli.bench_processes import BenchError
from benchmarks import __main__ as program
from benchmarks import official_programs, profiling
from benchmarks.machine import installed, machine, processor_of, sysctl
from benchmarks.measuring import Contender, Metric, Scenario
from benchmarks.official_programs import OfficialPlan, rates_of
from benchmarks.scenarios import Settings, scenarios
from tests.benchmarks.made_up import report, results, runs

if TYPE_CHECKING:
    from pathlib import Path

NAMES = [
    "throughput-100-mtu1408",
    "throughput-100-mtu8192",
    "throughput-10k-mtu1408",
    "throughput-10k-mtu8192",
    "same-loop",
    "round-trip",
    "idle",
    "idle-streams",
    "receivers",
    "loss",
    "recording-100",
    "recording-10k",
    "replay-100",
    "replays-10",
    "ipc-100",
    "ipc-lists",
    "ipc-arrow",
    "udp-shared",
    "ipc-round-trip",
    "shared-idle",
    "shared-memory",
]


def test_every_scenario_begins_with_ours() -> None:
    found = scenarios(Settings())
    assert [scenario.name for scenario in found] == NAMES
    assert all(scenario.contenders[0].name.startswith("ours") for scenario in found)
    assert all(len({each.name for each in one.contenders}) == len(one.contenders) for one in found)


def test_scenarios_and_contenders_are_chosen_by_the_start_of_their_names() -> None:
    found = scenarios(Settings())
    picked = program.chosen(found, "throughput-100,loss", "floor,pyzmq")
    assert [scenario.name for scenario in picked] == [NAMES[0], NAMES[1], "loss"]
    assert [each.name for each in picked[0].contenders] == [
        "ours",
        "pyzmq, blocking",
        "pyzmq, asyncio",
        "floor: bare datagrams in batches",
    ]
    assert [each.name for each in picked[2].contenders] == ["ours, 1 % lost"]
    assert program.chosen(found, "", "") == found


@pytest.mark.parametrize("arguments", [["--runs", "0"], ["--seconds", "-1"], ["--seconds", "inf"]])
def test_numbers_must_be_above_zero(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        program.parse(arguments)
    assert "must be more than 0" in capsys.readouterr().err


def made_up(rate: float) -> list[Scenario]:
    async def measure() -> dict[str, float]:
        return {"messages_per_s": rate}

    metric = Metric("messages_per_s", "messages/s")
    contender = Contender(name="ours", measure=measure)
    absent = Contender(name="nats", measure=measure, why_absent="no nats-server")
    return [
        Scenario(name="made-up", question="?", metrics=(metric,), contenders=(contender, absent))
    ]


def test_a_regression_against_a_saved_baseline_is_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(program, "scenarios", lambda _settings: made_up(100.0))
    paths = {name: tmp_path / f"b.{name}" for name in ("json", "md", "svg")}
    saving = ["--save", str(paths["json"]), "--markdown", str(paths["md"])]
    assert program.main([*saving, "--svg", str(paths["svg"]), "--runs", "2"]) == 0
    assert "| ours | 100 (100 to 100) | 1 |" in capsys.readouterr().out
    assert json.loads(paths["json"].read_text())["command"].startswith(
        "python -m benchmarks --save"
    )
    assert paths["md"].read_text().startswith("Machine: ")
    assert paths["svg"].read_text().startswith("<svg")
    comparing = ["--compare", str(paths["json"]), "--runs", "1", "--json"]
    assert program.main(comparing) == 0
    monkeypatch.setattr(program, "scenarios", lambda _settings: made_up(50.0))
    capsys.readouterr()
    assert program.main(comparing) == 1
    shown = capsys.readouterr()
    assert json.loads(shown.out)["scenarios"]["made-up"]["contenders"]["ours"]["runs"]
    assert "REGRESSION   0.50 x  made-up, ours" in shown.err


def test_a_saved_result_is_read_and_nothing_is_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def scenarios_of(_settings: Settings) -> list[Scenario]:
        message = "nothing is measured"
        raise AssertionError(message)

    monkeypatch.setattr(program, "scenarios", scenarios_of)
    saved, baseline, shown = (tmp_path / name for name in ("now.json", "before.json", "page.html"))
    now = results(ours=runs((100, 10)), zmq=runs((50, 10)))
    saved.write_text(json.dumps(report(fast=now)))
    assert program.main(["--saved", str(saved), "--page", str(shown)]) == 0
    assert "| zmq | 50 (50 to 50) | 2 |" in capsys.readouterr().out
    assert shown.read_text().startswith("<!DOCTYPE html>")
    before = results(ours=runs((400, 40)), zmq=runs((200, 40)))
    baseline.write_text(json.dumps(report(fast=before)))
    comparing = ["--saved", str(saved), "--compare", str(baseline)]
    assert program.main(comparing) == 1
    assert "REGRESSION   0.25 x  fast, ours, messages_per_s" in capsys.readouterr().err
    assert program.main([*comparing, "--ratios"]) == 0
    assert "ok           1.00 x  fast, ours / zmq, messages_per_s" in capsys.readouterr().err


@pytest.mark.parametrize(("more", "what"), [([], "figure"), (["--ratios"], "ratio")])
def test_a_comparison_of_nothing_is_bad_usage(
    more: list[str], what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved, baseline = tmp_path / "now.json", tmp_path / "before.json"
    saved.write_text(json.dumps(report(fast=results(ours=runs((1, 1)), zmq=runs((1, 1))))))
    baseline.write_text(json.dumps(report(slow=results(ours=runs((1, 1)), zmq=runs((1, 1))))))
    arguments = ["--saved", str(saved), "--compare", str(baseline), *more]
    assert program.main(arguments) == 2
    assert capsys.readouterr().err == f"no {what} is both in {baseline} and in this run\n"


def test_scenarios_are_listed_with_who_is_absent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(program, "scenarios", lambda _settings: made_up(1.0))
    assert program.main(["--list"]) == 0
    assert capsys.readouterr().out == ("made-up: ?\n    ours\n    nats (absent: no nats-server)\n")


def test_a_scenario_that_does_not_exist_is_bad_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["--only", "latency"]) == 2
    assert "there are throughput-100-mtu1408" in capsys.readouterr().err


def test_the_other_programs_are_started_by_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.setattr(runpy, "run_module", lambda name, **_more: started.append((name, sys.argv)))

    def profile(words: list[str]) -> int:
        started.append(("profile", words))
        return 0

    monkeypatch.setattr(profiling, "main", profile)
    assert program.main(["soak", "--days", "1"]) == 0
    assert program.main(["profile", "--ipc"]) == 0
    assert started == [("benchmarks.soak", ["soak", "--days", "1"]), ("profile", ["--ipc"])]


def test_the_machine_is_named() -> None:
    assert {"processor", "cores", "compiled code", "load before"} <= machine().keys()
    assert processor_of("a : b\nmodel name\t: Fast 9000\n") == "Fast 9000"
    assert processor_of("")
    assert installed("no-such-package") == "not installed"
    assert sysctl("no_such_limit") == "unknown"


def test_the_rates_of_the_official_subscriber_are_read_without_their_ends() -> None:
    lines = [f"1000ms, {rate} msgs/sec, 1e+07 bytes/sec" for rate in ("0", "2e+05", "7.5e+05")]
    more = ["1000ms, 7e+05 msgs/sec, x", "1000ms, 3e+05 msgs/sec, x", "1000ms, 0 msgs/sec, x"]
    assert rates_of("\n".join(["Subscribing", *lines, *more])) == [750_000, 700_000]
    assert rates_of(lines[1]) == [200_000]
    with pytest.raises(BenchError, match="no message"):
        rates_of(lines[0])


def test_the_official_driver_has_the_window_of_ours(tmp_path: Path) -> None:
    plan = OfficialPlan(
        threading="SHARED",
        idle="yield",
        mtu_length=8_192,
        window="2m",
        term_length="4m",
        length=100,
        seconds=1.0,
    )
    environ = plan.environ(tmp_path)
    assert environ["AERON_RCV_INITIAL_WINDOW_LENGTH"] == "2m"
    assert environ["AERON_TERM_BUFFER_LENGTH"] == "4m"
    assert environ["AERON_SHARED_IDLE_STRATEGY"] == "yield"
    assert environ["AERON_DIR"] == str(tmp_path)


def test_official_programs_that_are_not_there_are_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(official_programs, "find", lambda _name: None)
    options: dict[str, Any] = {"mtu_length": 1408, "window": "2m", "term_length": "4m"}
    options |= {"length": 100, "seconds": 1.0}
    found = official_programs.contenders(**options)
    assert len(found) == 6
    assert all("aeronmd" in each.why_absent for each in found)
    monkeypatch.setattr(official_programs, "find", lambda name: f"/usr/bin/{name}")
    assert not any(each.why_absent for each in official_programs.contenders(**options))
    monkeypatch.setattr(official_programs, "find", lambda _name: None)
    assert official_programs.absent("aeronmd", "cping") == "not found: aeronmd, cping"


def test_official_programs_take_the_channel_that_is_given() -> None:
    options: dict[str, Any] = {"mtu_length": 1408, "window": "2m", "term_length": "4m"}
    options |= {"threading": "SHARED", "idle": "backoff", "length": 100, "seconds": 1.0}
    over_udp, over_ipc = OfficialPlan(**options), OfficialPlan(channel="aeron:ipc", **options)
    assert over_udp.to().startswith("aeron:udp?endpoint=127.0.0.1:")
    assert over_ipc.to() == "aeron:ipc"
    assert over_ipc.guessed_count() > over_udp.guessed_count() > 0
