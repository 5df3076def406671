"""Drivers whose start fails or is given up: what they leave, and that they can be closed."""

from __future__ import annotations

import asyncio
import errno
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import pytest

import aeron_async as aa
from aeron_async.driver import media_driver
from aeron_async.errors import ClosedError, ConfigurationError
from tests.driver.foreign.client import small_context

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "aeron"


def is_gone(path: Path) -> bool:
    return not path.exists()


def files(path: Path) -> list[Path]:
    return sorted(path.rglob("*"))


class Disk:
    """Stands for the thread that makes the files: the test decides when it does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_begun = asyncio.Event()
        self.may_end = asyncio.Event()
        self.make: Callable[[], object] | None = None
        self.is_early = False
        monkeypatch.setattr(anyio.to_thread, "run_sync", self.run_sync)

    async def run_sync(self, function: Callable[..., Any], *args: object, **_: object) -> Any:
        self.make = partial(function, *args)
        made = self.make() if self.is_early else None
        self.is_begun.set()
        await self.may_end.wait()
        return made or self.make()


@pytest.fixture
async def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@pytest.mark.parametrize("how", ["aclose", "abort"])
async def test_a_driver_that_is_closed_while_it_starts_does_not_run(
    path: Path, disk: Disk, how: str
) -> None:
    driver = aa.MediaDriver.launch(small_context(path))
    starting = asyncio.create_task(driver.start())
    await disk.is_begun.wait()
    closing = asyncio.create_task(getattr(driver, how)())
    await asyncio.sleep(0)
    assert not closing.done()
    disk.may_end.set()
    with pytest.raises(ClosedError):
        await starting
    await closing
    await driver.wait_closed()
    assert driver.is_closed
    assert is_gone(path)


@pytest.mark.parametrize("is_early", [False, True])
async def test_a_start_that_is_cancelled_leaves_no_directory(
    path: Path,
    disk: Disk,
    is_early: bool,  # noqa: FBT001 - one meaning
) -> None:
    disk.is_early = is_early
    driver = aa.MediaDriver.launch(small_context(path))
    starting = asyncio.create_task(driver.start())
    await disk.is_begun.wait()
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    if not is_early:
        # The thread goes on when its caller has gone.
        assert disk.make is not None
        disk.make()
    assert is_gone(path)
    await driver.aclose()
    assert driver.is_closed


@pytest.mark.parametrize("what", ["Watcher", "Conductor", "ClientCommandAdapter"])
async def test_a_start_that_fails_leaves_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "no descriptor")

    monkeypatch.setattr(media_driver, what, fail)
    driver = aa.MediaDriver.launch(small_context(path))
    with pytest.raises(OSError, match="no descriptor"):
        await driver.start()
    assert is_gone(path)
    await driver.aclose()
    await driver.wait_closed()
    with pytest.raises(ClosedError):
        await driver.start()


async def test_a_system_without_the_watcher_loses_no_directory(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with aa.MediaDriver.launch(small_context(path)):
        pass
    before = files(path)

    def refuse() -> None:
        message = "to wait for memory that other processes write needs Linux"
        raise ConfigurationError(message)

    monkeypatch.setattr(media_driver, "check_watcher", refuse)
    with pytest.raises(ConfigurationError):
        await aa.MediaDriver.launch(small_context(path)).start()
    assert files(path) == before


async def test_a_driver_that_was_never_started_has_closed() -> None:
    driver = aa.MediaDriver.launch()
    await driver.aclose()
    await driver.wait_closed()
    assert driver.is_closed
