"""Access to the archive that a command names by a directory or a control channel.

Source: Aeron `AeronArchive.Configuration`.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, final

import attrs

from aeron_async.archive.context import ArchiveContext
from aeron_async.archive.control.client import RemoteArchive
from aeron_async.archive.disk.archive_look import archive_at
from aeron_async.archive.disk.catalog import CATALOG_NAME, Catalog
from aeron_async.archive.disk.files import OsDirectory
from aeron_async.archive.disk.mark_file import LINK_NAME, MARK_FILE_NAME, MarkFile, MarkIdentity
from aeron_async.archive.local_archive import LocalArchive
from aeron_async.client.aeron import Aeron
from aeron_async.clock import NS_PER_MS, NS_PER_SECOND
from aeron_async.errors import AeronError, ConfigurationError
from aeron_async.protocol.units import INT32_MAX, INT32_MIN
from aeron_async.settings import EnvironmentSettings, duration, integer, text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping

    from aeron_async.archive.api import Archive
    from aeron_async.archive.disk.descriptor import RecordingDescriptor

__all__ = [
    "CONTROL_EXAMPLE",
    "client_settings",
    "described",
    "is_elsewhere",
    "listed",
    "needs_control",
    "opened",
    "progress_bar",
    "remove_if_unused",
]


@final
@attrs.frozen(kw_only=True)
class ClientSettings(EnvironmentSettings):
    """The settings of a client of an archive that commands take from the environment."""

    _PREFIX: ClassVar[str] = "AERON_ARCHIVE_"

    control_stream_id: int = integer(
        "aeron.archive.control.stream.id",
        10,
        "Stream id of the control channel.",
        minimum=INT32_MIN,
        maximum=INT32_MAX,
    )
    response_channel: str | None = text(
        "aeron.archive.control.response.channel",
        None,
        "Channel of the archive's responses, as the archive's host sees it.",
    )
    response_stream_id: int = integer(
        "aeron.archive.control.response.stream.id",
        20,
        "Stream id of the response channel.",
        minimum=INT32_MIN,
        maximum=INT32_MAX,
    )
    timeout_ns: int = duration(
        "aeron.archive.message.timeout",
        5 * NS_PER_SECOND,
        "How long a command waits for a response of the archive.",
        minimum=1,
    )


def client_settings(environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the client settings in the environment, as arguments of `RemoteArchive.connect`.

    Raises:
        ConfigurationError: A value is invalid; the message names the variable.
    """
    found = ClientSettings.found_in(os.environ if environ is None else environ)
    if (timeout_ns := found.pop("timeout_ns", None)) is not None:
        found["timeout"] = timeout_ns / NS_PER_SECOND
    return found


@contextmanager
def progress_bar(label: str, total: int | None) -> Iterator[Callable[..., None]]:
    """Yield a function that shows progress: it takes the amount done, and optionally a new label.

    Args:
        label: What is being done.
        total: Amount when all is done; None if unknown, and 0 if there is nothing to do.
    """
    if not sys.stderr.isatty() or total == 0:
        yield lambda *_: None
        return
    from rich.console import Console  # noqa: PLC0415 - only a terminal needs it
    from rich.progress import Progress  # noqa: PLC0415

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)

        def advance(done: int, label: str | None = None) -> None:
            bar.update(task, completed=done, description=label)

        yield advance


OURS: Final = frozenset({CATALOG_NAME, MARK_FILE_NAME, LINK_NAME})


@contextmanager
def remove_if_unused(where: str) -> Iterator[None]:
    """Remove an archive that was created within a block that fails, if it has recorded nothing.

    A mistyped channel or a port in use shows only after the archive was created.

    Args:
        where: Directory of the archive, created if missing; what was in it before stays.

    Raises:
        ConfigurationError: Its parent directory does not exist.
    """
    place = Path(where)
    parent = place.absolute().parent
    if not parent.is_dir():
        message = (
            f"{where} is to be a new archive, and there is no directory {parent}: make that first, "
            "or correct the path"
        )
        raise ConfigurationError(message)
    is_made = not place.exists()
    may_go = is_made or (place.is_dir() and OURS.isdisjoint(OsDirectory(place).names()))
    try:
        yield
    except (AeronError, OSError):
        if may_go:
            with suppress(AeronError, OSError):
                forget(OsDirectory(place, create=False))
                if is_made:
                    place.rmdir()
        raise


def forget(directory: OsDirectory) -> None:
    """Remove an archive that has recorded nothing and that no other process holds.

    Raises:
        ArchiveBusyError: Another process holds it.
    """
    names = directory.names()
    if CATALOG_NAME not in names or LINK_NAME in names:
        return
    mark = MarkFile.open(directory, MarkIdentity(), now_ms=time.time_ns() // NS_PER_MS)
    try:
        catalog = Catalog.open_to_read(directory)
        catalog.close()
        if catalog.next_recording_id == 0:
            # Remove it while it is locked: a process that waits for the lock creates a new archive.
            directory.remove(CATALOG_NAME)
            directory.remove(MARK_FILE_NAME)
    finally:
        mark.close()


CONTROL_EXAMPLE: Final = "aeron:udp?endpoint=localhost:8010"


def is_elsewhere(where: str) -> bool:
    """Return whether this is a control channel, and not a directory."""
    return where.startswith("aeron:")


def needs_control(where: str, why: str) -> None:
    """Refuse an argument that is no control channel.

    Raises:
        ConfigurationError: The argument is no control channel.
    """
    if not is_elsewhere(where):
        message = f"{where} is no control channel such as {CONTROL_EXAMPLE}: {why}"
        raise ConfigurationError(message)


def listed(where: str | Path) -> OsDirectory:
    """Return the directory of an archive for reading, even if an archive is running in it.

    Raises:
        ConfigurationError: The argument is a channel.
        FileNotFoundError: There is no archive.
        NotADirectoryError: The path is no directory.
    """
    if is_elsewhere(str(where)):
        message = f"{where} is a channel: this reads the files, so give the archive's directory"
        raise ConfigurationError(message)
    return archive_at(where, hint=f", and it is no control channel such as {CONTROL_EXAMPLE}")


async def described(where: str, recording_id: int) -> RecordingDescriptor:
    """Return the descriptor of a recording, from a directory or a running archive.

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
async def opened(
    where: str, *, aeron_dir: str | None = None, may_be_new: bool = False
) -> AsyncIterator[tuple[Aeron, Archive]]:
    """Yield a client and an archive; both are closed at the end of the block.

    Args:
        where: A directory, such as "aeron-archive", or a control channel, such as
            "aeron:udp?endpoint=localhost:8010".
        aeron_dir: See `ClientOptions`.
        may_be_new: Whether to create an archive in a directory that has none.

    Raises:
        FileNotFoundError: There is no archive, and none may be created.
        ArchiveBusyError: Another archive holds the directory: name its control channel instead.
        AeronTimeoutError: No archive answers on the control channel.
    """
    if not (may_be_new or is_elsewhere(where)):
        listed(where)
    async with Aeron.connect(directory=aeron_dir) as aeron:
        if is_elsewhere(where):
            client = RemoteArchive.connect(aeron, control_channel=where, **client_settings())
            async with client as remote:
                yield aeron, remote
        else:
            context = ArchiveContext.from_environment(directory=where)
            with remove_if_unused(where):
                async with LocalArchive.open(aeron, context) as local:
                    yield aeron, local
