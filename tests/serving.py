"""Drivers that are processes of their own: how a test waits until one serves clients."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aeron_async.aeron_directory import AeronDirectory

if TYPE_CHECKING:
    from pathlib import Path

START_LIMIT_S = 120


async def until_it_serves(directory: Path, pid: int) -> None:
    """Wait until the driver that is this process serves clients, however long it takes to start."""
    async with asyncio.timeout(START_LIMIT_S):
        while True:
            found = AeronDirectory.try_open(directory)
            if isinstance(found, AeronDirectory):
                is_its_own = found.layout.pid == pid and found.heartbeat_ms > 0
                found.close()
                if is_its_own:
                    return
            await asyncio.sleep(0.01)
