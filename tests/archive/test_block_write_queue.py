"""Both kinds of queue write what a recording's writer would have written, and end as it does."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import psutil
import pytest

from aeron_async._speedups import BlockWriter
from aeron_async.archive import recording_session
from aeron_async.archive.disk.checksums import checksum_named
from aeron_async.archive.disk.files import OsDirectory
from aeron_async.archive.disk.recording_writer import RecordingWriter
from aeron_async.archive.disk_access import DiskThreads, InlineDisk
from aeron_async.archive.recording_session import (
    BlockWriteQueue,
    PoolWriter,
    ThreadWriter,
    open_write_queue,
)
from aeron_async.errors import StorageError
from tests.archive.disk.streams import FrameSource, described, read_all
from tests.archive.held_disk import HeldDisk
from tests.by_hand import NOT_BUILT
from tests.support.faulty_files import FaultyDirectory

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from aeron_async.archive.disk_access import Disk

needs_compiled = pytest.mark.skipif(BlockWriter is None, reason=NOT_BUILT)
TERM = 65_536


@pytest.fixture
async def disk() -> AsyncIterator[DiskThreads]:
    found = DiskThreads()
    yield found
    await found.aclose()


async def feed(
    queue: BlockWriteQueue, woken: asyncio.Event, source: FrameSource, count: int
) -> int:
    """Write so many blocks, and return the position behind them."""
    left = count
    async with asyncio.timeout(20):
        while left or not queue.is_idle:
            while left and queue.room():
                queue.begin(*source.block())
                left -= 1
            woken.clear()
            queue.collect()
            if not queue.is_idle and not (left and queue.room()):
                await woken.wait()
    return queue.collect()


@needs_compiled
@pytest.mark.parametrize("sync_level", [0, 1, 2])
async def test_both_lanes_write_the_same_files(
    tmp_path: Path, disk: DiskThreads, sync_level: int
) -> None:
    found: dict[str, bytes] = {}
    disks: dict[str, Disk] = {"thread": disk, "inline": InlineDisk()}
    for name, each in disks.items():
        directory = OsDirectory(tmp_path / name)
        woken = asyncio.Event()
        writer = RecordingWriter(directory, described(), position=0, sync_level=sync_level)
        queue = open_write_queue(writer, each, term_length=TERM, wake=woken.set)
        assert type(queue) is (ThreadWriter if name == "thread" else PoolWriter)
        position = await feed(queue, woken, FrameSource(described(), 1), 60)
        await queue.aclose()
        assert position == writer.position == queue.begun > 3 * TERM
        found[name] = read_all(directory, described(), 0, position)
        assert len(directory.names()) == position // (2 * TERM) + 1
    assert found["thread"] == found["inline"]


@needs_compiled
async def test_what_a_thread_apart_cannot_do_the_others_do(
    tmp_path: Path, disk: DiskThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lane_of(writer: RecordingWriter) -> type[BlockWriteQueue]:
        return type(open_write_queue(writer, disk, term_length=TERM, wake=int))

    in_memory = RecordingWriter(FaultyDirectory(), described(), position=0)
    assert lane_of(in_memory) is PoolWriter
    directory = OsDirectory(tmp_path)
    checksum = checksum_named("crc32")
    stamping = RecordingWriter(directory, described(), position=0, checksum=checksum)
    assert lane_of(stamping) is PoolWriter
    stamping.close()
    assert stamping.file_number is None

    def refuse(*_: object) -> None:
        raise NotImplementedError

    process = psutil.Process()
    before = process.num_fds()
    writer = RecordingWriter(directory, described(), position=0)
    with monkeypatch.context() as patch:
        patch.setattr(asyncio.get_running_loop(), "add_reader", refuse, raising=False)
        patch.setattr(asyncio.get_running_loop(), "remove_reader", refuse, raising=False)
        assert lane_of(writer) is PoolWriter
    with monkeypatch.context() as patch:
        patch.setattr(recording_session, "BlockWriter", None)
        assert lane_of(writer) is PoolWriter
    writer.close()
    assert process.num_fds() == before


@pytest.mark.parametrize("is_off_loop", [False, True])
async def test_a_next_file_that_cannot_be_had_ends_it_where_the_last_one_does(
    tmp_path: Path, disk: DiskThreads, *, is_off_loop: bool
) -> None:
    directory = OsDirectory(tmp_path)
    writer = RecordingWriter(directory, described(), position=0)
    directory.open(f"0-{2 * TERM}.rec", create=True).close()
    woken = asyncio.Event()
    queue = open_write_queue(
        writer, disk if is_off_loop else InlineDisk(), term_length=TERM, wake=woken.set
    )
    with pytest.raises(StorageError, match="stopped at position 131072"):
        await feed(queue, woken, FrameSource(described(), 2), 60)
    await queue.aclose()
    assert writer.position == 2 * TERM


@pytest.mark.parametrize("is_off_loop", [False, True])
async def test_what_was_begun_is_written_though_it_is_closed(
    tmp_path: Path, disk: DiskThreads, *, is_off_loop: bool
) -> None:
    writer = RecordingWriter(OsDirectory(tmp_path), described(), position=0)
    used = disk if is_off_loop else InlineDisk()
    queue = open_write_queue(writer, used, term_length=TERM, wake=int)
    queue.begin(*FrameSource(described(), 3).block())
    closing = asyncio.ensure_future(queue.aclose())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait((closing,))
    assert writer.position == queue.begun > 0


@pytest.mark.parametrize("is_off_loop", [False, True])
async def test_what_the_disk_refuses_while_it_is_closed_is_told(
    tmp_path: Path, disk: DiskThreads, *, is_off_loop: bool
) -> None:
    """The error of a block that was under way was dropped."""
    directory = OsDirectory(tmp_path)
    writer = RecordingWriter(directory, described(), position=0)
    used = disk if is_off_loop else InlineDisk()
    queue = open_write_queue(writer, used, term_length=TERM, wake=int)
    # Nothing can be written by this number any more.
    assert writer.file_number is not None
    with (tmp_path / "0-0.rec").open("rb") as unwritable:
        os.dup2(unwritable.fileno(), writer.file_number)
        queue.begin(*FrameSource(described(), 3).block())
        with pytest.raises(StorageError, match="stopped at position 0"):
            await queue.aclose()
    assert writer.position == 0
    assert writer.file_number is None, "and the file is closed"


@pytest.mark.parametrize("is_off_loop", [False, True])
async def test_what_the_disk_refuses_is_kept_where_the_closing_is_cancelled(
    tmp_path: Path, disk: DiskThreads, *, is_off_loop: bool
) -> None:
    """Cancellation is passed on, and the error was dropped."""
    writer = RecordingWriter(OsDirectory(tmp_path), described(), position=0)
    held = HeldDisk()
    queue = (
        open_write_queue(writer, disk, term_length=TERM, wake=int)
        if is_off_loop
        else PoolWriter(writer, held, part=TERM, wake=int)
    )
    assert writer.file_number is not None
    with (tmp_path / "0-0.rec").open("rb") as unwritable:
        os.dup2(unwritable.fileno(), writer.file_number)
        held.hold("write")
        queue.begin(*FrameSource(described(), 3).block())
        closing = asyncio.ensure_future(queue.aclose())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.sleep(0)
        held.may_go_on.set()
        await asyncio.wait((closing,))
    await held.aclose()
    assert closing.cancelled()
    assert queue.failure is not None
    assert "stopped at position 0" in str(queue.failure)
    assert writer.file_number is None, "and the file is closed"


@pytest.mark.parametrize("is_off_loop", [False, True])
async def test_what_the_disk_refused_is_told_once(
    tmp_path: Path, disk: DiskThreads, *, is_off_loop: bool
) -> None:
    writer = RecordingWriter(OsDirectory(tmp_path), described(), position=0)
    woken = asyncio.Event()
    queue = open_write_queue(
        writer, disk if is_off_loop else InlineDisk(), term_length=TERM, wake=woken.set
    )
    assert writer.file_number is not None
    with (tmp_path / "0-0.rec").open("rb") as unwritable:
        os.dup2(unwritable.fileno(), writer.file_number)
        with pytest.raises(StorageError, match="stopped at position 0"):
            await feed(queue, woken, FrameSource(described(), 3), 1)
        await queue.aclose()
    assert writer.file_number is None


@pytest.mark.parametrize("is_off_loop", [False, True])
async def test_a_next_file_that_cannot_be_had_while_it_is_closed_is_told(
    tmp_path: Path, disk: DiskThreads, *, is_off_loop: bool
) -> None:
    directory = OsDirectory(tmp_path)
    writer = RecordingWriter(directory, described(), position=0)
    directory.open(f"0-{2 * TERM}.rec", create=True).close()
    used = disk if is_off_loop else InlineDisk()
    queue = open_write_queue(writer, used, term_length=TERM, wake=int)
    source = FrameSource(described(), 2)
    async with asyncio.timeout(20):
        while queue.begun < 2 * TERM:
            while not queue.room():
                queue.collect()
                await asyncio.sleep(0)
            queue.begin(*source.block())
        while isinstance(queue, ThreadWriter) and queue.collect() < 2 * TERM:
            await asyncio.sleep(0)
    with pytest.raises(StorageError, match="stopped at position 131072"):
        await queue.aclose()


@pytest.mark.parametrize("is_off_loop", [False, True])
async def test_no_block_is_longer_than_the_settings_say(
    tmp_path: Path, disk: DiskThreads, *, is_off_loop: bool
) -> None:
    for longest, wanted in (
        (1 << 16, 1 << 16),
        (1 << 30, 1 << 18 if is_off_loop and BlockWriter else 1 << 22),
    ):
        queue = open_write_queue(
            RecordingWriter(OsDirectory(tmp_path), described(), position=0),
            disk if is_off_loop else InlineDisk(),
            term_length=1 << 30,
            wake=int,
            longest=longest,
        )
        assert queue.room() == wanted
        await queue.aclose()
