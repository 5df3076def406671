"""Where views look: doors and directories of drivers that come, go, and come back."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

import aeron_async as aa
from aeron_async._speedups import WHY_PURE
from aeron_async.cli import stats_sources
from aeron_async.cli.stats_sources import open_source
from aeron_async.cli.top import TAKE_TIMEOUT_S
from aeron_async.door import StatsDoor
from aeron_async.driver.core.context import DriverContext
from aeron_async.driver.media_driver import DOOR_NAME
from aeron_async.errors import AeronError, ConfigurationError, DriverError, OfferTimeoutError
from tests.cli.conftest import PROGRAM

if TYPE_CHECKING:
    from pathlib import Path

STREAM_ID = 1001
compiled = pytest.mark.skipif(WHY_PURE is not None, reason="an Aeron directory needs compiled code")


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("s")
    place.chmod(0o700)
    return place


async def test_a_door_that_goes_and_comes_back_is_opened_again(folder: Path) -> None:
    path = str(folder / "door")
    context = DriverContext(stats_socket=path)
    source = open_source("door", path)
    with pytest.raises(AeronError):
        await source.take()
    for _ in range(2):
        async with aa.MediaDriver.launch(context):
            assert (await source.take()).source == "driver"
            assert (await source.take()).source == "driver"
        with pytest.raises(AeronError):
            await source.take()
    await source.aclose()


def test_a_door_needs_a_path_that_the_system_takes() -> None:
    with pytest.raises(ConfigurationError, match="107"):
        open_source("door", "/" + "x" * 200)


@compiled
async def test_a_directory_is_looked_at_by_its_door_or_else_by_its_counters(folder: Path) -> None:
    place = str(folder / "aeron")
    source = open_source("directory", place)
    with pytest.raises(DriverError):
        await source.take()
    async with aa.MediaDriver.launch(DriverContext(aeron_directory=place)):
        assert (await source.take()).source == "driver"
    async with aa.MediaDriver.launch(DriverContext(aeron_directory=place, stats_socket="off")):
        assert (await source.take()).source == "counters"
    with pytest.raises(AeronError):
        await source.take()
    await source.aclose()


@compiled
async def test_a_door_that_hangs_holds_up_one_look_and_is_asked_again_beside_others(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The greeting and the answer of a door, before the view gives up.
    assert 2 * stats_sources.DIRECTORY_DOOR_TIMEOUT_S < TAKE_TIMEOUT_S
    monkeypatch.setattr(stats_sources, "DIRECTORY_DOOR_TIMEOUT_S", 0.01)
    place, door_path = str(folder / "aeron"), folder / "aeron" / DOOR_NAME
    async with aa.MediaDriver.launch(DriverContext(aeron_directory=place, stats_socket="off")):
        source = open_source("directory", place)
        with socket.socket(socket.AF_UNIX) as door:
            door.bind(str(door_path))
            door.listen()
            assert source.remark == ""
            assert (await source.take()).source == "counters"
            assert source.remark == stats_sources.DOOR_SILENT
            # From now on nobody waits for it.
            monkeypatch.setattr(stats_sources, "DIRECTORY_DOOR_TIMEOUT_S", 60)
            monkeypatch.setattr(source, "_again_s", 0.0)
            async with asyncio.timeout(60):
                for _ in range(3):
                    assert (await source.take()).source == "counters"
            assert len(source._tasks) == 1  # type: ignore[attr-defined]
            # Who leaves does not wait for it either.
            await source.aclose()


@compiled
async def test_a_door_that_answers_again_is_taken_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, door_path = str(folder / "aeron"), folder / "aeron" / DOOR_NAME
    async with aa.MediaDriver.launch(
        DriverContext(aeron_directory=place, stats_socket="off")
    ) as driver:
        source = open_source("directory", place)
        monkeypatch.setattr(stats_sources, "DIRECTORY_DOOR_TIMEOUT_S", 0.01)
        monkeypatch.setattr(stats_sources, "DOOR_PAUSE_S", 0)
        with socket.socket(socket.AF_UNIX) as door:
            door.bind(str(door_path))
            door.listen()
            assert (await source.take()).source == "counters"
        monkeypatch.setattr(stats_sources, "DIRECTORY_DOOR_TIMEOUT_S", 60)
        async with StatsDoor(door_path, driver.stats, version="1", pid=1), asyncio.timeout(60):
            while (await source.take()).source == "counters":
                await asyncio.sleep(0)
            assert source.remark == ""
        await source.aclose()


async def test_the_live_view_names_a_slow_reader_of_a_true_driver(
    folder: Path, unused_udp_port: int
) -> None:
    """From a socket to the words: another process reads them at the door of this one."""
    path, channel = str(folder / "door"), f"aeron:udp?endpoint=127.0.0.1:{unused_udp_port}"
    async with aa.Aeron.connect(context=DriverContext(stats_socket=path)) as aeron:
        await aeron.add_subscription(channel, STREAM_ID)
        publication = await aeron.add_publication(f"{channel}|term-length=64k", STREAM_ID)
        await publication.wait_connected(10)
        with suppress(OfferTimeoutError):
            while True:
                await publication.offer(bytes(1_000), timeout=0.2)
        waiting = asyncio.ensure_future(publication.offer(bytes(1_000)))
        viewer = await asyncio.create_subprocess_exec(
            *PROGRAM, "top", "--door", path, "--once", "--json", stdout=asyncio.subprocess.PIPE
        )
        out, _ = await asyncio.wait_for(viewer.communicate(), 60)
        waiting.cancel()
    said = json.loads(out)
    rows = {each["kind"]: each for each in said["rows"]}
    assert rows["pub"]["registration_id"] == publication._ready.registration_id
    assert "sender_limit" in rows["pub"]["cause_word"]
    assert f"127.0.0.1:{unused_udp_port}" in rows["pub"]["cause"]
    assert rows["pub"]["remedy"]
