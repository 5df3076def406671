"""Logs that are not sparse: a thread allocates their memory, and the loop does not wait for it."""

from __future__ import annotations

import asyncio
import os
import threading
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import pytest

import aeron_async as aa
from aeron_async.driver.storage import DirectoryStorage
from aeron_async.errors import ClosedError, RegistrationError
from aeron_async.logbuffer.log_buffers import LogBuffers
from aeron_async.testing.world import simulate, tell_and_close
from tests.concurrent.shared import needs_shared_memory
from tests.driver.foreign.client import directory_on, small_context

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from aeron_async.driver.core.publication_image import PublicationImage
    from aeron_async.driver.media_driver import MediaDriver
    from aeron_async.testing.world import World

pytestmark = needs_shared_memory
UDP = "aeron:udp?endpoint=bob:20121|term-length=64k"
IPC = "aeron:ipc?term-length=64k"
NO_ROOM = OSError(28, "no room")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "aeron"


def logs(path: Path) -> list[str]:
    return sorted(each.relative_to(path).as_posix() for each in path.glob("*/*.logbuffer"))


# With threads.


class SlowDisk:
    """Allocates memory to the log of a worker thread when the test lets it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_begun = asyncio.Event()
        self.is_discarded = asyncio.Event()
        self.may_end = threading.Event()
        self.threads: set[threading.Thread] = set()
        self._loop = asyncio.get_running_loop()
        self._allocate = os.posix_fallocate
        self._discard = LogBuffers.close
        monkeypatch.setattr(os, "posix_fallocate", self.allocate)
        monkeypatch.setattr(LogBuffers, "close", lambda log: self.discard(log))  # noqa: PLW0108 - a method of logs

    def allocate(self, fd: int, offset: int, length: int) -> None:
        self.threads.add(threading.current_thread())
        self._loop.call_soon_threadsafe(self.is_begun.set)
        # A loop that waits for its own thread would never continue.
        assert threading.current_thread() is not threading.main_thread()
        assert self.may_end.wait(60)
        self._allocate(fd, offset, length)

    def discard(self, log: LogBuffers) -> None:
        self._discard(log)
        self._loop.call_soon_threadsafe(self.is_discarded.set)


async def test_the_loop_runs_while_a_log_is_allocated(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        aa.MediaDriver.launch(small_context(path)) as driver,
        aa.Aeron.connect(driver) as aeron,
    ):
        disk = SlowDisk(monkeypatch)
        adding = asyncio.create_task(aeron.add_publication(f"{IPC}|sparse=false", 1001))
        await disk.is_begun.wait()
        assert not adding.done()
        (name,) = logs(path)
        disk.may_end.set()
        await adding
        assert logs(path) == [name]
        status = (path / name).stat()
        assert status.st_blocks * 512 >= status.st_size


async def test_a_sparse_log_needs_no_thread(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        aa.MediaDriver.launch(small_context(path)) as driver,
        aa.Aeron.connect(driver) as aeron,
    ):
        disk = SlowDisk(monkeypatch)
        await aeron.add_publication(f"{IPC}|sparse=true", 1001)
        assert not disk.threads


@pytest.mark.parametrize("how", ["aclose", "abort"])
@pytest.mark.parametrize("is_deleted", [False, True])
async def test_a_driver_that_closes_before_a_log_is_allocated_leaves_none(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
    is_deleted: bool,  # noqa: FBT001 - one meaning
) -> None:
    driver = aa.MediaDriver.launch(small_context(path, dir_delete_on_shutdown=is_deleted))
    await driver.start()
    aeron = await aa.Aeron.connect(driver)
    disk = SlowDisk(monkeypatch)
    adding = asyncio.create_task(aeron.add_publication(f"{IPC}|sparse=false", 1001))
    await disk.is_begun.wait()
    await getattr(driver, how)()
    with pytest.raises(ClosedError):
        await adding
    assert logs(path) == []
    # The name is free, and may be that of another log by now.
    disk.may_end.set()
    await disk.is_discarded.wait()
    assert logs(path) == []
    assert path.exists() is not is_deleted  # noqa: ASYNC240 - a test may wait for a disk


# In virtual time.


class Disk:
    """Stands for the threads that create logs, which end when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.works: list[Callable[[], object]] = []
        self._results: dict[Callable[[], object], object] = {}
        self._may_end = asyncio.Event()
        monkeypatch.setattr(anyio.to_thread, "run_sync", self.run_sync)

    async def run_sync(self, work: Callable[[], object], **_: object) -> object:
        self.works.append(work)
        if not self._may_end.is_set():
            await self._may_end.wait()
        else:
            self.finish()
        result = self._results.pop(work)
        if isinstance(result, Exception):
            raise result
        return result

    def finish(self) -> None:
        """Let all threads end, also those for which the driver does not wait, and later ones."""
        works, self.works = self.works, []
        for work in works:
            try:
                self._results[work] = work()
            except Exception as error:  # noqa: BLE001 - the caller gets it
                self._results[work] = error
        self._may_end.set()


class Stage:
    """A client of a driver with an Aeron directory, at which streams arrive, and one elsewhere."""

    def __init__(
        self, path: Path, disk: Disk, bob: MediaDriver, here: aa.Aeron, there: aa.Aeron
    ) -> None:
        self.path = path
        self.disk = disk
        self.bob = bob
        self.here = here
        self.there = there

    def images(self) -> tuple[PublicationImage, ...]:
        return self.bob.conductor.publication_images

    @property
    def logs(self) -> list[str]:
        return logs(self.path)


def on_stage(story: Callable[[Stage], Awaitable[object]]) -> Callable[..., None]:
    """Make a test of a story: it takes a `Stage`, and runs in virtual time."""

    def test(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        async def tell(world: World) -> None:
            async with AsyncExitStack() as stack:
                directory = await stack.enter_async_context(
                    directory_on(
                        world.host("bob"),
                        path,
                        monkeypatch,
                        term_buffer_sparse_file=False,
                        max_images_per_stream=3,
                    )
                )
                alice = await stack.enter_async_context(world.host("alice").driver())
                here = await stack.enter_async_context(aa.Aeron.connect(directory.driver))
                there = await stack.enter_async_context(aa.Aeron.connect(alice))
                disk = Disk(monkeypatch)
                await story(Stage(path, disk, directory.driver, here, there))

        simulate(partial(tell_and_close, tell), limit_s=1e6)

    test.__name__, test.__doc__ = story.__name__, story.__doc__
    return test


CHANNELS = (IPC, "aeron:udp?endpoint=alice:20121|term-length=64k")


@on_stage
async def test_a_log_that_cannot_be_allocated_is_refused(stage: Stage) -> None:
    stage.disk.finish()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "posix_fallocate", refuse)
        for channel in CHANNELS:
            with pytest.raises(RegistrationError, match="no room"):
                await stage.here.add_publication(f"{channel}|sparse=false", 1001)
    assert stage.logs == []
    for channel in CHANNELS:
        await stage.here.add_publication(f"{channel}|sparse=false", 1001)
    assert len(stage.logs) == 2


def refuse(*_: Any) -> None:
    raise NO_ROOM


@on_stage
async def test_a_log_that_its_caller_gave_up_leaves_no_file(stage: Stage) -> None:
    for channel in CHANNELS:
        disk = stage.disk
        adding = asyncio.ensure_future(stage.here.add_publication(f"{channel}|sparse=false", 1001))
        await asyncio.sleep(1)
        assert len(disk.works) == 1
        adding.cancel()
        await asyncio.sleep(1)
        assert adding.cancelled()
        disk.finish()
        await asyncio.sleep(60)
        assert stage.logs == []
        disk._may_end.clear()


@on_stage
async def test_a_driver_that_waits_for_its_disk_shows_that_it_lives(stage: Stage) -> None:
    adding = asyncio.ensure_future(stage.here.add_publication(f"{IPC}|sparse=false", 1001))
    storage = stage.bob._storage
    assert isinstance(storage, DirectoryStorage)
    await asyncio.sleep(0.5)
    for _ in range(30):
        before_ms = storage.commands.consumer_heartbeat_ms
        await asyncio.sleep(1)
        assert storage.commands.consumer_heartbeat_ms >= before_ms + 999
    assert not adding.done()
    stage.disk.finish()
    await adding


@on_stage
async def test_an_endpoint_stays_open_while_a_log_is_allocated(stage: Stage) -> None:
    channel = CHANNELS[1]
    first = await stage.here.add_publication(f"{channel}|sparse=true", 1001)
    adding = asyncio.ensure_future(stage.here.add_publication(f"{channel}|sparse=false", 1002))
    await asyncio.sleep(1)
    await first.aclose()
    await asyncio.sleep(60)
    assert stage.bob.conductor.network_publications == ()
    stage.disk.finish()
    publication = await adding
    subscription = await stage.there.add_subscription(channel, 1002)
    await publication.offer(b"through the same socket")
    assert bytes(await anext(aiter(subscription))) == b"through the same socket"


@on_stage
async def test_a_publication_that_cannot_be_made_closes_its_endpoint(stage: Stage) -> None:
    stage.disk.finish()
    endpoints = stage.bob.conductor._publications.endpoints
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "posix_fallocate", refuse)
        with pytest.raises(RegistrationError):
            await stage.here.add_publication(f"{CHANNELS[1]}|sparse=false", 1001)
    assert not [*endpoints]


@on_stage
async def test_an_image_is_made_when_its_log_was_allocated(stage: Stage) -> None:
    subscription = await stage.here.add_subscription(UDP, 1001)
    publication = await stage.there.add_publication(UDP, 1001)
    # The source repeats its SETUP, which begins no other log.
    await asyncio.sleep(3)
    assert len(stage.disk.works) == 1
    assert stage.images() == ()
    stage.disk.finish()
    await publication.offer(b"hello")
    assert bytes(await anext(aiter(subscription))) == b"hello"
    assert len(stage.images()) == len(stage.logs) == 1
    (image,) = stage.images()
    budget = stage.bob.conductor._subscriptions.images._budget
    assert budget.log_length == 3 * image.log.term_length


@on_stage
async def test_images_that_are_being_made_count_as_images(stage: Stage) -> None:
    await stage.here.add_subscription(UDP, 1001)
    limit = stage.bob.context.max_images_per_stream
    for _ in range(limit + 2):
        await stage.there.add_exclusive_publication(UDP, 1001)
    await asyncio.sleep(3)
    assert len(stage.disk.works) == limit
    stage.disk.finish()
    await asyncio.sleep(3)
    assert len(stage.images()) == limit


@on_stage
async def test_an_image_that_no_subscription_wants_any_more_is_not_made(stage: Stage) -> None:
    subscription = await stage.here.add_subscription(UDP, 1001)
    await stage.there.add_publication(UDP, 1001)
    await asyncio.sleep(3)
    await subscription.aclose()
    stage.disk.finish()
    await asyncio.sleep(3)
    assert (stage.images(), stage.logs) == ((), [])
    # Another subscription gets the stream by its next SETUP.
    await stage.here.add_subscription(UDP, 1001)
    await asyncio.sleep(3)
    assert len(stage.images()) == len(stage.logs) == 1


@on_stage
async def test_an_image_without_room_is_refused_until_there_is_room(stage: Stage) -> None:
    stage.disk.finish()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "posix_fallocate", refuse)
        await stage.here.add_subscription(UDP, 1001)
        await stage.there.add_publication(UDP, 1001)
        await asyncio.sleep(3)
    images = stage.bob.conductor._subscriptions.images
    assert (stage.images(), stage.logs, images._budget.log_length) == ((), [], 0)
    assert "no room" in next(iter(images.refusals._entries.values())).refusal.reason()
    await asyncio.sleep(3)
    assert len(stage.images()) == 1


@on_stage
async def test_an_image_without_a_thread_is_refused_until_there_is_one(stage: Stage) -> None:
    async def no_thread(*_: object, **__: object) -> None:
        message = "can't start new thread"
        raise RuntimeError(message)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(anyio.to_thread, "run_sync", no_thread)
        await stage.here.add_subscription(UDP, 1001)
        await stage.there.add_publication(UDP, 1001)
        await asyncio.sleep(3)
        assert not stage.images()
    stage.disk.finish()
    await asyncio.sleep(3)
    assert len(stage.images()) == 1


@on_stage
async def test_a_driver_that_closes_before_an_image_is_made_leaves_no_log(stage: Stage) -> None:
    await stage.here.add_subscription(UDP, 1001)
    await stage.there.add_publication(UDP, 1001)
    await asyncio.sleep(3)
    assert len(stage.disk.works) == 1
    await stage.bob.aclose()
    stage.disk.finish()
    assert stage.logs == []
