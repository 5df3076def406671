"""Many messages through a loopback that loses one datagram in twenty, each way."""

from __future__ import annotations

import asyncio
import os
from random import Random
from struct import Struct

import pytest

import aeron_async as aa
from tests.slow.lossy_network import LossyNetwork

STREAM_ID = 1001
MESSAGE = Struct("<q8x")
# Twelve terms; a million where there is time.
COUNT = int(os.environ.get("AERON_ASYNC_LOOPBACK_MESSAGES", "200000"))


@pytest.mark.slow
@pytest.mark.untraced
@pytest.mark.parametrize(
    ("count", "parameters"),
    [(COUNT, "term-length=1m"), (50_000, "term-length=64k|mtu=288")],
)
async def test_a_lossy_loopback_loses_no_message(
    count: int, parameters: str, unused_udp_port: int
) -> None:
    network = LossyNetwork(0.05, Random(20121))
    driver = aa.MediaDriver.launch(aa.DriverContext(), network=network, seed=1)
    channel = f"aeron:udp?endpoint=127.0.0.1:{unused_udp_port}"
    async with driver, aa.Aeron.connect(driver) as aeron:
        subscription = await aeron.add_subscription(channel, STREAM_ID)
        publication = await aeron.add_publication(f"{channel}|{parameters}", STREAM_ID)
        sending = asyncio.create_task(
            publication.offer_many(MESSAGE.pack(number) for number in range(count))
        )
        expected = 0
        async for message in subscription:
            (number,) = MESSAGE.unpack(message.data)
            assert number == expected
            expected += 1
            if expected == count:
                break
        assert await sending == message.position
        assert len(subscription.images) == 1
    total = network.dropped_count + network.delivered_count
    assert 0.04 < network.dropped_count / total < 0.06
