"""The official archive's directories, and what is known of them.

No test gets the originals: whoever may do anything would write to them in spite of their modes.
"""

from __future__ import annotations

import json
import shutil
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from tests.captures import captures_dir, captures_path
from tests.kept_folders import kept_folder

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "ARCHIVES",
    "RECORDINGS",
    "copy_of",
    "facts",
    "golden_path",
    "recording_facts",
]

ARCHIVES: Final = (
    "A1-one-finished",
    "A2-mid-term-start",
    "A3-several-recordings",
    "A3-recovered",
    "A4-crc32",
    "A5-truncated-and-purged",
    "A6-padding",
    "A7-catalog-growth",
)


@cache
def facts() -> dict[str, Any]:
    """Return what is known of all of them; nothing where they are not at hand."""
    path = captures_path() / "archives" / "facts.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    return found


def golden_path(name: str) -> Path:
    """Return a directory like one, for all tests of this process: to be read, and not written to.

    Raises:
        AssertionError: A test has written to it.
    """
    path, seal = kept(captures_dir() / "archives" / name)
    assert seal_of(path) == seal, f"a test has written to {path}: it wants `copy_of`"
    return path


@cache
def kept(original: Path) -> tuple[Path, dict[str, tuple[int, int]]]:
    """Return a copy that lasts as long as this process, and how it was sealed."""
    path = kept_folder() / original.name
    shutil.copytree(original, path)
    return path, seal_of(path)


def seal_of(path: Path) -> dict[str, tuple[int, int]]:
    """Return the lengths of all files, and when they were last written to."""
    found = {each.name: each.stat() for each in path.iterdir()}
    return {name: (each.st_size, each.st_mtime_ns) for name, each in found.items()}


def copy_of(name: str, target: Path) -> Path:
    """Return a copy of one that may be written to."""
    path = target / name
    shutil.copytree(golden_path(name), path)
    for file in (path, *path.iterdir()):
        file.chmod(0o755 if file.is_dir() else 0o644)
    return path


def recording_facts(name: str, recording_id: int) -> dict[str, Any]:
    """Return what is known of a recording."""
    found: list[dict[str, Any]] = facts()[name]["recordings"]
    return next(each for each in found if each["recording_id"] == recording_id)


RECORDINGS: Final = tuple(
    (name, each["recording_id"])
    for name in ARCHIVES
    for each in facts().get(name, {}).get("recordings", [])
)
