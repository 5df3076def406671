"""A recording is published anew: same messages, same positions, another session and stream."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from aeron_async.archive.api import ALL_AND_STOP, SourceLocation
from aeron_async.errors import ArchiveError, ArchiveErrorCode, InvalidPositionError
from tests.archive.conftest import DRIVER_KINDS
from tests.archive.test_record_and_replay import IPC, STREAM, messages, record

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async import Message, Subscription
    from aeron_async.archive.local_archive import LocalArchive
    from tests.archive.conftest import OpenArchive

REPLAY_STREAM = 8


@pytest.fixture(params=DRIVER_KINDS)
def driver_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def received(subscription: Subscription) -> list[Message]:
    """Return all that comes until the first image has ended."""
    await subscription.wait_connected(5)
    async with asyncio.timeout(10):
        return [message async for message in subscription.images[0]]


async def test_a_replay_has_the_messages_at_their_positions(open_archive: OpenArchive) -> None:
    sent = messages(200)
    async with open_archive() as (aeron, archive):
        await record(aeron, archive, sent)
        recorded = [(each.data, each.position) async for each in archive.replay(0)]
        subscription = await aeron.add_subscription(IPC, REPLAY_STREAM)
        replay_id = await archive.start_replay(0, IPC, REPLAY_STREAM)
        found = await received(subscription)
        assert [(each.data, each.position) for each in found] == recorded
        session_id = found[0].session_id
        assert replay_id & 0xFFFF_FFFF == session_id & 0xFFFF_FFFF
        assert found[0].stream_id == REPLAY_STREAM


async def test_a_payload_that_looks_like_padding_stays_what_it_is(
    open_archive: OpenArchive,
) -> None:
    header_of_padding = bytes((32, 0, 0, 0, 7, 7, 0, 0))
    sent = [b"first", header_of_padding + bytes(24), header_of_padding]
    async with open_archive() as (aeron, archive):
        await record(aeron, archive, sent)
        subscription = await aeron.add_subscription(IPC, REPLAY_STREAM)
        await archive.start_replay(0, IPC, REPLAY_STREAM)
        assert [each.data for each in await received(subscription)] == sent


async def test_part_of_a_recording_can_be_replayed(open_archive: OpenArchive) -> None:
    sent = messages(100)
    async with open_archive() as (aeron, archive):
        await record(aeron, archive, sent)
        ends = [each.position async for each in archive.replay(0)]
        subscription = await aeron.add_subscription(IPC, REPLAY_STREAM)
        await archive.start_replay(
            0, IPC, REPLAY_STREAM, position=ends[9], length=ends[49] - ends[9]
        )
        assert [each.data for each in await received(subscription)] == sent[10:50]


async def test_a_replay_follows_a_recording_until_that_stops(open_archive: OpenArchive) -> None:
    sent = messages(200)
    async with open_archive() as (aeron, archive):
        await archive.start_recording(IPC, STREAM)
        subscription = await aeron.add_subscription(IPC, REPLAY_STREAM)
        async with await aeron.add_exclusive_publication(IPC, STREAM) as publication:
            for each in sent[:100]:
                await publication.offer(each)
            await until_recorded(archive, publication.position)
            await archive.start_replay(0, IPC, REPLAY_STREAM)
            reading = asyncio.ensure_future(received(subscription))
            for each in sent[100:]:
                await publication.offer(each)
            await archive.stop_recording(IPC, STREAM)
        assert [each.data for each in await reading] == sent


async def until_recorded(archive: LocalArchive, position: int) -> None:
    async with asyncio.timeout(5):
        while (await archive.max_recorded_position(0)) < position:
            await asyncio.sleep(0)


async def test_a_stopped_replay_is_taken_back(open_archive: OpenArchive) -> None:
    async with open_archive() as (aeron, archive):
        await record(aeron, archive, messages(200))
        subscription = await aeron.add_subscription(IPC, REPLAY_STREAM)
        replay_id = await archive.start_replay(0, IPC, REPLAY_STREAM)
        await subscription.wait_connected(5)
        image = subscription.images[0]
        await archive.stop_replay(replay_id)
        await archive.stop_replay(replay_id)
        async with asyncio.timeout(5):
            assert len([each async for each in image]) < 200
        assert image.is_publication_revoked


async def test_what_cannot_be_replayed_is_refused(open_archive: OpenArchive) -> None:
    async with open_archive(max_concurrent_replays=1) as (aeron, archive):
        await record(aeron, archive, [bytes(1000)] * 10)
        with pytest.raises(InvalidPositionError) as caught:
            await archive.start_replay(0, IPC, REPLAY_STREAM, position=1088)
        assert caught.value.nearest == 1056
        with pytest.raises(InvalidPositionError):
            await archive.start_replay(0, IPC, REPLAY_STREAM, position=10_560)
        with pytest.raises(ArchiveError) as error:
            await archive.start_replay(0, IPC, REPLAY_STREAM, limit_counter_id=100_000)
        assert error.value.code is ArchiveErrorCode.GENERIC
        await archive.start_replay(0, IPC, REPLAY_STREAM, length=ALL_AND_STOP)
        with pytest.raises(ArchiveError) as error:
            await archive.start_replay(0, IPC, REPLAY_STREAM)
        assert error.value.code is ArchiveErrorCode.MAX_REPLAYS


async def test_truncating_and_purging_change_what_is_replayed(open_archive: OpenArchive) -> None:
    sent = messages(100)
    async with open_archive() as (aeron, archive):
        await record(aeron, archive, sent)
        ends = [each.position async for each in archive.replay(0)]
        await archive.truncate(0, ends[59])
        assert [each.data async for each in archive.replay(0)] == sent[:60]
        assert await archive.purge_segments(0, 65_536) == 1
        assert await archive.start_position(0) == 65_536
        async with archive.replay(0) as replay:
            await anext(replay)
            with pytest.raises(ArchiveError, match="active replay"):
                await archive.purge_recording(0)
        assert await archive.purge_recording(0) > 0
        assert [each async for each in archive.recordings()] == []


@pytest.mark.parametrize("source", list(SourceLocation))
async def test_a_udp_stream_is_recorded_and_replayed_over_udp(
    open_archive: OpenArchive, unused_udp_port_factory: Callable[[], int], source: SourceLocation
) -> None:
    sent = messages(100)
    channel = f"aeron:udp?endpoint=127.0.0.1:{unused_udp_port_factory()}"
    replay_channel = f"aeron:udp?endpoint=127.0.0.1:{unused_udp_port_factory()}"
    async with open_archive() as (aeron, archive):
        await archive.start_recording(channel, STREAM, source_location=source)
        # A spy is no subscriber unless the publication says so.
        asked = f"{channel}|ssc=true|term-length=64k"
        async with await aeron.add_exclusive_publication(asked, STREAM) as publication:
            for each in sent:
                await publication.offer(each, timeout=5)
            await until_recorded(archive, publication.position)
            await archive.stop_recording(channel, STREAM)
        descriptor = await archive.describe(0)
        assert descriptor.stripped_channel == channel
        is_spy = source is SourceLocation.LOCAL
        assert (descriptor.source_identity == "aeron:ipc") is is_spy
        subscription = await aeron.add_subscription(replay_channel, REPLAY_STREAM)
        await archive.start_replay(0, replay_channel, REPLAY_STREAM)
        assert [each.data for each in await received(subscription)] == sent


async def test_a_counter_bounds_a_replay(open_archive: OpenArchive) -> None:
    sent = messages(100)
    async with open_archive() as (aeron, archive):
        await record(aeron, archive, sent)
        ends = [each.position async for each in archive.replay(0)]
        counter = await aeron.add_counter(1001, "limit")
        counter.set(ends[9])
        subscription = await aeron.add_subscription(IPC, REPLAY_STREAM)
        await archive.start_replay(0, IPC, REPLAY_STREAM, limit_counter_id=counter.id)
        found = [(await anext(subscription)).data for _ in range(10)]
        counter.set(ends[49])
        found += [(await anext(subscription)).data for _ in range(40)]
        counter.close()
        assert found == sent[:50]
        async with asyncio.timeout(5):
            assert [each.data async for each in subscription.images[0]] == []


async def test_a_replay_that_nobody_wants_ends(open_archive: OpenArchive) -> None:
    async with open_archive(connect_timeout_ns=10_000_000, max_concurrent_replays=1) as (
        aeron,
        archive,
    ):
        await record(aeron, archive, messages(3))
        with capture_logs() as logs:
            await archive.start_replay(0, IPC, REPLAY_STREAM)
            async with asyncio.timeout(5):
                while not (failed := [each for each in logs if each["event"] == "replay_failed"]):
                    await asyncio.sleep(0.001)
        (line,) = failed
        assert "no connection established" in line["error"]
        assert "exc_info" not in line  # Whoever asks for a replay and leaves is no failure of ours.


async def test_a_length_within_a_frame_ends_behind_it(open_archive: OpenArchive) -> None:
    async with open_archive() as (aeron, archive):
        await record(aeron, archive, [bytes(1000)] * 10)
        subscription = await aeron.add_subscription(IPC, REPLAY_STREAM)
        await archive.start_replay(0, IPC, REPLAY_STREAM, length=1056 + 32)
        assert len(await received(subscription)) == 2
