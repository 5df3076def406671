"""`archive ls` and `describe`, over what the official archive has written."""

from __future__ import annotations

import json
import shutil
import sys
from typing import TYPE_CHECKING

import pytest

from aeron_async.cli.main import ARCHIVE_COMMANDS, main
from tests.archive.golden import facts, golden_path

if TYPE_CHECKING:
    from pathlib import Path

SEVERAL = "A3-several-recordings"


def test_the_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["archive", "--help"]) == 0
    out = capsys.readouterr().out
    assert all(f" {name} " in out for name, *_ in ARCHIVE_COMMANDS)
    for name, *_ in ARCHIVE_COMMANDS:
        assert main(["archive", name, "--help"]) == 0
        assert f"aeron-async archive {name}" in capsys.readouterr().out


def test_recordings_are_listed_without_those_that_were_purged(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["archive", "ls", str(golden_path(SEVERAL))]) == 0
    lines = capsys.readouterr().out.splitlines()[2:]
    assert [line.split()[0] for line in lines] == ["0", "1", "2", "4", "5", "6", "7", "8"]
    assert "24,320" in lines[0]
    assert "recording" in lines[-1]
    assert "2026-11-20 19:38:10" in lines[0]


def test_programs_get_whole_columns_without_blanks_and_commas(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    where = str(golden_path(SEVERAL))
    assert main(["archive", "ls", where]) == 0
    names, *lines = (line.split() for line in capsys.readouterr().out.splitlines())
    assert names == ["id", "stream", "session", "start", "stop", "began", "channel"]
    assert {len(line) for line in lines} == {len(names)}
    assert lines[0][4:6] == ["24320", "2026-11-20T19:38:10"]
    assert lines[-1][4] == "recording"
    assert main(["archive", "ls", where, "--json"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line[-1] for line in lines] == [each["original_channel"] for each in found]


def test_what_is_listed_can_be_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    where = str(golden_path(SEVERAL))
    assert main(["archive", "ls", where, "--stream", "2306", "--json"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["recording_id"] for each in found] == [5, 6]
    assert main(["archive", "ls", where, "--channel", "ipc", "--json"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["recording_id"] for each in found] == [1, 4, 8]


def test_one_recording_is_described_with_its_files(capsys: pytest.CaptureFixture[str]) -> None:
    where = str(golden_path("A1-one-finished"))
    known = facts()["A1-one-finished"]["recordings"][0]
    assert main(["archive", "describe", where, "0", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["stop_position"] == known["stop_position"]
    assert found["segments"] == [each["name"] for each in known["segment_files"]]
    assert main(["archive", "describe", where, "0"]) == 0
    out = capsys.readouterr().out
    assert "stop position      181920" in out
    assert f"extend channel     {found['extend_channel']}" in out
    terms, offset = divmod(181_920, known["term_buffer_length"])
    assert f"term-id={known['initial_term_id'] + terms}|term-offset={offset}" in out
    assert "3: 0-0.rec, 0-65536.rec, 0-131072.rec" in out


def test_many_files_are_not_all_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(golden_path("A3-several-recordings") / "archive.catalog", tmp_path)
    for base in range(0, 12 * 65_536, 65_536):
        (tmp_path / f"8-{base}.rec").touch()
    assert main(["archive", "describe", str(tmp_path), "8"]) == 0
    out = capsys.readouterr().out
    assert "12: 8-0.rec" in out
    assert "…" in out
    assert "stop timestamp     -" in out
    assert "extend channel     once it has stopped" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["describe", "{}", "99"], "unknown recording id: 99"),
        (
            ["ls", "{}/nowhere"],
            "nowhere holds no archive: it does not exist, and it is no control",
        ),
        (["describe", "{}/nowhere", "0"], "it is no control channel such as aeron:udp?"),
        (["replay", "{}/nowhere", "0"], "it is no control channel such as aeron:udp?"),
        (["ls", "/proc"], "/proc holds no archive: there is no archive.catalog in it"),
        (["verify", "/proc"], "/proc holds no archive: there is no archive.catalog in it"),
        (["repair", "/dev/null"], "/dev/null holds no archive: it is not a directory"),
        (
            ["record", "/dev/null", "aeron:udp?endpoint=127.0.0.1:0", "--stream", "1"],
            "null is not a directory",
        ),
    ],
)
def test_what_is_not_there_is_said_in_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    where = str(golden_path(SEVERAL))
    assert main(["archive", *(each.format(where) for each in arguments)]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
