"""An archive that a command makes goes again if that fails before anything was recorded."""

from __future__ import annotations

import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aeron_async.archive.disk.catalog import CATALOG_NAME, Catalog
from aeron_async.archive.disk.files import OsDirectory
from aeron_async.archive.disk.mark_file import LINK_NAME, MARK_FILE_NAME, MarkFile, MarkIdentity
from aeron_async.errors import AeronError, ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["made_for_good"]

NS_PER_MS: Final = 1_000_000
OURS: Final = frozenset({CATALOG_NAME, MARK_FILE_NAME, LINK_NAME})


@contextmanager
def made_for_good(where: str) -> Iterator[None]:
    """Let go of an archive that was made in a block that fails, and that has recorded nothing.

    A channel that was mistyped, or a port that is taken, shows only once there is an archive.

    Args:
        where: Its directory, which may have to be made; nothing in it goes that was there before.

    Raises:
        ConfigurationError: The directory that it is to lie in is not there.
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
    """Remove an archive that has recorded nothing, and that nobody else holds.

    Raises:
        ArchiveBusyError: Somebody does.
    """
    names = directory.names()
    if CATALOG_NAME not in names or LINK_NAME in names:
        return
    mark = MarkFile.open(directory, MarkIdentity(), now_ms=time.time_ns() // NS_PER_MS)
    try:
        catalog = Catalog.open_to_read(directory)
        catalog.close()
        if catalog.next_recording_id == 0:
            # While it is held: whoever waits for it makes another.
            directory.remove(CATALOG_NAME)
            directory.remove(MARK_FILE_NAME)
    finally:
        mark.close()
