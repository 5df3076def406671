"""One archive, asked here and over its control channel: the same answers."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from aeron_async.archive import RemoteArchive
from aeron_async.archive.control.server import ControlServer
from aeron_async.archive.control.settings import ControlSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aeron_async import Aeron
    from aeron_async.archive import LocalArchive
    from tests.archive.conftest import OpenArchive

STREAM = 7
LOCAL = "aeron:ipc?term-length=64k"


@asynccontextmanager
async def served(open_archive: OpenArchive) -> AsyncIterator[tuple[Aeron, LocalArchive, Any]]:
    async with open_archive(archive_id=77) as (aeron, archive):
        settings = ControlSettings(local_control_channel=LOCAL)
        async with (
            ControlServer(aeron, archive, settings),
            RemoteArchive.connect(aeron, control_channel=LOCAL) as remote,
        ):
            yield aeron, archive, remote


async def test_a_stream_is_recorded_and_replayed_over_the_control_channel(
    open_archive: OpenArchive,
) -> None:
    sent = [bytes([number]) * number * 50 for number in range(100)]
    async with served(open_archive) as (aeron, archive, remote):
        subscription_id = await remote.start_recording("aeron:ipc", STREAM)
        (found,) = archive.recording_subscriptions()
        assert (found.subscription_id, found.stream_id) == (subscription_id, STREAM)
        async with await aeron.add_exclusive_publication("aeron:ipc", STREAM) as publication:
            for each in sent:
                await publication.offer(each)
            await remote.stop_recording("aeron:ipc", STREAM)
        assert archive.recording_subscriptions() == []
        assert await remote.describe(0) == await archive.describe(0)
        assert [each.data async for each in remote.replay(0)] == sent
        assert [each.data async for each in archive.replay(0)] == sent
        assert [each async for each in remote.recordings()] == [await archive.describe(0)]
        assert await remote.stop_position(0) == await archive.stop_position(0)


async def test_an_archive_says_its_id(open_archive: OpenArchive) -> None:
    async with served(open_archive) as (_, archive, remote):
        assert archive.archive_id == 77
        assert remote.archive_id == 77
