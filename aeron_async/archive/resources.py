"""The resources that the parts of one archive share."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, final

import attrs

from aeron_async.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from aeron_async.archive.context import ArchiveContext
    from aeron_async.archive.disk.files import Directory
    from aeron_async.archive.disk_access import AsyncCatalog, Disk
    from aeron_async.archive.signals import SignalHub
    from aeron_async.client.aeron import Aeron
    from aeron_async.client.waiters import Notify

__all__ = [
    "ArchiveResources",
    "Tasks",
]

log: Final = get_logger(__name__)


@final
class Tasks:
    """Background tasks that run until they end, or until all are cancelled."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Start a task; an exception of it is logged."""
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)
        return task

    async def aclose(self) -> None:
        """Cancel all tasks, and wait until they have ended."""
        while tasks := [each for each in self._tasks if not each.done()]:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    def _on_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("archive_task_failed", task=task.get_name(), exc_info=error)


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
    desk: AsyncCatalog
    disk: Disk
    signals: SignalHub
    tasks: Tasks
    changed: Notify
