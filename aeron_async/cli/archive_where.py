"""Where an archive is: a directory, or the control channel of one that runs elsewhere."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from aeron_async.archive.context import ArchiveContext
from aeron_async.archive.control.client import RemoteArchive
from aeron_async.archive.disk.catalog_file import CATALOG_NAME
from aeron_async.archive.disk.files import OsDirectory
from aeron_async.archive.local_archive import LocalArchive
from aeron_async.client.aeron import Aeron

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from aeron_async.archive.api import Archive

__all__ = ["existing", "is_elsewhere", "opened"]


def is_elsewhere(where: str) -> bool:
    """Return whether this is a control channel, and not a directory."""
    return where.startswith("aeron:")


def existing(where: str | Path) -> OsDirectory:
    """Return the directory of an archive that is there already: a slip of the pen makes none.

    Raises:
        FileNotFoundError: None is.
    """
    directory = OsDirectory(where, create=False)
    if CATALOG_NAME not in directory.names():
        message = f"{where} holds no archive: there is no {CATALOG_NAME} in it"
        raise FileNotFoundError(message)
    return directory


@asynccontextmanager
async def opened(where: str, *, may_be_new: bool = False) -> AsyncIterator[tuple[Aeron, Archive]]:
    """Give a client and an archive, for as long as the block lasts.

    Args:
        where: A directory, such as "aeron-archive", or a control channel, such as
            "aeron:udp?endpoint=localhost:8010".
        may_be_new: Whether an archive is made in a directory that has none.

    Raises:
        FileNotFoundError: There is none, and none is to be made.
        ArchiveBusyError: Another archive holds the directory: name its control channel instead.
        AeronTimeoutError: Nobody answers on the control channel.
    """
    if not (may_be_new or is_elsewhere(where)):
        existing(where)
    async with Aeron.connect() as aeron:
        if is_elsewhere(where):
            async with RemoteArchive.connect(aeron, control_channel=where) as remote:
                yield aeron, remote
        else:
            context = ArchiveContext.from_environment(directory=where)
            async with await LocalArchive.open(aeron, context) as local:
                yield aeron, local
