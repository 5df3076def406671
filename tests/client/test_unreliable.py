"""An unreliable subscription: what is lost stays lost, and what follows does not wait for it."""

from __future__ import annotations

import asyncio
from random import Random

import aeron_async as aa
from aeron_async.driver.core.system_counters import SystemCounterId
from tests.slow.lossy_network import LossyNetwork

STREAM_ID = 1001


async def test_gaps_become_padding_and_the_rest_arrives_in_order(unused_udp_port: int) -> None:
    network = LossyNetwork(0.1, Random(7))
    driver = aa.MediaDriver.launch(
        aa.DriverContext(term_buffer_length=64 * 1024), network=network, seed=1
    )
    channel = f"aeron:udp?endpoint=127.0.0.1:{unused_udp_port}"
    count = 3_000
    async with driver, aa.Aeron.connect(driver) as aeron:
        subscription = await aeron.add_subscription(f"{channel}|reliable=false", STREAM_ID)
        publication = await aeron.add_publication(channel, STREAM_ID)
        messages = [number.to_bytes(4, "little") + bytes(1000) for number in range(count)]
        sending = asyncio.create_task(publication.offer_many(messages))
        received: list[int] = []
        await subscription.wait_connected(timeout=5)
        (image,) = subscription.images
        sending.add_done_callback(lambda _: publication.close())
        async for message in image:
            assert message.data[4:] == bytes(1000)
            received.append(int.from_bytes(message.data[:4], "little"))
        counters = driver.counters
        assert received == sorted(set(received))
        assert 0.8 * count < len(received) < count
        assert counters.value(SystemCounterId.NAK_MESSAGES_SENT) == 0
        assert counters.value(SystemCounterId.LOSS_GAP_FILLS) > 0
        assert image.is_end_of_stream
