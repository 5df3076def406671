"""A client that reconnects, and looks often; the driver that it begins with, and its events."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aeron_async.client import attached_driver, reconnecting
from tests.client.attached.reconnecting.reconnects import Events, connect, with_directory

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import aeron_async as aa


@pytest.fixture
def context(context: aa.DriverContext, tmp_path: Path) -> aa.DriverContext:
    return with_directory(context, tmp_path)


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attached_driver, "KEEPALIVE_INTERVAL_S", 0.01)
    monkeypatch.setattr(reconnecting, "LONGEST_NAP_S", 0.02)


@pytest.fixture
def events() -> Events:
    return Events()


@pytest.fixture
async def aeron(
    driver: aa.MediaDriver, context: aa.DriverContext, events: Events
) -> AsyncIterator[aa.Aeron]:
    async with connect(context, events) as aeron:
        yield aeron
