"""Aborting a driver: over at once, with nothing left running."""

from __future__ import annotations

import asyncio

import pytest

import aeron_async as aa


async def test_an_aborted_driver_closes_its_clients_and_leaves_no_task(
    unused_udp_port: int,
) -> None:
    channel = f"aeron:udp?endpoint=127.0.0.1:{unused_udp_port}"
    before = asyncio.all_tasks()
    driver = aa.MediaDriver.launch(aa.DriverContext())
    await driver.start()
    aeron = aa.Aeron.connect(driver)
    await aeron.start()
    publication = await aeron.add_publication(channel, 1)
    subscription = await aeron.add_subscription(channel, 1)
    await publication.offer(b"undelivered")
    await driver.abort()
    assert driver.is_closed
    assert publication.is_closed
    assert subscription.is_closed
    assert asyncio.all_tasks() == before
    await driver.abort()
    with pytest.raises(aa.ClosedError):
        await aeron.add_publication(channel, 1)


async def test_a_driver_that_never_started_can_be_aborted() -> None:
    driver = aa.MediaDriver.launch(aa.DriverContext())
    await driver.abort()
    assert driver.is_closed
