"""What is given to the command line as to a channel is read so, and what cannot be is refused."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

import pytest
from cyclopts import App

from aeron_async.archive.disk.catalog import Catalog
from aeron_async.cli import archive_catalog
from aeron_async.cli.archive_where import listed
from aeron_async.cli.main import main
from aeron_async.cli.options import MessageSize, Size  # noqa: TC001 - read when the command runs
from aeron_async.cli.sub import FewRemarks
from aeron_async.clock import NS_PER_SECOND
from tests.archive.golden import copy_of

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("text", "length"),
    [("64k", 65_536), ("1m", 1 << 20), ("2K", 2_048), ("100", 100), ("0", 0), ("16m", 1 << 24)],
)
def test_a_size_is_given_as_in_a_channel(text: str, length: int) -> None:
    app = App(result_action="return_value")

    @app.default
    def command(position: Size, *, size: MessageSize = 1) -> tuple[int, int]:
        return position, size

    assert app([text, "--size", text]) == (length, length)


@pytest.mark.parametrize("text", ["64kb", "k", "1.5m", "-1", "17m", "99999999999999999999", "9g"])
def test_what_is_no_size_is_bad_usage(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pub", "aeron:ipc", "-s", "1", "--count", "1", "--size", text]) == 2
    assert "--size" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["1g", "17m", "-1", "99999999999999999999"])
def test_a_size_beyond_its_limits_is_quoted_as_it_was_typed(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pub", "aeron:ipc", "-s", "1", "--count", "1", "--size", text]) == 2
    error = capsys.readouterr().err
    assert f"'{text}' must be from 0 to 16777216 bytes" in error
    assert "1073741824" not in error


def test_sizes_of_commands_are_read_so(capsys: pytest.CaptureFixture[str]) -> None:
    command = "bench --size 17m"
    assert main(command.split()) == 2
    assert "16777216" in capsys.readouterr().err


@pytest.mark.parametrize("columns", ["40", "60", "80", "200"])
def test_no_id_and_no_position_is_cut(
    tmp_path: Path,
    columns: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At 80 columns a long recording lost the end of its id."""
    monkeypatch.setenv("COLUMNS", columns)
    row: tuple[str, ...] = (
        "9223372036854775807",
        "-2147483648",
        "-2147483647",
        "9,223,372,036,854,771,712",
    )
    row += (
        "9,223,372,036,854,775,776",
        "2026-01-02 03:04:05",
        "aeron:udp?endpoint=127.0.0.1:20121",
    )
    short = ("1", "1001", "-1", "0", "32", "2026-01-02 03:04:05", row[-1])
    for rows in ([row, short], [short]):
        archive_catalog.print_table(list(rows))
        written = capsys.readouterr().out
        for each in rows:
            for cell in each[:-1]:
                assert cell in written
        assert "\N{HORIZONTAL ELLIPSIS}" not in written
        assert row[-1] in re.sub(r"\s+", "", written)


def test_a_new_archive_lies_where_there_is_a_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every directory on the way was made, for a path with a slip of the pen."""
    where = tmp_path / "recodings" / "mine"
    channel = "aeron:udp?endpoint=127.0.0.1:0"
    commands = (["record", str(where), channel, "--stream", "1"], ["serve", str(where)])
    for command in commands:
        assert main(["archive", *command]) == 2
        assert f"there is no directory {where.parent}" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["aeron:ipc"],
        ["aeron-spy:aeron:udp?endpoint=127.0.0.1:20121"],
        ["aeron:udp?endpoint=127.0.0.1:20121", "--local"],
    ],
)
def test_what_another_process_keeps_to_itself_is_not_waited_for(
    tmp_path: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    where = tmp_path / "new"
    assert main(["archive", "record", str(where), *arguments, "--stream", "1"]) == 2
    told = capsys.readouterr().err
    assert "is heard within one process only" in told
    assert "aeron:udp?endpoint=localhost:8010" in told
    assert not where.exists()
    archive = copy_of("A1-one-finished", tmp_path)
    assert main(["archive", "record", str(archive), *arguments, "--stream", "1"]) == 2
    catalog = Catalog.open_to_read(listed(archive))
    assert list(catalog.ids())
    catalog.close()


async def test_a_thousand_sessions_are_not_a_thousand_lines() -> None:
    said: list[str] = []
    now: list[Any] = [0]
    few = FewRemarks(said.append, lambda: now[0])
    for each in range(3_000):
        few.say(f"session {each} joined")
    assert said == [f"session {each} joined" for each in range(10)]
    assert few._timer is not None
    few.finish()
    assert said[10:] == ["2,990 more remarks on sessions that joined or left"]
    now[0] = NS_PER_SECOND
    for each in range(11):
        few.say(f"session {each} gone")
    assert said[11:] == [f"session {each} gone" for each in range(10)]
    now[0] = 2 * NS_PER_SECOND
    few.say("one more")
    assert said[21:] == ["1 more remark on sessions that joined or left", "one more"]
    few.finish()
    assert len(said) == 23
    await asyncio.sleep(0)
