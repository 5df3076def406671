"""The resources that the parts of one archive share."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final, final

import attrs

from aeron_async.client.attached_driver import AttachedDriver
from aeron_async.logs import get_logger

if TYPE_CHECKING:
    import asyncio

    from aeron_async.archive.context import ArchiveContext
    from aeron_async.archive.disk.files import Directory
    from aeron_async.archive.disk_access import AsyncCatalog, Disk
    from aeron_async.archive.signals import SignalHub
    from aeron_async.client.aeron import Aeron
    from aeron_async.client.waiters import Notify
    from aeron_async.clock import Clock
    from aeron_async.tasks import TaskOwner

__all__ = [
    "ArchiveResources",
    "FreeSpace",
    "free_length",
    "handshake_limit",
    "log_failed_task",
]

log: Final = get_logger(__name__)


def log_failed_task(task: asyncio.Task[Any]) -> None:
    """Log the error of a background task of an archive."""
    log.error("archive_task_failed", task=task.get_name(), exc_info=task.exception())


def handshake_limit(aeron: Aeron, length: int | None) -> int | None:
    """Return how many bytes a publication may send before its receiver answers; None for no limit.

    A driver in another process has no such limit: until a receiver answers, it sends SETUP frames
    as Aeron does, and no data.
    """
    return None if isinstance(aeron.driver, AttachedDriver) else length


def free_length(path: str) -> int | None:
    """Return the free bytes of the file system of a directory; None if it cannot be determined."""
    try:
        found = os.statvfs(path)
    except (OSError, AttributeError):
        return None
    return found.f_bavail * found.f_frsize


@final
class FreeSpace:
    """The free bytes of the file system of an archive, measured in the threads of its disk.

    Args:
        path: The directory of the archive.
        disk: Runs the measuring.
        clock: Tells how old the figure is.

    Attributes:
        length: What was measured last, in bytes; None if it cannot be determined.
    """

    def __init__(self, path: str, disk: Disk, clock: Clock) -> None:
        self._path = path
        self._disk = disk
        self._clock = clock
        self._measured_ns: int | None = None
        self.length: int | None = None

    @property
    def age_ns(self) -> int | None:
        """Return how long ago the last measurement began; None before the first."""
        return None if self._measured_ns is None else self._clock.now_ns() - self._measured_ns

    async def measure(self) -> int | None:
        """Measure now, and return what was found."""
        begun_ns = self._clock.now_ns()
        length = await self._disk.run(free_length, self._path)
        # Another thread may have begun later, and have been quicker.
        if self._measured_ns is None or begun_ns >= self._measured_ns:
            self.length, self._measured_ns = length, begun_ns
        return length


@attrs.frozen(kw_only=True, eq=False)
class ArchiveResources:
    """Resources that the parts of an archive share; `LocalArchive` closes them.

    Attributes:
        archive_id: Id that tells archives apart.
        free_space: Free bytes of the disk, as they were measured last.
        changed: Rings when a recording has started, has stopped, or was changed.
    """

    aeron: Aeron
    context: ArchiveContext
    archive_id: int
    directory: Directory
    catalog: AsyncCatalog
    disk: Disk
    free_space: FreeSpace
    signals: SignalHub
    tasks: TaskOwner
    changed: Notify
