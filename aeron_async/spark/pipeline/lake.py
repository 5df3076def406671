"""Folders of a lake, and the lock that admits one job at a time.

    LAKE/
    ├── bronze/batch=7/                              one row per message
    ├── silver/KIND/batch=7/date=…/stream_id=…/      decoded messages
    ├── quarantine/batch=7/                          messages that could not be decoded
    ├── gold/TABLE/batch=7/                          partial results, which add up
    ├── _checkpoint/                                 of Spark: how far recordings were read
    └── _state/                                      of this package: settings, last runs

A batch that is repeated replaces its folder, so a reader never sees it twice and needs no log of
Spark's.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from aeron_async.archive.disk.files import OsFile
from aeron_async.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "GOLD_TABLES",
    "Lake",
    "batch_folders",
    "hold",
]

GOLD_TABLES: Final = (
    "rates_second",
    "rates_minute",
    "runs",
    "gaps",
    "latency",
    "recordings",
)
BATCH: Final = re.compile(r"batch=(\d{1,19})")


@final
class Lake:
    """Paths of a lake.

    Args:
        root: Folder of the lake, which every executor must see under the same path.
    """

    def __init__(self, root: str | Path) -> None:
        self.root: Path = Path(root).absolute()

    @property
    def checkpoint(self) -> Path:
        """Return the folder of Spark's checkpoint."""
        return self.root / "_checkpoint"

    @property
    def bronze(self) -> Path:
        """Return the folder of recorded messages."""
        return self.root / "bronze"

    @property
    def quarantine(self) -> Path:
        """Return the folder of messages that could not be decoded."""
        return self.root / "quarantine"

    @property
    def lock(self) -> Path:
        """Return the lock file that the writing process holds."""
        return self.root / "_state" / "lock"

    def silver(self, kind: str) -> Path:
        """Return the folder of decoded messages of a kind."""
        return self.root / "silver" / kind

    def gold(self, table: str) -> Path:
        """Return the folder of a gold table."""
        return self.root / "gold" / table

    def tables(self) -> list[Path]:
        """Return the folders of all existing tables."""
        found = [self.bronze, self.quarantine]
        for parent in ("silver", "gold"):
            folder = self.root / parent
            found += sorted(folder.iterdir()) if folder.is_dir() else []
        return [each for each in found if each.is_dir()]

    def check_readable(self) -> None:
        """Refuse a folder that is no lake.

        Raises:
            ConfigurationError: The folder does not exist, or nothing was ingested into it.
        """
        if not self.root.is_dir():
            message = f"lake {str(self.root)!r} is no directory: name the LAKE of `pipeline run`"
            raise ConfigurationError(message)
        if self.is_empty():
            message = (
                f"lake {str(self.root)!r} has no messages yet: `pipeline run` brings those that "
                "its archive has"
            )
            raise ConfigurationError(message)

    def is_empty(self) -> bool:
        """Return whether no batch has reached the gold tables."""
        return not batch_folders(self.gold("runs"))

    def check_resumable(self, resolved: dict[str, Any]) -> None:
        """Refuse to resume if that would ingest messages twice, or mix different data.

        Args:
            resolved: Settings that must stay what they were when the lake was begun.

        Raises:
            ConfigurationError: The checkpoint is gone and the tables are not, or a setting has
                changed.
        """
        path = self.root / "_state" / "begun.json"
        has_batches = bool(batch_folders(self.bronze))
        has_checkpoint = (self.checkpoint / "metadata").exists()
        if has_batches and not has_checkpoint:
            message = (
                f"lake {str(self.root)!r} has messages and no _checkpoint, so that all of them "
                "would be ingested again: restore it, or begin another LAKE"
            )
            raise ConfigurationError(message)
        begun = json.loads(path.read_text()) if path.exists() else resolved
        for name, value in resolved.items():
            if begun.get(name, value) != value:
                message = (
                    f"lake {str(self.root)!r} was begun with {name}={begun[name]!r}, and this is "
                    f"{value!r}: change {name}, or begin another LAKE"
                )
                raise ConfigurationError(message)
        # A setting that was not recorded yet is fixed from now on.
        write_atomically(path, json.dumps(resolved | begun, indent=2).encode())


def batch_folders(table: Path) -> dict[int, Path]:
    """Return the folders of a table's batches by batch id, in order."""
    if not table.is_dir():
        return {}
    found = [(BATCH.fullmatch(each.name), each) for each in table.iterdir()]
    return dict(sorted((int(match[1]), each) for match, each in found if match is not None))


def batch_folder(table: Path, batch_id: int) -> Path:
    """Return the folder of a batch of a table."""
    return table / f"batch={batch_id}"


def forget_batch(table: Path, batch_id: int) -> None:
    """Remove what an earlier attempt at a batch has written."""
    folder = batch_folder(table, batch_id)
    if folder.exists():
        shutil.rmtree(folder)


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file atomically, and sync it to the disk.

    Raises:
        ConfigurationError: The file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.partial")
        partial.write_bytes(data)
        sync(partial)
        partial.replace(path)
        sync(path.parent)
    except OSError as error:
        message = f"{str(path)!r} could not be written: {error.strerror}; choose another place"
        raise ConfigurationError(message) from error


def sync(path: Path) -> None:
    """Sync a file or a folder to the disk; do nothing for a folder on Windows.

    Raises:
        OSError: The sync failed.
    """
    if os.name == "nt" and path.is_dir():
        return
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_all(folder: Path) -> None:
    """Sync a folder and everything in it to the disk."""
    for path in (*folder.rglob("*"), folder):
        sync(path)


@contextmanager
def hold(path: Path) -> Iterator[None]:
    """Hold the lock file of a lake; the system releases it when this process ends.

    On a file system without locks, only Spark prevents a second writer: it notices one after both
    have read a batch.

    Args:
        path: Lock file, created if missing; it holds the id of the process that holds it.

    Raises:
        ConfigurationError: Another process holds the lock, or the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = OsFile(str(path), os.open(path, os.O_RDWR | os.O_CREAT, 0o644))
    except OSError as error:
        message = f"{str(path)!r} could not be written: {error.strerror}; choose another place"
        raise ConfigurationError(message) from error
    try:
        if file.try_lock() is False:
            holder = path.read_text() or "unknown"
            message = (
                f"lake {str(path.parent.parent)!r} is being written by process {holder}, and two "
                "would write over one another: let that one end, or begin another LAKE"
            )
            raise ConfigurationError(message)
        file.set_length(0)
        file.write([str(os.getpid()).encode()], 0)
        yield
    finally:
        file.close()
