"""`pipeline run`: what it writes, how it ends, and what it purges."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from typing import TYPE_CHECKING

import attrs
import pytest

pytest.importorskip("pyarrow", reason="pip install 'aeron-async[spark]'")
pytest.importorskip("pyspark", reason="pip install 'aeron-async[spark]'")

from aeron_async.cli.main import main
from aeron_async.cli.pipeline_run import PipelineOutput, SignalStop, purge_files
from aeron_async.cli.runner import ExitCode, TerminatedError
from aeron_async.errors import ConfigurationError
from aeron_async.spark import stored_archive
from aeron_async.spark.pipeline import session
from aeron_async.spark.pipeline.job import BatchReport
from aeron_async.spark.pipeline.query import Lag
from aeron_async.spark.pipeline.watermark import Watermark
from tests.archive.golden import copy_of

if TYPE_CHECKING:
    from pathlib import Path

REPORT = BatchReport(
    batch_id=3,
    messages=1_000,
    bytes=64_000,
    gaps=2,
    decoded={"quotes": 990},
    quarantined=10,
    positions={0: 128},
    seconds=1.25,
)
WATERMARK = Watermark(0, 140_000, 131_072, 2)


def test_people_read_lines(capsys: pytest.CaptureFixture[str]) -> None:
    output = PipelineOutput(is_json=False)
    output.batch(REPORT)
    output.batch(attrs.evolve(REPORT, gaps=0, quarantined=0, decoded={}))
    output.batch(attrs.evolve(REPORT, unlisted_gaps=1, rounded={"latency": 4}))
    output.lag(Lag(3, {0: 0, 1: 2_000}))
    output.lag(Lag(3, {1: 2_000}, 5))
    output.lag(Lag(3, {0: 0}))
    output.watermark(WATERMARK)
    assert capsys.readouterr().out.splitlines() == [
        "batch 3: 1,000 messages, 64.0 kB, 990 quotes, 10 in quarantine, 2 gaps; 1.2 s",
        "batch 3: 1,000 messages, 64.0 kB; 1.2 s",
        (
            "batch 3: 1,000 messages, 64.0 kB, 990 quotes, 10 in quarantine, 2 gaps, 1 of them "
            "not listed, times of latency in steps of 4; 1.2 s"
        ),
        "behind after batch 3: recording 0 by 0 B, recording 1 by 2,000 B",
        "behind after batch 3: recording 1 by 2,000 B, and 5 more recordings",
        (
            "recording 0: all consumers have read up to 140,000; "
            "2 files before position 131,072 may go"
        ),
    ]


def test_a_url_stays_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    def refuse(url: str) -> None:
        asked.append(url)
        message = "no store here"
        raise ConfigurationError(message)

    monkeypatch.setattr(stored_archive, "opened", refuse)
    assert main(["pipeline", "run", "s3a://bucket/archive", str(tmp_path / "lake")]) == 2
    assert asked == ["s3a://bucket/archive"]
    for command in (["run", str(tmp_path)], ["maintain"], ["report"], ["query"]):
        more = ["SELECT 1"] if command == ["query"] else []
        assert main(["pipeline", *command, "s3a://bucket/a lake", *more]) == 2
        assert "'s3://bucket/a lake' may have letters" in capsys.readouterr().err


def test_programs_read_objects(capsys: pytest.CaptureFixture[str]) -> None:
    output = PipelineOutput(is_json=True)
    output.batch(REPORT)
    output.lag(Lag(3, {0: 0}))
    batch, lag = map(json.loads, capsys.readouterr().out.splitlines())
    assert batch["positions"] == {"0": 128}
    assert lag == {"batch_id": 3, "behind": {"0": 0}, "untold": 0}


def test_a_reader_that_goes_away_fails_no_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    output = PipelineOutput(is_json=True)
    with open(writing, "w", closefd=False) as pipe:
        monkeypatch.setattr("sys.stdout", pipe)
        output.batch(REPORT)
        is_unheard = [output.is_unheard]
        os.close(reading)
        for _ in range(2):
            output.batch(REPORT)
            is_unheard.append(output.is_unheard)
        monkeypatch.undo()
        os.close(writing)
        # What is still buffered has nowhere to go.
        with contextlib.suppress(OSError):
            pipe.close()
    assert is_unheard == [False, True, True]


@pytest.mark.parametrize(
    ("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, TerminatedError)]
)
def test_the_first_signal_is_a_wish_and_the_second_ends_at_once(
    number: int, error: type[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(number)
    with SignalStop() as stopper:
        assert not stopper.is_stopped()
        assert stopper.finished() == ExitCode.SUCCESS
        os.kill(os.getpid(), number)
        assert stopper.is_stopped()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before
    with pytest.raises(error):
        stopper.finished()
    assert "after this batch" in capsys.readouterr().err


def test_files_that_all_have_read_are_removed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = copy_of("A1-one-finished", tmp_path)
    purge_files(str(archive), [WATERMARK])
    assert "recording 0: removed 2 files" in capsys.readouterr().err
    assert [each.name for each in sorted(archive.glob("*.rec"))] == ["0-131072.rec"]


@pytest.mark.parametrize(
    "words",
    [
        ("ingest", "s3://bucket/archive", "lake", "aeron:ipc", "1"),
        ("demo", "s3://bucket/demo"),
    ],
    ids=lambda words: words[0],
)
def test_what_is_recorded_is_in_a_folder_of_this_host(
    words: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["pipeline", *words]) == 2
    assert "is a URL: name a folder of this host" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_copy_in_a_store_is_not_purged(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "run", "s3://bucket/archive", "lake", "--purge"]) == 2
    told = "removes nothing of 's3://bucket/archive': name the archive by --control"
    assert told in capsys.readouterr().err


def test_what_is_not_installed_is_named_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(session, "find_spec", lambda _: None)
    assert main(["pipeline", "run", str(tmp_path), "lake"]) == 2
    error = capsys.readouterr().err
    assert error == "error: pyspark is not installed: pip install 'aeron-async[spark]'\n"


def test_no_java_is_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing() -> str:
        message = "no Java for Spark (none at all)"
        raise ConfigurationError(message)

    monkeypatch.setattr(session, "ensure_java", missing)
    archive = copy_of("A1-one-finished", tmp_path)
    assert main(["pipeline", "run", str(archive), str(tmp_path / "lake")]) == 2
    assert capsys.readouterr().err == "error: no Java for Spark (none at all)\n"
    assert not (tmp_path / "lake").exists()
