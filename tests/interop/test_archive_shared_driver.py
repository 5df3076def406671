"""An archive and its clients on one driver, ours or official, in other processes or not.

What is recorded is published by the official C client or by ours, over IPC and over UDP.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import pytest

import aeron_async as aa
from aeron_async.archive import (
    ArchiveContext,
    ControlServer,
    ControlSettings,
    LocalArchive,
    RemoteArchive,
)
from aeron_async.archive.api import RecordingSignal, SourceLocation
from tests.interop.exchange import MESSAGES, TIMEOUT_S, offer, take
from tests.interop.official_archive import official_archive
from tests.interop.shared import OURS_AND_OFFICIAL, client_of, shared_directory
from tests.twins import needs_compiled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from aeron_async.archive import Archive

pytestmark = needs_compiled

IPC: Final = "aeron:ipc"
RECORDED_STREAM: Final = 2_001
REPLAY_STREAM: Final = 2_002
NUMBERS: Final = range(500)


@pytest.fixture(params=OURS_AND_OFFICIAL)
async def directory(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Path]:
    """The directory of a driver."""
    async with shared_directory(request.param, tmp_path / "aeron") as directory:
        yield directory


@pytest.fixture(params=["ipc", "udp"])
def medium(request: pytest.FixtureRequest, channel: str) -> str:
    """A channel to record."""
    return IPC if request.param == "ipc" else channel


async def record(
    archive: Archive, directory: Path, channel: str, *, publisher: str, source: SourceLocation
) -> tuple[int, int]:
    """Let an archive record what a client publishes; return the recording, and where it ends."""
    signals = archive.signals()
    # A spy does not count as a subscriber.
    published = (
        f"{channel}|ssc=true" if source is SourceLocation.LOCAL and channel != IPC else channel
    )
    await archive.start_recording(channel, RECORDED_STREAM, source_location=source)
    async with client_of(publisher, directory) as client, asyncio.timeout(TIMEOUT_S):
        publication = await client.add_exclusive_publication(published, RECORDED_STREAM)
        await publication.wait_connected()
        for number in NUMBERS:
            await offer(publication, number)
        end = publication.position
        started = await anext(signals)
        assert started.signal is RecordingSignal.START
        recording_id = started.recording_id
        while await archive.recording_position(recording_id) != end:
            await asyncio.sleep(0)
        await archive.stop_recording(channel, RECORDED_STREAM)
        stopped = await anext(signals)
        assert (stopped.signal, stopped.position) == (RecordingSignal.STOP, end)
    return recording_id, end


@pytest.mark.parametrize("source", SourceLocation)
@pytest.mark.parametrize("publisher", OURS_AND_OFFICIAL)
async def test_our_archive_records_what_any_client_of_its_driver_publishes(
    tmp_path: Path, directory: Path, medium: str, publisher: str, source: SourceLocation
) -> None:
    context = ArchiveContext(
        directory=str(tmp_path / "archive"), segment_length=65_536, low_storage_threshold=0
    )
    async with (
        aa.Aeron.connect(directory=directory) as serving,
        LocalArchive.open(serving, context) as archive,
        ControlServer(archive, serving, ControlSettings.of(context)) as server,
        client_of("ours", directory) as ours,
        RemoteArchive.connect(ours, control_channel=IPC) as remote,
    ):
        recording_id, end = await record(
            remote, directory, medium, publisher=publisher, source=source
        )
        assert await remote.stop_position(recording_id) == end
        await check_replay(remote, recording_id)
        # Any client may take the replay.
        async with client_of("official", directory) as official:
            subscription = await official.add_subscription(IPC, REPLAY_STREAM)
            await remote.start_replay(recording_id, IPC, REPLAY_STREAM)
            async with asyncio.timeout(TIMEOUT_S):
                await take(subscription, NUMBERS)
        assert server.dropped_requests == 0


async def check_official(
    ours: aa.Aeron, directory: Path, channel: str, source: SourceLocation
) -> None:
    """Record, list and replay with an archive that is reached over IPC."""
    async with RemoteArchive.connect(ours, control_channel=IPC, timeout=TIMEOUT_S) as remote:
        recording_id, end = await record(
            remote, directory, channel, publisher="ours", source=source
        )
        await check_replay(remote, recording_id)
        descriptor = await remote.describe(recording_id)
        assert (descriptor.start_position, descriptor.stop_position) == (0, end)
        assert [each async for each in remote.recordings()] == [descriptor]


async def check_replay(archive: Archive, recording_id: int) -> None:
    """Check that a replay has all messages."""
    async with asyncio.timeout(TIMEOUT_S):
        replayed = [each.data async for each in archive.replay(recording_id)]
    assert len(replayed) == len(NUMBERS)
    for number, data in zip(NUMBERS, replayed, strict=True):
        MESSAGES.check(number, data)


@pytest.mark.parametrize("source", SourceLocation)
async def test_an_official_archive_records_what_our_client_of_its_driver_publishes(
    tmp_path: Path,
    directory: Path,
    medium: str,
    source: SourceLocation,
    unused_udp_port_factory: Callable[[], int],
) -> None:
    """Requests, answers and replays go over IPC."""
    async with (
        official_archive(tmp_path / "archive", unused_udp_port_factory, driver_directory=directory),
        client_of("ours", directory) as ours,
    ):
        await check_official(ours, directory, medium, source)


@pytest.mark.parametrize("source", SourceLocation)
async def test_our_client_attaches_to_the_driver_of_an_official_archive(
    tmp_path: Path,
    medium: str,
    source: SourceLocation,
    unused_udp_port_factory: Callable[[], int],
) -> None:
    async with (
        official_archive(tmp_path / "archive", unused_udp_port_factory) as archive,
        client_of("ours", archive.aeron_directory) as ours,
    ):
        await check_official(ours, archive.aeron_directory, medium, source)
