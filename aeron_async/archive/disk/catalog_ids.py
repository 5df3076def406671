"""Which ids the files of a directory have, so that no recording is written over another.

Differs: Aeron makes a new catalog wherever there is none, and trusts one that is there; recordings
that it does not know of are written over by those that get their ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aeron_async.archive.disk.catalog_file import CATALOG_NAME
from aeron_async.archive.disk.segments import parse_segment_name
from aeron_async.errors import ArchiveFileError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aeron_async.archive.disk.files import Directory

__all__ = ["last_used_id", "refuse_to_forget"]

LARGEST_ID: Final = 1 << 62


def last_used_id(names: Iterable[str]) -> tuple[int, list[str]]:
    """Return the highest id that a file has, or -1, and all names of recordings' files."""
    found = [(parsed[0], each) for each in names if (parsed := parse_segment_name(each))]
    # What nobody counts up to is a name that means nothing, and would leave no id for the next.
    last_id = max((each for each, _ in found if each < LARGEST_ID), default=-1)
    return last_id, [name for _, name in found]


def refuse_to_forget(directory: Directory, files: list[str]) -> None:
    """Refuse to make a catalog where there are recordings: it would give their ids to others.

    Raises:
        ArchiveFileError: There are.
    """
    if files:
        message = (
            f"there is none in {directory.path}, and there are files of recordings, "
            f"{min(files)} one of {len(files)}, which those of a new catalog would replace: put a "
            "copy of the catalog back, or move these files away"
        )
        raise ArchiveFileError(message, file=CATALOG_NAME, offset=0)
