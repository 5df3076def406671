"""A driver that is told not to connect its sockets, as `aeron.driver.connect` does."""

from __future__ import annotations

import aeron_async as aa
from tests.drivers import embedded


async def test_a_publication_need_not_connect_its_socket(unused_udp_port: int) -> None:
    channel = f"aeron:udp?endpoint=127.0.0.1:{unused_udp_port}"
    context = aa.DriverContext(driver_connect=False)
    async with aa.Aeron.connect(context=context) as aeron:
        subscription = await aeron.add_subscription(channel, 1001)
        publication = await aeron.add_publication(channel, 1001)
        await publication.offer(b"unconnected", timeout=5)
        assert (await anext(subscription)).data == b"unconnected"
        (endpoint,) = embedded(aeron).conductor._publications.endpoints
        assert not endpoint.data.is_connected
