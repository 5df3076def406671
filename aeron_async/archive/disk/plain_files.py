"""Files of an archive are plain files: a pipe would be waited for, and a link leads elsewhere."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING, Final

from aeron_async.archive.disk.segments import parse_segment_name
from aeron_async.errors import ArchiveFileError

if TYPE_CHECKING:
    from aeron_async.archive.disk.files import Directory

__all__ = ["check_segments_are_plain", "kind_of_file", "not_plain"]

KINDS: Final = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFDIR: "a directory",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def kind_of_file(mode: int) -> str:
    """Return what is no plain file, in words, by its mode."""
    return KINDS.get(stat.S_IFMT(mode), "no plain file")


def not_plain(name: str, kind: str) -> ArchiveFileError:
    """Return the error of something that has the name of a file."""
    message = f"{kind}, and an archive reads and removes plain files only: take it away yourself"
    return ArchiveFileError(message, file=name, offset=0)


def check_segments_are_plain(directory: Directory, recording_id: int) -> None:
    """Refuse to remove files of a recording while something else has the name of one.

    Raises:
        ArchiveFileError: Something has; names it.
    """
    for name, kind in sorted(directory.other_kinds().items()):
        parsed = parse_segment_name(name)
        if parsed is not None and parsed[0] == recording_id:
            raise not_plain(name, kind)
