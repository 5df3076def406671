"""What is changed while somebody else is just about to record or replay it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from aeron_async import Aeron, DriverContext
from aeron_async.archive import ArchiveContext, LocalArchive
from aeron_async.archive.disk.files import OsDirectory
from aeron_async.archive.disk.verify import Finding, Severity, verify
from aeron_async.archive.recording_channels import extending_channel
from aeron_async.errors import ArchiveError, ArchiveErrorCode, InvalidPositionError
from tests.archive.held_disk import HeldDisk
from tests.archive.test_record_and_replay import IPC, STREAM, messages, record

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from pathlib import Path
    from typing import Any

    Change = Callable[[LocalArchive], Coroutine[Any, Any, int | None]]

SENT = messages(100)
TERM = 65_536


@asynccontextmanager
async def held_archive(path: Path) -> AsyncIterator[tuple[Aeron, LocalArchive, HeldDisk]]:
    """Open an archive that has a recording of several files, on a disk that can be held."""
    context = ArchiveContext(directory=str(path), segment_length=TERM, low_storage_threshold=0)
    disk = HeldDisk()
    try:
        async with (
            asyncio.timeout(20),
            Aeron.connect(context=DriverContext(ipc_term_buffer_length=TERM)) as aeron,
            LocalArchive.open(aeron, context, disk=disk) as archive,
        ):
            await record(aeron, archive, SENT)
            yield aeron, archive, disk
    finally:
        await disk.aclose()


def problems(path: Path) -> list[Finding]:
    """Return what is wrong in a directory."""
    found = [each for each in verify(OsDirectory(path)) if isinstance(each, Finding)]
    return [each for each in found if each.severity is Severity.PROBLEM]


async def test_a_recording_is_not_truncated_that_is_just_about_to_go_on(tmp_path: Path) -> None:
    async with held_archive(tmp_path) as (aeron, archive, disk):
        cut = (await anext(archive.replay(0))).position
        channel = extending_channel(await archive.describe(0), IPC)
        await archive.extend_recording(0, IPC, STREAM)
        disk.hold("get", "_extend")
        async with await aeron.add_exclusive_publication(channel, STREAM) as publication:
            await disk.is_holding.wait()
            truncating = asyncio.ensure_future(archive.truncate(0, cut))
            # Its turn comes when what is held has been done.
            await asyncio.sleep(0)
            disk.may_go_on.set()
            with pytest.raises(ArchiveError, match="active recording 0") as caught:
                await truncating
            assert caught.value.code is ArchiveErrorCode.ACTIVE_RECORDING
            await publication.offer(b"more", timeout=5)
            await archive.stop_recording(IPC, STREAM)
        assert [each.data async for each in archive.replay(0)] == [*SENT, b"more"]
    assert problems(tmp_path) == []


async def test_two_extensions_of_a_recording_do_not_both_begin(tmp_path: Path) -> None:
    told: list[ArchiveError] = []
    async with held_archive(tmp_path) as (aeron, archive, disk):
        channel = extending_channel(await archive.describe(0), IPC)
        await archive.extend_recording(0, IPC, STREAM)
        other = "aeron:ipc?alias=other|session-id=7"
        await archive.extend_recording(0, other, STREAM, on_failed=told.append)
        disk.hold("get", "_extend")
        async with await aeron.add_exclusive_publication(channel, STREAM) as publication:
            await disk.is_holding.wait()
            too_many = str(channel.replace(session_id=7))
            async with await aeron.add_exclusive_publication(too_many, STREAM):
                await asyncio.sleep(0)
                disk.may_go_on.set()
                await publication.offer(b"more", timeout=5)
                await archive.stop_recording(IPC, STREAM)
        assert [each.data async for each in archive.replay(0)] == [*SENT, b"more"]
    assert problems(tmp_path) == []


CHANGES: list[Change] = [
    lambda archive: archive.truncate(0, 0),
    lambda archive: archive.purge_recording(0),
    lambda archive: archive.purge_segments(0, 2 * TERM),
    lambda archive: archive.detach_segments(0, 2 * TERM),
]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("is_published", [False, True])
async def test_nothing_goes_that_somebody_is_just_about_to_replay(
    tmp_path: Path, change: Change, *, is_published: bool
) -> None:
    async with held_archive(tmp_path) as (aeron, archive, disk):
        stop = await archive.stop_position(0)
        disk.hold("check_position")

        async def received() -> list[bytes]:
            if not is_published:
                return [each.data async for each in archive.replay(0)]
            await archive.start_replay(0, IPC, STREAM + 1)
            subscription = await aeron.add_subscription(IPC, STREAM + 1)
            return [(await anext(subscription)).data for _ in SENT]

        replaying = asyncio.ensure_future(received())
        await disk.is_holding.wait()
        with pytest.raises((ArchiveError, InvalidPositionError), match="replay"):
            await change(archive)
        disk.may_go_on.set()
        assert await replaying == SENT
        assert (await archive.start_position(0), await archive.stop_position(0)) == (0, stop)


async def test_what_is_asked_for_while_a_replay_begins_waits_its_turn(tmp_path: Path) -> None:
    """The replay has asked first where the recording is, and is seen when it has heard."""
    async with held_archive(tmp_path) as (_, archive, disk):
        replay = archive.replay(0)
        disk.hold("get")
        reading = asyncio.ensure_future(anext(replay))
        await disk.is_holding.wait()
        truncating = asyncio.ensure_future(archive.truncate(0, 0))
        await asyncio.sleep(0)
        disk.may_go_on.set()
        with pytest.raises(ArchiveError, match="with active replay"):
            await truncating
        assert [(await reading).data, *[each.data async for each in replay]] == SENT


@pytest.mark.parametrize("change", ["truncate", "purge_segments", "purge_recording"])
async def test_a_replay_that_has_read_everything_holds_nothing_up(
    tmp_path: Path, change: str
) -> None:
    """A client that has received all of a replay may ask for room before the replay has closed."""
    async with held_archive(tmp_path) as (aeron, archive, disk):
        subscription = await aeron.add_subscription(IPC, STREAM + 1)
        disk.hold("close")
        await archive.start_replay(0, IPC, STREAM + 1)
        assert [(await anext(subscription)).data for _ in SENT] == SENT
        await disk.is_holding.wait()
        try:
            if change == "truncate":
                assert await archive.truncate(0, 0) > 0
            elif change == "purge_segments":
                assert await archive.purge_segments(0, 2 * TERM) == 2
            else:
                assert await archive.purge_recording(0) > 0
        finally:
            disk.may_go_on.set()
