"""Readers of market data, with a driver in the process and with one that is attached."""

from __future__ import annotations

import asyncio

import pytest

import aeron_async as aa
from aeron_async.client.gaps import GapCause
from tests.client.local import IPC, STREAM_ID, until
from tests.drivers import both_drivers

FRAME = 64
pytestmark = both_drivers


@pytest.fixture(params=["ipc", "udp"])
def channel(request: pytest.FixtureRequest, unused_udp_port: int) -> str:
    """Return a channel over shared memory, or over UDP."""
    return IPC if request.param == "ipc" else f"aeron:udp?endpoint=127.0.0.1:{unused_udp_port}"


def data(number: int) -> bytes:
    return number.to_bytes(FRAME - 32, "big")


async def offer(publication: aa.ExclusivePublication, *numbers: int) -> None:
    for number in numbers:
        await publication.offer(data(number), timeout=5)


async def test_a_skip_is_a_gap(aeron: aa.Aeron, channel: str) -> None:
    subscription = await aeron.add_subscription(channel, STREAM_ID)
    publication = await aeron.add_exclusive_publication(channel, STREAM_ID)
    await offer(publication, *range(10))
    reader = subscription.with_gaps()
    first = await anext(reader)
    assert isinstance(first, aa.Message)
    (image,) = subscription.images
    begin = image.join_position
    await until(lambda: image.lag_bytes == 10 * FRAME)
    assert subscription.skip_to_newest() == 9 * FRAME
    await offer(publication, 10)
    assert await anext(reader) == aa.Gap(
        publication.session_id, begin + FRAME, begin + 10 * FRAME, GapCause.SKIPPED
    )
    last = await anext(reader)
    assert isinstance(last, aa.Message)
    assert last.data == data(10)


async def test_a_reader_that_lags_skips(aeron: aa.Aeron, channel: str) -> None:
    subscription = await aeron.add_subscription(channel, STREAM_ID)
    publication = await aeron.add_exclusive_publication(channel, STREAM_ID)
    await offer(publication, *range(20))
    await until(lambda: [each.lag_bytes for each in subscription.images] == [20 * FRAME])
    (image,) = subscription.images
    reading = subscription.reading(on_lag="skip", max_lag_bytes=8 * FRAME)
    next_message = asyncio.ensure_future(anext(reading))
    await until(lambda: image.lag_bytes == 0)
    assert image.skipped_bytes > 8 * FRAME
    await offer(publication, 20)
    assert (await next_message).data == data(20)


async def test_the_newest_of_each_key_is_kept(aeron: aa.Aeron, channel: str) -> None:
    subscription = await aeron.add_subscription(channel, STREAM_ID)
    publication = await aeron.add_exclusive_publication(channel, STREAM_ID)
    async with subscription.latest(lambda message: message.data[-1] % 4) as latest:
        await offer(publication, *range(40))
        await until(lambda: latest.skipped == 36)
        assert [(await anext(latest)).data for _ in range(4)] == [data(n) for n in range(36, 40)]


@pytest.mark.parametrize("is_revoked", [False, True])
async def test_another_publisher_is_told(
    aeron: aa.Aeron, channel: str, *, is_revoked: bool
) -> None:
    subscription = await aeron.add_subscription(channel, STREAM_ID)
    reader = subscription.with_gaps()
    for number in (1, 2):
        publication = await aeron.add_exclusive_publication(channel, STREAM_ID)
        await offer(publication, number)
        message = await anext(reader)
        assert isinstance(message, aa.Message)
        assert message.data == data(number)
        if is_revoked:
            end = publication.position
            publication.revoke()
            gap = await anext(reader)
            assert gap == aa.Gap(publication.session_id, end, None, GapCause.REVOKED)
        await publication.aclose()
