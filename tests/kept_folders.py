"""Folders that last as long as a process of tests: what takes long to make is made there once.

Each test gets a copy of its own, in which it may write.
"""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["copy_of_made", "kept_folder", "remove_kept_folders"]

FOLDERS: Final[list[Path]] = []


def kept_folder() -> Path:
    """Return a new folder that lasts until `remove_kept_folders`."""
    FOLDERS.append(Path(mkdtemp(prefix="aeron-kept-")))
    return FOLDERS[-1]


def remove_kept_folders() -> None:
    """Remove what all tests of this process have had."""
    while FOLDERS:
        shutil.rmtree(FOLDERS.pop(), ignore_errors=True)
    made.cache_clear()


@cache
def made(make: Callable[[Path], object]) -> Path:
    """Return a folder with what a function has made in it; it is called once for all tests."""
    folder = kept_folder() / "made"
    folder.mkdir()
    make(folder)
    return folder


def copy_of_made(make: Callable[[Path], object], target: Path) -> Path:
    """Make in a folder what a function would make there; times of files are those of the first."""
    shutil.copytree(made(make), target, dirs_exist_ok=True)
    return target
