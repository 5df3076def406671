"""Whoever asked for a recording that fails is told, and the log says why in one line."""

from __future__ import annotations

import asyncio
import errno
import os
from typing import TYPE_CHECKING, Any

import pytest

from aeron_async.archive import RecordingSignal
from aeron_async.archive.disk.files import OsFile
from aeron_async.errors import ArchiveError, ArchiveErrorCode, RegistrationError, StorageError
from tests.archive.test_record_and_replay import IPC, STREAM, record
from tests.archive.test_served import served
from tests.logs import captured_logs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Buffer

    from tests.archive.conftest import OpenArchive

KINDS = {
    errno.ENOSPC: (ArchiveErrorCode.STORAGE_SPACE, "aeron-async archive prune"),
    errno.EDQUOT: (ArchiveErrorCode.STORAGE_SPACE, "raise the quota"),
    errno.EROFS: (ArchiveErrorCode.GENERIC, "mount that file system writable"),
    errno.EIO: (ArchiveErrorCode.GENERIC, "look at the log of the system"),
}


def fail_with(monkeypatch: pytest.MonkeyPatch, number: int, suffix: str = ".rec") -> None:
    """Let files of recordings be written no more."""
    write = OsFile.write

    def refused(self: OsFile, buffers: Sequence[Buffer], offset: int) -> int:
        if self.name.endswith(suffix):
            raise OSError(number, os.strerror(number))
        return write(self, buffers, offset)

    monkeypatch.setattr(OsFile, "write", refused)
    monkeypatch.setattr(OsFile, "number", lambda _: None)


class Told:
    """Waits for what went wrong."""

    def __init__(self) -> None:
        self.errors: asyncio.Queue[ArchiveError] = asyncio.Queue()

    def __call__(self, error: ArchiveError) -> None:
        self.errors.put_nowait(error)

    async def one(self) -> ArchiveError:
        """Return the one error that there is."""
        async with asyncio.timeout(10):
            error = await self.errors.get()
        assert self.errors.empty()
        return error


def lines_of(lines: list[Any], event: str) -> list[Any]:
    return [each for each in lines if each["event"] == event]


async def test_a_flood_hides_no_failure_of_the_disk(
    open_archive: OpenArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What clients cause is left out while the budget is spent, and only that."""
    told = Told()
    async with open_archive(connect_timeout_ns=1_000_000) as (aeron, archive):
        await record(aeron, archive, [b"x"])
        with captured_logs() as lines:
            budget = aeron.driver.conductor.log_budget
            for number in range(40):
                budget.allows(f"flood of kind {number % 8}")
            before = budget.left_out_count
            await archive.start_replay(0, IPC, STREAM)
            async with asyncio.timeout(10):
                while budget.left_out_count == before:
                    await asyncio.sleep(0.001)
            await archive.start_recording(IPC, STREAM + 1, on_failed=told)
            fail_with(monkeypatch, errno.ENOSPC)
            async with await aeron.add_exclusive_publication(IPC, STREAM + 1) as publication:
                await publication.offer(b"lost")
                await told.one()
    assert lines_of(lines, "replay_failed") == []
    assert len(lines_of(lines, "recording_failed")) == 1


@pytest.mark.parametrize("number", KINDS)
async def test_a_disk_that_fails_is_one_line_of_the_log_and_told_to_who_asked(
    open_archive: OpenArchive, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    code, act = KINDS[number]
    told = Told()
    async with open_archive() as (aeron, archive):
        with captured_logs() as lines:
            await archive.start_recording(IPC, STREAM, on_failed=told)
            fail_with(monkeypatch, number)
            async with await aeron.add_exclusive_publication(IPC, STREAM) as publication:
                await publication.offer(b"lost")
                error = await told.one()
    assert isinstance(error, StorageError)
    assert error.code is code
    assert act in str(error)
    assert "recording 0 stopped at position 0" in str(error)
    (line,) = lines_of(lines, "recording_failed")
    assert line["error"] == str(error)
    assert (line["recording_id"], line["position"]) == (0, 0)
    assert "exc_info" not in line


async def test_who_asked_from_elsewhere_is_told_too(
    open_archive: OpenArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told()
    async with served(open_archive) as (aeron, _, remote):
        await remote.start_recording(IPC, STREAM, on_failed=told)
        fail_with(monkeypatch, errno.ENOSPC)
        async with await aeron.add_exclusive_publication(IPC, STREAM) as publication:
            await publication.offer(b"lost")
            error = await told.one()
    assert isinstance(error, StorageError)
    assert "No space left" in str(error)


async def test_an_entry_that_cannot_be_written_is_told(
    open_archive: OpenArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told()
    async with open_archive() as (aeron, archive):
        with captured_logs() as lines:
            await archive.start_recording(IPC, STREAM, on_failed=told)
            fail_with(monkeypatch, errno.ENOSPC, "archive.catalog")
            async with await aeron.add_exclusive_publication(IPC, STREAM):
                error = await told.one()
        monkeypatch.undo()
    assert isinstance(error, StorageError)
    (line,) = lines_of(lines, "recording_not_begun")
    assert line["error"] == str(error)
    assert "exc_info" not in line
    assert "the catalog in " in str(error)


@pytest.mark.parametrize("is_elsewhere", [False, True])
async def test_a_publication_that_does_not_go_on_with_a_recording_is_told(
    open_archive: OpenArchive, *, is_elsewhere: bool
) -> None:
    told = Told()
    async with served(open_archive) as (aeron, archive, remote):
        await record(aeron, archive, [b"x"])
        with captured_logs() as lines:
            asked = remote if is_elsewhere else archive
            await asked.extend_recording(0, IPC, STREAM, on_failed=told)
            async with await aeron.add_exclusive_publication(IPC, STREAM):
                error = await told.one()
    assert error.code is ArchiveErrorCode.INVALID_EXTENSION
    assert "cannot extend recording 0" in str(error)
    (line,) = lines_of(lines, "recording_not_begun")
    assert line["error"] == str(error)
    assert "exc_info" not in line


async def test_no_more_sources_are_recorded_than_may_be(open_archive: OpenArchive) -> None:
    told = Told()
    async with open_archive(max_recorded_images=2) as (aeron, archive):
        await archive.start_recording(IPC, STREAM, on_failed=told)
        signals = archive.signals()
        first, second, third = [
            await aeron.add_exclusive_publication(IPC, STREAM) for _ in range(3)
        ]
        error = await told.one()
        assert error.code is ArchiveErrorCode.MAX_RECORDINGS
        assert "raise max_recorded_images" in str(error)
        assert archive.refused_images == 1
        # It is passed over: its publisher is held up by nobody.
        for _ in range(300):
            await third.offer(bytes(1_000), timeout=5)
        for each in (first, second):
            await each.offer(b"kept")
            await each.aclose()
        async with asyncio.timeout(10):
            told_of = [(await anext(signals)).signal.name for _ in range(4)]
        assert sorted(told_of) == ["START", "START", "STOP", "STOP"]
        assert len([each async for each in archive.recordings()]) == 2
        await third.aclose()
        # There is room again for what comes later, of the same request.
        async with await aeron.add_exclusive_publication(IPC, STREAM) as again:
            async with asyncio.timeout(10):
                assert (await anext(signals)).recording_id == 2
            await again.offer(b"kept")
        assert archive.refused_images == 1


async def test_why_a_recording_failed_is_told_before_it_stops(
    open_archive: OpenArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever leaves when it has stopped would take the recording for a whole one."""
    told: list[str] = []
    async with asyncio.timeout(20), served(open_archive) as (aeron, _, remote):
        remote.connection.on_signal = lambda each: told.append(RecordingSignal(each.signal).name)
        monkeypatch.setattr(OsFile, "number", lambda _: None)
        await remote.start_recording(IPC, STREAM, on_failed=lambda _: told.append("FAILED"))
        async with await aeron.add_exclusive_publication(IPC, STREAM) as publication:
            await publication.offer(b"one", timeout=5)
            while not told:
                await asyncio.sleep(0)
            fail_with(monkeypatch, errno.ENOSPC)
            await publication.offer(b"two", timeout=5)
            while len(told) < 3:
                await asyncio.sleep(0)
    assert told == ["START", "FAILED", "STOP"]


async def test_a_recording_that_failed_is_not_said_to_wait(
    open_archive: OpenArchive, monkeypatch: pytest.MonkeyPatch, unused_udp_port: int
) -> None:
    def refuse(*_: object, **__: object) -> None:
        message = "no counter is left"
        raise RegistrationError(message)

    channel, told = f"aeron:udp?endpoint=127.0.0.1:{unused_udp_port}", Told()
    async with served(open_archive) as (aeron, _, remote):
        monkeypatch.setattr("aeron_async.archive.recording_session.recording_counter", refuse)
        await remote.start_recording(channel, STREAM, on_failed=told)
        assert len(remote._hints._timers) == 1
        async with await aeron.add_exclusive_publication(channel, STREAM):
            assert "no counter is left" in str(await told.one())
        assert remote._hints._timers == {}
