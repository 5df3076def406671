"""Messages that say when they arrived: in whose hands, and on which transports."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING

import pytest

import aeron_async as aa
from aeron_async.testing.world import simulate
from tests.drivers import CLOCK, contradiction, embedded_only

if TYPE_CHECKING:
    from aeron_async.testing.world import World

STREAM_ID = 1001
ON_LINUX = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux tells when a datagram arrived"
)


async def arrival(aeron: aa.Aeron, channel: str, query: str) -> tuple[list[int], int, int]:
    """Return both times in the payload of a message, and when it was offered and read."""
    subscription = await aeron.add_subscription(f"{channel}|{query}", STREAM_ID)
    publication = await aeron.add_publication(channel, STREAM_ID)
    await publication.wait_connected(timeout=5)
    before_ns = time.time_ns()
    await publication.offer(bytes(16) + b"payload", timeout=5)
    async with asyncio.timeout(5):
        data = (await anext(subscription)).data
    assert data[16:] == b"payload"
    times = [int.from_bytes(data[at : at + 8], "little") for at in (0, 8)]
    return times, before_ns, time.time_ns()


@pytest.mark.parametrize("transport", ["socket", "loop"])
async def test_the_drivers_time_of_arrival_is_in_the_message(channel: str, transport: str) -> None:
    async with aa.Aeron.connect(context=aa.DriverContext(transport=transport)) as aeron:
        (first, second), before_ns, after_ns = await arrival(
            aeron, channel, "channel-rcv-ts-offset=8"
        )
    assert first == 0
    assert before_ns <= second <= after_ns


@ON_LINUX
async def test_the_systems_time_of_arrival_is_before_the_drivers(
    aeron: aa.Aeron, channel: str
) -> None:
    query = "media-rcv-ts-offset=0|channel-rcv-ts-offset=8"
    (media_ns, channel_ns), before_ns, after_ns = await arrival(aeron, channel, query)
    # The two clocks are the same, but the system reads it more coarsely.
    assert before_ns - 10_000_000 <= media_ns <= channel_ns <= after_ns


@ON_LINUX
async def test_the_systems_time_may_be_the_reserved_value(aeron: aa.Aeron, channel: str) -> None:
    subscription = await aeron.add_subscription(
        f"{channel}|media-rcv-ts-offset=reserved", STREAM_ID
    )
    publication = await aeron.add_publication(channel, STREAM_ID)
    await publication.offer(b"x", reserved_value=7, timeout=5)
    async with asyncio.timeout(5):
        message = await anext(subscription)
    assert abs(message.reserved_value - time.time_ns()) < 60_000_000_000


async def test_a_transport_that_does_not_know_the_systems_time_says_so(channel: str) -> None:
    async with aa.Aeron.connect(context=aa.DriverContext(transport="loop")) as aeron:
        with pytest.raises(aa.RegistrationError, match="the transport 'loop'") as caught:
            await aeron.add_subscription(f"{channel}|media-rcv-ts-offset=0", STREAM_ID)
        assert caught.value.code is aa.ErrorCode.NOT_SUPPORTED
        # The socket is closed again: its port can be had.
        await aeron.add_subscription(channel, STREAM_ID)


async def test_other_systems_are_refused_by_name(
    aeron: aa.Aeron, channel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", "plan9")
    with pytest.raises(aa.RegistrationError, match="plan9"):
        await aeron.add_subscription(f"{channel}|media-rcv-ts-offset=0", STREAM_ID)


@embedded_only(CLOCK)
def test_a_simulated_network_does_not_know_the_systems_time_but_the_drivers() -> None:
    async def story(world: World) -> None:
        async with world.host("alice").aeron() as aeron:
            channel = "aeron:udp?endpoint=alice:20121"
            with pytest.raises(aa.RegistrationError, match="simulated network"):
                await aeron.add_subscription(f"{channel}|media-rcv-ts-offset=0", STREAM_ID)
            subscription = await aeron.add_subscription(
                f"{channel}|channel-rcv-ts-offset=reserved", STREAM_ID
            )
            publication = await aeron.add_publication(channel, STREAM_ID)
            before_ns = aeron.clock.epoch_ns()
            await publication.offer(b"x", timeout=5)
            message = await anext(subscription)
            assert before_ns <= message.reserved_value <= aeron.clock.epoch_ns()

    simulate(story)


@pytest.mark.parametrize("key", ["channel-rcv-ts-offset", "media-rcv-ts-offset"])
async def test_subscriptions_of_one_socket_agree_on_where_the_time_goes(
    aeron: aa.Aeron, channel: str, key: str
) -> None:
    if sys.platform != "linux":
        key = "channel-rcv-ts-offset"
    await aeron.add_subscription(f"{channel}|{key}=8", STREAM_ID)
    await aeron.add_subscription(f"{channel}|{key}=8", STREAM_ID + 1)
    with pytest.raises(contradiction(aeron), match=f"{key}=none differs from 8"):
        await aeron.add_subscription(channel, STREAM_ID + 2)
    with pytest.raises(contradiction(aeron), match=f"{key}=0"):
        await aeron.add_subscription(f"{channel}|{key}=0", STREAM_ID + 2)


async def test_destinations_are_stamped_as_their_subscription_says(
    aeron: aa.Aeron, channel: str
) -> None:
    subscription = await aeron.add_subscription(
        "aeron:udp?control-mode=manual|channel-rcv-ts-offset=0", STREAM_ID
    )
    await subscription.add_destination(channel)
    publication = await aeron.add_publication(channel, STREAM_ID)
    await publication.offer(bytes(8), timeout=5)
    async with asyncio.timeout(5):
        assert (await anext(subscription)).data != bytes(8)
