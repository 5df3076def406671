"""The statistics of an archive: what is written, what waits for the disk, and how much is free."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from aeron_async import Aeron, DriverContext
from aeron_async.archive import (
    ArchiveContext,
    LocalArchive,
    RecordingSignal,
    SourceLocation,
    local_archive,
    recording_session,
)
from aeron_async.archive.disk.files import OsFile
from aeron_async.archive.disk_access import InlineDisk
from aeron_async.errors import ClosedError
from aeron_async.metrics.text import MetricsText
from aeron_async.stats import Stats
from aeron_async.testing.world import simulate
from tests.archive.conftest import client_of
from tests.archive.held_disk import HeldDisk
from tests.archive.test_record_and_replay import IPC, STREAM
from tests.support.faulty_files import FaultyDirectory
from tests.twins import needs_compiled

if TYPE_CHECKING:
    from pathlib import Path

    from aeron_async.stats import ArchiveStats, RecordingStats
    from aeron_async.testing.world import World
    from tests.archive.conftest import OpenArchive

TERM = 65_536
DRIVER = DriverContext(ipc_term_buffer_length=TERM, term_buffer_length=TERM)
CHANNEL = "aeron:udp?endpoint=archive:20121"
MESSAGE = bytes(1_000)
FRAME = 1_056


def context(directory: str = "memory") -> ArchiveContext:
    return ArchiveContext(directory=directory, segment_length=TERM, low_storage_threshold=0)


def only(stats: ArchiveStats) -> RecordingStats:
    (row,) = stats.recordings
    return row


async def written(archive: LocalArchive, recording_id: int, position: int) -> None:
    """Wait until a recording is written up to a position."""
    session = archive.recording_sessions[recording_id]
    while session.position < position:
        await session.progress.wait()


async def test_a_recording_is_counted_while_it_is_written_and_after_it_was_extended(
    open_archive: OpenArchive,
) -> None:
    async with open_archive() as (aeron, archive):
        signals = archive.signals()
        await archive.start_recording(IPC, STREAM)
        assert archive.stats().recording_count == len(archive.stats().recordings) == 0
        async with await aeron.add_exclusive_publication(IPC, STREAM) as publication:
            await anext(signals)
            for _ in range(3):
                await publication.offer(MESSAGE)
            await written(archive, 0, publication.position)
            before, stats = aeron.stats().with_archive(archive.stats()), archive.stats()
            row = only(stats)
            assert (row.recording_id, row.channel, row.stream_id) == (0, IPC, STREAM)
            assert row.session_id == publication.session_id
            assert (row.start_position, row.position) == (0, 3 * FRAME)
            assert (row.image_position, row.lag_bytes) == (3 * FRAME, 0)
            assert (row.recorded_bytes, row.state) == (3 * FRAME, "recording")
            assert (stats.recording_count, stats.active_count) == (1, 1)
            assert stats.archive_id == archive.archive_id
            await publication.offer(MESSAGE)
            await written(archive, 0, publication.position)
            rates = aeron.stats().with_archive(archive.stats()).diff(before)
            assert rates.archive[0] * rates.seconds == pytest.approx(FRAME)
            await archive.stop_recording(IPC, STREAM)
        stats = archive.stats()
        assert (list(stats.recordings), stats.active_count, stats.recording_count) == ([], 0, 1)
        assert (stats.recorded_bytes, stats.lag_bytes) == (4 * FRAME, 0)

        await archive.extend_recording(0, IPC, STREAM)
        async with await archive.extending_publication(0, IPC, STREAM) as publication:
            await publication.offer(MESSAGE)
            while (await anext(signals)).signal is not RecordingSignal.EXTEND:
                pass
            await written(archive, 0, publication.position)
            row = only(archive.stats())
            assert (row.start_position, row.recorded_bytes) == (4 * FRAME, FRAME)
            assert archive.stats().recorded_bytes == 5 * FRAME
    with pytest.raises(ClosedError, match="is closed"):
        archive.stats()


@pytest.mark.parametrize("is_stopped", [False, True])
async def test_what_a_slow_disk_has_not_written_is_the_lag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_stopped: bool
) -> None:
    monkeypatch.setattr(recording_session, "BlockWriter", None)
    disk = HeldDisk()
    async with (
        asyncio.timeout(60),
        Aeron.connect(context=DRIVER) as aeron,
        LocalArchive.open(aeron, context(str(tmp_path)), disk=disk) as archive,
    ):
        signals, text = archive.signals(), MetricsText()
        await archive.start_recording(IPC, STREAM)
        async with await aeron.add_exclusive_publication(IPC, STREAM) as publication:
            await anext(signals)
            disk.hold("write")
            for _ in range(5):
                await publication.offer(MESSAGE)
            await disk.is_holding.wait()
            row = only(archive.stats())
            assert (row.position, row.recorded_bytes) == (0, 0)
            assert row.lag_bytes == row.image_position == publication.position == 5 * FRAME
            page = text.render(aeron.stats().with_archive(archive.stats()))
            assert "aeron_archive_recorded_bytes_total 0\n" in page
            assert f"aeron_archive_recording_lag_bytes {5 * FRAME}\n" in page
            stopping = None
            if is_stopped:
                stopping = asyncio.ensure_future(archive.stop_recording(IPC, STREAM))
                while only(archive.stats()).state != "stopping":
                    await asyncio.sleep(0)
                assert only(archive.stats()).lag_bytes == 5 * FRAME
            disk.may_go_on.set()
            if stopping is not None:
                await stopping
            else:
                await written(archive, 0, publication.position)
                assert only(archive.stats()).lag_bytes == 0
            page = text.render(aeron.stats().with_archive(archive.stats()))
            assert f"aeron_archive_recorded_bytes_total {5 * FRAME}\n" in page
    await disk.aclose()


async def test_a_disk_that_fails_is_counted(
    open_archive: OpenArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(recording_session, "BlockWriter", None)
    async with open_archive() as (aeron, archive):
        signals, failed = archive.signals(), asyncio.Event()
        await archive.start_recording(IPC, STREAM, on_failed=lambda _: failed.set())
        async with await aeron.add_exclusive_publication(IPC, STREAM) as publication:
            await anext(signals)
            session = archive.recording_sessions[0]
            monkeypatch.setattr(OsFile, "write", refused)
            await publication.offer(MESSAGE)
            while not session.is_over:
                await session.progress.wait()
            row = session.stats({})
            assert (row.state, row.position, row.lag_bytes) == ("failed", 0, 0)
            monkeypatch.undo()
            await failed.wait()
        stats = archive.stats()
        assert (stats.failed_count, stats.active_count, stats.recorded_bytes) == (1, 0, 0)


async def test_what_was_refused_and_what_is_replayed_is_counted(open_archive: OpenArchive) -> None:
    async with open_archive(max_recorded_images=1) as (aeron, archive):
        signals = archive.signals()
        await archive.start_recording(IPC, STREAM)
        async with (
            await aeron.add_exclusive_publication(IPC, STREAM) as publication,
            await aeron.add_exclusive_publication(IPC, STREAM),
        ):
            await anext(signals)
            await publication.offer(MESSAGE)
            await written(archive, 0, publication.position)
            while not archive.refused_images:
                await asyncio.sleep(0)
            assert archive.stats().replay_count == 0
            async with archive.replay(0, follow=True) as replay:
                await anext(replay)
                await aeron.add_subscription(IPC, STREAM + 1)
                await archive.start_replay(0, IPC, STREAM + 1)
                stats = archive.stats()
                assert (stats.replay_count, stats.refused_image_count) == (2, 1)
                assert stats.active_count == 1
            await archive.stop_all_replays()
            assert archive.stats().replay_count == 0


async def test_rows_have_a_limit_and_those_that_began_first_stay(
    open_archive: OpenArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_archive, "MAX_RECORDINGS_SHOWN", 2)
    async with open_archive() as (aeron, archive):
        signals = archive.signals()
        await archive.start_recording(IPC, STREAM)
        publications = []
        for _ in range(3):
            publications.append(await aeron.add_exclusive_publication(IPC, STREAM))
            await anext(signals)
        stats = archive.stats()
        assert list(stats.recordings.column("recording_id")) == [0, 1]
        assert stats.active_count == 3
        await publications[0].aclose()
        while (await anext(signals)).signal is not RecordingSignal.STOP:
            pass
        assert list(archive.stats().recordings.column("recording_id")) == [1, 2]
        for each in publications[1:]:
            await each.aclose()


@needs_compiled
async def test_of_a_driver_elsewhere_it_is_not_known_what_has_arrived(tmp_path: Path) -> None:
    async with (
        client_of("attached", DRIVER, tmp_path / "aeron") as aeron,
        LocalArchive.open(aeron, context(str(tmp_path / "archive"))) as archive,
    ):
        signals = archive.signals()
        await archive.start_recording(IPC, STREAM)
        async with await aeron.add_exclusive_publication(IPC, STREAM) as publication:
            await anext(signals)
            await publication.offer(MESSAGE)
            await written(archive, 0, publication.position)
            row = only(archive.stats())
            assert (row.image_position, row.lag_bytes, row.recorded_bytes) == (None, None, FRAME)
            assert aeron.stats().with_archive(archive.stats()).archive is not None


@needs_compiled
@pytest.mark.parametrize("medium", ["ipc", "spy", "udp"])
async def test_the_counters_of_a_driver_elsewhere_tell_what_waits_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unused_udp_port: int, medium: str
) -> None:
    monkeypatch.setattr(recording_session, "BlockWriter", None)
    disk = HeldDisk()
    channel = IPC if medium == "ipc" else f"aeron:udp?endpoint=127.0.0.1:{unused_udp_port}"
    where = SourceLocation.REMOTE if medium == "udp" else SourceLocation.LOCAL
    async with (
        asyncio.timeout(60),
        client_of("attached", DRIVER, tmp_path / "aeron") as aeron,
        LocalArchive.open(aeron, context(str(tmp_path / "archive")), disk=disk) as archive,
    ):
        signals = archive.signals()
        await archive.start_recording(channel, STREAM, source_location=where)
        # A spy counts as a subscriber only on request.
        published = f"{channel}|ssc=true" if medium == "spy" else channel
        async with await aeron.add_exclusive_publication(published, STREAM) as publication:
            await anext(signals)
            disk.hold("write")
            for _ in range(5):
                await publication.offer(MESSAGE)
            await disk.is_holding.wait()
            # A driver stores some of its positions once in a cycle.
            while (row := only(archive.stats(aeron.stats()))).lag_bytes != 5 * FRAME:
                await asyncio.sleep(0)
            assert (row.image_position, row.position) == (5 * FRAME, 0)
            assert only(archive.stats()).lag_bytes is None
            disk.may_go_on.set()
            await written(archive, 0, publication.position)
            assert only(archive.stats(aeron.stats())).lag_bytes == 0
    await disk.aclose()


# The free space.


async def test_the_free_bytes_are_measured_by_the_disk_and_have_an_age(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that does not answer holds up nobody who asks: its last answer grows old."""
    monkeypatch.setattr(local_archive, "ALIVE_SECONDS", 0)
    disk = HeldDisk()
    disk.hold("free_length")
    async with (
        asyncio.timeout(60),
        Aeron.connect(context=DRIVER) as aeron,
        LocalArchive.open(aeron, context(str(tmp_path)), disk=disk) as archive,
    ):
        await disk.is_holding.wait()
        stats = archive.stats()
        assert (stats.free_bytes, stats.free_age_ns) == (None, None)
        assert stats.low_space_limit_bytes == 0
        disk.may_go_on.set()
        while (stats := archive.stats()).free_bytes is None:
            await asyncio.sleep(0)
        assert stats.free_bytes > 0
        disk.hold("free_length")
        await disk.is_holding.wait()
        first = archive.stats().free_age_ns
        later = archive.stats().free_age_ns
        assert first is not None
        assert later is not None
        assert 0 <= first <= later
        disk.may_go_on.set()
    await disk.aclose()


def test_in_a_world_a_recording_shows_what_it_records_and_how_old_the_free_bytes_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rates and ages follow the time of the world, and JSON keeps all of it."""
    monkeypatch.setattr("aeron_async.archive.resources.free_length", lambda _: 123_456)

    async def story(world: World) -> None:
        async with (
            world.host("archive").aeron(DRIVER) as aeron,
            world.host("shop").aeron(DRIVER) as shop,
            LocalArchive.open(
                aeron, context(), directory=FaultyDirectory(world.seed), disk=InlineDisk()
            ) as archive,
        ):
            signals = archive.signals()
            await archive.start_recording(CHANNEL, STREAM, source_location=SourceLocation.REMOTE)
            publication = await shop.add_publication(CHANNEL, STREAM)
            await anext(signals)
            before = (await aeron.gather_stats()).with_archive(archive.stats())
            for _ in range(20):
                await publication.offer(MESSAGE)
                await world.sleep(0.1)
            await world.sleep(0.45)
            after = (await aeron.gather_stats()).with_archive(archive.stats())
            assert after.archive is not None
            row = only(after.archive)
            assert row.channel == CHANNEL
            assert row.recorded_bytes == row.image_position == publication.position == 20 * FRAME
            rates = after.diff(before)
            assert rates.archive == {0: 20 * FRAME / rates.seconds}
            assert after.archive.free_bytes == 123_456
            assert after.archive.free_age_ns is not None
            assert 0 < after.archive.free_age_ns < 1_000_000_000
            assert Stats.from_dict(after.to_dict()) == after
            await publication.aclose()

    simulate(story)
