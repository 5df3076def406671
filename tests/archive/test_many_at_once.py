"""Ten replays while a stream is recorded, one of them slow: nobody waits for another."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.archive.test_record_and_replay import IPC, STREAM, messages

if TYPE_CHECKING:
    from aeron_async import Subscription
    from aeron_async.archive.api import Replay
    from tests.archive.conftest import OpenArchive


async def take(replay: Replay, count: int) -> list[bytes]:
    async with replay:
        return [(await anext(replay)).data for _ in range(count)]


async def test_a_slow_replay_holds_back_neither_recording_nor_others(
    open_archive: OpenArchive,
) -> None:
    sent = messages(600)
    async with open_archive() as (aeron, archive), asyncio.timeout(20):
        await archive.start_recording(IPC, STREAM)
        slow = archive.replay(0, follow=True)
        async with await aeron.add_exclusive_publication(IPC, STREAM) as publication:
            await publication.offer(sent[0])
            while not [each async for each in archive.recordings()]:
                await asyncio.sleep(0)
            assert (await anext(slow)).data == sent[0]
            quick = [
                asyncio.ensure_future(take(archive.replay(0, follow=True), len(sent)))
                for _ in range(9)
            ]
            for each in sent[1:]:
                await publication.offer(each)
            for received in await asyncio.gather(*quick):
                assert received == sent
            await archive.stop_recording(IPC, STREAM)
        assert await take(slow, len(sent) - 1) == sent[1:]


async def test_a_slow_subscriber_of_a_replay_holds_back_no_other(
    open_archive: OpenArchive,
) -> None:
    sent = messages(600)
    async with open_archive() as (aeron, archive), asyncio.timeout(20):
        await archive.start_recording(IPC, STREAM)
        subscriptions = [await aeron.add_subscription(IPC, 100 + k) for k in range(10)]
        async with await aeron.add_exclusive_publication(IPC, STREAM) as publication:
            await publication.offer(sent[0])
            while not [each async for each in archive.recordings()]:
                await asyncio.sleep(0)
            for k in range(10):
                await archive.start_replay(0, IPC, 100 + k)
            quick = [asyncio.ensure_future(count(each, len(sent))) for each in subscriptions[1:]]
            for each in sent[1:]:
                await publication.offer(each)
            assert await asyncio.gather(*quick) == [sent] * 9
            await archive.stop_recording(IPC, STREAM)
        assert await count(subscriptions[0], len(sent)) == sent


async def count(subscription: Subscription, wanted: int) -> list[bytes]:
    return [(await anext(subscription)).data for _ in range(wanted)]
