"""Where an archive is: in one wording, why it is not where somebody says that it is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from aeron_async.archive.disk.catalog_file import CATALOG_NAME
from aeron_async.archive.disk.files import OsDirectory

if TYPE_CHECKING:
    import os

__all__ = ["archive_at"]


def archive_at(path: str | os.PathLike[str], *, hint: str = "") -> OsDirectory:
    """Return the directory of an archive that is there already: a slip of the pen makes none.

    Args:
        path: Of the directory.
        hint: What else could have been meant, where there is nothing of that name.

    Raises:
        FileNotFoundError: There is no archive.
        NotADirectoryError: There is something else of that name.
    """
    place = Path(path)
    if not place.exists():
        message = f"{path} holds no archive: there is nothing of that name{hint}"
        raise FileNotFoundError(message)
    if not place.is_dir():
        message = f"{path} holds no archive: it is not a directory"
        raise NotADirectoryError(message)
    directory = OsDirectory(place, create=False)
    if CATALOG_NAME not in directory.names():
        why = "it is empty" if not any(place.iterdir()) else f"there is no {CATALOG_NAME} in it"
        message = f"{path} holds no archive: {why}"
        raise FileNotFoundError(message)
    return directory
