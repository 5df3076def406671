"""A recording whose stream does not wait for it, on a disk that stands still."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, ClassVar

import pytest
from structlog.testing import capture_logs

from aeron_async import Aeron, DriverContext
from aeron_async.archive import ArchiveContext, LocalArchive, RecordingSignal, recording_session
from aeron_async.archive.disk import recording_writer
from aeron_async.archive.disk.files import OsDirectory, OsFile
from aeron_async.archive.disk.verify import Finding, verify
from aeron_async.errors import StorageError
from tests.archive.conftest import DRIVER_KINDS, client_of
from tests.archive.held_disk import HeldDisk
from tests.archive.test_record_and_replay import IPC, STREAM

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from aeron_async import Publication, Subscription

TERM = 65_536
MS = 1_000_000
FIRST = 10
"""Messages that are recorded; they are no reason yet to leave the recording behind."""
DRIVER = DriverContext(
    ipc_term_buffer_length=TERM,
    timer_interval_ns=MS,
    untethered_window_limit_timeout_ns=2 * MS,
    untethered_linger_timeout_ns=2 * MS,
    untethered_resting_timeout_ns=60_000 * MS,
)


class HeldBlocks:
    """Writes blocks as the compiled writer does, but not before it may."""

    may_go_on: ClassVar[bool]
    error_number: ClassVar[int]
    all: ClassVar[list[HeldBlocks]]

    def __init__(self, bell: int) -> None:
        self._bell = bell
        self._orders: list[tuple[int, memoryview, int]] = []
        self._done = 0
        self.all.append(self)

    def begin(self, file: int, block: memoryview, offset: int, _sync_level: int) -> None:
        self._orders.append((file, block, offset))
        if self.may_go_on:
            self.close()

    def collect(self) -> tuple[int, int]:
        done, self._done = self._done, 0
        return done, self.error_number

    def close(self) -> None:
        if not self._orders:
            # Nothing is held; its session may have closed the bell.
            return
        for file, block, offset in () if self.error_number else self._orders:
            os.pwrite(file, block, offset)
            self._done += 1
        self._orders.clear()
        os.write(self._bell, b"!")


async def publish(publication: Publication, reader: Subscription, numbers: range) -> None:
    """Publish messages that a tethered subscriber takes: more than once around the log."""
    for number in numbers:
        await publication.offer(message(number), timeout=20)
        assert (await anext(reader)).data == message(number)


def message(number: int) -> bytes:
    return number.to_bytes(4, "little") * 500


def notes(path: Path) -> list[str]:
    return [str(each) for each in verify(OsDirectory(path)) if isinstance(each, Finding)]


def recorded(path: Path) -> bytes:
    """Return what the one file of the recording holds."""
    (only,) = path.glob("*.rec")
    return only.read_bytes()


@pytest.fixture(params=["pool", "thread"])
def hold(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Callable[[HeldDisk, bool], None]:
    """Return what lets nothing be written, or everything."""
    HeldBlocks.may_go_on, HeldBlocks.all, HeldBlocks.error_number = True, [], 0
    is_pool = request.param == "pool"
    monkeypatch.setattr(recording_session, "BlockWriter", None if is_pool else HeldBlocks)

    def set_held(disk: HeldDisk, is_held: bool) -> None:  # noqa: FBT001 - it says which
        if is_pool:
            disk.hold("write") if is_held else disk.may_go_on.set()
            return
        HeldBlocks.may_go_on = not is_held
        for each in () if is_held else HeldBlocks.all:
            each.close()

    return set_held


@pytest.mark.parametrize("kind", DRIVER_KINDS)
@pytest.mark.parametrize("is_stopped", [False, True])
@pytest.mark.parametrize("is_full", [False, True])
async def test_what_may_have_been_written_over_is_not_recorded(
    tmp_path: Path,
    kind: str,
    hold: Callable[[HeldDisk, bool], None],
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_stopped: bool,
    is_full: bool,
) -> None:
    disk, told = HeldDisk(), list[Exception]()
    context = ArchiveContext(directory=str(tmp_path), segment_length=TERM, low_storage_threshold=0)
    async with (
        asyncio.timeout(60),
        client_of(kind, DRIVER, tmp_path / "aeron") as aeron,
        LocalArchive.open(aeron, context, disk=disk) as archive,
        await aeron.add_subscription(IPC, STREAM) as reader,
    ):
        signals = archive.signals()
        channel = f"{IPC}?tether=false"
        await archive.start_recording(channel, STREAM, on_failed=told.append)
        async with await aeron.add_exclusive_publication(IPC, STREAM) as publication:
            await publish(publication, reader, range(FIRST))
            await anext(signals)
            session = archive.recording_sessions[0]
            while session.position < publication.position:
                await session.progress.wait()
            good = session.position
            if is_full:
                # It is cut off by making the file shorter, and that fails.
                monkeypatch.setattr(OsFile, "set_length", refuse)
            hold(disk, True)
            with capture_logs() as lines:
                await publish(publication, reader, range(FIRST, FIRST + 1))
                while session._queue.begun == good:
                    await asyncio.sleep(0)
                # A block is held now.
                await publish(publication, reader, range(FIRST + 1, 300))
                while not session.image.is_let_go:
                    await asyncio.sleep(0)
                stopping = None
                if is_stopped:
                    stopping = asyncio.ensure_future(archive.stop_recording(channel, STREAM))
                    await asyncio.sleep(0)
                hold(disk, False)
                stop = await anext(signals)
            if stopping is not None:
                await asyncio.wait((stopping,))
                assert (stopping.exception() is None) is not is_full
        assert (stop.signal, stop.position) == (RecordingSignal.STOP, good)
        assert await archive.stop_position(0) == good
        found = [each.data async for each in archive.replay(0)]
        assert found == [message(number) for number in range(FIRST)]
    await disk.aclose()
    assert [each["position"] for each in lines if each["event"] == "recording_run_over"] == [good]
    assert [type(each) for each in told] == ([StorageError] if is_full else [])
    if not is_full:
        assert notes(tmp_path) == []
        assert not any(recorded(tmp_path)[good:])


async def test_a_disk_that_fails_once_the_stream_went_on_is_told_of(
    tmp_path: Path, hold: Callable[[HeldDisk, bool], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing waits for the blocks that are under way then, and their error was dropped."""
    disk, told = HeldDisk(), list[Exception]()
    context = ArchiveContext(directory=str(tmp_path), segment_length=TERM, low_storage_threshold=0)
    async with (
        asyncio.timeout(60),
        Aeron.connect(context=DRIVER) as aeron,
        LocalArchive.open(aeron, context, disk=disk) as archive,
        await aeron.add_subscription(IPC, STREAM) as reader,
    ):
        signals = archive.signals()
        await archive.start_recording(f"{IPC}?tether=false", STREAM, on_failed=told.append)
        async with await aeron.add_exclusive_publication(IPC, STREAM) as publication:
            await publish(publication, reader, range(FIRST))
            await anext(signals)
            session = archive.recording_sessions[0]
            while session.position < publication.position:
                await session.progress.wait()
            good = session.position
            hold(disk, True)
            await publish(publication, reader, range(FIRST, 300))
            assert session.image.is_let_go
            monkeypatch.setattr(recording_writer, "write_all", refuse)
            HeldBlocks.error_number = 28
            with capture_logs() as lines:
                hold(disk, False)
                stop = await anext(signals)
        assert (stop.signal, stop.position) == (RecordingSignal.STOP, good)
    await disk.aclose()
    assert isinstance(session.error, StorageError)
    assert told == [session.error]
    assert [each["position"] for each in lines if each["event"] == "recording_failed"] == [good]


def refuse(*_: object) -> None:
    raise OSError(28, "No space left on device")
