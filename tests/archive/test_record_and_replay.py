"""A stream goes into an archive and comes out again, message by message."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from aeron_async.archive.api import RecordingSignal
from aeron_async.errors import (
    ArchiveError,
    ArchiveErrorCode,
    ClosedError,
    InvalidPositionError,
    UnknownRecordingError,
)
from tests.archive.conftest import DRIVER_KINDS

if TYPE_CHECKING:
    from aeron_async import Aeron
    from aeron_async.archive.local_archive import LocalArchive
    from tests.archive.conftest import OpenArchive

IPC = "aeron:ipc"
STREAM = 7


@pytest.fixture(params=DRIVER_KINDS)
def driver_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def messages(count: int, begin: int = 0) -> list[bytes]:
    return [bytes([k % 251]) * (k * 37 % 5000) for k in range(begin, begin + count)]


async def record(aeron: Aeron, archive: LocalArchive, sent: list[bytes]) -> None:
    await archive.start_recording(IPC, STREAM)
    async with await aeron.add_exclusive_publication(IPC, STREAM) as publication:
        for each in sent:
            await publication.offer(each)
        await archive.stop_recording(IPC, STREAM)


async def test_what_was_published_is_replayed(open_archive: OpenArchive) -> None:
    sent = messages(300)
    async with open_archive() as (aeron, archive):
        await record(aeron, archive, sent)
        async with archive.replay(0) as replay:
            assert [each.data async for each in replay] == sent
        assert replay.position == await archive.stop_position(0)


async def test_it_is_still_there_when_the_archive_opens_again(open_archive: OpenArchive) -> None:
    sent = messages(100)
    async with open_archive() as (aeron, archive):
        await record(aeron, archive, sent)
    async with open_archive() as (_, archive):
        assert [each.data async for each in archive.replay(0)] == sent


async def test_a_replay_that_follows_crosses_into_what_is_being_recorded(
    open_archive: OpenArchive,
) -> None:
    sent = messages(200)
    async with open_archive() as (aeron, archive):
        await archive.start_recording(IPC, STREAM)
        async with await aeron.add_exclusive_publication(IPC, STREAM) as publication:
            for each in sent[:100]:
                await publication.offer(each)
            async with archive.replay(0, follow=True) as replay:
                received = [(await anext(replay)).data for _ in range(100)]
                waiting = asyncio.ensure_future(anext(replay))
                await asyncio.sleep(0)
                assert not waiting.done()
                for each in sent[100:]:
                    await publication.offer(each)
                received += [(await waiting).data]
                received += [(await anext(replay)).data for _ in range(99)]
        assert received == sent


async def test_a_replay_that_follows_crosses_stop_and_extension(
    open_archive: OpenArchive,
) -> None:
    sent = messages(200)
    async with open_archive() as (aeron, archive):
        await record(aeron, archive, sent[:100])
        async with archive.replay(0, follow=True) as replay:
            received = [(await anext(replay)).data for _ in range(100)]
            waiting = asyncio.ensure_future(anext(replay))
            await archive.extend_recording(0, IPC, STREAM)
            async with await archive.extending_publication(0, IPC, STREAM) as publication:
                for each in sent[100:]:
                    await publication.offer(each)
                await archive.stop_recording(IPC, STREAM)
            received += [(await waiting).data]
            received += [(await anext(replay)).data for _ in range(99)]
        assert received == sent
        assert [each.data async for each in archive.replay(0)] == sent


async def test_signals_tell_of_start_extension_and_stop(open_archive: OpenArchive) -> None:
    async with open_archive() as (aeron, archive):
        signals = archive.signals()
        await record(aeron, archive, messages(10))
        stop = await archive.stop_position(0)
        told = [await anext(signals) for _ in range(2)]
        assert [(each.signal, each.position) for each in told] == [
            (RecordingSignal.START, 0),
            (RecordingSignal.STOP, stop),
        ]


async def test_part_of_a_recording_is_replayed_from_and_to(open_archive: OpenArchive) -> None:
    sent = messages(50)
    async with open_archive() as (aeron, archive):
        await record(aeron, archive, sent)
        ends = [each.position async for each in archive.replay(0)]
        part = archive.replay(0, ends[9], ends[29])
        assert [each.data async for each in part] == sent[10:30]


async def test_a_position_within_a_frame_is_refused_with_the_nearest(
    open_archive: OpenArchive,
) -> None:
    async with open_archive() as (aeron, archive):
        await record(aeron, archive, [bytes(1000)] * 10)
        with pytest.raises(InvalidPositionError) as caught:
            await anext(archive.replay(0, 1056 + 32))
        assert caught.value.nearest == 1056
        with pytest.raises(InvalidPositionError) as caught:
            await anext(archive.replay(0, 2112 - 32))
        assert caught.value.nearest == 2112
        with pytest.raises(InvalidPositionError) as caught:
            await anext(archive.replay(0, 0, 1 << 20))
        assert caught.value.nearest == 10_560


async def test_an_unknown_recording_is_said_to_be_unknown(open_archive: OpenArchive) -> None:
    async with open_archive() as (_, archive):
        with pytest.raises(UnknownRecordingError):
            await anext(archive.replay(3))
        with pytest.raises(UnknownRecordingError):
            await archive.stop_recording_by_identity(3)


async def test_one_stream_is_recorded_once_at_a_time(open_archive: OpenArchive) -> None:
    async with open_archive() as (_, archive):
        await archive.start_recording(IPC, STREAM)
        with pytest.raises(ArchiveError) as caught:
            await archive.start_recording("aeron:ipc?term-length=64k", STREAM)
        assert caught.value.code is ArchiveErrorCode.ACTIVE_SUBSCRIPTION
        await archive.stop_recording(IPC, STREAM)
        with pytest.raises(ArchiveError) as caught:
            await archive.stop_recording(IPC, STREAM)
        assert caught.value.code is ArchiveErrorCode.UNKNOWN_SUBSCRIPTION


async def test_a_closed_archive_says_so_and_ends_who_waits(open_archive: OpenArchive) -> None:
    async with open_archive() as (aeron, archive):
        await record(aeron, archive, messages(3))
        replay = archive.replay(0, follow=True)
        for _ in range(3):
            await anext(replay)
        waiting = asyncio.ensure_future(anext(replay))
        await asyncio.sleep(0)
        await archive.aclose()
        with pytest.raises(ClosedError):
            await waiting
        with pytest.raises(ClosedError):
            archive.replay(0)


async def test_messages_that_lie_in_two_blocks_are_put_together(
    open_archive: OpenArchive,
) -> None:
    sent = [bytes([k]) * (300_000 + k * 1000) for k in range(20)]
    sent[7:7] = [b"short"] * 5
    settings = {"segment_length": 8 << 20}
    async with open_archive(**settings) as (aeron, archive):
        await archive.start_recording(IPC, STREAM)
        channel = "aeron:ipc?term-length=8m"
        async with await aeron.add_exclusive_publication(channel, STREAM) as publication:
            for each in sent:
                await publication.offer(each)
            await archive.stop_recording(IPC, STREAM)
        assert [each.data async for each in archive.replay(0)] == sent
        # From between two fragments on, the first is the next that is there whole.
        assert [each.data async for each in archive.replay(0, 1408)] == sent[1:]
        ends = [each.position async for each in archive.replay(0)]
        cut = archive.replay(0, ends[2] + 1408 * 3, ends[8])
        assert [each.data async for each in cut] == sent[4:9]
