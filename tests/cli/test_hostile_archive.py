"""What an archive elsewhere answers, and what is published, is shown as text."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Final

import pytest

import aeron_async as aa
from aeron_async.archive import ArchiveContext, LocalArchive
from tests.cli.conftest import Running
from tests.cli.foreign_output import harmless
from tests.cli.hostile_archive import BYTES, MARKUP, PAYLOAD, STREAM_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Run = Callable[..., tuple[int, str, str]]

LIMIT: Final = 12_000
"""In characters: of all that a command prints here."""
ANSWERED: Final = MARKUP + "".join(
    # As the official client reads text: what is no ASCII is one question mark in a diamond.
    each if each.isprintable() else {"\r": "\\r", "\n": "\\n"}.get(each, f"\\x{ord(each):02x}")
    for each in BYTES.decode("ascii", "replace")
)
COMMANDS: Final = {
    "ls": 0,
    "ls --stream 1001": 0,
    "describe 0": 0,
    "describe 1": 0,
    "describe 2": 0,
    "describe 9": 1,
    "stop 0": 1,
    "stop --subscription 1": 1,
    "replay 0": 1,
    "follow 0": 1,
    "truncate 0 0 --yes": 1,
    "purge 0 --yes": 1,
    "purge 0 --dry-run": 0,
    "prune --max-bytes 0 --yes": 1,
    "record aeron:udp?endpoint=localhost:20121 --stream 1": 1,
}


class Hostile:
    """A process that answers at one channel, and publishes on another."""

    def __init__(self, unused_port: Callable[[], int]) -> None:
        self.control, self.published = (
            f"aeron:udp?endpoint=127.0.0.1:{unused_port()}" for _ in range(2)
        )
        program = (sys.executable, "-m", "tests.cli.hostile_archive")
        self.running = Running(self.control, self.published, program=program)
        assert self.running.line() == "serving"


@pytest.fixture(scope="module")
def hostile(unused_udp_port_factory: Callable[[], int]) -> Iterator[Hostile]:
    hostile = Hostile(unused_udp_port_factory)
    yield hostile
    with hostile.running.process as process:
        process.kill()


@pytest.mark.parametrize("is_terminal", [True, False], ids=["pty", "pipe"])
@pytest.mark.parametrize(("line", "expected"), COMMANDS.items(), ids=COMMANDS)
def test_what_an_archive_answers_is_shown_as_text(
    line: str,
    expected: int,
    is_terminal: bool,  # noqa: FBT001 - pytest gives it by name
    hostile: Hostile,
    run: Run,
) -> None:
    name, *rest = line.split()
    code, out, err = run(["archive", name, hostile.control, *rest], is_terminal=is_terminal)
    shown = harmless(out, is_terminal=is_terminal) + harmless(err, is_terminal=is_terminal)
    assert code == expected, shown
    assert ANSWERED in shown
    assert len(shown) < LIMIT


@pytest.mark.parametrize("name", ["ls", "describe 0"])
def test_in_json_an_archive_answers_visible_ascii(name: str, hostile: Hostile, run: Run) -> None:
    command, *rest = name.split()
    line = ["archive", command, hostile.control, *rest, "--json"]
    code, out, err = run(line, is_terminal=False)
    assert (code, err) == (0, "")
    assert out.isascii()
    assert out.replace("\n", "").isprintable()


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive with one recording of two messages that a stranger has published."""
    path = tmp_path_factory.mktemp("archive")

    async def record() -> None:
        context = ArchiveContext(directory=str(path), low_storage_threshold=0)
        async with aa.Aeron.connect() as aeron, LocalArchive.open(aeron, context) as archive:
            await archive.start_recording("aeron:ipc", STREAM_ID)
            publication = await aeron.add_exclusive_publication("aeron:ipc", STREAM_ID)
            await publication.offer_many([PAYLOAD, PAYLOAD])
            await archive.stop_recording("aeron:ipc", STREAM_ID)

    asyncio.run(record())
    return path


@pytest.mark.parametrize("command", ["sub", "archive replay", "archive follow"])
@pytest.mark.parametrize("format", ["text", "json", "hex"])
@pytest.mark.parametrize("is_terminal", [True, False], ids=["pty", "pipe"])
def test_what_is_published_is_text_on_a_terminal_and_itself_in_a_pipe(
    command: str,
    format: str,  # noqa: A002 - pytest gives it by the name of the option
    is_terminal: bool,  # noqa: FBT001 - likewise
    hostile: Hostile,
    recording: Path,
    run: Run,
) -> None:
    if command == "sub":
        where = [hostile.published, "--stream", str(STREAM_ID)]
    else:
        where = [str(recording), "0"]
    line = [*command.split(), *where, "--count", "2", "--format", format]
    code, out, err = run(line, is_terminal=is_terminal)
    assert code == 0, err
    harmless(err, is_terminal=is_terminal)
    if format == "text" and not is_terminal:
        assert out.encode("utf-8", "surrogateescape") == (PAYLOAD + b"\n") * 2
        return
    shown = harmless(out, is_terminal=is_terminal).splitlines()
    assert len(shown) == 2
    assert shown[0].isascii()
    assert (f"{MARKUP}\\x1b]0;owned\\x07\\x1b[2J\\xff" if format == "text" else "1b5d") in shown[0]
