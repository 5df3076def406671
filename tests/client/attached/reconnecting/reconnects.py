"""What tests of clients that reconnect have in common."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import attrs

import aeron_async as aa
from aeron_async.client.attached_driver import AttachedDriver
from tests.client.local import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import pytest

    from aeron_async.client.reconnecting import Comeback

TYPE_ID = 1_500
MS = 1_000_000


def with_directory(context: aa.DriverContext, folder: Path) -> aa.DriverContext:
    """Return the settings of a driver that beats often, in a directory of its own."""
    return attrs.evolve(
        context,
        aeron_directory=str(folder / "aeron"),
        counters_buffer_length=1 << 20,
        driver_timeout_ms=2_000,
        timer_interval_ns=20 * MS,
    )


class Events(list[aa.Reconnected]):
    """The events of one client."""

    async def next(self) -> aa.Reconnected:
        """Return the only event that was not taken, waiting for it."""
        await until(lambda: self)
        (event,) = self
        self.clear()
        return event


def connect(context: aa.DriverContext, events: Events | None = None, **more: Any) -> aa.Aeron:
    """Return a client that reconnects."""
    return aa.Aeron.connect(
        directory=context.aeron_directory,
        context=context,
        reconnect=True,
        on_reconnected=None if events is None else events.append,
        **more,
    )


def attached(aeron: aa.Aeron) -> AttachedDriver:
    """Return the driver of an attached client."""
    assert isinstance(aeron.driver, AttachedDriver)
    return aeron.driver


def comeback_of(aeron: aa.Aeron) -> Comeback:
    """Return what brings a client back."""
    comeback = attached(aeron)._comeback
    assert comeback is not None
    return comeback


async def lost(aeron: aa.Aeron) -> None:
    """Wait until a client has noticed that its driver has gone."""
    await until(lambda: attached(aeron)._attached is None)


@asynccontextmanager
async def restarted(driver: aa.MediaDriver) -> AsyncIterator[aa.MediaDriver]:
    """End a driver, and start another one in its directory."""
    await driver.abort()
    async with aa.MediaDriver.launch(driver.context, seed=8) as second:
        yield second


async def read(subscription: aa.Subscription, count: int) -> list[bytes]:
    """Return so many messages."""
    async with asyncio.timeout(5):
        return [(await anext(subscription)).data for _ in range(count)]


@asynccontextmanager
async def prepared(
    driver: aa.MediaDriver, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[aa.MediaDriver]:
    """Start another driver, which a client that reconnects finds after the block."""
    await driver.abort()
    with monkeypatch.context() as hidden:
        hidden.setattr(AttachedDriver, "look_for_driver", lambda _: "not yet")
        yield await aa.MediaDriver.launch(driver.context)
