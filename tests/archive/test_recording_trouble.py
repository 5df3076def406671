"""What becomes of a recording when something goes wrong, and who is told."""

from __future__ import annotations

import asyncio
import errno
import os
from typing import TYPE_CHECKING

import pytest

from aeron_async import Aeron, DriverContext
from aeron_async._speedups import BlockWriter
from aeron_async.archive import ArchiveContext, LocalArchive, RecordingSignal
from aeron_async.archive.disk.files import OsDirectory, OsFile
from aeron_async.archive.disk_access import InlineDisk
from aeron_async.errors import (
    ArchiveBusyError,
    ArchiveError,
    ArchiveErrorCode,
    ArchiveFileError,
    BusyError,
    ConfigurationError,
    RegistrationError,
    StorageError,
    UnknownRecordingError,
)
from tests.archive.test_record_and_replay import IPC, STREAM, messages, record
from tests.by_hand import NOT_BUILT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from typing_extensions import Buffer

    from aeron_async import Subscription
    from aeron_async.archive import Replay
    from tests.archive.conftest import OpenArchive

    Refuse = Callable[[Callable[[str], bool]], None]

NEEDS_COMPILED = pytest.mark.skipif(BlockWriter is None, reason=NOT_BUILT)


@pytest.fixture(params=["pool", pytest.param("thread", marks=NEEDS_COMPILED)])
def refuse(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Refuse]:
    """Return what lets writes to a file fail as on a full disk, in either queue."""

    def begin(is_full: Callable[[str], bool]) -> None:
        write, number = OsFile.write, OsFile.number

        def refused(self: OsFile, buffers: Sequence[Buffer], offset: int) -> int:
            if is_full(self.name):
                raise OSError(errno.ENOSPC, "No space left on device")
            return write(self, buffers, offset)

        def full(self: OsFile) -> int | None:
            return device if is_full(self.name) else number(self)

        if request.param == "pool":
            monkeypatch.setattr(OsFile, "write", refused)
            monkeypatch.setattr(OsFile, "number", lambda _: None)
        else:
            monkeypatch.setattr(OsFile, "number", full)

    device = os.open("/dev/full", os.O_WRONLY)
    yield begin
    os.close(device)


async def test_a_full_disk_ends_the_recording_and_leaves_what_was_written(
    open_archive: OpenArchive, monkeypatch: pytest.MonkeyPatch, refuse: Refuse
) -> None:
    sent = messages(300)
    async with open_archive() as (aeron, archive):
        signals = archive.signals()
        refuse(lambda name: name == "0-65536.rec")
        await archive.start_recording(IPC, STREAM)
        subscription = await aeron.add_subscription(IPC, STREAM)
        reading = asyncio.ensure_future(take(subscription, len(sent)))
        async with await aeron.add_exclusive_publication(IPC, STREAM) as publication:
            for each in sent:
                # Nobody is held up by a recording that has failed.
                await publication.offer(each, timeout=5)
        assert await reading == sent
        told = [await anext(signals) for _ in range(2)]
        assert [each.signal for each in told] == [RecordingSignal.START, RecordingSignal.STOP]
        assert told[1].position == await archive.stop_position(0) == 65_536
        monkeypatch.undo()
        replayed = [each.data async for each in archive.replay(0)]
        assert replayed == sent[: len(replayed)]
        assert len(replayed) > 10


async def take(subscription: Subscription | Replay, count: int) -> list[bytes]:
    return [(await anext(subscription)).data for _ in range(count)]


async def test_who_stops_a_recording_that_failed_is_told(
    open_archive: OpenArchive, refuse: Refuse
) -> None:
    async with open_archive() as (aeron, archive):
        await archive.start_recording(IPC, STREAM)
        async with await aeron.add_exclusive_publication(IPC, STREAM) as publication:
            refuse(lambda name: name.endswith(".rec"))
            await publication.offer(b"lost")
            with pytest.raises(StorageError, match="No space left"):
                await archive.stop_recording(IPC, STREAM)
        assert await archive.stop_position(0) == 0


async def test_a_damaged_frame_is_named_and_what_lies_before_it_is_replayed(
    open_archive: OpenArchive, tmp_path: Path
) -> None:
    async with open_archive() as (aeron, archive):
        await record(aeron, archive, [bytes(1000)] * 20)
        path = tmp_path / "archive" / "0-0.rec"
        data = bytearray(path.read_bytes())
        data[10 * 1056 + 16] ^= 0xFF
        path.write_bytes(data)
        replay = archive.replay(0)
        received = [await anext(replay) for _ in range(10)]
        with pytest.raises(ArchiveFileError) as caught:
            await anext(replay)
        assert len(received) == 10
        assert (caught.value.file, caught.value.offset) == ("0-0.rec", 10 * 1056)


async def test_checksums_are_written_and_looked_at(
    open_archive: OpenArchive, tmp_path: Path
) -> None:
    sent = messages(50)
    both = {"record_checksum": "crc32", "replay_checksum": "crc32"}
    async with open_archive(**both) as (aeron, archive):
        await record(aeron, archive, sent)
        assert [each.data async for each in archive.replay(0)] == sent
        path = tmp_path / "archive" / "0-0.rec"
        data = bytearray(path.read_bytes())
        data[2000] ^= 1
        path.write_bytes(data)
        with pytest.raises(ArchiveFileError, match="checksum"):
            await take(archive.replay(0), len(sent))


async def test_two_archives_on_one_directory_refuse(open_archive: OpenArchive) -> None:
    async with open_archive():
        with pytest.raises(ArchiveBusyError):
            async with open_archive():
                pass  # pragma: no cover - it is not reached


async def test_one_task_reads_a_replay(open_archive: OpenArchive) -> None:
    async with open_archive() as (aeron, archive):
        await record(aeron, archive, [b"one"])
        async with archive.replay(0, follow=True) as replay:
            assert (await anext(replay)).data == b"one"
            waiting = asyncio.ensure_future(anext(replay))
            await asyncio.sleep(0)
            with pytest.raises(BusyError):
                await anext(replay)
            waiting.cancel()


async def test_a_replay_that_was_cancelled_goes_on_where_it_was(
    open_archive: OpenArchive,
) -> None:
    sent = messages(100)
    async with open_archive() as (aeron, archive):
        await record(aeron, archive, sent)
        async with archive.replay(0) as replay:
            received: list[bytes] = []
            while len(received) < len(sent):
                reading = asyncio.ensure_future(anext(replay))
                await asyncio.sleep(0)
                if not reading.done():
                    reading.cancel()
                try:
                    received.append((await reading).data)
                except asyncio.CancelledError:
                    received.append((await anext(replay)).data)
        assert received == sent


async def test_an_extension_that_begins_elsewhere_is_refused(open_archive: OpenArchive) -> None:
    async with open_archive() as (aeron, archive):
        await record(aeron, archive, messages(10))
        text = "cannot extend recording 0 with streamId=8 for existing streamId=7"
        with pytest.raises(UnknownRecordingError, match=text):
            await archive.extend_recording(0, IPC, STREAM + 1)
        await archive.extend_recording(0, IPC, STREAM)
        async with await aeron.add_exclusive_publication(IPC, STREAM) as publication:
            await publication.offer(b"elsewhere")
            with pytest.raises(ArchiveError) as caught:
                await archive.stop_recording(IPC, STREAM)
        assert caught.value.code is ArchiveErrorCode.INVALID_EXTENSION


async def test_a_recording_stops_by_itself_with_its_first_source(
    open_archive: OpenArchive,
) -> None:
    async with open_archive() as (aeron, archive):
        signals = archive.signals()
        await archive.start_recording(IPC, STREAM, auto_stop=True)
        async with await aeron.add_exclusive_publication(IPC, STREAM) as publication:
            await publication.offer(b"once")
        told = [await anext(signals) for _ in range(2)]
        assert told[1].signal is RecordingSignal.STOP
        assert await archive.recording_position(0) is None
        await archive.start_recording(IPC, STREAM)


async def test_limits_and_low_storage_refuse_a_recording(open_archive: OpenArchive) -> None:
    async with open_archive(max_concurrent_recordings=1) as (_, archive):
        await archive.start_recording(IPC, 1)
        with pytest.raises(ArchiveError) as caught:
            await archive.start_recording(IPC, 2)
        assert caught.value.code is ArchiveErrorCode.MAX_RECORDINGS
    async with open_archive(low_storage_threshold=1 << 62) as (_, archive):
        with pytest.raises(ArchiveError) as caught:
            await archive.start_recording(IPC, 1)
        assert caught.value.code is ArchiveErrorCode.STORAGE_SPACE


async def test_a_counter_shows_the_position_while_it_is_recorded(
    open_archive: OpenArchive,
) -> None:
    async with open_archive(archive_id=42) as (aeron, archive):
        await archive.start_recording(IPC, STREAM)
        async with await aeron.add_exclusive_publication(IPC, STREAM) as publication:
            await publication.offer(b"counted")
            while await_position(aeron) != publication.position:
                await asyncio.sleep(0)
            record = next(each for each in aeron.counters if each.type_id == 100)
            session_id = publication.session_id
            assert record.label == f"rec-pos: 0 {session_id} {STREAM} aeron:ipc - archiveId=42"
            assert record.key[:16] == (0).to_bytes(8, "little") + session_id.to_bytes(
                4, "little", signed=True
            ) + (9).to_bytes(4, "little")
            assert record.key[16:33] == b"aeron:ipc" + (42).to_bytes(8, "little")
            await archive.stop_recording(IPC, STREAM)
        assert await_position(aeron) is None


def await_position(aeron: Aeron) -> int | None:
    return next((each.value for each in aeron.counters if each.type_id == 100), None)


async def test_everything_can_be_done_at_once_where_there_are_no_threads(
    tmp_path: Path,
) -> None:
    sent = messages(50)
    context = ArchiveContext(segment_length=65_536, low_storage_threshold=0)
    directory = OsDirectory(tmp_path)
    driver = DriverContext(ipc_term_buffer_length=65_536)
    async with (
        Aeron.connect(context=driver) as aeron,
        await LocalArchive.open(aeron, context, directory=directory, disk=InlineDisk()) as archive,
    ):
        await record(aeron, archive, sent)
        assert [each.data async for each in archive.replay(0)] == sent


@pytest.mark.parametrize(
    "settings",
    [
        {"segment_length": 100_000},
        {"file_sync_level": 1},
        {"file_sync_level": 3, "catalog_file_sync_level": 3},
        {"record_checksum": "md5"},
        {"directory": ""},
        {"directory": 7},
        {"control_channel": "nowhere"},
        {"max_concurrent_recordings": 0},
        {"control_stream_id": 1 << 40},
    ],
)
def test_a_context_that_cannot_be_meant_is_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError):
        ArchiveContext(**settings)  # type: ignore[arg-type]


def test_a_context_reads_the_names_of_aeron() -> None:
    context = ArchiveContext.from_environment(
        {
            "AERON_ARCHIVE_DIR": "here",
            "AERON_ARCHIVE_SEGMENT_FILE_LENGTH": "1m",
            "AERON_ARCHIVE_CONNECT_TIMEOUT": "2s",
            "AERON_ARCHIVE_ID": "-7",
        },
        max_concurrent_replays=3,
    )
    assert (context.directory, context.segment_length) == ("here", 1 << 20)
    assert (context.connect_timeout_ns, context.archive_id) == (2_000_000_000, -7)
    assert context.max_concurrent_replays == 3
    with pytest.raises(ConfigurationError, match="AERON_ARCHIVE_ID"):
        ArchiveContext.from_environment({"AERON_ARCHIVE_ID": "seven"})


async def test_a_recording_that_cannot_begin_holds_nobody_up(
    open_archive: OpenArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        message = "no counter is left"
        raise RegistrationError(message)

    sent = messages(100)
    async with open_archive() as (aeron, archive):
        monkeypatch.setattr("aeron_async.archive.recording_session.recording_counter", refuse)
        await archive.start_recording(IPC, STREAM)
        subscription = await aeron.add_subscription(IPC, STREAM)
        reading = asyncio.ensure_future(take(subscription, len(sent)))
        async with await aeron.add_exclusive_publication(IPC, STREAM) as publication:
            for each in sent:
                await publication.offer(each, timeout=5)
        assert await reading == sent
        assert await archive.stop_position(0) == 0
        monkeypatch.undo()
        await archive.start_recording(IPC, STREAM)


async def test_an_archive_whose_closing_is_cancelled_is_closed_all_the_same(
    open_archive: OpenArchive,
) -> None:
    sent = messages(50)
    async with open_archive() as (aeron, archive):
        await archive.start_recording(IPC, STREAM)
        async with await aeron.add_exclusive_publication(IPC, STREAM) as publication:
            for each in sent:
                await publication.offer(each)
            closing = asyncio.ensure_future(archive.aclose())
            await asyncio.sleep(0)
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing
            stop = publication.position
    async with open_archive() as (_, archive):
        # Nothing was left to be recovered.
        assert await archive.stop_position(0) == stop
        assert [each.data async for each in archive.replay(0)] == sent


async def test_an_archive_that_cannot_close_in_order_lets_go_of_everything(
    open_archive: OpenArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with pytest.raises(StorageError, match="Input/output error"):
        async with open_archive() as (_, archive):
            monkeypatch.setattr("aeron_async.archive.disk.mark_file.MarkFile.refresh", broken)
    monkeypatch.undo()
    with pytest.raises(StorageError):
        await archive.aclose()
    async with open_archive():
        pass
