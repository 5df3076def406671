"""Whether the last frame of a file may be torn, as far as whoever recorded it left word."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aeron_async.archive.disk.boot import current_boot
from aeron_async.archive.disk.mark_file import is_whole, read_mark_file
from aeron_async.errors import ArchiveFileError

if TYPE_CHECKING:
    from aeron_async.archive.disk.files import Directory

__all__ = ["are_ends_whole"]


def are_ends_whole(directory: Directory, *, boot_id: int | None = None) -> bool:
    """Return whether no frame can be torn in a directory; see `MarkFile.ends_are_whole`.

    Nothing is taken, and a mark file that cannot be read says no.

    Args:
        directory: Of an archive.
        boot_id: Of the running system; asked for when not given.
    """
    try:
        header = read_mark_file(directory)
    except (ArchiveFileError, OSError):
        return False
    return is_whole(header, current_boot() if boot_id is None else boot_id)
