"""What an archive says and does when its catalog cannot be read or written."""

from __future__ import annotations

import asyncio
import errno
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from aeron_async.archive import disk_access
from aeron_async.archive.disk.catalog import Catalog
from aeron_async.archive.disk.files import OsFile
from aeron_async.archive.recordings import RecordingEnds
from aeron_async.archive.resources import log_failed_task
from aeron_async.errors import StorageError
from aeron_async.tasks import TaskOwner
from tests.archive.test_record_and_replay import IPC, STREAM, messages, record

if TYPE_CHECKING:
    from tests.archive.conftest import OpenArchive


def broken(*_: object, **__: object) -> int:
    raise OSError(errno.EIO, "Input/output error")


async def test_an_end_that_cannot_be_written_is_known_and_written_later(
    open_archive: OpenArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = messages(20)
    monkeypatch.setattr("aeron_async.archive.recordings.TRY_AGAIN_SECONDS", 0)
    async with open_archive() as (aeron, archive):
        await archive.start_recording(IPC, STREAM)
        async with await aeron.add_exclusive_publication(IPC, STREAM) as publication:
            for each in sent:
                await publication.offer(each)
            monkeypatch.setattr(Catalog, "update", broken)
            with pytest.raises(StorageError, match="Input/output error"):
                await archive.stop_recording(IPC, STREAM)
            stop = publication.position
        # It is what it is, whatever the catalog says.
        assert await archive.stop_position(0) is None
        assert await archive.max_recorded_position(0) == stop
        assert [each.data async for each in archive.replay(0)] == sent
        monkeypatch.undo()
        async with asyncio.timeout(5):
            while await archive.stop_position(0) is None:
                await asyncio.sleep(0)
        assert await archive.stop_position(0) == stop
        await archive.purge_recording(0)


async def test_an_end_that_was_never_written_is_found_when_the_archive_opens_again(
    open_archive: OpenArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = messages(20)
    async with open_archive() as (aeron, archive):
        await archive.start_recording(IPC, STREAM)
        async with await aeron.add_exclusive_publication(IPC, STREAM) as publication:
            for each in sent:
                await publication.offer(each)
            monkeypatch.setattr(Catalog, "update", broken)
            stop = publication.position
            with pytest.raises(StorageError):
                await archive.stop_recording(IPC, STREAM)
    monkeypatch.undo()
    async with open_archive() as (_, archive):
        assert await archive.stop_position(0) == stop
        assert [each.data async for each in archive.replay(0)] == sent


async def test_an_end_that_is_tried_again_does_not_hide_one_that_came_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class BrokenCatalog:
        """A catalog of one recording."""

        is_broken = True
        stop_position = -1

        def __init__(self) -> None:
            self.blocking = self

        def __contains__(self, recording_id: object) -> bool:
            return recording_id == 0

        def get(self, recording_id: int) -> BrokenCatalog:
            assert recording_id == 0
            return self

        def update(self, recording_id: int, *, stop_position: int, stop_timestamp_ms: int) -> None:
            assert recording_id < stop_timestamp_ms
            self.stop_position = stop_position

        async def call(self, function: Any, *arguments: Any) -> None:
            if self.is_broken:
                message = "Input/output error"
                raise StorageError(message)
            function(*arguments)

    monkeypatch.setattr("aeron_async.archive.recordings.TRY_AGAIN_SECONDS", 0)
    catalog, tasks = BrokenCatalog(), TaskOwner(log_failed_task)
    clock = SimpleNamespace(clock=SimpleNamespace(epoch_ms=lambda: 1))
    resources: Any = SimpleNamespace(aeron=clock, catalog=catalog, tasks=tasks)
    ends = RecordingEnds(resources, int)
    assert await ends.write(0, 64) is not None
    # What could not be written was, and the recording was extended.
    ends.forget(0)
    assert await ends.write(0, 128) is not None
    catalog.is_broken = False
    for _ in range(10):
        await asyncio.sleep(0)
    assert catalog.stop_position == 128
    assert ends.position(0) is None
    await tasks.aclose()


async def test_a_catalog_that_cannot_be_read_is_a_failure_of_the_disk(
    open_archive: OpenArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_archive() as (aeron, archive):
        await record(aeron, archive, messages(3))
        monkeypatch.setattr(OsFile, "read_into", broken)
        with pytest.raises(StorageError, match="Input/output error"):
            await archive.describe(0)
        with pytest.raises(StorageError):
            await anext(archive.replay(0))
        monkeypatch.undo()
        assert (await archive.describe(0)).recording_id == 0


async def test_a_listing_passes_over_what_is_purged_meanwhile(
    open_archive: OpenArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_access, "SHORTEST_PAGE", 1)
    monkeypatch.setattr(disk_access, "LONGEST_PAGE", 1)
    async with open_archive() as (aeron, archive):
        for _ in range(3):
            await record(aeron, archive, [b"x"])
        listed = archive.recordings()
        assert (await anext(listed)).recording_id == 0
        await archive.purge_recording(1)
        assert [each.recording_id async for each in listed] == [2]
