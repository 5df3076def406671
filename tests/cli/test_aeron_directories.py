"""The commands that look into an Aeron directory."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from aeron_async.cli import aeron_directories, driver_ping
from aeron_async.cli.main import main
from aeron_async.cli.output import CLEAR
from aeron_async.concurrent import atomic_buffer
from tests.concurrent.shared import needs_shared_memory
from tests.driver.directories import (
    CHANNEL,
    GOLDEN,
    NOW_MS,
    SMALL,
    cnc_bytes,
    golden_directory,
    small_directory,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = needs_shared_memory
AGE_MS = 400


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return small_directory(tmp_path / "aeron")


@pytest.fixture(autouse=True)
def _now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aeron_directories, "epoch_ms", lambda: NOW_MS + AGE_MS)
    monkeypatch.setattr("aeron_async.cli.driver_ping.epoch_ms", lambda: NOW_MS + AGE_MS)


@pytest.fixture
def look(place: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., list[str]]:
    def look_at(*arguments: str) -> list[str]:
        assert main([*arguments, "--directory", str(place)]) == 0
        out, err = capsys.readouterr()
        assert err == ""
        return out.splitlines()

    return look_at


@pytest.fixture
def found(look: Callable[..., list[str]]) -> Callable[..., Any]:
    def found_in_json(*arguments: str) -> Any:
        (line,) = look(*arguments, "--json")
        return json.loads(line)

    return found_in_json


@pytest.mark.parametrize("name", ["-d", "--directory", "--aeron-dir"])
def test_the_directory_has_three_names(
    place: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["driver", "ping", name, str(place)]) == 0
    assert str(place) in capsys.readouterr().out


def headline(place: Path) -> str:
    return f"driver 4711 in {place}, heartbeat 400 ms ago"


# What official tools say of a directory that an official driver left.


@pytest.fixture
def golden(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., list[str]]:
    place = golden_directory(tmp_path / "golden")

    def look_at(*arguments: str) -> list[str]:
        assert main([*arguments, "-d", str(place)]) == 0
        return capsys.readouterr().out.splitlines()

    return look_at


def test_stat_shows_what_aeron_stat_shows(golden: Callable[..., list[str]]) -> None:
    official = (GOLDEN / "AeronStat.txt").read_text().splitlines()[2:]
    assert [line.split() for line in golden("stat")[1:]] == [line.split() for line in official]


def test_errors_shows_what_error_stat_shows(golden: Callable[..., list[str]]) -> None:
    _, _, *official, _, _, count = (GOLDEN / "ErrorStat.txt").read_text().splitlines()
    head, *lines, last = golden("errors")
    assert head == "1 time from 2026-11-23 22:30:06 to 2026-11-23 22:30:06:"
    assert [line.strip() for line in lines] == [line.strip() for line in official]
    assert count == "1 distinct errors observed."
    assert last == "1 distinct error"


def test_loss_shows_what_loss_stat_shows(golden: Callable[..., list[str]]) -> None:
    _, official, _ = (GOLDEN / "LossStat.txt").read_text().splitlines()
    count, lost, _, _, session, stream, channel, source = official.split(",")
    _, line = golden("loss")
    cells = line.split()
    assert [cells[0], cells[1].replace(",", "")] == [count, lost]
    assert cells[2:6] == ["2026-11-23", "22:30:06", "2026-11-23", "22:30:07"]
    assert cells[6:] == [stream, session, source, channel]


def test_backlog_shows_what_backlog_stat_shows(golden: Callable[..., list[str]]) -> None:
    official = (GOLDEN / "BacklogStat.txt").read_text()
    for part in (
        "for publisher 10 the last sampled position is 849420160 (~0 bytes",
        "for publisher 6 the last sampled position is 3171072 (~0 bytes",
        "sender 6 has to send 0 bytes (32768 bytes",
        "receiver 11 is at position 3171072",
        "subscriber 2 has 0 backlog bytes",
    ):
        assert part in official
    channel = "aeron:udp?endpoint=localhost:24719"
    assert golden("backlog")[1:] == [
        f"stream 1001, session -561150797, {channel}",
        "  publisher 6 is at 3,171,072, with 0 bytes before back pressure",
        "  sender has 0 bytes to send, and a window of 32,768",
        "stream 1002, session -561150796, aeron:ipc",
        "  publisher 10 is at 849,420,160, with 0 bytes before back pressure",
        "  subscriber 4 has 28,504,832 bytes to read",
        f"stream 1001, session -561150797, {channel}",
        "  receiver 11 is at 3,171,072, with 0 bytes behind the first gap",
        "  subscriber 2 has 0 bytes to read",
    ]


def test_streams_shows_every_part_of_an_official_stream(golden: Callable[..., list[str]]) -> None:
    rows = [re.split(r"\s\s+", line.strip()) for line in golden("streams")[2:]]
    assert [row[:2] for row in rows] == [
        ["publication", "6"],
        ["sender", "6"],
        ["exclusive publication", "10"],
        ["subscriber", "4"],
        ["image", "11"],
        ["subscriber", "2"],
    ]
    image = rows[4]
    assert image[4:9] == ["3,171,072", "32,768", "0", "660,640", "8,493"]
    assert rows[1][8] == "8,493"


# stat.


def test_stat_begins_with_the_driver(place: Path, look: Callable[..., list[str]]) -> None:
    first, *counters = look("stat")
    assert first.endswith(headline(place))
    assert len(counters) == 13
    assert counters[0] == f" 0:{10_000:>27,} - pub-pos (exclusive): 5 -7 1001 {CHANNEL}"


@pytest.mark.parametrize(
    ("arguments", "ids"),
    [
        (["--type", "4"], [10, 11, 12]),
        (["--type", "4", "--type", "5"], [8, 10, 11, 12]),
        (["--id", "9"], [7, 8, 9]),
        (["--stream", "1002", "--type", "3"], [7]),
        (["--session", "-7", "--type", "2", "--type", "5"], [2]),
        (["--channel", "snd-naks"], [5]),
        (["--channel", "nothing has this"], []),
        (["--id", "6", "--stream", "1001"], []),
    ],
)
def test_filters_show_what_matches_all_of_them(
    found: Callable[..., Any], arguments: list[str], ids: list[int]
) -> None:
    counters = found("stat", *arguments)["counters"]
    assert [each["counter_id"] for each in counters] == ids


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--type", "99999"], "no counter has type 99999"),
        (["--type", "99999", "--type", "98"], "no counter has type 99999 or 98"),
        (["--stream", "77"], "no counter has stream 77"),
        (["--type", "4", "--stream", "77"], "no counter has stream 77"),
        (["--session", "77"], "no counter has session 77"),
        (["--id", "77"], "no counter has id 77"),
        (["--type", "4", "--channel", "nothing has this"], "no counter matches"),
        (["--id", "6", "--stream", "1001"], "no counter matches"),
    ],
)
def test_stat_says_that_nothing_matches(
    look: Callable[..., list[str]], arguments: list[str], line: str
) -> None:
    """It printed the line about the driver, and nothing else."""
    assert look("stat", *arguments)[1:] == [line]


def test_stream_filters_leave_out_counters_of_no_stream(
    golden: Callable[..., list[str]],
) -> None:
    assert len(golden("stat", "--id", "14")) == 2
    shown = golden("stat", "--stream", "1001")[1:]
    assert shown
    assert all(" 1001 aeron:udp" in line for line in shown)


def test_stat_in_json_has_every_field(place: Path, found: Callable[..., Any]) -> None:
    report = found("stat", "--type", "4", "--id", "6")
    assert report == {
        "directory": str(place),
        "pid": 4_711,
        "start_timestamp_ms": SMALL.start_timestamp_ms,
        "now_ms": NOW_MS + AGE_MS,
        "heartbeat_ms": NOW_MS,
        "is_active": True,
        "counters": [
            {
                "counter_id": 10,
                "type_id": 4,
                "value": 9_000,
                "registration_id": 6,
                "owner_id": 1,
                "reference_id": 5,
                "label": f"sub-pos: 6 8 1002 {CHANNEL} @9000",
                "stream": {
                    "registration_id": 6,
                    "session_id": 8,
                    "stream_id": 1002,
                    "channel": CHANNEL,
                },
            }
        ],
    }


# Drawing again.


def test_watch_draws_again_and_finds_another_driver(
    place: Path, look: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = place / "cnc.dat"

    def restart() -> None:
        path.unlink()
        path.write_bytes(cnc_bytes(layout=attrs.evolve(SMALL, pid=99)))

    steps = iter((path.unlink, path.touch, restart, lambda: None))
    intervals = []

    async def pause(seconds: float) -> None:
        intervals.append(seconds)
        next(steps)()

    monkeypatch.setattr(aeron_directories, "pause", pause)
    lines = look("stat", "--watch", "--count", "5", "--interval", "3", "--type", "9")
    heads = [line.partition("  ")[2] for line in lines if line.startswith("2026-")]
    assert heads[0] == headline(place)
    assert heads[1].startswith("no driver has made")
    assert "has 0 bytes" in heads[2]
    assert heads[3] == heads[4] == headline(place).replace("4711", "99")
    assert intervals == [3.0] * 4
    assert "\x1b" not in "".join(lines)


def test_watch_in_json_says_why_there_is_nothing(
    place: Path, look: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def pause(_seconds: float) -> None:
        (place / "cnc.dat").unlink()

    monkeypatch.setattr(aeron_directories, "pause", pause)
    first, second = map(json.loads, look("backlog", "--watch", "--count", "2", "--json"))
    assert first["is_active"]
    assert set(second) == {"directory", "is_active", "reason"}
    assert "no driver has made" in second["reason"]


def test_on_a_terminal_a_drawing_takes_the_place_of_the_last(
    place: Path, run: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def pause(_seconds: float) -> None:
        pass

    monkeypatch.setattr(aeron_directories, "pause", pause)
    arguments = ["streams", "--count", "2", "-d", str(place)]
    code, out, err = run(arguments, is_terminal=True)
    assert (code, err) == (0, "")
    assert out.count(CLEAR) == 2
    assert "\x1b" not in out.replace(CLEAR, "")


# streams and backlog.


def test_streams_has_a_line_for_each_part(place: Path, look: Callable[..., list[str]]) -> None:
    first, names, *rows = look("streams")
    assert first.endswith(headline(place))
    assert names.split() == [
        *("what", "id", "stream", "session", "position", "window", "lag", "loss", "naks"),
        "channel",
    ]
    cells = [row.replace("exclusive publication", "exclusive").split() for row in rows]
    assert [each[:-1] for each in cells] == [
        ["exclusive", "5", "1001", "-7", "12,000", "28,000", "-", "-", "-"],
        ["sender", "5", "1001", "-7", "8,000", "12,000", "4,000", "-", "4"],
        ["subscriber", "6", "1002", "8", "9,000", "-", "3,000", "-", "-"],
        ["image", "9", "1002", "8", "6,000", "32,768", "400", "1,500", "2"],
        ["subscriber", "7", "1002", "8", "5,000", "-", "1,400", "-", "-"],
        ["subscriber", "8", "1002", "8", "1,000", "-", "-", "-", "-"],
    ]
    assert {each[-1] for each in cells} == {CHANNEL}


def test_streams_takes_counters_where_logs_cannot_be_read(
    place: Path, found: Callable[..., Any]
) -> None:
    for path in place.glob("*/*.logbuffer"):
        path.unlink()
    report = found("streams")
    (publication,) = report["publications"]
    assert (publication["position"], publication["window"]) == (10_000, 30_000)
    assert (publication["unsent"], publication["log"]) == (2_000, None)
    (image,) = report["images"]
    assert (image["window"], image["incomplete"], image["lost_length"]) == (None, 400, 1_500)


def test_streams_in_json_has_every_part(found: Callable[..., Any]) -> None:
    report = found("streams")
    (publication,), (image,), (stray,) = (
        report[name] for name in ("publications", "images", "strays")
    )
    assert publication["log"]["log_type"] == "EXCLUSIVE_PUBLICATION"
    assert publication["log"]["term_length"] == 65_536
    assert (publication["back_pressure_events"], publication["receivers"]) == (3, 0)
    assert publication["subscribers"][0]["backlog"] == 3_000
    assert image["subscribers"][0]["backlog"] == 1_400
    assert (stray["registration_id"], stray["backlog"]) == (8, None)


def test_streams_and_backlog_show_one_stream(
    found: Callable[..., Any], look: Callable[..., list[str]]
) -> None:
    report = found("streams", "--stream", "1001")
    assert (len(report["publications"]), report["images"], report["strays"]) == (1, [], [])
    report = found("streams", "--session", "8")
    assert (report["publications"], len(report["images"]), len(report["strays"])) == ([], 1, 1)
    assert [each["kind"] for each in found("backlog", "-s", "1002")["streams"]] == ["image"]
    assert look("streams", "--stream", "5")[1:] == ["no publications and no images"]
    assert look("backlog", "--stream", "5")[1:] == ["no streams"]


def test_backlog_in_json_has_the_distances(found: Callable[..., Any]) -> None:
    publication, image = found("backlog")["streams"]
    assert (publication["kind"], publication["window"]) == ("publication", 28_000)
    assert (publication["unsent"], publication["sender_window"]) == (4_000, 12_000)
    assert publication["subscribers"] == [{"registration_id": 6, "backlog": 3_000}]
    assert (image["kind"], image["position"], image["incomplete"]) == ("image", 6_000, 400)
    assert image["subscribers"] == [{"registration_id": 7, "backlog": 1_400}]


# errors and loss.


def test_errors_are_indented_and_cut(place: Path, look: Callable[..., list[str]]) -> None:
    text = "\n".join(f"line {number}" for number in range(50))
    (place / "cnc.dat").write_bytes(cnc_bytes(errors=("one\n\ntwo\n", text)))
    lines = look("errors")
    assert lines[:4] == [
        "1 time from 2026-11-23 22:30:00 to 2026-11-23 22:30:00:",
        "  one",
        "",
        "  two",
    ]
    assert lines[-3:] == ["  line 39", "  … 10 more lines", "2 distinct errors"]


def test_errors_and_losses_in_json_are_an_object_a_line(
    found: Callable[..., Any],
) -> None:
    assert found("errors") == {
        "observation_count": 1,
        "first_observation_ms": NOW_MS,
        "last_observation_ms": NOW_MS,
        "text": "no room",
    }
    loss = found("loss")
    assert (loss["observation_count"], loss["total_bytes_lost"]) == (2, 1_500)
    assert (loss["session_id"], loss["stream_id"], loss["channel"]) == (8, 1002, CHANNEL)


def test_where_nothing_is_wrong_they_say_so(place: Path, look: Callable[..., list[str]]) -> None:
    (place / "cnc.dat").write_bytes(cnc_bytes())
    (place / "loss-report.dat").unlink()
    assert look("errors") == ["0 distinct errors"]
    assert look("loss") == ["nothing was lost"]
    assert look("errors", "--json") == []
    assert look("loss", "--json") == []


# Drivers that are not active, and directories of none.


def test_a_driver_that_has_ended_is_still_read(
    place: Path, look: Callable[..., list[str]], found: Callable[..., Any]
) -> None:
    (place / "cnc.dat").write_bytes(cnc_bytes(heartbeat_ms=-1))
    assert look("stat")[0].endswith("has ended: start it again")
    assert found("streams")["is_active"] is False


def test_the_directory_of_the_environment_is_used(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AERON_DIR", str(place))
    assert main(["driver", "ping"]) == 0
    assert f"process 4711 in {place}" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["stat", "streams", "backlog", "errors", "loss"])
def test_without_a_driver_a_command_fails_with_one_line(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "-d", str(tmp_path)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert f"error: no driver has made {tmp_path}/cnc.dat: start one there" in err


@pytest.mark.parametrize("command", [["stat"], ["driver", "ping"], ["loss"]])
def test_without_compiled_code_a_command_says_so(
    command: list[str],
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(atomic_buffer, "WHY_NOT_SHARED", "a test wants none")
    assert main([*command, "-d", str(place)]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "needs compiled code" in err


# driver ping.


@pytest.mark.parametrize(
    ("is_here", "end"),
    [
        (True, ""),
        (False, "; there is no such process here: it was killed, or runs in another container"),
    ],
)
def test_ping_of_an_active_driver(
    place: Path,
    look: Callable[..., list[str]],
    monkeypatch: pytest.MonkeyPatch,
    is_here: bool,  # noqa: FBT001 - a parameter of the test
    end: str,
) -> None:
    monkeypatch.setattr(driver_ping, "lives", {4711: is_here}.get)
    assert look("driver", "ping") == [
        f"active: process 4711 in {place}, started 2026-11-23 22:29:00, heartbeat 400 ms ago{end}"
    ]


def test_ping_takes_a_timeout(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for timeout, code in (("0.4", 0), ("0.399", 1)):
        assert main(["driver", "ping", "-d", str(place), "--timeout", timeout]) == code
    out, err = capsys.readouterr()
    assert out.count("\n") == err.count("\n") == 1
    assert "no life for 400 ms, of 399 ms that are allowed" in err


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (cnc_bytes(heartbeat_ms=-1), "has ended"),
        (cnc_bytes(version=0x020000), "has version 2.0.0"),
        (b"", "has 0 bytes"),
        (None, "no driver has made"),
    ],
)
def test_ping_of_no_driver_exits_with_1(
    place: Path, capsys: pytest.CaptureFixture[str], data: bytes | None, reason: str
) -> None:
    (place / "cnc.dat").unlink()
    if data is not None:
        (place / "cnc.dat").write_bytes(data)
    assert main(["driver", "ping", "-d", str(place)]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert reason in err
    assert main(["driver", "ping", "-d", str(place), "--json"]) == 1
    out, err = capsys.readouterr()
    assert err == ""
    report = json.loads(out)
    assert (report["directory"], report["is_active"]) == (str(place), False)
    assert reason in report["reason"]


def test_ping_in_json(place: Path, found: Callable[..., Any]) -> None:
    assert found("driver", "ping") == {
        "directory": str(place),
        "is_active": True,
        "pid": 4_711,
        "start_timestamp_ms": SMALL.start_timestamp_ms,
        "now_ms": NOW_MS + AGE_MS,
        "heartbeat_ms": NOW_MS,
        "reason": None,
    }
