"""The resources that the parts of one archive share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

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
    from aeron_async.tasks import TaskOwner

__all__ = [
    "ArchiveResources",
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


@attrs.frozen(kw_only=True, eq=False)
class ArchiveResources:
    """Resources that the parts of an archive share; `LocalArchive` closes them.

    Attributes:
        archive_id: Id that tells archives apart.
        changed: Rings when a recording has started, has stopped, or was changed.
    """

    aeron: Aeron
    context: ArchiveContext
    archive_id: int
    directory: Directory
    catalog: AsyncCatalog
    disk: Disk
    signals: SignalHub
    tasks: TaskOwner
    changed: Notify
