"""Where an archive is: a directory, or the control channel of one that runs elsewhere."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from aeron_async.archive.context import ArchiveContext
from aeron_async.archive.control.client import RemoteArchive
from aeron_async.archive.local_archive import LocalArchive
from aeron_async.client.aeron import Aeron

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aeron_async.archive.api import Archive

__all__ = ["is_elsewhere", "opened"]


def is_elsewhere(where: str) -> bool:
    """Return whether this is a control channel, and not a directory."""
    return where.startswith("aeron:")


@asynccontextmanager
async def opened(where: str) -> AsyncIterator[tuple[Aeron, Archive]]:
    """Give a client and an archive, for as long as the block lasts.

    Args:
        where: A directory, such as "aeron-archive", or a control channel, such as
            "aeron:udp?endpoint=localhost:8010".

    Raises:
        ArchiveBusyError: Another archive holds the directory: name its control channel instead.
        AeronTimeoutError: Nobody answers on the control channel.
    """
    async with Aeron.connect() as aeron:
        if is_elsewhere(where):
            async with RemoteArchive.connect(aeron, control_channel=where) as remote:
                yield aeron, remote
        else:
            context = ArchiveContext.from_environment(directory=where)
            async with await LocalArchive.open(aeron, context) as local:
                yield aeron, local
