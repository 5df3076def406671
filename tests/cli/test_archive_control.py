"""`archive` commands that ask an archive at work, over its control channel."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING

import attrs
import pytest

from aeron_async.archive.api import RecordingSubscription
from aeron_async.cli.archive_catalog import cells, show
from aeron_async.cli.archive_record import reached_from
from aeron_async.cli.main import main
from aeron_async.door import DoorClient
from tests.archive.control.fake_archive import DESCRIPTOR
from tests.archive.golden import copy_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from aeron_async.stats import Stats
    from tests.cli.conftest import Running

    Start = Callable[..., Running]

FINISHED = "A1-one-finished"


@attrs.frozen
class Served:
    """An archive that a process serves, and a channel to be recorded.

    Attributes:
        directory: Of the archive.
        control: Its control channel.
        channel: That nobody publishes on yet.
    """

    directory: str
    control: str
    channel: str


@pytest.fixture
def served(tmp_path: Path, start: Start, unused_udp_port_factory: Callable[[], int]) -> Served:
    control, channel = (
        f"aeron:udp?endpoint=127.0.0.1:{unused_udp_port_factory()}" for _ in range(2)
    )
    found = Served(str(tmp_path / "archive"), control, channel)
    start("archive", "serve", found.directory, "--control", control).remark("serving")
    return found


def rows(capfd: pytest.CaptureFixture[str], where: str) -> list[list[str]]:
    assert main(["archive", "ls", where]) == 0
    return [line.split() for line in capfd.readouterr().out.splitlines()[1:]]


def test_a_recording_is_listed_stopped_by_another_client_and_extended(
    served: Served, start: Start, capfd: pytest.CaptureFixture[str]
) -> None:
    where = served.control
    recording = start("archive", "record", where, served.channel, "--stream", "5")
    recording.remark("recording")
    assert rows(capfd, where)[0][0] == "-"
    assert main(["archive", "ls", where, "--json"]) == 0
    waiting = json.loads(capfd.readouterr().out)
    assert (waiting["recording_id"], waiting["stream_id"]) == (None, 5)

    publishing = start("pub", served.channel, "--stream", "5")
    assert publishing.process.stdin is not None
    publishing.process.stdin.write("one\ntwo\n")
    publishing.process.stdin.flush()
    assert recording.line() == "recording 0 began at position 0"
    ((number, stream, *_, stop, _, channel),) = rows(capfd, where)
    assert (number, stream, stop, channel) == ("0", "5", "recording", served.channel)
    assert main(["archive", "describe", where, "0"]) == 0
    assert "extend channel     once it has stopped" in capfd.readouterr().out

    assert main(["archive", "stop", where, "0"]) == 0
    assert capfd.readouterr().out == "recording 0 ended at position 128\n"
    assert recording.line() == "recording 0 ended at position 128"
    assert recording.finish()[0] == 0
    publishing.process.kill()
    assert main(["archive", "stop", where, "0"]) == 1
    err = capfd.readouterr().err
    assert "recording 0 was not active" in err
    assert "for --subscription: see `archive ls`" in err
    assert rows(capfd, where) == rows(capfd, served.directory)

    extending = ("--auto-stop", "--extend", "0")
    recording = start("archive", "record", where, served.channel, "--stream", "5", *extending)
    recording.remark("recording")
    more = ("--extend", "0", "--archive", where, "--message", "three")
    assert start("pub", served.channel, "--stream", "5", *more).finish()[0] == 0
    assert "recording 0 continues at position 128" in recording.finish()[1]

    assert main(["archive", "replay", where, "0", "--format", "json", "--quiet"]) == 0
    lines = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [line["text"] for line in lines] == ["one", "two", "three"]
    assert {line["stream_id"] for line in lines} == {5}
    assert main(["archive", "describe", where, "0", "--json"]) == 0
    known = json.loads(capfd.readouterr().out)
    assert {line["session_id"] for line in lines} == {known["session_id"]}
    assert known["recorded_position"] == 192


@pytest.mark.parametrize("is_here", [False, True])
def test_who_interrupts_a_recording_hears_where_it_has_ended(
    served: Served, start: Start, tmp_path: Path, *, is_here: bool
) -> None:
    where = str(tmp_path / "here") if is_here else served.control
    recording = start("archive", "record", where, served.channel, "--stream", "5")
    recording.remark("recording")
    publishing = start("pub", served.channel, "--stream", "5")
    assert publishing.process.stdin is not None
    publishing.process.stdin.write("one\n")
    publishing.process.stdin.flush()
    assert recording.line() == "recording 0 began at position 0"
    code, out, _ = recording.interrupt()
    publishing.process.kill()
    assert code == 130
    # Whether the message has come is for nobody to say; that there is an end, and where, is.
    assert out.strip() in [f"recording 0 ended at position {each}" for each in (0, 64)]


def test_what_waits_is_stopped_by_its_subscription_or_its_stream(
    served: Served, start: Start, capfd: pytest.CaptureFixture[str]
) -> None:
    where = served.control
    recordings = [
        start("archive", "record", where, served.channel, "--stream", stream)
        for stream in ("5", "6")
    ]
    for each in recordings:
        each.remark("recording")
    first, second = sorted(rows(capfd, where), key=lambda row: row[1])
    assert (first[1], second[1]) == ("5", "6")
    subscription_id = first[4].removeprefix("waits:")
    assert main(["archive", "stop", where, "--subscription", subscription_id]) == 0
    assert main(["archive", "stop", where, "--channel", served.channel, "--stream", "6"]) == 0
    assert "has stopped recording" in capfd.readouterr().out
    assert rows(capfd, where) == []
    for each in recordings:
        code, out, error = each.finish()
        assert (code, out) == (0, "")
        assert "the recording has stopped" in error
    unknown = (["--subscription", subscription_id], ["--channel", served.channel, "--stream", "6"])
    for which in unknown:
        assert main(["archive", "stop", where, *which]) == 1
        assert "; `archive ls` shows what is recorded, and what waits" in capfd.readouterr().err
    assert main(["archive", "stop", where, "9"]) == 1
    assert "unknown recording id: 9" in capfd.readouterr().err


def test_what_follows_says_what_it_waits_for(served: Served, start: Start) -> None:
    where = served.control
    recording = start("archive", "record", where, served.channel, "--stream", "5", "--auto-stop")
    recording.remark("recording")
    start("pub", served.channel, "--stream", "5", "--message", "one").finish()
    assert recording.finish()[0] == 0
    following = start("archive", "follow", where, "0")
    assert "has stopped at position 64; waiting for an extension" in following.remark("stopped")
    code, out, _ = following.interrupt()
    assert (code, out) == (130, "one\n")


def test_what_follows_in_a_directory_that_nobody_serves_ends(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    where = str(copy_of(FINISHED, tmp_path))
    assert main(["archive", "follow", where, "0", "--format", "hex"]) == 0
    out, err = capfd.readouterr()
    assert len(out.splitlines()) == 300
    assert "no archive serves" in err


def test_an_archive_at_work_forgets_what_is_too_much(
    tmp_path: Path,
    start: Start,
    unused_udp_port: int,
    capfd: pytest.CaptureFixture[str],
) -> None:
    where = str(copy_of(FINISHED, tmp_path))
    control = f"aeron:udp?endpoint=127.0.0.1:{unused_udp_port}"
    start("archive", "serve", where, "--control", control).remark("serving")
    limit = ["--max-bytes", "60000"]
    assert main(["archive", "prune", control, *limit, "--dry-run"]) == 0
    assert capfd.readouterr().out == ("recording 0 begins at position 65536; would remove 1 file\n")
    assert main(["archive", "prune", control, *limit, "--yes"]) == 0
    assert "removed 1 file" in capfd.readouterr().out
    assert not (tmp_path / FINISHED / "0-0.rec").exists()
    assert main(["archive", "prune", control, "--before", "131072", "--json", "--yes"]) == 0
    assert json.loads(capfd.readouterr().out)["start_position"] == 131_072
    assert main(["archive", "prune", control, "--max-age", "1"]) == 2
    assert "give its directory" in capfd.readouterr().err


@pytest.mark.parametrize("command", ["verify", "repair"])
def test_what_reads_files_takes_no_channel(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["archive", command, "aeron:udp?endpoint=localhost:8010"]) == 2
    assert "give the archive's directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["aeron:ipc"], "give one of these"),
        (["aeron:ipc", "1", "--subscription", "2"], "give one of these"),
        (["aeron:ipc", "--stream", "2"], "--channel and --stream go together"),
        (["recordings", "1"], "recordings is no control channel such as aeron:udp?"),
    ],
)
def test_a_stop_that_says_too_little_or_too_much_is_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["archive", "stop", *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--extend", "0"], "--extend and --archive go together"),
        (["--extend", "0", "--archive", "{}"], "recording 0 is of stream 2101: give that"),
    ],
)
def test_a_publication_that_extends_names_a_recording_of_its_stream(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = str(copy_of(FINISHED, tmp_path))
    given = [each.format(where) for each in arguments]
    assert main(["pub", "aeron:ipc", "--stream", "1", "--message", "x", *given]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("control", "message"),
    [
        (None, "no other process reaches it"),
        ("aeron:ipc", "no other process reaches it"),
        ("aeron:udp?endpoint=localhost:8010", "only this machine reaches it"),
        ("aeron:udp?endpoint=[::1]:8010", "only this machine reaches it"),
        ("aeron:udp?endpoint=archive.example:8010", None),
        ("aeron:udp?endpoint=0.0.0.0:8010", None),
        ("aeron:udp?control-mode=response|control=localhost:8010", None),
    ],
)
def test_who_serves_says_who_is_not_reached(control: str | None, message: str | None) -> None:
    said = reached_from(control)
    assert said is None if message is None else message in str(said)


def test_a_channel_is_no_directory_to_be_served(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["archive", "serve", "aeron:udp?endpoint=localhost:8010"]) == 2
    assert "give the channel as --control" in capsys.readouterr().err


def test_people_see_what_waits_in_the_same_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "120")
    show(iter([DESCRIPTOR]), [RecordingSubscription(12, 5, "aeron:ipc")], is_json=False)
    assert "waits:12" in capsys.readouterr().out
    assert cells(DESCRIPTOR, is_terminal=True)[0] == str(DESCRIPTOR.recording_id)


def test_who_serves_shows_statistics_at_a_door(
    tmp_path: Path, start: Start, unused_udp_port_factory: Callable[[], int]
) -> None:
    control, channel = (
        f"aeron:udp?endpoint=127.0.0.1:{unused_udp_port_factory()}" for _ in range(2)
    )
    tmp_path.chmod(0o700)
    door, where = tmp_path / "door", str(tmp_path / "served")
    serving = start("archive", "serve", where, "--control", control, "--stats-socket", str(door))
    serving.remark("serving")
    recording = start("archive", "record", control, channel, "--stream", "5")
    recording.remark("recording")
    publishing = start("pub", channel, "--stream", "5")
    assert recording.line() == "recording 0 began at position 0"

    async def look() -> Stats:
        async with DoorClient(door) as client:
            return await client.get_stats()

    stats = asyncio.run(look())
    assert stats.archive is not None
    (row,) = stats.archive.recordings
    assert (row.recording_id, row.stream_id, row.state) == (0, 5, "recording")
    assert row.channel == channel
    assert (stats.archive.active_count, stats.archive.low_space_limit_bytes) == (1, 1 << 27)
    assert len(stats.images) >= 1
    publishing.finish()
    recording.interrupt()
    assert serving.interrupt()[0] == 130
    assert not door.exists()


def test_a_door_that_cannot_be_opened_is_said(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    where, door = tmp_path / "served", tmp_path / "missing" / "door"
    assert main(["archive", "serve", str(where), "--stats-socket", str(door)]) == 2
    assert str(door) in capfd.readouterr().err
    assert not where.exists()
