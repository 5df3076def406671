"""A driver with an Aeron directory, and a client that is attached to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest

import aeron_async as aa
from tests.client.local import IPC

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture
def context(context: aa.DriverContext, tmp_path: Path) -> aa.DriverContext:
    return attrs.evolve(
        context,
        aeron_directory=str(tmp_path / "aeron"),
        counters_buffer_length=1 << 20,
        driver_timeout_ms=2_000,
    )


@pytest.fixture
async def aeron(driver: aa.MediaDriver) -> AsyncIterator[aa.Aeron]:
    async with aa.Aeron.connect(
        directory=driver.context.aeron_directory, context=driver.context
    ) as aeron:
        yield aeron


@pytest.fixture(params=["ipc", "udp"])
def medium(request: pytest.FixtureRequest, channel: str) -> str:
    return IPC if request.param == "ipc" else channel
