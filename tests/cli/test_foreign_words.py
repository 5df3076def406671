"""Every command shows what strangers wrote as text, on a pty and in a pipe.

A command that is not in the table fails a test: say in it what foreign words it can print.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs
import pytest

import aeron_async.cli
from aeron_async.archive.disk.catalog import Catalog
from aeron_async.archive.disk.files import OsDirectory
from aeron_async.cli.main import (
    ARCHIVE_COMMANDS,
    COMMANDS,
    DRIVER_COMMANDS,
    PIPELINE_COMMANDS,
)
from aeron_async.concurrent.atomic_buffer import WHY_NOT_SHARED
from aeron_async.protocol.error import ErrorFrame
from tests.archive.golden import copy_of
from tests.by_hand import NOT_BUILT
from tests.cli.foreign_output import harmless
from tests.cli.pcaps import ethernet, ipv4, pcap
from tests.driver.directories import small_directory

if TYPE_CHECKING:
    from collections.abc import Callable

MARKUP: Final = "alias=[/x]|b=[fe80::1]"
COMMANDS_OF_TERMINALS: Final = "\x1b]0;owned\x07\x1b[2J\x7f\r\x08"
HOSTILE: Final = f"aeron:udp?endpoint=localhost:20121|{MARKUP}{COMMANDS_OF_TERMINALS}"
SHOWN: Final = f"{MARKUP}\\x1b]0;owned\\x07\\x1b[2J\\x7f\\r\\x08"
SHOWN_AS_JSON: Final = f"{MARKUP}\\u001b]0;owned\\u0007\\u001b[2J\\u007f\\r\\b"
PLACEHOLDER: Final = "invalid-utf-8-here"
LONG: Final = f"aeron:udp?alias={'x' * 65_000}"
YEAR_300_000_MS: Final = 9_404_879_817_600_000
LIMIT: Final = 12_000
"""In characters: of all that a command prints here."""

# What each command prints of foreign words, given a folder with files of strangers. `{archive}` and
# `{capture}` are those; `{channel}` is what somebody pasted.
TABLE: Final[dict[str, list[str]]] = {
    "pub": ["{channel} --stream 1 --count 1"],
    "sub": ["{channel} --stream 1"],
    "ping": ["--ping-channel {channel}"],
    "pong": ["--ping-channel {channel}"],
    "explain": ["{channel}", "{channel} {long}"],
    "decode": ["{capture}", "{capture} --summary", "{channel}"],
    "doctor": [],  # Its words are those of this machine's administrator.
    "demo": [],  # What it prints, its own two processes have sent.
    "bench": [],  # Likewise.
    "stat": ["-d {aeron}", "-d {aeron} --json", "-d {channel}"],
    "streams": ["-d {aeron}", "-d {aeron} --json", "-d {channel}"],
    "top": [
        "-d {channel}",
        "--door {channel} --once",
        "--door {channel} --json",
    ],
    "backlog": ["-d {aeron}", "-d {aeron} --json", "-d {channel}"],
    "errors": ["-d {aeron}", "-d {aeron} --json", "-d {channel}"],
    "loss": ["-d {aeron}", "-d {aeron} --json", "-d {channel}"],
    # Its page: test_monitor_views.py and test_monitor_browser.py.
    "monitor": ["--bind {channel}", "--door {channel} -d {channel}", "--token-file {channel}"],
    "driver ping": ["-d {aeron}", "-d {aeron} --json", "-d {channel}"],
    "archive ls": ["{archive}", "{channel}"],
    "archive describe": ["{archive} 1", "{archive} 2", "{archive} 3", "{channel} 0"],
    "archive record": ["{folder} {channel} --stream 1"],
    "archive stop": ["{channel} 0"],
    "archive replay": ["{archive} 1", "{channel} 0"],
    "archive follow": ["{archive} 1", "{channel} 0"],
    "archive serve": ["{folder} --control {channel}"],
    "archive verify": ["{archive}", "{channel}"],
    "archive repair": ["{archive}", "{channel}"],
    "archive truncate": ["{archive} 9 0 --yes", "{archive} 1 0 --dry-run", "{channel} 0 0 --yes"],
    "archive purge": ["{archive} 9 --yes", "{archive} 1 --dry-run", "{channel} 0 --yes"],
    "archive prune": ["{archive} --max-bytes 0 --dry-run", "{channel} --before 0 --yes"],
    "pipeline run": ["{channel} {folder} --decode {channel}"],
    "pipeline report": ["{channel}"],  # Its page: tests/spark/pipeline/report.
    # Rows of a lake: test_pipeline_lake.py.
    "pipeline query": ["{channel} {channel}"],
    "pipeline maintain": ["{channel}", "{folder} --retention {channel}"],
    "pipeline ingest": ["{folder} {folder} {channel} {channel}"],
    "pipeline demo": ["{archive}"],
}
CASES: Final = [(command, line) for command, lines in TABLE.items() for line in lines]


def test_every_command_is_in_the_table() -> None:
    names = {name for name, _ in COMMANDS}
    names |= {f"archive {name}" for name, *_ in ARCHIVE_COMMANDS}
    names |= {f"pipeline {name}" for name, *_ in PIPELINE_COMMANDS}
    names |= {f"driver {name}" for name, *_ in DRIVER_COMMANDS}
    assert set(TABLE) == names


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """An archive with recording 0, and 1 to 3, whose entries strangers wrote."""
    place = Path(copy_of("A1-one-finished", tmp_path / "archive"))
    catalog = Catalog.open(OsDirectory(place), capacity=1024 * 1024)
    known = catalog.get(0)
    texts = (HOSTILE, f"{PLACEHOLDER}{MARKUP}", LONG)
    for text in texts:
        catalog.add(
            attrs.evolve(
                known,
                start_timestamp_ms=YEAR_300_000_MS,
                stop_timestamp_ms=YEAR_300_000_MS + 1,
                stop_position=known.start_position,
                stripped_channel=text,
                original_channel=text,
                source_identity=text,
            )
        )
    catalog.close()
    path = place / "archive.catalog"
    bad = b"\xff\xfe\xc0\x80\x9b31m\xc2\x9b".ljust(len(PLACEHOLDER), b"\xed")
    path.write_bytes(path.read_bytes().replace(PLACEHOLDER.encode(), bad))
    return place


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    """A capture of an ERR frame in which a stranger wrote."""
    path = tmp_path / "capture.pcap"
    frames = [
        ErrorFrame(
            session_id=1,
            stream_id=2,
            receiver_id=3,
            group_tag=0,
            error_code=13,
            message=message,
        )
        for message in (HOSTILE.encode(), b"\xff\xfe\x9b2J\xc2\x9b\xe2\x80\xae" + MARKUP.encode())
    ]
    path.write_bytes(pcap(*(ethernet(ipv4(bytes(each.encode()))) for each in frames)))
    return path


@pytest.fixture
def aeron(tmp_path: Path) -> Path:
    """A directory whose channels and errors strangers wrote."""
    return small_directory(tmp_path / "aeron", channel=HOSTILE, error=f"one\n{HOSTILE}\ntwo")


@pytest.mark.parametrize("is_terminal", [True, False], ids=["pty", "pipe"])
@pytest.mark.parametrize(("command", "line"), CASES)
def test_foreign_words_are_shown_as_text(
    command: str,
    line: str,
    is_terminal: bool,  # noqa: FBT001 - pytest gives it by name
    archive: Path,
    capture: Path,
    aeron: Path,
    tmp_path: Path,
    run: Callable[..., tuple[int, str, str]],
) -> None:
    if "-d" in line.split() and WHY_NOT_SHARED is not None:
        pytest.skip(NOT_BUILT)
    words = {
        "archive": str(archive),
        "capture": str(capture),
        "aeron": str(aeron),
        "channel": HOSTILE,
        "long": LONG,
        "folder": str(tmp_path / "none"),
    }
    arguments = command.split() + [
        words[each[1:-1]] if each[0] == "{" else each for each in line.split()
    ]
    code, out, err = run(arguments, is_terminal=is_terminal)
    assert code in {0, 1, 2}
    shown = harmless(out, is_terminal=is_terminal) + harmless(err, is_terminal=is_terminal)
    assert len(shown) < (2 * LIMIT if "--json" in line else LIMIT)
    if "{channel}" in line or command in {"archive ls", "decode"}:
        assert "[/x]" in shown
    # A ping looks at no stream and no error.
    if "{aeron}" in line and command != "driver ping":
        assert (SHOWN_AS_JSON if "--json" in line else SHOWN) in shown
    assert shown


@pytest.mark.parametrize("is_terminal", [True, False], ids=["pty", "pipe"])
def test_markup_escapes_and_far_years_are_listed_as_they_are(
    archive: Path,
    run: Callable[..., tuple[int, str, str]],
    is_terminal: bool,  # noqa: FBT001 - pytest gives it by name
) -> None:
    """`[/x]` and `[fe80::1]` are no markup, and the year 300,000 is a number."""
    code, out, err = run(["archive", "ls", str(archive)], is_terminal=is_terminal)
    assert (code, err) == (0, "")
    assert SHOWN in out
    assert f"{YEAR_300_000_MS}ms-after-1970" in out
    assert "more characters)" in out
    if not is_terminal:
        rows = [line.split() for line in out.splitlines()]
        assert {len(row) for row in rows[:-1]} == {7}
    code, out, err = run(["archive", "describe", str(archive), "1"], is_terminal=is_terminal)
    assert (code, err) == (0, "")
    assert f"start timestamp    {YEAR_300_000_MS}ms-after-1970(not-in-years-1-to-9999)" in out
    assert f"original channel   aeron:udp?endpoint=localhost:20121|{MARKUP}\\x1b]0;" in out


def test_json_has_the_true_text_in_visible_ascii(
    archive: Path, capture: Path, run: Callable[..., tuple[int, str, str]]
) -> None:
    _, out, _ = run(["archive", "ls", str(archive), "--json"], is_terminal=False)
    assert out.isascii()
    assert out.replace("\n", "").isprintable()
    found = [json.loads(line) for line in out.splitlines()]
    assert found[1]["original_channel"] == HOSTILE
    assert found[1]["start_timestamp_ms"] == YEAR_300_000_MS
    assert found[3]["source_identity"] == LONG
    _, out, _ = run(["decode", str(capture), "--json"], is_terminal=False)
    assert out.replace("\n", "").isprintable()
    assert json.loads(out.splitlines()[0])["message"] == HOSTILE


def test_only_one_module_writes_to_the_standard_streams() -> None:
    """What a command prints goes through `output`, which makes it harmless; `stdio` has payload."""
    folder = Path(aeron_async.cli.__file__).parent
    # They speak JSON to the process that started them.
    exempt = {"output.py", "bench_child.py", "demo_child.py"}
    for path in folder.glob("*.py"):
        if path.name in exempt:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called not in {"print", "sys.stdout.write", "sys.stderr.write"}, path.name
                if called == "Console":
                    assert path.name == "archive_where.py", path.name
