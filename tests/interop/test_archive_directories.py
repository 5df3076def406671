"""One directory, ours and the official archive's by turns: each goes on where the other ended."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Final

from aeron_async.archive import ArchiveContext, LocalArchive, RecordingSignal, SourceLocation
from aeron_async.errors import ArchiveBusyError
from tests.interop.official_archive import official_archive
from tests.interop.ours import our_client

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import aeron_async as aa
    from aeron_async.archive import Archive

STREAM_ID: Final = 2001
MESSAGES: Final = [bytes([number % 251]) * (number * 37 % 3_000) for number in range(300)]
TIMEOUT_S: Final = 30.0


async def open_ours(aeron: aa.Aeron, directory: Path) -> LocalArchive:
    context = ArchiveContext(
        directory=str(directory), segment_length=65_536, low_storage_threshold=65_536
    )
    return await LocalArchive.open(aeron, context)


async def record(
    aeron: aa.Aeron, archive: Archive, channel: str, messages: list[bytes]
) -> tuple[int, int]:
    """Begin a recording; return it, and where it ends."""
    signals = archive.signals()
    await archive.start_recording(channel, STREAM_ID, source_location=SourceLocation.REMOTE)
    async with await aeron.add_exclusive_publication(channel, STREAM_ID) as publication:
        await publication.offer_many(messages, timeout=TIMEOUT_S)
        recording_id = (await anext(signals)).recording_id
        await until_recorded(archive, recording_id, publication.position)
        await archive.stop_recording(channel, STREAM_ID)
        while (await anext(signals)).signal is not RecordingSignal.STOP:
            pass
        return recording_id, publication.position


async def extend(
    aeron: aa.Aeron, archive: Archive, recording_id: int, channel: str, messages: list[bytes]
) -> int:
    """Go on with a recording; return where it ends."""
    signals = archive.signals()
    await archive.extend_recording(
        recording_id, channel, STREAM_ID, source_location=SourceLocation.REMOTE
    )
    async with await archive.extending_publication(recording_id, channel, STREAM_ID) as more:
        await more.offer_many(messages, timeout=TIMEOUT_S)
        assert (await anext(signals)).signal is RecordingSignal.EXTEND
        await until_recorded(archive, recording_id, more.position)
        await archive.stop_recording(channel, STREAM_ID)
        while (await anext(signals)).signal is not RecordingSignal.STOP:
            pass
        return more.position


async def until_recorded(archive: Archive, recording_id: int, position: int) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while await archive.recording_position(recording_id) != position:
            await asyncio.sleep(0.01)


async def until_free(channel: str) -> None:
    """Wait until no driver hears what comes for an endpoint, so that another one may."""
    host, _, port = channel.rpartition("=")[2].partition(":")
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                try:
                    probe.bind((host, int(port)))
                except OSError:
                    await asyncio.sleep(0.01)
                else:
                    return


async def replayed(archive: Archive, recording_id: int) -> list[bytes]:
    async with asyncio.timeout(TIMEOUT_S):
        return [bytes(each.data) async for each in archive.replay(recording_id)]


async def test_the_official_archive_lists_replays_and_extends_what_we_recorded(
    tmp_path: Path, channel: str, unused_udp_port_factory: Callable[[], int]
) -> None:
    async with our_client() as aeron:
        async with await open_ours(aeron, tmp_path) as ours:
            recording_id, end = await record(aeron, ours, channel, MESSAGES[:100])
            descriptor = await ours.describe(recording_id)
        async with (
            official_archive(tmp_path, unused_udp_port_factory) as official,
            official.connect(aeron) as remote,
        ):
            assert [each async for each in remote.recordings()] == [descriptor]
            assert await remote.stop_position(recording_id) == end
            assert await replayed(remote, recording_id) == MESSAGES[:100]
            # Our driver says goodbye for a second to the publisher of what was recorded.
            await until_free(channel)
            end = await extend(aeron, remote, recording_id, channel, MESSAGES[100:200])
            assert await replayed(remote, recording_id) == MESSAGES[:200]
        async with await open_ours(aeron, tmp_path) as ours:
            assert await ours.stop_position(recording_id) == end
            assert await replayed(ours, recording_id) == MESSAGES[:200]
            await extend(aeron, ours, recording_id, channel, MESSAGES[200:])
            assert await replayed(ours, recording_id) == MESSAGES


async def test_we_recover_what_an_official_archive_recorded_when_it_died(
    tmp_path: Path, channel: str, unused_udp_port_factory: Callable[[], int]
) -> None:
    async with our_client() as aeron:
        async with official_archive(tmp_path, unused_udp_port_factory) as official:
            remote = official.connect(aeron)
            await remote.start()
            signals = remote.signals()
            await remote.start_recording(channel, STREAM_ID, source_location=SourceLocation.REMOTE)
            publication = await aeron.add_exclusive_publication(channel, STREAM_ID)
            await publication.offer_many(MESSAGES, timeout=TIMEOUT_S)
            recording_id = (await anext(signals)).recording_id
            end = publication.position
            await until_recorded(remote, recording_id, end)
            await official.process.close()
            await publication.aclose()
            await remote.aclose()
        async with asyncio.timeout(TIMEOUT_S):
            ours = await open_when_free(aeron, tmp_path)
        async with ours:
            assert await ours.stop_position(recording_id) == end
            assert await replayed(ours, recording_id) == MESSAGES


async def open_when_free(aeron: aa.Aeron, directory: Path) -> LocalArchive:
    """Open a directory once its last archive has not been heard of for long enough."""
    while True:
        try:
            return await open_ours(aeron, directory)
        except ArchiveBusyError:
            await asyncio.sleep(0.5)
