"""One driver, one client and one channel for each test, all on loopback."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import aeron_async as aa

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

STREAM_ID = 1001


@pytest.fixture
def context() -> aa.DriverContext:
    return aa.DriverContext(term_buffer_length=64 * 1024, ipc_term_buffer_length=64 * 1024)


@pytest.fixture
async def driver(context: aa.DriverContext) -> AsyncIterator[aa.MediaDriver]:
    async with aa.MediaDriver.launch(context, seed=7) as driver:
        yield driver


@pytest.fixture
async def aeron(driver: aa.MediaDriver) -> AsyncIterator[aa.Aeron]:
    async with aa.Aeron.connect(driver) as aeron:
        yield aeron


@pytest.fixture
def channel(unused_udp_port: int) -> str:
    return f"aeron:udp?endpoint=127.0.0.1:{unused_udp_port}"


@pytest.fixture
async def subscription(aeron: aa.Aeron, channel: str) -> aa.Subscription:
    return await aeron.add_subscription(channel, STREAM_ID)


@pytest.fixture
async def publication(
    aeron: aa.Aeron, channel: str, subscription: aa.Subscription
) -> aa.Publication:
    publication = await aeron.add_publication(channel, STREAM_ID)
    await publication.wait_connected(timeout=5)
    return publication
