from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from io import BytesIO, TextIOWrapper
from typing import TYPE_CHECKING

import pytest

from aeron_async.cli.main import COMMANDS, main
from aeron_async.cli.runner import TerminatedError
from aeron_async.protocol.channel_uri import ChannelUri

if TYPE_CHECKING:
    from pathlib import Path

CHANNEL = "aeron:udp?endpoint=127.0.0.1:0"


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(f" {name} " in out for name, _ in COMMANDS)


def test_without_arguments_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "Usage" in capsys.readouterr().out


@pytest.mark.parametrize("name", [name for name, _ in COMMANDS])
def test_every_command_has_help_of_its_own(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    assert f"aeron-async {name}" in capsys.readouterr().out


def test_help_imports_no_command() -> None:
    program = (
        "import sys; from aeron_async.cli.main import main; main(['--help']);"
        "print([m for m in sys.modules if m.startswith('aeron_async.cli.')], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert set(eval(done.stderr)) == {  # noqa: S307 - it is the list printed above
        f"aeron_async.cli.{name}" for name in ("entry", "main", "output", "runner")
    }


def test_the_library_imports_nothing_of_the_terminal_by_itself() -> None:
    program = "import sys, aeron_async; print('cyclopts' in sys.modules, 'uvloop' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "False"]


def test_the_module_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "aeron_async", "--version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == version("aeron-async")


def test_arguments_are_those_of_the_process_unless_given(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["aeron-async", "--version"])
    assert main() == 0
    assert capsys.readouterr().out.strip() == version("aeron-async")


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["nope"], 'Unknown command "nope"'),
        (["sub", "aeron:udp?endpoint=127.0.0.1:9"], "--stream is missing"),
        (["sub", CHANNEL, "--straem", "1"], "--stream is missing. Did you mean --stream instead"),
        (["sub", "aeron:udp?endpoint=127.0.0.1:9", "--stream"], "--stream requires an argument"),
        (["pub"], "aeron-async pub --help"),
        (["pub", CHANNEL], "--stream"),
        (["pub", CHANNEL, "--stream", "one"], "--stream"),
        (["sub", CHANNEL, "--stream", "4294967296"], "--stream"),
        (["sub", CHANNEL, "--stream", "1", "--format", "xml"], "--format"),
        (["sub", CHANNEL, "--stream", "1", "--timeout", "0"], "must be more than 0"),
        (["sub", CHANNEL, "--stream", "1", "--count", "0"], "--count"),
        (["sub", "aeron:upd?endpoint=h:1", "--stream", "1"], "did you mean 'udp'"),
        (["pub", CHANNEL, "--stream", "1", "--message", "a", "--size", "3"], "--size"),
        (["pub", CHANNEL, "--stream", "1", "--message", "a"], "port 0"),
        (["ping", "--size", "7"], "at least 8"),
        (["ping", "--count", "0"], "--count"),
        (["demo", "--duration", "-1"], "must be more than 0"),
        (["explain", "aeron:udp?endpont=h:1"], "did you mean 'endpoint'"),
        (["decode", "x.pcap", "--port", "many"], "--port"),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_2(
    arguments: list[str], part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    err = capsys.readouterr().err.splitlines()
    assert part in err[-1]
    assert err[-1].startswith("error: ")


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["sub", "aeron:udp?endpoint=127.0.0.1:40456|ats=true", "--stream", "1"], "not supported"),
        (["decode", "/nowhere/x.pcap"], "error: /nowhere/x.pcap: No such file or directory"),
        (
            ["pub", "aeron:udp?endpoint=127.0.0.1:9", "--stream", "1", "--timeout", "0.05"],
            "no subscriber",
        ),
    ],
)
def test_failure_is_one_line_and_exit_code_1(
    arguments: list[str], part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 1
    err = capsys.readouterr().err.splitlines()
    assert part in err[-1]
    assert err[-1].startswith("error: ")


def test_a_setting_in_the_environment_that_cannot_be_meant_is_bad_usage(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AERON_MTU_LENGTH", "1400")
    assert main(["explain", "aeron:udp?endpoint=h:1"]) == 2
    assert "AERON_MTU_LENGTH" in capsys.readouterr().err


@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt, 130), (TerminatedError, 143)])
def test_signals_have_exit_codes(
    error: type[BaseException], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_text: str) -> None:
        raise error

    monkeypatch.setattr(ChannelUri, "parse", interrupted)
    assert main(["explain", "aeron:udp?endpoint=h:1"]) == code


@pytest.mark.parametrize("more", ["", "--json"])
def test_a_reader_that_goes_away_ends_the_command_as_a_success(more: str, tmp_path: Path) -> None:
    errors = tmp_path / "errors"
    command = f"{sys.executable} -m aeron_async explain aeron:udp?endpoint=h:1 {more}"
    script = f"set -o pipefail; {command} 2>{errors} | true"
    done = subprocess.run(["bash", "-c", script], check=False)  # noqa: S607 - a shell makes the pipe
    assert done.returncode == 0
    assert errors.read_text() == ""


def test_a_terminal_without_a_sign_gets_a_question_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = TextIOWrapper(BytesIO(), encoding="ascii", write_through=True)
    monkeypatch.setattr(sys, "stdout", terminal)
    assert main(["--version"]) == 0
    terminal.write("12 μs\n")
    assert terminal.buffer.getvalue().endswith(b"12 ?s\n")
