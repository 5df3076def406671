"""Our client drives the official archive."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import attrs
import pytest

from aeron_async.archive.api import RecordingSignal, SourceLocation
from aeron_async.errors import ArchiveError, ArchiveErrorCode, UnknownRecordingError
from aeron_async.spark.options import ArchiveOptions
from aeron_async.spark.planning import plan_batch
from aeron_async.spark.worker import close_connection
from tests.interop.official_archive import OfficialArchive, official_archive
from tests.interop.ours import our_client
from tests.spark.recordings import scanned

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    import aeron_async as aa
    from aeron_async.archive.control.client import RemoteArchive

STREAM_ID: Final = 2001
MESSAGES: Final = [bytes([number % 251]) * (number * 37 % 3_000) for number in range(300)]
TIMEOUT_S: Final = 30.0


@pytest.fixture
async def archive(
    tmp_path: Path, unused_udp_port_factory: Callable[[], int]
) -> AsyncIterator[OfficialArchive]:
    async with official_archive(tmp_path, unused_udp_port_factory) as archive:
        yield archive


@pytest.fixture
async def ours(archive: OfficialArchive) -> AsyncIterator[aa.Aeron]:
    async with our_client() as aeron:
        yield aeron


async def record(
    aeron: aa.Aeron, remote: RemoteArchive, channel: str, messages: list[bytes]
) -> tuple[int, int]:
    """Let the archive record some messages; return the recording, and where it ends."""
    signals = remote.signals()
    await remote.start_recording(channel, STREAM_ID, source_location=SourceLocation.REMOTE)
    publication = await aeron.add_exclusive_publication(channel, STREAM_ID)
    await publication.offer_many(messages, timeout=TIMEOUT_S)
    started = await anext(signals)
    assert started.signal is RecordingSignal.START
    await until_recorded(remote, started.recording_id, publication.position)
    await remote.stop_recording(channel, STREAM_ID)
    stopped = await anext(signals)
    assert (stopped.signal, stopped.position) == (RecordingSignal.STOP, publication.position)
    await publication.aclose()
    return started.recording_id, stopped.position


async def until_recorded(remote: RemoteArchive, recording_id: int, position: int) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while await remote.recording_position(recording_id) != position:
            await asyncio.sleep(0.01)


async def test_an_official_archive_records_and_replays_for_our_client(
    archive: OfficialArchive, ours: aa.Aeron, channel: str
) -> None:
    async with archive.connect(ours) as remote:
        recording_id, end = await record(ours, remote, channel, MESSAGES)
        replay = remote.replay(recording_id)
        assert [bytes(each.data) async for each in replay] == MESSAGES
        assert replay.position == end
        descriptor = await remote.describe(recording_id)
        assert (descriptor.start_position, descriptor.stop_position) == (0, end)
        assert [each async for each in remote.recordings()] == [descriptor]
        assert [each async for each in remote.recordings(stream_id=STREAM_ID)] == [descriptor]
        assert [each async for each in remote.recordings(channel="nowhere")] == []
        assert await remote.start_position(recording_id) == 0
        assert await remote.stop_position(recording_id) == end
        assert await remote.recording_position(recording_id) is None
        assert await remote.max_recorded_position(recording_id) == end


async def test_our_client_extends_what_an_official_archive_has_recorded(
    archive: OfficialArchive, ours: aa.Aeron, channel: str
) -> None:
    async with archive.connect(ours) as remote:
        recording_id, end = await record(ours, remote, channel, MESSAGES[:100])
        signals = remote.signals()
        await remote.extend_recording(
            recording_id, channel, STREAM_ID, source_location=SourceLocation.REMOTE
        )
        publication = await remote.extending_publication(recording_id, channel, STREAM_ID)
        assert publication.position == end
        await publication.offer_many(MESSAGES[100:], timeout=TIMEOUT_S)
        extended = await anext(signals)
        assert (extended.signal, extended.position) == (RecordingSignal.EXTEND, end)
        await until_recorded(remote, recording_id, publication.position)
        assert await remote.stop_recording_by_identity(recording_id)
        assert not await remote.stop_recording_by_identity(recording_id)
        messages = [bytes(each.data) async for each in remote.replay(recording_id)]
        assert messages == MESSAGES
        assert [bytes(each.data) async for each in remote.replay(recording_id, end)] == MESSAGES[
            100:
        ]
        await publication.aclose()


async def test_our_client_follows_what_an_official_archive_still_records(
    archive: OfficialArchive, ours: aa.Aeron, channel: str
) -> None:
    async with archive.connect(ours) as remote:
        signals = remote.signals()
        await remote.start_recording(channel, STREAM_ID, source_location=SourceLocation.REMOTE)
        publication = await ours.add_exclusive_publication(channel, STREAM_ID)
        await publication.offer_many(MESSAGES[:100], timeout=TIMEOUT_S)
        recording_id = (await anext(signals)).recording_id
        async with remote.replay(recording_id, follow=True) as replay:
            found = [bytes((await anext(replay)).data) for _ in range(100)]
            await publication.offer_many(MESSAGES[100:], timeout=TIMEOUT_S)
            found += [bytes((await anext(replay)).data) for _ in range(200)]
        assert found == MESSAGES


@pytest.mark.parametrize("is_response", [False, True], ids=["endpoint", "response"])
async def test_our_client_replays_many_at_once_over_either_kind_of_channel(
    archive: OfficialArchive,
    ours: aa.Aeron,
    channel: str,
    unused_udp_port_factory: Callable[[], int],
    *,
    is_response: bool,
) -> None:
    options = {}
    if is_response:
        control = f"localhost:{unused_udp_port_factory()}"
        replay_control = f"localhost:{unused_udp_port_factory()}"
        options = {
            "response_channel": f"aeron:udp?control-mode=response|control={control}",
            "replay_channel": f"aeron:udp?control-mode=response|control={replay_control}",
        }
    async with archive.connect(ours, **options) as remote:
        recording_id, _ = await record(ours, remote, channel, MESSAGES)

        async def replayed() -> list[bytes]:
            return [bytes(each.data) async for each in remote.replay(recording_id)]

        async with asyncio.timeout(TIMEOUT_S), asyncio.TaskGroup() as group:
            tasks = [group.create_task(replayed()) for _ in range(5)]
        assert all(task.result() == MESSAGES for task in tasks)


async def test_an_official_archive_tells_our_client_what_is_wrong(
    archive: OfficialArchive, ours: aa.Aeron, channel: str
) -> None:
    async with archive.connect(ours) as remote:
        with pytest.raises(UnknownRecordingError, match="77"):
            await remote.describe(77)
        with pytest.raises(UnknownRecordingError, match="77"):
            await remote.start_position(77)
        with pytest.raises(UnknownRecordingError, match="unknown recording id: 77"):
            await remote.start_replay(77, channel, STREAM_ID)
        with pytest.raises(ArchiveError, match="no recording found") as caught:
            await remote.stop_recording(channel, STREAM_ID)
        assert caught.value.code is ArchiveErrorCode.UNKNOWN_SUBSCRIPTION
        await remote.start_recording(channel, STREAM_ID)
        with pytest.raises(ArchiveError, match="recording exists") as caught:
            await remote.start_recording(channel, STREAM_ID)
        assert caught.value.code is ArchiveErrorCode.ACTIVE_SUBSCRIPTION


async def test_our_client_makes_room_in_an_official_archive(
    archive: OfficialArchive, ours: aa.Aeron, channel: str
) -> None:
    async with archive.connect(ours) as remote:
        recording_id, end = await record(ours, remote, channel, MESSAGES)
        signals = remote.signals()
        assert await remote.purge_segments(recording_id, 65_536) == 1
        assert await remote.start_position(recording_id) == 65_536
        assert await remote.truncate(recording_id, 131_072) >= 1
        assert await remote.stop_position(recording_id) == 131_072 < end
        assert await remote.purge_recording(recording_id) == 1
        for _ in range(3):
            assert (await anext(signals)).signal is RecordingSignal.DELETE
        assert [each async for each in remote.recordings()] == []


async def test_a_replay_that_an_official_archive_breaks_off_raises(
    archive: OfficialArchive, ours: aa.Aeron, channel: str
) -> None:
    async with archive.connect(ours) as remote:
        recording_id, _ = await record(ours, remote, channel, MESSAGES)
        async with asyncio.timeout(TIMEOUT_S):
            with pytest.raises(ArchiveError, match="ended at position"):  # noqa: PT012 - mid way
                async for _ in remote.replay(recording_id):
                    await remote.stop_all_replays(recording_id)


async def test_what_an_official_archive_has_is_read_into_tables_by_replays(
    archive: OfficialArchive, ours: aa.Aeron, channel: str
) -> None:
    async with archive.connect(ours) as remote:
        recording_id, end = await record(ours, remote, channel, MESSAGES)
        options = ArchiveOptions.parse(
            {
                "access": "replay",
                "archive.control.channel": archive.control_channel,
                "recordingIds": str(recording_id),
            }
        )
        found, counts = await asyncio.to_thread(scanned, options)
        assert found["payload"] == MESSAGES
        assert found["end_position"][-1] == end
        assert counts.damaged_places == 0
        # Somewhere in between, and in pieces that are shorter than most messages.
        (part,) = await asyncio.to_thread(plan_batch, options)
        part = attrs.evolve(part, start=found["position"][7], end=found["position"][280])
        some, _ = await asyncio.to_thread(scanned, options, [part], piece_length=256)
        assert some["payload"] == MESSAGES[7:280]
        await asyncio.to_thread(close_connection)
