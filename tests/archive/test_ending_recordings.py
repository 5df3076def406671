"""How recordings and archives end, and who is left alone when others do."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING, Any
from weakref import ref

import pytest
from structlog.testing import capture_logs

from aeron_async.archive import ArchiveContext, LocalArchive
from aeron_async.archive.disk.recording_writer import RecordingWriter
from aeron_async.archive.recording_session import open_write_queue
from aeron_async.errors import ArchiveError, ClosedError, RegistrationError, StorageError
from tests.archive.test_record_and_replay import IPC, STREAM, messages, record

if TYPE_CHECKING:
    from pathlib import Path

    from aeron_async.archive.disk.files import File
    from aeron_async.archive.recording_session import BlockWriteQueue
    from tests.archive.conftest import OpenArchive


class HeldQueue:
    """A queue that closes when it may."""

    def __init__(self, queue: BlockWriteQueue) -> None:
        self._queue = queue
        self.is_closing = asyncio.Event()
        self.may_close = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)

    async def aclose(self) -> None:
        self.is_closing.set()
        await self.may_close.wait()
        await self._queue.aclose()


async def test_a_recording_is_over_when_nothing_is_left_to_be_written(
    open_archive: OpenArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues: list[HeldQueue] = []

    def held(*arguments: Any, **keywords: Any) -> HeldQueue:
        queues.append(HeldQueue(open_write_queue(*arguments, **keywords)))
        return queues[-1]

    monkeypatch.setattr("aeron_async.archive.recording_session.open_write_queue", held)
    async with open_archive() as (aeron, archive):
        await archive.start_recording(IPC, STREAM)
        async with await aeron.add_exclusive_publication(IPC, STREAM) as publication:
            for each in messages(10):
                await publication.offer(each)
            stopping = asyncio.ensure_future(archive.stop_recording(IPC, STREAM))
            async with asyncio.timeout(10):
                while not queues:
                    await asyncio.sleep(0)
                await queues[0].is_closing.wait()
            session = archive.recording_sessions[0]
            # Who replays and finds nothing more waits for what is still under way.
            found = [session.is_over]
            queues[0].may_close.set()
            await stopping
            assert [*found, session.is_over] == [False, True]
            assert session.position == publication.position == await archive.stop_position(0)


async def test_an_archive_whose_opening_is_cancelled_lets_go_of_its_directory(
    open_archive: OpenArchive, tmp_path: Path
) -> None:
    async with open_archive() as (aeron, _):
        context = ArchiveContext(directory=str(tmp_path / "other"), low_storage_threshold=0)
        opening = asyncio.ensure_future(LocalArchive.open(aeron, context))
        await asyncio.sleep(0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        async with await LocalArchive.open(aeron, context) as archive:
            assert [each async for each in archive.recordings()] == []


async def test_a_second_source_does_not_end_the_extension_of_a_recording(
    open_archive: OpenArchive,
) -> None:
    sent = messages(100)
    async with open_archive() as (aeron, archive):
        await record(aeron, archive, sent[:10])
        await archive.extend_recording(0, IPC, STREAM)
        async with (
            await archive.extending_publication(0, IPC, STREAM) as publication,
            await aeron.add_exclusive_publication(IPC, STREAM) as stranger,
        ):
            for number, each in enumerate(sent[10:]):
                await publication.offer(each, timeout=5)
                # Nor is it held up, though nobody records it.
                await stranger.offer(bytes(5_000 + number), timeout=5)
            await archive.stop_recording(IPC, STREAM)
        assert [each.data async for each in archive.replay(0)] == sent


async def test_a_source_that_cannot_be_recorded_ends_none_of_the_others(
    open_archive: OpenArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        message = "no counter is left"
        raise RegistrationError(message)

    sent = messages(100)
    async with open_archive() as (aeron, archive):
        await archive.start_recording(IPC, STREAM)
        async with await aeron.add_exclusive_publication(IPC, STREAM) as publication:
            await publication.offer(sent[0], timeout=5)
            async with asyncio.timeout(10):
                while not archive.recording_sessions:
                    await asyncio.sleep(0)
            monkeypatch.setattr("aeron_async.archive.recording_session.recording_counter", refuse)
            async with await aeron.add_exclusive_publication(IPC, STREAM) as other:
                for each in sent[1:]:
                    await publication.offer(each, timeout=5)
                    await other.offer(each, timeout=5)
                with pytest.raises(ArchiveError, match="no counter is left"):
                    await archive.stop_recording(IPC, STREAM)
        assert [each.data async for each in archive.replay(0)] == sent
        assert await archive.stop_position(1) == 0


async def test_what_begins_while_the_archive_closes_does_not_begin(
    open_archive: OpenArchive,
) -> None:
    async with open_archive() as (aeron, archive):
        await record(aeron, archive, messages(3))
        starting = asyncio.ensure_future(archive.start_recording(IPC, STREAM))
        replaying = asyncio.ensure_future(archive.start_replay(0, IPC, STREAM + 1))
        await asyncio.sleep(0)
        await archive.aclose()
        for each in starting, replaying:
            with pytest.raises(ClosedError):
                await each
        async with await aeron.add_exclusive_publication(IPC, STREAM) as publication:
            for _ in range(10):
                await asyncio.sleep(0)
            # No subscription was left behind that would hold it up.
            assert not publication.is_connected


async def test_what_somebody_stops_while_the_archive_closes_is_recorded_to_its_end(
    open_archive: OpenArchive,
) -> None:
    sent = messages(100)
    async with open_archive() as (aeron, archive):
        await archive.start_recording(IPC, STREAM)
        async with await aeron.add_exclusive_publication(IPC, STREAM) as publication:
            for each in sent:
                await publication.offer(each)
            stopping = asyncio.ensure_future(archive.stop_recording(IPC, STREAM))
            await asyncio.sleep(0)
            await archive.aclose()
            await stopping
    async with open_archive() as (_, archive):
        assert [each.data async for each in archive.replay(0)] == sent


async def test_no_more_begin_at_once_than_may(open_archive: OpenArchive) -> None:
    async with open_archive(max_concurrent_recordings=1) as (_, archive):
        found = await asyncio.gather(
            *(archive.start_recording(IPC, number) for number in range(3)), return_exceptions=True
        )
        # Whose turn on the disk comes first is anybody's.
        assert sum(isinstance(each, ArchiveError) for each in found) == 2
        assert len(await archive.recording_subscriptions()) == 1


async def test_signals_that_nobody_reads_any_more_are_kept_for_nobody(
    open_archive: OpenArchive,
) -> None:
    async with open_archive() as (aeron, archive):
        left = archive.signals()
        kept = archive.signals()
        found = ref(left)
        del left
        gc.collect()
        assert found() is None
        await record(aeron, archive, messages(3))
        assert (await anext(kept)).recording_id == 0


async def test_a_replay_may_be_closed_after_its_archive(open_archive: OpenArchive) -> None:
    async with open_archive() as (aeron, archive):
        await record(aeron, archive, messages(3))
        async with archive.replay(0) as replay:
            assert (await anext(replay)).data == messages(3)[0]
            await archive.aclose()
        await replay.aclose()


async def test_a_recording_whose_beginning_is_cancelled_leaves_no_file_open(
    open_archive: OpenArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_opening = asyncio.Event()
    closed: list[RecordingWriter] = []
    close, open_segment = RecordingWriter.close, RecordingWriter._open_segment
    loop = asyncio.get_running_loop()

    def opening(self: RecordingWriter, *, is_new: bool) -> File:
        loop.call_soon_threadsafe(is_opening.set)
        return open_segment(self, is_new=is_new)

    def closing(self: RecordingWriter) -> None:
        closed.append(self)
        close(self)

    monkeypatch.setattr(RecordingWriter, "_open_segment", opening)
    monkeypatch.setattr(RecordingWriter, "close", closing)
    async with open_archive() as (aeron, archive):
        await archive.start_recording(IPC, STREAM)
        async with await aeron.add_exclusive_publication(IPC, STREAM):
            await is_opening.wait()
            name = "aeron-archive-recording-"
            (task,) = [each for each in asyncio.all_tasks() if each.get_name().startswith(name)]
            task.cancel()
            await asyncio.wait((task,))
            assert len(closed) == 1
            assert await archive.stop_position(0) == 0


class FailingQueue(HeldQueue):
    """Writes everything, says so only when it is closed, and has failed then."""

    failure: StorageError | None = None

    def collect(self) -> int:
        return 0

    async def aclose(self) -> None:
        try:
            await super().aclose()
        finally:
            await self._queue.aclose()
            self.failure = StorageError("the disk is full")


async def test_what_failed_while_a_recording_was_cancelled_is_told_with_where_it_ended(
    open_archive: OpenArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error was dropped, or told with a position before that of the catalog."""
    queues: list[FailingQueue] = []

    def failing(*arguments: Any, **keywords: Any) -> FailingQueue:
        queues.append(FailingQueue(open_write_queue(*arguments, **keywords)))
        return queues[-1]

    monkeypatch.setattr("aeron_async.archive.recording_session.open_write_queue", failing)
    failures: list[Exception] = []
    with capture_logs() as lines:
        async with open_archive() as (aeron, archive):
            await archive.start_recording(IPC, STREAM, on_failed=failures.append)
            async with await aeron.add_exclusive_publication(IPC, STREAM) as publication:
                await publication.offer(messages(1)[0])
                async with asyncio.timeout(10):
                    while not queues or queues[0].begun < publication.position:
                        await asyncio.sleep(0)
                name = "aeron-archive-recording-"
                (task,) = [each for each in asyncio.all_tasks() if each.get_name().startswith(name)]
                task.cancel()
                await queues[0].is_closing.wait()
                task.cancel()
                await asyncio.wait((task,))
                stop = publication.position
                assert await archive.stop_position(0) == stop
    (line,) = [each for each in lines if each["event"] == "recording_failed"]
    assert line["position"] == stop
    assert [str(each) for each in failures] == ["the disk is full"]
