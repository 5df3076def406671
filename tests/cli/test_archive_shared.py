"""`archive` commands that use a driver in another process, over shared memory."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING

import pytest

import aeron_async as aa
from aeron_async.cli.archive_record import reached_from
from aeron_async.cli.main import main
from tests.concurrent.shared import needs_shared_memory

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Running

    Start = Callable[..., Running]

pytestmark = needs_shared_memory
IPC = "aeron:ipc"
STREAM = "5"


@pytest.fixture(autouse=True)
def _requests_wait_for_a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AERON_ARCHIVE_MESSAGE_TIMEOUT", "60s")


async def offer(place: str, messages: list[bytes]) -> aa.Aeron:
    """Offer messages as another process would; return its client, which is still open."""
    aeron = await aa.Aeron.connect(directory=place)
    publication = await aeron.add_publication(IPC, int(STREAM))
    for each in messages:
        await publication.offer(each, timeout=60)
    return aeron


def publish(place: str, messages: list[bytes]) -> None:
    """Offer messages, and close."""
    with asyncio.Runner() as runner:
        runner.run(runner.run(offer(place, messages)).aclose())


def test_everything_goes_over_ipc(
    driver: Running, start: Start, place: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    use = ("--aeron-dir", place)
    serving = start("archive", "serve", str(tmp_path / "archive"), *use)
    assert serving.remark("clients of the driver").endswith("over aeron:ipc")
    recording = start("archive", "record", IPC, IPC, "--stream", STREAM, *use)
    recording.remark("recording")
    publish(place, [b"one", b"two"])
    assert recording.line() == "recording 0 began at position 0"
    assert recording.line() == "recording 0 ended at position 128"
    assert recording.interrupt()[0] == 130

    for command, words in {
        ("replay", IPC, "0"): "one\ntwo\n",
        ("describe", IPC, "0"): "128",
        ("ls", IPC): IPC,
        ("truncate", IPC, "0", "64", "--yes"): "64",
        ("prune", IPC, "--max-bytes", "1", "--yes"): "",
        ("purge", IPC, "0", "--yes"): "recording 0 is gone",
    }.items():
        code, out, err = start("archive", *command, *use).finish()
        assert code == 0, (command, err)
        assert words in out
    assert serving.interrupt()[0] == 130
    assert driver.interrupt()[0] == 0


def test_a_directory_records_what_others_publish_on_the_driver(
    driver: Running, start: Start, place: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Without the option that is refused: a command has a driver of its own."""
    where = str(tmp_path / "archive")
    assert main(["archive", "record", where, IPC, "--stream", STREAM]) == 2
    assert "--aeron-dir" in capfd.readouterr().err
    recording = start("archive", "record", where, IPC, "--stream", STREAM, "--aeron-dir", place)
    recording.remark("recording")
    publish(place, [b"one"])
    assert recording.line() == "recording 0 began at position 0"
    assert recording.line() == "recording 0 ended at position 64"
    assert recording.interrupt()[0] == 130
    assert driver.process.poll() is None
    assert main(["archive", "replay", where, "0", "--quiet"]) == 0
    assert capfd.readouterr().out == "one\n"


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=["ended", "killed"])
def test_commands_end_with_the_driver_that_they_use(
    driver: Running, start: Start, place: str, tmp_path: Path, how: signal.Signals
) -> None:
    environment = {**os.environ, "AERON_DRIVER_TIMEOUT": "1000"}
    use = ("--aeron-dir", place)
    serving = start("archive", "serve", str(tmp_path / "one"), *use, environment=environment)
    serving.remark("clients of the driver")
    where = str(tmp_path / "two")
    recording = start(
        "archive", "record", where, IPC, "--stream", STREAM, *use, environment=environment
    )
    recording.remark("recording")
    with asyncio.Runner() as runner:
        aeron = runner.run(offer(place, [b"kept"]))
        assert recording.line() == "recording 0 began at position 0"
        os.kill(driver.process.pid, how)
        driver.process.wait()
        outcomes = [one.finish() for one in (serving, recording)]
        runner.run(aeron.aclose())
    assert [code for code, _, _ in outcomes] == [1, 1]
    assert all("media driver" in err for _, _, err in outcomes), outcomes
    assert outcomes[1][1] == "recording 0 ended at position 64\n"
    assert main(["archive", "replay", where, "0", "--quiet"]) == 0


def test_who_reaches_an_archive_is_said_with_the_directory() -> None:
    assert "clients of the driver in /run/aeron" in str(reached_from(None, "/run/aeron"))
    assert reached_from("aeron:udp?endpoint=192.0.2.7:8010", "/run/aeron") is None
