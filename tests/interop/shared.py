"""One Aeron directory, with a driver and clients of either kind: ours, or the official C ones."""

from __future__ import annotations

from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import aeron_async as aa
from tests.interop.libaeron import official_client
from tests.interop.official import TERM_LENGTH, official_driver

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

OURS_AND_OFFICIAL: Final = ("ours", "official")


@asynccontextmanager
async def shared_directory(kind: str, directory: Path) -> AsyncIterator[Path]:
    """The directory of a driver of that kind; ours gets the one that is given."""
    if kind == "official":
        async with official_driver(IPC_TERM_BUFFER_LENGTH=str(TERM_LENGTH)) as driver:
            yield driver.directory
        return
    context = aa.DriverContext(
        aeron_directory=str(directory),
        term_buffer_length=TERM_LENGTH,
        ipc_term_buffer_length=TERM_LENGTH,
    )
    async with aa.MediaDriver.launch(context):
        yield directory


@asynccontextmanager
async def client_of(kind: str, directory: Path) -> AsyncIterator[Any]:
    """A client of that kind."""
    if kind == "ours":
        async with aa.Aeron.connect(directory=directory) as aeron:
            yield aeron
        return
    driver: Any = SimpleNamespace(directory=directory)
    async with official_client(driver) as client:
        yield client
