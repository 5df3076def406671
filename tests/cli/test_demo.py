from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from io import BytesIO, StringIO, TextIOWrapper
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from aeron_async.cli import demo as demo_module
from aeron_async.cli.demo import DemoError, DemoProcess, DemoState
from aeron_async.cli.demo_child import PHASES, Sampler
from aeron_async.cli.demo_view import LineView, activation, picture, print_summary
from aeron_async.cli.main import main
from tests.logs import without_lines_of_the_machine

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Running

    Start = Callable[..., Running]


LONG_S = 600.0


def children_of(pid: int) -> list[int]:
    found = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(pid)],  # noqa: S607 - wherever the system has it
        capture_output=True,
        text=True,
        check=False,
    )
    return [int(line) for line in found.stdout.split()]


# Traced, the publisher is hardly faster than the slow subscriber, and does not wait for it.
@pytest.mark.processes
@pytest.mark.usefixtures("_warm_children")
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_the_demonstration_as_json(loop: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--duration", "0.9", "--json", "--loop", loop]) == 0
    out, err = capfd.readouterr()
    assert without_lines_of_the_machine(err) == ""
    *samples, summary = [json.loads(line) for line in out.splitlines()]
    assert {sample["type"] for sample in samples} == {"sample"}
    assert {sample["phase"] for sample in samples} == {phase.key for phase in PHASES}
    assert (summary["type"], summary["is_intact"]) == ("summary", True)
    fast, slow, echo = summary["phases"]
    assert fast["sent"] == fast["received"] > slow["received"] > 0
    assert slow["waiting_share"] > 0.3
    assert slow["waits"] > 0
    assert echo["latency"]["percentiles_us"]["50"] < slow["latency"]["percentiles_us"]["50"]


def test_the_demonstration_in_a_pipe_is_lines(start: Start) -> None:
    code, out, err = start("demo", "--duration", "1.2", "--size", "200").finish()
    assert (code, err) == (0, "")
    assert all(phase.title in out for phase in PHASES)
    assert re.search(r"^  \d\.\d s", out, re.MULTILINE)
    assert "each once and in order" in out
    assert "\x1b" not in out


def test_the_demonstration_on_a_terminal_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal, inside = pty.openpty()
    program = [sys.executable, "-m", "aeron_async", "demo", "--duration", "0.9"]
    with subprocess.Popen(program, stdout=inside) as demo:
        os.close(inside)
        text = read_terminal(terminal)
    assert demo.returncode == 0
    assert "back pressure" in text
    assert "\x1b[" in text
    assert "each once and in order" in text


def read_terminal(descriptor: int) -> str:
    shown = bytearray()
    while True:
        try:
            shown += os.read(descriptor, 65_536)
        except OSError:  # The program at the other end is gone.
            os.close(descriptor)
            return shown.decode()


def test_ctrl_c_ends_both_processes(start: Start) -> None:
    demo = start("demo", "--duration", "60", "--json")
    demo.line()
    children = children_of(demo.process.pid)
    assert len(children) == 2
    code, _, err = demo.interrupt()
    assert (code, err) == (130, "")
    for child in children:
        with pytest.raises(ProcessLookupError):
            os.kill(child, 0)


def test_a_process_that_dies_is_named(start: Start) -> None:
    demo = start("demo", "--duration", "60", "--json")
    demo.line()
    os.kill(children_of(demo.process.pid)[0], signal.SIGKILL)
    code, _, err = demo.finish()
    assert code == 1
    assert "process ended early: it was killed by SIGKILL" in err


async def test_the_last_words_of_a_process_are_passed_on() -> None:
    async with DemoProcess("nobody", None) as child:
        with pytest.raises(DemoError, match=r"nobody process ended early: .*No module named"):
            await child.event()


def test_what_a_process_cannot_do_is_passed_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AERON_MTU_LENGTH", "1400")
    assert main(["demo", "--duration", "1"]) == 1
    assert "AERON_MTU_LENGTH" in capsys.readouterr().err


async def test_a_process_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_module, "CLOSE_TIMEOUT_S", 0.05)
    child = DemoProcess("publisher", None)
    child._arguments = ("-c", "import time; print('{}', flush=True); time.sleep(60)")
    async with child:
        assert await child.event() == {}
    assert child._process.returncode == -signal.SIGKILL


def test_a_process_whose_parent_goes_away_ends(start: Start) -> None:
    for role in ("publisher", "subscriber"):
        child = start(module=f"aeron_async.cli.demo_{role}")
        assert json.loads(child.line())["event"] == "ready"
        code, out, err = child.finish()
        assert (code, out, err) == (1, "", "")


# What is shown.

SUMMARY = {"percentiles_us": {"50": 1.5, "99": 20.0}}


def published(at_ns: int, **more: Any) -> dict[str, Any]:
    return {
        "event": "sample",
        "phase": "fast",
        "at_ns": at_ns,
        "sent": at_ns // 1_000,
        "waits": 1,
        "waited_ns": at_ns * 3 // 4,
        "room": 0,
        "room_limit": 131_072,
        "retransmits": 2,
        "latency": None,
    } | more


def received(at_ns: int, **more: Any) -> dict[str, Any]:
    return {
        "event": "sample",
        "phase": "fast",
        "at_ns": at_ns,
        "received": at_ns // 2_000,
        "bytes": at_ns // 20,
        "naks": 3,
        "latency": SUMMARY,
    } | more


def state_with_samples(phase: str = "fast") -> DemoState:
    state = DemoState(10.0)
    assert state.take("publisher", {"event": "ready"}) is None
    assert state.take("publisher", published(10**9, phase=phase)) is None
    assert state.take("subscriber", received(10**9, phase=phase)) is None
    assert state.take("subscriber", received(2 * 10**9, phase=phase)) is None
    return state


def ended(state: DemoState, *, out_of_order: int = 0, arrived: int = 10) -> None:
    sent = {
        "sent": 10,
        "seconds": 2.0,
        "waits": 1,
        "waited_seconds": 1.0,
        "retransmits": 1,
        "round_trip": None,
    }
    got = {"received": arrived, "bytes": 1_000, "seconds": 2.0, "latency": None}
    state.take(
        "publisher",
        {"event": "end", "phases": [sent | {"phase": phase.key} for phase in PHASES]},
    )
    state.take(
        "subscriber",
        {
            "event": "end",
            "out_of_order": out_of_order,
            "phases": [got | {"phase": phase.key} for phase in PHASES],
        },
    )


def test_a_snapshot_tells_rates_since_the_one_before() -> None:
    state = state_with_samples()
    snapshot = state.take("publisher", published(2 * 10**9))
    assert snapshot is not None
    assert (snapshot.sent_per_second, snapshot.received_per_second) == (1e6, 5e5)
    assert (snapshot.bytes_per_second, snapshot.elapsed_s) == (5e7, 1.0)
    assert (snapshot.waiting_share, snapshot.waits_per_second) == (0.75, 0)
    assert snapshot.latency == SUMMARY
    assert list(state.history) == [5e5]


def test_no_snapshot_mixes_two_phases() -> None:
    state = state_with_samples()
    assert state.take("publisher", published(2 * 10**9)) is not None
    # The publisher is in the next phase, and the subscriber takes what is left of this one.
    assert state.take("publisher", published(3 * 10**9, phase="slow")) is None
    assert state.take("subscriber", received(3 * 10**9)) is None
    assert state.take("publisher", published(4 * 10**9, phase="slow")) is None
    # The first report of the subscriber is where its rates begin.
    assert state.take("subscriber", received(4 * 10**9, phase="slow", received=0)) is None
    assert state.take("publisher", published(5 * 10**9, phase="slow")) is None
    assert state.take("subscriber", received(6 * 10**9, phase="slow", received=20)) is None
    snapshot = state.take("publisher", published(6 * 10**9, phase="slow"))
    assert snapshot is not None
    assert (snapshot.phase.key, snapshot.received_per_second) == ("slow", 10)


async def test_a_sampler_that_is_restarted_reports_at_once_and_begins_anew() -> None:
    reports: list[int] = []
    sampler = Sampler(LONG_S, lambda: reports.append(len(reports)))
    first = sampler._timer
    sampler.restart()
    assert reports == [0]
    assert first.cancelled()
    assert not sampler._timer.cancelled()
    sampler.stop()
    assert sampler._timer.cancelled()


def test_the_picture_shows_what_holds_the_stream_back() -> None:
    state = state_with_samples(phase="echo")
    snapshot = state.take("publisher", published(2 * 10**9, phase="echo", latency=SUMMARY))
    assert snapshot is not None
    console = Console(file=StringIO(), width=100)
    console.print(picture(state, snapshot, size=100, width=88))
    assert isinstance(console.file, StringIO)
    text = console.file.getvalue()
    for part in ("500,000 msg/s", "75%", "░" * 14, "1.50 μs", "there and back", "3 NAKs"):
        assert part in text


def test_a_line_is_written_each_second(capsys: pytest.CaptureFixture[str]) -> None:
    state, view = state_with_samples(), LineView()
    for at_ms in (1_500, 2_000, 2_500, 2_950):
        state.take("subscriber", received(at_ms * 10**6))
        snapshot = state.take("publisher", published(at_ms * 10**6))
        assert snapshot is not None
        view.update(state, snapshot)
    view.close()
    lines = capsys.readouterr().out.splitlines()
    assert [line[:8] for line in lines[1:]] == ["  1.0 s ", "  1.9 s "]


def test_the_title_of_a_phase_is_written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Into a pipe, too, where it waited for the next line."""
    pipe = BytesIO()
    monkeypatch.setattr("sys.stdout", TextIOWrapper(pipe))
    state = state_with_samples()
    state.take("subscriber", received(100 * 10**6))
    snapshot = state.take("publisher", published(100 * 10**6))
    assert snapshot is not None
    LineView().update(state, snapshot)
    assert pipe.getvalue().decode().startswith(f"{snapshot.phase.title}: ")


@pytest.mark.parametrize(("out_of_order", "arrived"), [(1, 10), (0, 9)])
def test_a_summary_does_not_hide_what_went_wrong(out_of_order: int, arrived: int) -> None:
    state = state_with_samples()
    ended(state, out_of_order=out_of_order, arrived=arrived)
    assert not state.is_intact
    console = Console(file=StringIO(), width=100)
    print_summary(state, console)
    assert isinstance(console.file, StringIO)
    assert "but not each once and in order" in console.file.getvalue()


def test_a_summary_tells_what_became_of_each_phase() -> None:
    state = state_with_samples()
    ended(state)
    assert state.is_intact
    assert [summary.waiting_share for summary in state.summaries()] == [0.5] * 3
    assert state.summaries()[0].to_json()["bytes_per_second"] == 500


def test_a_summary_fits_eighty_columns_and_leaves_commands_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    activate = "  . .venv/bin/activate\n"
    monkeypatch.setattr("aeron_async.cli.demo_view.activation", lambda: activate)
    state = state_with_samples()
    latency = {"percentiles_us": {"50": 187_654.0, "99": 187_654.0}}
    sent: dict[str, Any] = {"sent": 12_345_678, "seconds": 10.0, "waits": 1, "waited_seconds": 10.0}
    sent |= {"retransmits": 1, "round_trip": latency}
    got = {"received": 12_345_678, "bytes": 1_234_567_890, "latency": latency}
    for role, one, more in (("publisher", sent, {}), ("subscriber", got, {"out_of_order": 0})):
        phases = [one | {"phase": phase.key} for phase in PHASES]
        state.take(role, {"event": "end", "phases": phases} | more)
    console = Console(file=StringIO(), width=80)
    print_summary(state, console)
    assert isinstance(console.file, StringIO)
    text = console.file.getvalue()
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert "12,345,678" in text
    assert "1,234,568" in text
    assert "…" not in text
    assert lines[-5:-2] == [
        "Now by hand, in two terminals; in each first",
        "  . .venv/bin/activate",
        "and then one of these:",
    ]
    assert lines[-2].startswith("  aeron-async sub 'aeron:udp?")
    assert lines[-1].endswith(" --message hello")


def environment_at(
    place: Path, monkeypatch: pytest.MonkeyPatch, *, is_active: bool, has_activate: bool = True
) -> None:
    """Pretend that the command runs in an environment at this place."""
    scripts = place / "bin"
    scripts.mkdir(parents=True)
    command = scripts / "aeron-async"
    command.touch(mode=0o755)
    if has_activate:
        (scripts / "activate").touch()
    monkeypatch.setattr("sys.prefix", str(place))
    monkeypatch.setenv("PATH", str(scripts) if is_active else "/nowhere")


def test_the_last_lines_activate_the_environment_unless_it_is_active(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    environment_at(tmp_path / ".venv", monkeypatch, is_active=False)
    assert activation() == "  . .venv/bin/activate\n"
    monkeypatch.chdir(tmp_path / ".venv")
    environment_at(tmp_path / "an env", monkeypatch, is_active=False)
    assert activation() == f"  . '{tmp_path}/an env/bin/activate'\n"


def test_an_active_environment_or_one_without_a_script_needs_no_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment_at(tmp_path / "active", monkeypatch, is_active=True)
    assert activation() == ""
    environment_at(tmp_path / "bare", monkeypatch, is_active=False, has_activate=False)
    assert activation() == ""
