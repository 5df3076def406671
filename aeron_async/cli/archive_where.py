"""Where an archive is: a directory, or the control channel of one that runs elsewhere."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from aeron_async.archive.context import ArchiveContext
from aeron_async.archive.control.client import RemoteArchive
from aeron_async.archive.disk.archive_look import archive_at
from aeron_async.archive.disk.catalog import Catalog
from aeron_async.archive.local_archive import LocalArchive
from aeron_async.cli.archive_client import client_settings
from aeron_async.cli.archive_new import made_for_good
from aeron_async.client.aeron import Aeron
from aeron_async.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from aeron_async.archive.api import Archive
    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.archive.disk.files import OsDirectory

__all__ = [
    "CONTROL_EXAMPLE",
    "described",
    "is_elsewhere",
    "listed",
    "needs_control",
    "opened",
]

CONTROL_EXAMPLE: Final = "aeron:udp?endpoint=localhost:8010"


def is_elsewhere(where: str) -> bool:
    """Return whether this is a control channel, and not a directory."""
    return where.startswith("aeron:")


def needs_control(where: str, why: str) -> None:
    """Refuse what is no control channel.

    Raises:
        ConfigurationError: It is none.
    """
    if not is_elsewhere(where):
        message = f"{where} is no control channel such as {CONTROL_EXAMPLE}: {why}"
        raise ConfigurationError(message)


def listed(where: str | Path) -> OsDirectory:
    """Return the directory of an archive to be read, whatever else may be at work in it.

    Raises:
        ConfigurationError: It is a channel.
        FileNotFoundError: There is no archive.
        NotADirectoryError: It is no directory.
    """
    if is_elsewhere(str(where)):
        message = f"{where} is a channel: this reads the files, so give the archive's directory"
        raise ConfigurationError(message)
    return archive_at(where, hint=f", and it is no control channel such as {CONTROL_EXAMPLE}")


async def described(where: str, recording_id: int) -> RecordingDescriptor:
    """Return what is known of a recording, whether the archive is here or elsewhere.

    Raises:
        UnknownRecordingError: No recording has that id.
    """
    if is_elsewhere(where):
        async with opened(where) as (_, archive):
            return await archive.describe(recording_id)
    catalog = Catalog.open_to_read(listed(where))
    try:
        return catalog.get(recording_id)
    finally:
        catalog.close()


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
        listed(where)
    async with Aeron.connect() as aeron:
        if is_elsewhere(where):
            client = RemoteArchive.connect(aeron, control_channel=where, **client_settings())
            async with client as remote:
                yield aeron, remote
        else:
            context = ArchiveContext.from_environment(directory=where)
            with made_for_good(where):
                async with LocalArchive.open(aeron, context) as local:
                    yield aeron, local
