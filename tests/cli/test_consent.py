"""What destroys asks on a terminal, and is refused where nobody can be asked."""

from __future__ import annotations

import io
import os
import shlex
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest

from aeron_async.archive.disk.catalog import Catalog
from aeron_async.archive.disk.files import OsDirectory
from aeron_async.cli import archive_room, pipeline_ingest, pipeline_run
from aeron_async.cli.main import main
from aeron_async.errors import ConfigurationError
from tests.archive.golden import copy_of

if TYPE_CHECKING:
    from pathlib import Path

COMMANDS = (
    "truncate {} 0 65536",
    "purge {} 0",
    "purge {} 0 --before 65536",
    "prune {} --max-bytes 0",
)
ENTRY = "-c 'from aeron_async.cli.entry import main; raise SystemExit(main())'"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return copy_of("A1-one-finished", tmp_path)


def content(archive: Path) -> dict[str, object]:
    """Return what is in it, but for the mark of who was there last."""
    found: dict[str, object] = {path.name: path.read_bytes() for path in archive.glob("*.rec")}
    catalog = Catalog.open_to_read(OsDirectory(archive))
    found |= {str(each): catalog.get(each) for each in catalog.ids()}
    catalog.close()
    return found


def every_byte(archive: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in archive.iterdir()}


def arguments(command: str, archive: Path, *more: str) -> list[str]:
    return ["archive", *shlex.split(command.format(archive)), *more]


@pytest.mark.parametrize("command", COMMANDS)
def test_without_a_terminal_it_is_refused_at_once(
    command: str, archive: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, one sentence, nothing touched."""
    before = content(archive)
    assert main(arguments(command, archive)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "give --yes to do it, or --dry-run to see" in err
    assert content(archive) == before
    assert main(arguments(command, archive, "--yes", "--dry-run")) == 2


@pytest.mark.parametrize("command", COMMANDS)
def test_a_dry_run_says_what_would_go_and_changes_nothing(
    command: str, archive: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = every_byte(archive)
    assert main(arguments(command, archive, "--dry-run")) == 0
    out, _ = capsys.readouterr()
    assert out.startswith("would ") or "would remove" in out
    assert every_byte(archive) == before


@pytest.fixture
def died(tmp_path: Path) -> Path:
    """An archive that died: its recording has no end yet, and there is no mark file."""
    archive = copy_of("A1-one-finished", tmp_path)
    catalog = Catalog.open(OsDirectory(archive))
    catalog.update(0, stop_position=-1, stop_timestamp_ms=-1)
    catalog.close()
    (archive / "archive-mark.dat").unlink(missing_ok=True)
    return archive


@pytest.mark.parametrize("command", [*COMMANDS, "repair {}"])
def test_a_dry_run_recovers_nothing_either(
    command: str, died: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of an archive that died."""
    before = every_byte(died)
    main(arguments(command, died, "--dry-run"))
    out, _ = capsys.readouterr()
    assert out
    assert every_byte(died) == before


@pytest.mark.parametrize("command", [*COMMANDS, "repair {}"])
@pytest.mark.parametrize("answer", ["n\n", ""])
def test_before_it_is_agreed_to_nothing_is_recovered(
    answer: str,
    command: str,
    died: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It said that nothing was changed, and had given the recording an end."""
    before = every_byte(died)
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert main(arguments(command, died)) == 1
    err = capsys.readouterr().err
    assert "nothing was changed" in err
    assert "recovered" not in err
    assert every_byte(died) == before


@pytest.mark.parametrize("command", ["truncate {} 0 63", "purge {} 0 --before 100", "purge {} 9"])
def test_what_is_refused_recovers_nothing(
    command: str, died: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = every_byte(died)
    assert main(arguments(command, died, "--yes")) == 1
    assert capsys.readouterr().err.startswith("error: ")
    assert every_byte(died) == before


@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_agreed_to_is_done_to_an_archive_that_died(
    command: str, died: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = every_byte(died)
    assert main(arguments(command, died, "--yes")) == 0
    assert "removed" in capsys.readouterr().out
    assert len(list(died.glob("*.rec"))) < sum(name.endswith(".rec") for name in before)


@pytest.mark.parametrize("command", ["truncate {} 0 65536", "purge {} 0"])
def test_more_than_was_agreed_to_stays(
    command: str,
    archive: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Nobody holds the archive while it is asked: somebody else may take it and change it."""

    async def ask(_text: str, *, yes: bool) -> bool:
        catalog = Catalog.open(OsDirectory(archive))
        catalog.update(0, stop_position=catalog.get(0).stop_position - 65_536)
        catalog.close()
        return yes

    monkeypatch.setattr(archive_room, "ask", ask)
    files = {path.name for path in archive.glob("*.rec")}
    assert main(arguments(command, archive, "--yes")) == 1
    assert "nothing was removed, so look again" in capsys.readouterr().err
    assert {path.name for path in archive.glob("*.rec")} == files


@pytest.mark.parametrize("options", [["--dry-run"], ["--yes"]])
@pytest.mark.parametrize("command", ["truncate {} 0 63", "purge {} 0 --before 100"])
def test_a_dry_run_refuses_what_would_be_refused(
    command: str, options: list[str], archive: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(command, archive, *options)) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("answer", ["y\n", "YES\n", "\n", "no\n", ""])
def test_on_a_terminal_it_asks(
    command: str,
    answer: str,
    archive: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = content(archive)
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    is_agreed = answer.lower().startswith("y")
    assert main(arguments(command, archive)) == (0 if is_agreed else 1)
    out, err = capsys.readouterr()
    assert "[y/N]" in err
    assert ("nothing was changed" in err) is not is_agreed
    assert bool(out) is is_agreed
    assert (content(archive) == before) is not is_agreed


@pytest.mark.parametrize("answer", ["y\n", "n\n"])
def test_a_repair_asks_after_it_has_said_what_it_would_do(
    answer: str,
    archive: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (archive / "0-131072.rec").write_bytes((archive / "0-131072.rec").read_bytes()[:4096])
    (archive / "0-196608.rec").write_bytes(b"")
    assert main(["archive", "repair", str(archive), "--dry-run"]) == 1
    said = capsys.readouterr().out
    before = content(archive)
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    code = main(["archive", "repair", str(archive)])
    out, err = capsys.readouterr()
    # The bar that shows how far it is takes over both.
    assert said.splitlines()[0][:40] in out + err
    assert "[y/N]" in err
    assert (content(archive) == before) is (answer == "n\n")
    assert (code == 0) is (answer == "y\n")
    assert main(["archive", "repair", str(archive), "--yes", "--dry-run"]) == 2


class FinishedJob:
    """Has read all but the last file of an archive."""

    def __init__(self, *_settings: object) -> None:
        pass

    def run(self, *_args: object, **_hooks: object) -> None:
        pass

    def watermarks(self) -> list[Any]:
        from aeron_async.spark.pipeline.watermark import Watermark  # noqa: PLC0415 - an extra

        return [Watermark(0, 140_000, 131_072, 2)]


@pytest.mark.parametrize("flag", [[], ["--purge"]])
def test_a_pipeline_without_the_flag_names_files_and_removes_none(
    flag: list[str],
    archive: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The flag is the consent, and a run without it says what would go."""
    pytest.importorskip("pyarrow", reason="pip install 'aeron-async[spark]'")
    pytest.importorskip("pyspark", reason="pip install 'aeron-async[spark]'")
    from aeron_async.spark.pipeline import job  # noqa: PLC0415 - an extra

    monkeypatch.setattr(job, "PipelineJob", FinishedJob)
    monkeypatch.setattr(pipeline_run, "make_session", Mock())
    before = every_byte(archive)
    assert main(["pipeline", "run", str(archive), str(tmp_path / "lake"), *flag]) == 0
    out, err = capsys.readouterr()
    assert "2 files before position 131,072 may go" in out
    assert ("nothing was removed: --purge removes what may go" in err) is not bool(flag)
    assert (every_byte(archive) == before) is not bool(flag)


@pytest.mark.parametrize("flag", [[], ["--purge"]])
def test_what_ingests_purges_with_the_flag_alone(
    flag: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyarrow", reason="pip install 'aeron-async[spark]'")
    pytest.importorskip("pyspark", reason="pip install 'aeron-async[spark]'")
    given: list[str] = []

    def job_command(_archive: str, _lake: str, _control: str, arguments: list[str]) -> None:
        given.extend(arguments)
        message = "far enough"
        raise ConfigurationError(message)

    monkeypatch.setattr(pipeline_ingest, "ensure_java", lambda: None)
    monkeypatch.setattr(pipeline_ingest, "job_command", job_command)
    paths = [str(tmp_path / "archive"), str(tmp_path / "lake")]
    assert main(["pipeline", "ingest", *paths, "aeron:ipc", "1", *flag]) == 2
    assert given[:2] == ["--trigger", "10s"]
    assert ("--purge" in given) is bool(flag)


def test_the_help_says_from_which_position(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["archive", "truncate", "--help"]) == 0
    assert "from a position on" in capsys.readouterr().out


@pytest.mark.parametrize("program", ["-m aeron_async", ENTRY])
def test_an_interrupt_while_it_imports_is_silent(program: str, tmp_path: Path) -> None:
    """130 and no traceback, also before the command has begun."""
    (tmp_path / "cyclopts.py").write_text(
        "import sys, time\nprint('importing', flush=True)\ntime.sleep(60)\n"
    )
    path = os.pathsep.join([str(tmp_path), *sys.path])
    process = subprocess.Popen(
        [sys.executable, *shlex.split(program), "doctor"],
        env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "importing\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=300)
    assert (process.returncode, out, err) == (130, "", "")
