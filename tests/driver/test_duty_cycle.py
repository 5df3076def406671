"""A driver that a program steps: turns of the event loop are all that driver and clients need."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING

import pytest

import aeron_async as aa
from tests.conftest import LOOP_FACTORIES

if TYPE_CHECKING:
    from collections.abc import Callable

STREAM_ID = 1001
COUNT = 1_000
LIMIT_S = 60


class Cycle:
    """What a program does in each turn: it never waits."""

    def __init__(self, publication: aa.Publication, subscription: aa.Subscription) -> None:
        self.publication = publication
        self.subscription = subscription
        self.sent = 0
        self.received: list[bytes] = []

    def on_fragment(self, data: memoryview, _header: aa.FragmentHeader) -> None:
        self.received.append(bytes(data))

    async def do_work(self) -> None:
        self.subscription.poll(self.on_fragment)
        if self.sent < COUNT:
            position = self.publication.try_offer(b"%d" % self.sent)
            self.sent += not isinstance(position, aa.OfferOutcome)


@pytest.mark.parametrize("make_loop", LOOP_FACTORIES.values(), ids=LOOP_FACTORIES)
def test_a_stream_over_udp_needs_no_more_than_turns_that_do_not_wait(
    make_loop: Callable[[], asyncio.AbstractEventLoop], unused_udp_port: int
) -> None:
    channel = f"aeron:udp?endpoint=127.0.0.1:{unused_udp_port}|term-length=64k"
    context = aa.DriverContext(counters_buffer_length=1 << 20)
    aeron = aa.Aeron.connect(context=context)

    async def start() -> Cycle:
        await aeron.start()
        subscription = await aeron.add_subscription(channel, STREAM_ID)
        return Cycle(await aeron.add_publication(channel, STREAM_ID), subscription)

    loop = make_loop()
    cycle = loop.run_until_complete(start())
    last = monotonic() + LIMIT_S
    while len(cycle.received) < COUNT and monotonic() < last:
        loop.run_until_complete(cycle.do_work())
    assert cycle.received == [b"%d" % number for number in range(COUNT)]
    loop.run_until_complete(aeron.aclose())
    assert asyncio.all_tasks(loop) == set()
    loop.close()
