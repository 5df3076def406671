"""`archive` at work: recordings are made, printed, checked, mended and taken away."""

from __future__ import annotations

import gc
import hashlib
import json
import sys
from typing import TYPE_CHECKING

import pytest

from aeron_async.archive.disk.files import OsDirectory
from aeron_async.archive.disk.mark_file import MarkFile, MarkIdentity
from aeron_async.cli.main import main
from tests.archive.golden import copy_of, golden_path, recording_facts

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Running

FINISHED = "A1-one-finished"
NOW_MS = 1_900_000_000_000


@pytest.fixture
def archive(tmp_path: Path) -> str:
    return str(copy_of(FINISHED, tmp_path))


def test_a_recording_of_the_official_archive_is_printed_whole(
    archive: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["archive", "replay", archive, "0", "--format", "hex"]) == 0
    out, err = capfd.readouterr()
    known = recording_facts(FINISHED, 0)
    data = b"".join(bytes.fromhex(line) for line in out.splitlines())
    assert hashlib.sha256(data).hexdigest() == known["messages_sha256"]
    assert "received 300 messages, 167,645 bytes" in err


def test_a_replay_begins_and_ends_where_it_is_told(
    archive: str, capfd: pytest.CaptureFixture[str]
) -> None:
    ends = recording_facts(FINISHED, 0)["message_end_positions"]
    where = ["--begin", str(ends[9]), "--end", str(ends[19]), "--format", "json", "--quiet"]
    assert main(["archive", "replay", archive, "0", *where]) == 0
    found = [json.loads(line)["position"] for line in capfd.readouterr().out.splitlines()]
    assert found == ends[10:20]
    assert main(["archive", "replay", archive, "0", "--count", "3", "--format", "json"]) == 0
    assert len(capfd.readouterr().out.splitlines()) == 3


def test_a_place_in_mid_frame_is_refused_and_a_good_one_named(
    archive: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["archive", "replay", archive, "0", "--begin", "192"]) == 1
    error = capfd.readouterr().err
    assert "192" in error
    assert "160" in error
    assert error.count("\n") == 1


def test_what_follows_ends_after_so_many(archive: str, capfd: pytest.CaptureFixture[str]) -> None:
    arguments = ["--count", "2", "--format", "json"]
    assert main(["archive", "follow", archive, "0", *arguments]) == 0
    assert len(capfd.readouterr().out.splitlines()) == 2


def test_an_archive_that_is_whole_is_found_whole(capsys: pytest.CaptureFixture[str]) -> None:
    where = str(golden_path("A4-crc32"))
    assert main(["archive", "verify", where, "--checksum", "crc32"]) == 0
    assert "nothing is wrong" in capsys.readouterr().err
    assert main(["archive", "verify", where, "--checksum", "crc32c"]) == 1
    assert "checksum" in capsys.readouterr().out


def test_an_entry_that_was_changed_without_its_checksum_is_no_riddle(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = str(copy_of("A4-crc32", tmp_path))
    assert main(["archive", "truncate", where, "0", "0", "--yes"]) == 0
    capsys.readouterr()
    assert main(["archive", "verify", where, "--checksum", "crc32"]) == 0
    assert "an archive without checksums has changed it" in capsys.readouterr().out


def test_damage_is_named_with_file_and_offset_and_mended_only_when_asked_to(
    archive: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / FINISHED / "0-131072.rec"
    data = bytearray(path.read_bytes())
    last = recording_facts(FINISHED, 0)["message_end_positions"][-2] - 131_072
    data[last : last + 32] = bytes(32)
    path.write_bytes(data)
    before = {each.name: each.read_bytes() for each in path.parent.glob("*.rec")}
    assert main(["archive", "verify", archive, "--json"]) == 1
    (found,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (found["file"], found["offset"]) == ("0-131072.rec", last)
    assert found["severity"] == "problem"
    assert main(["archive", "repair", archive]) == 1
    assert "add --yes" in capsys.readouterr().err
    assert {each.name: each.read_bytes() for each in path.parent.glob("*.rec")} == before
    assert main(["archive", "repair", archive, "--yes"]) == 0
    capsys.readouterr()
    assert main(["archive", "verify", archive]) == 0
    assert (path.parent / "archive.catalog.before-repair").exists()


def test_an_end_is_taken_away_and_all_of_it(
    archive: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["archive", "truncate", archive, "0", "65536", "--yes"]) == 0
    assert "ends at position 65536 now; removed 2 files" in capsys.readouterr().out
    assert main(["archive", "purge", archive, "0", "--yes"]) == 0
    assert "recording 0 is gone" in capsys.readouterr().out
    assert not list((tmp_path / FINISHED).glob("*.rec"))


def test_what_is_too_much_goes_from_the_beginning(
    archive: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    limit = ["--max-bytes", "60000"]
    assert main(["archive", "prune", archive, *limit, "--dry-run"]) == 0
    assert "would remove 1 file" in capsys.readouterr().out
    assert main(["archive", "prune", archive, *limit, "--json", "--yes"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == {"recording_id": 0, "start_position": 65_536, "files": 1, "is_done": True}
    assert not (tmp_path / FINISHED / "0-0.rec").exists()
    assert main(["archive", "prune", archive, *limit, "--yes"]) == 0
    assert "nothing to remove: all files are within the limits" in capsys.readouterr().err
    assert main(["archive", "purge", archive, "0", "--before", "131072", "--yes"]) == 0
    assert "begins at position 131072 now; removed 1 file" in capsys.readouterr().out


def test_a_prune_of_an_unknown_recording_names_it(
    archive: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["archive", "prune", archive, "--max-age", "1", "--recording", "99", "--yes"]) == 1
    assert capsys.readouterr().err == (
        "error: unknown recording id: 99; `archive ls` shows the ids of all recordings\n"
    )


def test_a_prune_says_why_nothing_may_go(archive: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["archive", "truncate", archive, "0", "0", "--yes"]) == 0
    assert main(["archive", "prune", archive, "--max-bytes", "0", "--yes"]) == 0
    assert "no recording has more than one file" in capsys.readouterr().err
    assert main(["archive", "purge", archive, "0", "--yes"]) == 0
    assert main(["archive", "prune", archive, "--max-bytes", "0", "--yes"]) == 0
    assert "nothing to remove: there are no recordings" in capsys.readouterr().err


def test_a_prune_without_a_limit_is_refused(
    archive: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["archive", "prune", archive]) == 2
    assert "--max-age" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["repair"], ["truncate", "0", "0", "--yes"], ["replay", "0"]])
def test_a_directory_that_another_archive_holds_is_left_alone(
    archive: str, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    mark = MarkFile.open(OsDirectory(archive), MarkIdentity(), now_ms=NOW_MS)
    try:
        name, *rest = command
        assert main(["archive", name, archive, *rest]) == 1
        assert "error:" in capsys.readouterr().err
    finally:
        mark.abandon()


def test_a_stream_is_recorded_by_one_process_and_replayed_from_another(
    tmp_path: Path,
    start: Callable[..., Running],
    unused_udp_port_factory: Callable[[], int],
    capfd: pytest.CaptureFixture[str],
) -> None:
    where = str(tmp_path / "archive")
    control = f"aeron:udp?endpoint=127.0.0.1:{unused_udp_port_factory()}"
    channel = f"aeron:udp?endpoint=127.0.0.1:{unused_udp_port_factory()}"
    serving = start("archive", "serve", where, "--control", control)
    assert "archive id " in serving.remark("serving")
    recording = start("archive", "record", control, channel, "--stream", "5", "--auto-stop")
    recording.remark("recording")
    code, _, _ = start("pub", channel, "--stream", "5").finish("one\ntwo\nthree\n")
    assert code == 0
    code, out, _ = recording.finish()
    assert code == 0
    assert "recording 0 began at position 0" in out
    assert "recording 0 ended at position 192" in out
    assert main(["archive", "replay", control, "0", "--quiet"]) == 0
    assert capfd.readouterr().out == "one\ntwo\nthree\n"
    assert main(["archive", "ls", where, "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["stop_position"] == 192
    assert serving.interrupt()[0] == 130


def test_a_publication_that_does_not_go_on_with_a_recording_is_one_line_on_either_side(
    tmp_path: Path, start: Callable[..., Running], unused_udp_port_factory: Callable[[], int]
) -> None:
    where = str(tmp_path / "archive")
    control = f"aeron:udp?endpoint=127.0.0.1:{unused_udp_port_factory()}"
    channel = f"aeron:udp?endpoint=127.0.0.1:{unused_udp_port_factory()}"
    serving = start("archive", "serve", where, "--control", control)
    assert "archive id " in serving.remark("serving")
    first = start("archive", "record", control, channel, "--stream", "5", "--auto-stop")
    first.remark("recording")
    start("pub", channel, "--stream", "5").finish("one\n")
    first.finish()
    recording = start("archive", "record", control, channel, "--stream", "5", "--extend", "0")
    recording.remark("recording")
    publishing = start("pub", channel, "--stream", "5")
    code, out, err = recording.finish()
    assert code == 1
    assert out == ""
    (error,) = [each for each in err.splitlines() if each.startswith("error: ")]
    assert "cannot extend recording 0" in error
    publishing.interrupt()
    _, _, err = serving.interrupt()
    lines = [each for each in err.splitlines() if "recording_not_begun" in each]
    assert len(lines) == 1
    assert "Traceback" not in err


@pytest.mark.parametrize("extend", ["0", "9"])
def test_a_recording_that_is_refused_is_one_line(
    archive: str, extend: str, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = ["aeron:udp?endpoint=127.0.0.1:0", "--stream", "999", "--extend", extend]
    assert main(["archive", "record", archive, *arguments]) == 1
    gc.collect()
    error = capfd.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "label"),
    [
        (["verify"], "verifying"),
        (["repair"], "looking at recordings"),
        (["replay", "0", "--format", "hex"], "replaying"),
        (["prune", "--max-age", "1000000", "--dry-run"], "looking at recordings"),
    ],
)
def test_long_work_shows_on_a_terminal_how_far_it_is(
    archive: str,
    arguments: list[str],
    label: str,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    command, *others = arguments
    assert main(["archive", command, archive, *others]) == 0
    assert label not in capfd.readouterr().err
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    assert main(["archive", command, archive, *others]) == 0
    assert label in capfd.readouterr().err


@pytest.mark.parametrize(
    "command",
    [
        ["repair"],
        ["prune", "--max-age", "1", "--yes"],
        ["truncate", "0", "0", "--yes"],
        ["purge", "0", "--yes"],
        ["replay", "0"],
    ],
    ids=lambda command: command[0],
)
def test_a_directory_that_holds_no_archive_gets_none(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, *others = command
    assert main(["archive", name, str(tmp_path), *others]) == 1
    assert "holds no archive" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
