"""Destinations that are added and removed, of a publication and of a subscription."""

from __future__ import annotations

import asyncio
import os

import aeron_async as aa

CHANNEL = os.environ.get("CHANNEL", "aeron:udp?endpoint=127.0.0.1:20121")
ANYWHERE = aa.Channel.udp("127.0.0.1:0")


def counted(aeron: aa.Aeron) -> str:
    """Say what the counters of the one publication with destinations do."""
    values = {each.label.partition(":")[0]: each.value for each in aeron.counters}
    return f"{values['mdc-num-dest']} destinations, {values['fc-receivers']} of them served"


async def send_to_several(aeron: aa.Aeron) -> None:
    """Send to two receivers, to a third that comes late, and then to two again."""
    channel = aa.Channel.mdc_publisher(mode="manual", fc=aa.Fc.min(size=2))
    publication = await aeron.add_publication(channel, stream_id=1001)
    receivers = [await aeron.add_subscription(ANYWHERE, stream_id=1001) for _ in range(3)]
    first, second, third = (aa.Channel.udp(each.local_address) for each in receivers)
    await publication.add_destination(first)
    await publication.add_destination(second)
    await publication.wait_connected()  # Both are served.
    await publication.offer(b"for two")
    await publication.add_destination(third)
    await publication.offer(b"too early for the third")
    print(counted(aeron))
    while "3 of them" not in counted(aeron):  # noqa: ASYNC110 - a counter wakes no task
        await asyncio.sleep(0.01)
    await publication.offer(b"for three")
    print(*[(await anext(each)).data.decode() for each in receivers], sep=", ")
    await publication.remove_destination(third)
    print(counted(aeron))


async def receive_at_several(aeron: aa.Aeron) -> None:
    """Receive at one place, and then no more."""
    subscription = await aeron.add_subscription(aa.Channel.mds(), stream_id=1002)
    await subscription.add_destination(CHANNEL)
    publication = await aeron.add_publication(CHANNEL, stream_id=1002)
    await publication.wait_connected()
    await subscription.remove_destination(CHANNEL)
    print(f"images: {len(subscription.images)}, publisher connected: {publication.is_connected}")


async def main() -> None:
    """Do both, without waiting at the end for receivers that are not sent to any more."""
    context = aa.DriverContext(publication_linger_timeout_ns=100_000_000)
    async with aa.Aeron.connect(context=context) as aeron:
        await send_to_several(aeron)
        await receive_at_several(aeron)


asyncio.run(main())
