"""What an archive tells of its recordings, and how it makes room."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from aeron_async.archive import RecordingSignal
from aeron_async.archive.disk.catalog import Catalog
from aeron_async.archive.disk.files import OsDirectory
from aeron_async.archive.disk_access import AsyncCatalog, DiskThreads, InlineDisk
from aeron_async.errors import (
    ArchiveError,
    ArchiveErrorCode,
    ArchiveFileError,
    InvalidPositionError,
)
from tests.archive.disk.streams import described
from tests.archive.test_record_and_replay import IPC, STREAM, messages, record

if TYPE_CHECKING:
    from pathlib import Path

    from tests.archive.conftest import OpenArchive


async def test_recordings_are_listed_described_and_found(open_archive: OpenArchive) -> None:
    async with open_archive() as (aeron, archive):
        for _ in range(3):
            await record(aeron, archive, messages(5))
        assert [each.recording_id async for each in archive.recordings()] == [0, 1, 2]
        assert [each.recording_id async for each in archive.recordings(1)] == [1, 2]
        found = [each.recording_id async for each in archive.recordings(channel="udp")]
        assert found == []
        found = [each.recording_id async for each in archive.recordings(stream_id=STREAM + 1)]
        assert found == []
        second = await archive.describe(1)

        async def last(min_recording_id: int) -> int | None:
            return await archive.find_last(
                channel="ipc",
                stream_id=STREAM,
                session_id=second.session_id,
                min_recording_id=min_recording_id,
            )

        assert (await last(0), await last(2)) == (1, None)
        assert await archive.start_position(1) == 0
        assert await archive.stop_position(1) == await archive.max_recorded_position(1)


async def test_many_recordings_are_listed_in_few_trips_to_the_disk(
    open_archive: OpenArchive, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "archive").mkdir()
    catalog = Catalog.open(OsDirectory(tmp_path / "archive"))
    for number in range(500):
        catalog.add(described(stop_position=0, stream_id=10 + number % 2, session_id=number // 100))
    catalog.close()
    async with open_archive() as (_, archive):
        calls, call = [], AsyncCatalog.call

        async def counted(self: AsyncCatalog, *args: Any, **more: Any) -> Any:
            calls.append(args)
            return await call(self, *args, **more)

        monkeypatch.setattr(AsyncCatalog, "call", counted)
        assert [each.recording_id async for each in archive.recordings(3)] == list(range(3, 500))
        assert len(calls) <= 6
        calls.clear()
        found = [each.recording_id async for each in archive.recordings(stream_id=11)]
        assert found == list(range(1, 500, 2))
        assert await archive.find_last(channel="ipc", stream_id=10, session_id=2) == 298
        assert len(calls) <= 12


async def test_recordings_before_a_damaged_entry_are_listed(
    open_archive: OpenArchive, tmp_path: Path
) -> None:
    (tmp_path / "archive").mkdir()
    catalog = Catalog.open(OsDirectory(tmp_path / "archive"))
    for _ in range(3):
        catalog.add(described(stop_position=0))
    catalog.close()
    with (tmp_path / "archive" / "archive.catalog").open("r+b") as file:
        # The term length of the last.
        file.seek(32 + 2 * 192 + 96)
        file.write(bytes(4))
    async with open_archive() as (_, archive):
        listed = archive.recordings()
        assert [(await anext(listed)).recording_id for _ in range(2)] == [0, 1]
        with pytest.raises(ArchiveFileError, match="term length 0"):
            await anext(listed)


async def test_a_recording_is_stopped_by_subscription_or_by_identity(
    open_archive: OpenArchive,
) -> None:
    async with open_archive() as (aeron, archive):
        subscription_id = await archive.start_recording(IPC, STREAM)
        async with await aeron.add_exclusive_publication(IPC, STREAM) as publication:
            await publication.offer(b"one")
            await archive.stop_recording_subscription(subscription_id)
            with pytest.raises(ArchiveError) as caught:
                await archive.stop_recording_subscription(subscription_id)
            assert caught.value.code is ArchiveErrorCode.UNKNOWN_SUBSCRIPTION
            assert not await archive.stop_recording_by_identity(0)
        await archive.start_recording(IPC, STREAM)
        signals = archive.signals()
        async with await aeron.add_exclusive_publication(IPC, STREAM) as publication:
            await publication.offer(b"two")
            assert (await anext(signals)).recording_id == 1
            assert await archive.stop_position(1) is None
            for forbidden in (archive.truncate(1, 0), archive.purge_recording(1)):
                with pytest.raises(ArchiveError) as caught:
                    await forbidden
                assert caught.value.code is ArchiveErrorCode.ACTIVE_RECORDING
            with pytest.raises(ArchiveError) as caught:
                await archive.extend_recording(1, IPC, STREAM)
            assert caught.value.code is ArchiveErrorCode.ACTIVE_RECORDING
            assert await archive.stop_recording_by_identity(1)
        assert [each.data async for each in archive.replay(1)] == [b"two"]


async def test_segments_are_detached_attached_and_deleted(open_archive: OpenArchive) -> None:
    sent = messages(100)
    async with open_archive() as (aeron, archive):
        await record(aeron, archive, sent)
        signals = archive.signals()
        await archive.detach_segments(0, 131_072)
        assert await archive.start_position(0) == 131_072
        assert await archive.attach_segments(0) == 2
        assert [each.data async for each in archive.replay(0)] == sent
        await archive.detach_segments(0, 65_536)
        assert await archive.delete_detached_segments(0) == 1
        told = await anext(signals)
        assert (told.signal, told.position) == (RecordingSignal.DELETE, 65_536)
        async with archive.replay(0) as replay:
            await anext(replay)
            with pytest.raises(InvalidPositionError) as caught:
                await archive.purge_segments(0, 131_072)
            assert caught.value.nearest == 65_536
            with pytest.raises(ArchiveError, match="active replay"):
                await archive.truncate(0, 65_536)


async def test_all_replays_of_a_recording_are_stopped(open_archive: OpenArchive) -> None:
    async with open_archive() as (aeron, archive):
        await record(aeron, archive, messages(300))
        for stream_id in (50, 51):
            await aeron.add_subscription(IPC, stream_id)
            await archive.start_replay(0, IPC, stream_id)
        with pytest.raises(ArchiveError, match="active replay"):
            await archive.purge_recording(0)
        await archive.stop_all_replays(1)
        await archive.stop_all_replays(0)
        assert await archive.purge_recording(0) > 0


async def test_work_on_the_disk_is_done_before_its_caller_is_cancelled() -> None:
    disk = DiskThreads()
    begun = asyncio.Event()
    is_cancelled = threading.Event()
    done: list[int] = []
    loop = asyncio.get_running_loop()

    def work() -> None:
        loop.call_soon_threadsafe(begun.set)
        is_cancelled.wait(60)
        done.extend(1 for _ in range(1000))

    task = asyncio.ensure_future(disk.run(work))
    await begun.wait()
    task.cancel()
    is_cancelled.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(done) == 1000
    assert await disk.run(int, "7", base=8) == 7
    await disk.aclose()


async def test_work_that_fails_says_so_where_it_is_waited_for() -> None:
    disk = InlineDisk()
    with pytest.raises(ZeroDivisionError):
        await disk.begin(divmod, 1, 0)
    assert await disk.begin(divmod, 7, 2) == (3, 1)
