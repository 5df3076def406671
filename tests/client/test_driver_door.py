"""The door of a driver: where it is, who opens it, and what it shows of the driver's streams."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import pytest

import aeron_async as aa
from aeron_async._speedups import WHY_PURE
from aeron_async.door import DoorClient
from aeron_async.driver.core.context import DriverContext
from aeron_async.driver.storage import DirectoryStorage
from aeron_async.errors import ConfigurationError
from tests.logs import captured_logs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STREAM_ID = 1001
compiled = pytest.mark.skipif(WHY_PURE is not None, reason="an Aeron directory needs compiled code")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    return tmp_path


@pytest.fixture
def open_folder(tmp_path: Path) -> Path:
    tmp_path.chmod(0o777)
    return tmp_path


@pytest.fixture
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    place = tmp_path_factory.mktemp("d")
    yield place / "aeron"
    assert not (place / "aeron" / "stats.sock").exists()


async def test_a_driver_opens_its_door_where_the_settings_say(
    folder: Path, unused_udp_port: int
) -> None:
    door_path, channel = folder / "door", f"aeron:udp?endpoint=127.0.0.1:{unused_udp_port}"
    async with aa.Aeron.connect(context=DriverContext(stats_socket=str(door_path))) as aeron:
        subscription = await aeron.add_subscription(channel, STREAM_ID)
        publication = await aeron.add_publication(channel, STREAM_ID)
        await publication.offer_many([b"message"] * 3)
        for _ in range(3):
            await anext(subscription)
        async with DoorClient(door_path) as door:
            assert door.hello.pid == os.getpid()
            stats = await door.get_stats()
            ours = aeron.stats()
            assert stats.publications[0].message_count == 3
            assert stats.publications[0].position == publication.position
            for name in ("registration_id", "channel", "image_count", "message_count"):
                assert [*stats.subscriptions.column(name)] == [*ours.subscriptions.column(name)]
            assert stats.driver.pid == ours.driver.pid
            async for seen in door.watch(0.05):
                assert seen.images[0].session_id == publication.session_id
                break
    assert not door_path.exists()


async def test_a_driver_closes_its_door_with_clients_at_it(folder: Path) -> None:
    door_path = folder / "door"
    aeron = aa.Aeron.connect(context=DriverContext(stats_socket=str(door_path)))
    async with aeron:
        door = DoorClient(door_path)
        await door.__aenter__()
        await anext(door.watch(0.05))
    with pytest.raises(aa.AeronError):
        await door.get_stats()
    await door.aclose()
    assert not door_path.exists()


async def test_a_door_that_another_has_opened_stops_no_driver(folder: Path) -> None:
    context = DriverContext(stats_socket=str(folder / "door"))
    async with aa.MediaDriver.launch(context), DoorClient(folder / "door") as door:
        with captured_logs() as logs:
            async with aa.Aeron.connect(context=context) as aeron:
                await aeron.add_publication("aeron:ipc", STREAM_ID)
                assert not (await door.get_stats()).publications
        assert (await door.get_stats()).source == "driver"
    (line,) = [each for each in logs if each["event"] == "door_not_opened"]
    assert line["path"] == str(folder / "door")
    for word in ("another process has opened", "`stats_socket`", "`off`"):
        assert word in line["reason"]


async def test_a_door_in_a_folder_that_others_write_stops_the_start(open_folder: Path) -> None:
    with pytest.raises(ConfigurationError, match="others may write"):
        await aa.Aeron.connect(context=DriverContext(stats_socket=str(open_folder / "door")))


@pytest.mark.parametrize("name", ["missing/door", "x" * 120])
async def test_a_door_that_cannot_be_opened_where_it_was_asked_for_stops_the_start(
    folder: Path, name: str
) -> None:
    with pytest.raises(ConfigurationError):
        await aa.Aeron.connect(context=DriverContext(stats_socket=str(folder / name)))


@compiled
async def test_a_driver_that_cannot_open_its_door_is_never_published(
    directory: Path, open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published: list[DirectoryStorage] = []
    monkeypatch.setattr(
        DirectoryStorage, "publish", lambda storage, _now_ms: published.append(storage)
    )
    door_path = str(open_folder / "door")
    context = DriverContext(aeron_directory=str(directory), stats_socket=door_path)
    with pytest.raises(ConfigurationError, match="others may write"):
        await aa.MediaDriver.launch(context)
    assert not published
    assert not await asyncio.to_thread(directory.exists)


async def test_an_embedded_driver_has_no_door_unless_it_is_asked_for() -> None:
    async with aa.Aeron.connect() as aeron:
        assert isinstance(aeron.driver, aa.MediaDriver)
        assert aeron.driver._door is None


@compiled
async def test_a_driver_with_a_directory_has_its_door_there(directory: Path) -> None:
    context = DriverContext(aeron_directory=str(directory))
    async with (
        aa.MediaDriver.launch(context),
        DoorClient(directory / "stats.sock") as door,
        aa.Aeron.connect(directory=directory) as aeron,
    ):
        await aeron.add_publication("aeron:ipc", STREAM_ID)
        stats, counted = await door.get_stats(), aeron.stats()
        # The driver in this loop knows all, and its counters what an official one tells.
        assert (stats.source, counted.source) == ("driver", "counters")
        assert stats.publications[0].registration_id == counted.publications[0].registration_id
        assert counted.publications[0].blocked_sender_limit_ns is None
        assert (await aeron.gather_stats()).publications == counted.publications
        # What clients elsewhere publish is not counted.
        assert stats.publications[0].message_count is None


@compiled
async def test_the_door_of_a_directory_can_be_left_closed(directory: Path) -> None:
    context = DriverContext(aeron_directory=str(directory), stats_socket="off")
    async with aa.MediaDriver.launch(context):
        assert not (directory / "stats.sock").exists()


@compiled
async def test_a_door_that_nobody_asked_for_stops_no_driver(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    place = tmp_path_factory.mktemp("d") / ("long" * 30)
    with captured_logs() as logs:
        async with aa.MediaDriver.launch(DriverContext(aeron_directory=str(place))) as driver:
            assert not driver.stats().publications
    (line,) = [each for each in logs if each["event"] == "door_not_opened"]
    assert "107" in line["reason"]
