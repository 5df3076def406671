"""The folders of a lake, and the lock that admits one job at a time.

    LAKE/
    ├── bronze/batch=7/                              one row per message
    ├── silver/KIND/batch=7/date=…/stream_id=…/      decoded
    ├── quarantine/batch=7/                          what could not be decoded
    ├── gold/TABLE/batch=7/                          partial results, which add up
    ├── _checkpoint/                                 Spark's: how far recordings were read
    └── _state/                                      ours: which query this is, and its last runs

A batch that is done again replaces its folder, so that doing it twice is doing it once, for any
reader: no log of Spark's needs to be consulted.
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
    """The paths of a lake.

    Args:
        root: Its folder, which every executor must see under the same path.
    """

    def __init__(self, root: str | Path) -> None:
        self.root: Path = Path(root).absolute()

    @property
    def checkpoint(self) -> Path:
        """Return the folder of Spark's checkpoint."""
        return self.root / "_checkpoint"

    @property
    def bronze(self) -> Path:
        """Return the folder of messages."""
        return self.root / "bronze"

    @property
    def quarantine(self) -> Path:
        """Return the folder of what could not be decoded."""
        return self.root / "quarantine"

    @property
    def lock(self) -> Path:
        """Return the file that whoever writes holds."""
        return self.root / "_state" / "lock"

    def silver(self, kind: str) -> Path:
        """Return the folder of decoded messages of a kind."""
        return self.root / "silver" / kind

    def gold(self, table: str) -> Path:
        """Return the folder of results."""
        return self.root / "gold" / table

    def tables(self) -> list[Path]:
        """Return the folder of every table that is there."""
        found = [self.bronze, self.quarantine]
        for parent in ("silver", "gold"):
            folder = self.root / parent
            found += sorted(folder.iterdir()) if folder.is_dir() else []
        return [each for each in found if each.is_dir()]

    def check_readable(self) -> None:
        """Refuse a folder that is no lake.

        Raises:
            ConfigurationError: There is none, or nothing was ingested into it.
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
        """Return whether no batch has come to its gold tables."""
        return not batch_folders(self.gold("runs"))

    def check_resumable(self, resolved: dict[str, Any]) -> None:
        """Refuse to go on where that would count messages twice, or mix what differs.

        Args:
            resolved: What a lake was begun with, and has to be gone on with.

        Raises:
            ConfigurationError: The checkpoint is gone and the tables are not, or what the lake was
                begun with is another.
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
        # What is new is held to from now on.
        write_atomically(path, json.dumps(resolved | begun, indent=2).encode())


def batch_folders(table: Path) -> dict[int, Path]:
    """Return the folders of a table's batches, in order."""
    if not table.is_dir():
        return {}
    found = [(BATCH.fullmatch(each.name), each) for each in table.iterdir()]
    return dict(sorted((int(match[1]), each) for match, each in found if match is not None))


def batch_folder(table: Path, batch_id: int) -> Path:
    """Return where a batch of a table is kept."""
    return table / f"batch={batch_id}"


def forget_batch(table: Path, batch_id: int) -> None:
    """Remove what an earlier attempt at a batch has left."""
    folder = batch_folder(table, batch_id)
    if folder.exists():
        shutil.rmtree(folder)


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file that is whole or not there, and there for good when this returns.

    Raises:
        ConfigurationError: It cannot be written.
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
    """Bring a file, or the names in a folder, to the disk; a folder only where that can be asked.

    Raises:
        OSError: It cannot be done.
    """
    if os.name == "nt" and path.is_dir():
        return
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_all(folder: Path) -> None:
    """Bring a folder to the disk, with all that is in it."""
    for path in (*folder.rglob("*"), folder):
        sync(path)


@contextmanager
def hold(path: Path) -> Iterator[None]:
    """Hold a file of a lake; the system lets it go when this process ends, however it does.

    A file system that knows no locks leaves it to Spark, which notices the second query when both
    have read a batch.

    Args:
        path: Of the file, made if there is none; it says which process holds it.

    Raises:
        ConfigurationError: Another process holds it, or it cannot be written.
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
