"""Where a subscription joins a stream of its own driver, row by row; and who loses it again.

Rows: a later network subscriber is in `test_untethered.py`; here are spies, IPC, and those that
have rested.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from aeron_async.client.image import ImageEventKind
from tests.client.local import IPC, STREAM_ID, publications, take, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import aeron_async as aa

SHORT = "untethered-window-limit-timeout=1ms|untethered-resting-timeout=1ms"


async def offered(publication: aa.Publication, count: int) -> None:
    for _ in range(count):
        await publication.offer(bytes(32), timeout=5)


# IPC: at the furthest that anybody has come, or the slowest who reads, whichever is less.


async def test_the_first_subscriber_joins_where_the_stream_starts(aeron: aa.Aeron) -> None:
    await aeron.add_publication(IPC, STREAM_ID)
    subscription = await aeron.add_subscription(IPC, STREAM_ID)
    assert subscription.images[0].join_position == 0


async def test_a_later_subscriber_joins_at_the_slowest(aeron: aa.Aeron) -> None:
    fast = await aeron.add_subscription(IPC, STREAM_ID)
    slow = await aeron.add_subscription(IPC, STREAM_ID)
    publication = await aeron.add_publication(IPC, STREAM_ID)
    await offered(publication, 5)
    await take(fast, 4)
    await take(slow, 2)
    late = await aeron.add_subscription(IPC, STREAM_ID)
    assert late.images[0].join_position == 2 * 64
    await slow.aclose()
    await take(late, 3)
    later = await aeron.add_subscription(IPC, STREAM_ID)
    assert later.images[0].join_position == 4 * 64


async def test_a_subscriber_after_all_have_gone_joins_where_the_furthest_came(
    aeron: aa.Aeron,
) -> None:
    reader = await aeron.add_subscription(IPC, STREAM_ID)
    other = await aeron.add_subscription(IPC, STREAM_ID)
    publication = await aeron.add_publication(IPC, STREAM_ID)
    await offered(publication, 5)
    await take(reader, 3)
    await take(other, 1)
    await reader.aclose()
    await other.aclose()
    late = await aeron.add_subscription(IPC, STREAM_ID)
    assert late.images[0].join_position == 3 * 64
    assert len(await take(late, 2)) == 2


async def test_a_new_publication_is_joined_by_all_who_wait_for_it(aeron: aa.Aeron) -> None:
    waiting = [await aeron.add_subscription(IPC, STREAM_ID) for _ in range(3)]
    publication = await aeron.add_publication(IPC, STREAM_ID)
    await publication.offer(b"to all", timeout=5)
    for subscription in waiting:
        assert await take(subscription, 1) == [b"to all"]


# Spies: at the sender position.


async def test_a_spy_joins_at_the_sender_position(aeron: aa.Aeron, channel: str) -> None:
    await aeron.add_subscription(channel, STREAM_ID)
    publication = await aeron.add_publication(channel, STREAM_ID)
    await offered(publication, 4)
    await publication.drain(timeout=5)
    spy = await aeron.add_subscription(f"aeron-spy:{channel}", STREAM_ID)
    assert spy.images[0].join_position == 4 * 64
    await publication.offer(b"from here", timeout=5)
    assert await take(spy, 1) == [b"from here"]


async def test_a_second_spy_joins_at_the_sender_position_and_not_at_the_slowest_spy(
    aeron: aa.Aeron, channel: str
) -> None:
    spied = f"aeron-spy:{channel}"
    first = await aeron.add_subscription(spied, STREAM_ID)
    await aeron.add_subscription(channel, STREAM_ID)
    publication = await aeron.add_publication(channel, STREAM_ID)
    await offered(publication, 4)
    await publication.drain(timeout=5)
    second = await aeron.add_subscription(spied, STREAM_ID)
    assert (first.images[0].join_position, second.images[0].join_position) == (0, 4 * 64)


# Untethered: after the rest, where one would join that comes then.


@pytest.fixture(params=["ipc", "spy"])
async def flood(
    aeron: aa.Aeron, channel: str, request: pytest.FixtureRequest
) -> AsyncIterator[tuple[str, aa.Publication]]:
    """Yield how to subscribe to a stream that is offered to without end, and its publication."""
    if request.param == "ipc":
        written = read = IPC
        publication = await aeron.add_publication(f"{written}?{SHORT}", STREAM_ID)
    else:
        written, read = channel, f"aeron-spy:{channel}"
        publication = await aeron.add_publication(f"{written}|{SHORT}|ssc=true", STREAM_ID)
    reader = await aeron.add_subscription(read, STREAM_ID)

    async def offer() -> None:
        while True:
            await publication.offer(bytes(1_000))

    async def consume() -> None:
        async for _ in reader:
            pass

    tasks = [asyncio.create_task(offer()), asyncio.create_task(consume())]
    yield read, publication
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_an_untethered_reader_is_left_behind_and_joins_again_after_a_rest(
    aeron: aa.Aeron, flood: tuple[str, aa.Publication]
) -> None:
    read, publication = flood
    untethered = f"{read}{'|' if '?' in read else '?'}tether=false"
    slow = await aeron.add_subscription(untethered, STREAM_ID)
    kinds, joined = [], []
    async with asyncio.timeout(10):
        async for event in slow.image_events():
            kinds.append(event.kind)
            joined.append(event.image.join_position)
            if len(kinds) == 3:
                break
        back, gone = ImageEventKind.AVAILABLE, ImageEventKind.UNAVAILABLE
        assert kinds == [back, gone, back]
        assert joined[2] > joined[0]
        message = await anext(slow)
    assert message.data == bytes(1_000)
    assert message.image.source_identity == "aeron:ipc"
    assert publication.is_connected


async def test_an_untethered_reader_that_does_not_rejoin_is_given_up_with_its_counter(
    aeron: aa.Aeron, flood: tuple[str, aa.Publication]
) -> None:
    read, _ = flood
    untethered = f"{read}{'|' if '?' in read else '?'}tether=false|rejoin=false"
    before = len(list(aeron.counters))
    slow = await aeron.add_subscription(untethered, STREAM_ID)
    (core,) = publications(aeron)
    await until(lambda: not slow.images and len(core.subscribers) == 1)
    assert len(list(aeron.counters)) == before
