"""A flow control of one's own: the fastest majority of the receivers sets the pace."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import aeron_async as aa
from aeron_async.flow_control import FlowControlParams, GroupFlowControl, StatusMessage

if TYPE_CHECKING:
    from collections.abc import Sequence

CHANNEL = os.environ.get("CHANNEL", "aeron:udp?endpoint=127.0.0.1:20121")
GROUP = "aeron:udp?control=127.0.0.1:20121|control-mode=dynamic"


class MajorityFlowControl(GroupFlowControl):
    """More than half of the receivers lose nothing; the slowest may fall behind."""

    def pace(self, edges: Sequence[int]) -> int:
        """Return how far each of the fastest majority has room."""
        return sorted(edges, reverse=True)[len(edges) // 2]


def majority(params: FlowControlParams) -> MajorityFlowControl:
    """Make one, with the timeout and the sizes that channel and context say."""
    return MajorityFlowControl(**params.group_settings())


async def hello(aeron: aa.Aeron, publication: aa.Publication) -> None:
    """Send and receive, and say how many receivers are counted: without the strategy, none is."""
    subscription = await aeron.add_subscription(CHANNEL, stream_id=1001)
    await publication.offer(b"hello")
    print((await anext(subscription)).data.decode())
    print(next(each.value for each in aeron.counters if each.label.startswith("fc-receivers")))


async def main() -> None:
    """Let it pace every stream of a driver, then one stream, then a group of three."""
    context = aa.DriverContext(unicast_flow_control_supplier=majority)
    async with aa.Aeron.connect(context=context) as aeron:
        await hello(aeron, await aeron.add_publication(CHANNEL, stream_id=1001))
    async with aa.Aeron.connect() as aeron:
        publication = await aeron.add_publication(CHANNEL, stream_id=1001, flow_control=majority)
        await hello(aeron, publication)

    uri = aa.ChannelUri.parse(GROUP)
    paced = aa.flow_control.flow_control(uri, aa.DriverContext(), is_group=True, supplier=majority)
    limit = 0
    for who, position in ((1, 0), (2, 0), (3, 0), (1, 5_000), (2, 3_000), (1, 9_000)):
        sm = StatusMessage(session_id=7, stream_id=1001, receiver_id=who, receiver_window=1_000)
        limit = paced.on_status_message(sm, position=position, sender_limit=limit, now_ns=0)
        print(f"receiver {who} at {position}: send up to {limit}")


asyncio.run(main())
