"""Test a service through loss and a partition, in virtual time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from aeron_async.testing import Host, World

PRICES = "aeron:udp?endpoint=book:20121"
CHANGES = "aeron:udp?endpoint=screen:20121"


async def ticker(host: Host) -> None:
    """Publish a price ten times a second; most are the one before."""
    async with host.aeron() as aeron:
        prices = await aeron.add_publication(PRICES, stream_id=1)
        for second in range(100):
            for _ in range(10):
                await prices.offer(f"{100 + second}".encode())
                await asyncio.sleep(0.1)


async def book(host: Host) -> None:
    """Keep the latest price, and publish it when it changes: the service under test."""
    latest = b""
    async with host.aeron() as aeron:
        prices = await aeron.add_subscription(PRICES, stream_id=1)
        changes = await aeron.add_publication(CHANGES, stream_id=2)
        async for message in prices:
            if message.data != latest:
                latest = message.data
                await changes.offer(latest)


@pytest.mark.asyncio
@pytest.mark.aeron(seed=7, loss=0.2)
async def test_every_change_is_shown_once(
    lossy_link: World, partition: Callable[..., AbstractContextManager[None]]
) -> None:
    """Lose a fifth of all datagrams, cut the book off for eight seconds, and miss nothing."""
    world = lossy_link
    world.host("book").start(book)
    world.host("ticker").start(ticker)
    async with world.host("screen").aeron() as aeron:
        changes = await aeron.add_subscription(CHANGES, stream_id=2)
        shown = [(await anext(changes)).data for _ in range(20)]
        with partition(world.host("book")):
            await world.sleep(8)
        shown += [(await anext(changes)).data for _ in range(80)]
    assert shown == [f"{100 + second}".encode() for second in range(100)]
